"""The page in a real browser, with invented answers: tabs, timeline, forms, buttons, colours, widths, the keyboard."""

import time

import pytest
from selenium.webdriver.common.keys import Keys

from tests.ui.answers import NOW, Answers
from tests.ui.stub import Stub, stub_server
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

VIEWS = {
    "transactional": ("timeline", "plots", "graph", "states", "errors", "settings", "runs"),
    "plain": ("plots", "graph", "errors", "settings", "runs"),
}
SAYS = {
    "timeline": "transactions in view",
    "plots": "latency",
    "graph": "last error",
    "states": "800 KiB",
    "errors": "bad record",
    "settings": "topology.max.spout.pending",
    "runs": "failed: ValueError: bad record",
}
BOTH = pytest.mark.parametrize("kind", VIEWS)


@pytest.fixture
def stub(window):
    with stub_server(Answers()) as server:
        yield server
        window.driver.get("about:blank")  # or the page would ask a server that is gone


def open_timeline(browser, stub: Stub) -> None:
    browser.open(f"{stub.address}/t/words")
    wait_for("rows on the canvas", lambda: browser.rows() > 600)


def picked(browser):
    return browser.script("return gantt.picked")


def pressed(browser, name: str) -> bool:
    return browser.find(f"#{name}").get_attribute("aria-pressed") == "true"


@pytest.mark.covering(1)
@BOTH
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 380])
def test_every_view(browser, kind, dark, width):
    """Each shows its content, fits the window's width, and has a contrast of 4.5 or more in every text."""
    with stub_server(Answers(kind)) as server:
        for view in VIEWS[kind]:
            browser.driver.get("about:blank")
            browser.open(f"{server.address}/t/words#{view}", width=width, dark=dark)
            browser.says(SAYS[view], f"#{view}")
            browser.picture(f"{kind}-{view}-{'dark' if dark else 'light'}-{width}", whole=True)
            assert browser.script("return document.scrollingElement.scrollWidth") <= width
            assert browser.script(LOW_CONTRAST) == []


LOW_CONTRAST = """
const parts = text => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const back = element => {
  for (let at = element; at; at = at.parentElement) {
    const colour = at instanceof SVGElement ? at.closest("g")?.querySelector("rect") ? getComputedStyle(at.closest("g").querySelector("rect")).fill : ""
      : getComputedStyle(at).backgroundColor;
    if (colour && colour !== "none" && parts(colour)[3] !== 0) return parts(colour);
  }
  return parts(getComputedStyle(document.documentElement).backgroundColor);
};
const low = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const element = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !element.checkVisibility() || element.closest("title, noscript")) continue;
  const style = getComputedStyle(element), pen = parts(element instanceof SVGElement ? style.fill : style.color);
  const [a, b] = [light(pen), light(back(element))].sort((x, y) => y - x), contrast = (a + 0.05) / (b + 0.05);
  if (contrast < 4.5) low.push(`${walk.currentNode.data.trim()}: ${contrast.toFixed(2)}`);
}
return low;
"""


def test_keyboard_alone(browser, stub):
    """Without a mouse one gets to each tab, picks a transaction, follows again, and opens its page."""
    open_timeline(browser, stub)
    browser.script("document.querySelector('nav a').focus()")
    browser.keys(Keys.TAB, Keys.ENTER)
    browser.says("memory", "#plots")
    browser.driver.back()
    browser.says("from the left", "#timeline")
    for _ in range(40):
        browser.keys(Keys.TAB)
        if browser.driver.switch_to.active_element.get_attribute("id") == "gantt":
            break
    browser.keys(Keys.ARROW_DOWN)
    first = picked(browser)
    browser.keys(Keys.ARROW_UP)
    assert picked(browser) == first - 1
    browser.says("Delta writes of its whole group", "#panel")
    browser.says(f"transaction {first - 1}, attempt 1", "#hint")
    assert not pressed(browser, "follow")
    browser.keys("f")
    assert pressed(browser, "follow")
    browser.keys("l", "+", "-", "a", Keys.ARROW_LEFT, Keys.ARROW_RIGHT, Keys.PAGE_UP, Keys.PAGE_DOWN)
    assert pressed(browser, "aligned")
    browser.keys(Keys.ENTER)
    browser.says(f"transaction {first - 1}: committed", "h2")
    assert browser.driver.current_url == f"{stub.address}/t/words/tx/{first - 1}"


COLOURS = """
const [txid, name] = arguments, {canvas, view, width, height} = gantt;
gantt.draw();
const y = TOP + (txid + 0.5 - view.low) * (height - TOP) / (view.high - view.low), copy = document.createElement("canvas");
Object.assign(copy, {width: canvas.width, height: canvas.height});
const pen = copy.getContext("2d", {willReadFrequently: true});
pen.fillStyle = gantt.colour[name]; pen.fillRect(0, 0, 1, 1);
const want = pen.getImageData(0, 0, 1, 1).data;
pen.drawImage(canvas, 0, 0);
const row = pen.getImageData(LEFT, y, width - LEFT, 1).data;
let found = 0;
for (let i = 0; i < row.length; i += 4) if ([0, 1, 2].every(c => Math.abs(row[i + c] - want[c]) < 8)) found++;
return found;
"""


def test_timeline_draws_what_happened(browser, stub):
    """A failed attempt is red; the stuck one is in its processing phase, and those behind it wait for their turn."""
    open_timeline(browser, stub)
    assert browser.script("gantt.move(11700, 12900, 580, 601); return gantt.describe(590)").startswith(
        "transaction 590, attempt 1 failed: split: ValueError: bad record\ntransaction 590, attempt 2 committed: metadata"
    )
    assert browser.script(COLOURS, 590, "failed") > 5
    assert browser.script(COLOURS, 591, "failed") == 0
    assert browser.script(COLOURS, 591, "write") > 5
    assert browser.script(COLOURS, 595, "processing") > 100
    assert browser.script(COLOURS, 596, "turn") > 100


class Killed(Answers):
    """Transaction 3 was being processed when the run before was killed."""

    def _attempts_of(self, txid):
        lost = (txid, 1, 1, 0, 70, 0, 0, 0, 0, 60.0, 60.0, 63.0, 80.0, 0, 0, 0, 0)
        return [*([lost] if txid == 3 else []), *super()._attempts_of(txid)]


def test_open_span_of_a_killed_run(browser):
    """What was open when a run was killed ends with its last sign, however long the next one goes on."""
    with stub_server(Killed()) as server:
        open_timeline(browser, server)
        said = browser.script("gantt.move(0, 13000, 0, 20); return gantt.describe(3)")
        assert said.startswith("transaction 3, attempt 1 lost with its run: metadata 3.0 ms")
        assert browser.script(COLOURS, 3, "processing") < 30
        assert browser.script(COLOURS, 3, "write") > 3
        browser.driver.get("about:blank")


class Quiet(Answers):
    """A slow source: the last transaction, 594, has ended 48 s ago, and none has begun since."""

    def _attempts_of(self, txid):
        return [] if txid > 594 else super()._attempts_of(txid)

    def timeline(self, since=0):
        return {**super().timeline(since), "now": 60_000.0}


def test_following_a_slow_source(browser):
    """While nothing happens the last transactions show, from the left; whoever moves the picture keeps what it shows."""
    with stub_server(Quiet()) as server:
        open_timeline(browser, server)
        wait_for("the last rows", lambda: browser.script("return gantt.quiet && gantt.follow && gantt.live"))
        assert browser.script("return [Math.floor(gantt.view.low), gantt.view.from]") == [583, 0]
        for txid in (583, 594):
            assert browser.script(COLOURS, txid, "write") > 3
        browser.picture("timeline-quiet")
        browser.drag(browser.find("#gantt"), 20, 20)
        assert browser.script("return [gantt.follow, gantt.quiet, gantt.aligned]") == [False, False, True]
        browser.driver.get("about:blank")


def test_a_run_that_is_over_shows_all_of_it(browser):
    """Until another one begins; one that ends while it is looked at stays in view, and so does one that is yet to begin."""
    with stub_server(Answers()) as server:
        server.answers.status = "ended"
        open_timeline(browser, server)
        wait_for("all rows", lambda: browser.script("return [gantt.view.low, gantt.view.high]") == [1, 601])
        assert not pressed(browser, "follow")
        server.answers.status = "running"
        wait_for("the next run", lambda: pressed(browser, "follow"))
        browser.driver.get("about:blank")
        server.answers.status = "unknown"
        open_timeline(browser, server)
        browser.says("unknown", "#header")
        assert pressed(browser, "follow")
        server.answers.status = "ended"
        browser.says("ended", "#header")
        assert pressed(browser, "follow")
        browser.driver.get("about:blank")


class Wide(Answers):
    """A bolt for each of 60 regions."""

    def graph(self):
        graph = super().graph()
        one = graph["components"][1]
        bolts = [{**one, "id": f"the orders of the region number {n}"} for n in range(60)]
        edges = [{**graph["edges"][0], "target": bolt["id"]} for bolt in bolts]
        return {**graph, "components": [graph["components"][0], *bolts], "edges": edges, "states": {}}


def test_range_of_plots(browser, stub):
    """Plots of another length, and earlier ones; the length stays when the page is loaded again."""
    browser.open(f"{stub.address}/t/words#plots")
    browser.says("latency", "#plots")
    browser.script(
        "const secs = document.getElementById('secs'); secs.value = '900'; secs.dispatchEvent(new Event('change'))"
    )
    wait_for("a quarter of an hour", lambda: any("plots?secs=900" in each for each in stub.asked))
    browser.find("#earlier").click()
    wait_for("earlier ones", lambda: any(f"plots?secs=900&until={int(NOW) - 450}" in each for each in stub.asked))
    wait_for("a way back", lambda: browser.find("#later").is_enabled())
    browser.picture("plots-earlier")
    browser.find("#latest").click()
    wait_for("the last ones", lambda: not browser.find("#later").is_enabled())
    asked = len(stub.asked)
    browser.driver.refresh()
    wait_for("a quarter of an hour again", lambda: any("plots?secs=900" in each for each in stub.asked[asked:]))
    browser.script("sessionStorage.clear()")


def test_plots_are_moved_while_an_answer_is_awaited(browser, stub):
    """What was asked for before a click, and is answered after it, does not undo the click; once at the end, they go on."""
    browser.open(f"{stub.address}/t/words#plots")
    browser.says("latency", "#plots")
    browser.script("document.getElementById('plots-part').feed.ask(); document.getElementById('earlier').click()")
    wait_for("a way back", lambda: browser.find("#later").is_enabled())
    browser.find("#later").click()
    wait_for("the last ones", lambda: not browser.find("#later").is_enabled())
    asked = len(stub.asked)
    wait_for(
        "they go on with the run", lambda: any("plots?" in each and "until" not in each for each in stub.asked[asked:])
    )


def test_large_graph(browser):
    """It is as wide as the window at first; it can be made larger, and stays so when it is drawn again."""
    with stub_server(Wide()) as server:
        browser.open(f"{server.address}/t/words#graph")
        width = "return document.querySelector('svg.graph').getBoundingClientRect().width"
        wait_for(
            "a graph as wide as the window", lambda: browser.all("svg.graph") and 1000 < browser.script(width) <= 1280
        )
        assert browser.script("return document.querySelector('svg.graph').viewBox.baseVal.width") > 2000
        browser.find("#graph-whole").click()
        assert browser.script(width) > 2000
        assert browser.script("return document.scrollingElement.scrollWidth") <= 1280
        asked = len(server.asked)
        wait_for("it is drawn again", lambda: any("/graph" in each for each in server.asked[asked:]))
        assert browser.script(width) > 2000
        browser.find("#graph-closer").click()
        browser.find("#graph-fit").click()
        assert 1000 < browser.script(width) <= 1280
        browser.driver.get("about:blank")


def test_timeline_moves(browser, stub):
    """A drag moves the picture and ends following; a click picks; 'all' shows every row; the number finds a row."""
    open_timeline(browser, stub)
    canvas = browser.find("#gantt")
    before = browser.script("gantt.setFollow(false); return gantt.view")
    browser.drag(canvas, 100, 30)
    after = browser.script("return gantt.view")
    assert after["from"] < before["from"]
    assert after["low"] < before["low"]
    assert picked(browser) is None
    browser.find("#all").click()
    assert browser.script("return [gantt.view.low, gantt.view.high]") == [1, 601]
    browser.find("#wanted").send_keys("42", Keys.ENTER)
    assert picked(browser) == 42
    browser.says("transaction 42: committed", "#panel")
    canvas.click()
    assert picked(browser) != 42


def test_rows_in_view_as_a_table(browser, stub):
    """The table has the rows of the picture, for those who can't see it; or all that failed."""
    open_timeline(browser, stub)
    browser.find("#rows summary").click()
    browser.says("last failure", "#in-view")
    assert any("/part/words/transactions?from=" in each for each in stub.asked)
    browser.find("#failed-only").click()
    wait_for("the failed ones", lambda: any("transactions?failed=1" in each for each in stub.asked))


def test_hidden_page_asks_nothing(browser, stub):
    """A page in the background polls nothing, and goes on at once when it is looked at again."""
    open_timeline(browser, stub)
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    try:
        asked = number_when_quiet(stub)
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(first)
    wait_for("it asks again", lambda: len(stub.asked) > asked + 3)


def number_when_quiet(stub: Stub) -> int:
    """Wait until nothing was asked for during a second, in which an open page asks five times; return how often."""
    seen = [(time.monotonic(), len(stub.asked))]

    def is_still() -> bool:
        if len(stub.asked) != seen[-1][1]:
            seen.append((time.monotonic(), len(stub.asked)))
        return time.monotonic() - seen[-1][0] > 1.2

    wait_for("nothing is asked for", is_still)
    return len(stub.asked)


def test_server_away(window, stub):
    """While its server does not answer the page says so and keeps what it shows; then it goes on by itself."""
    open_timeline(window, stub)
    stub.is_down = True
    window.says("no answer from the page's server", "#connection")
    assert "12,345" in window.text("#header")
    stub.is_down = False
    window.says("live", "#connection")
    assert all("net::ERR" in complaint for complaint in window.complaints())


def test_what_the_user_has_done_stays(browser, stub):
    """A part that is asked for again leaves focus, open details and typed text as they are."""
    browser.open(f"{stub.address}/t/words#states")
    browser.find("#states details summary").click()
    field = browser.find("#states input[name=key]")
    field.send_keys("sto")
    stub.answers.status = "silent"
    browser.script("document.getElementById('states-part').feed.ask()")
    browser.says("silent", "#header")
    field.send_keys("rm", Keys.ENTER)
    assert field.get_attribute("value") == "storm"
    browser.says("2 rows of 1,200, now", "#states")
    assert any(each.endswith("/part/words/rows?name=word-counts&key=storm") for each in stub.asked)
    asked = len(stub.asked)
    browser.script("document.getElementById('states-part').feed.ask()")
    wait_for("it asked again", lambda: any("/states" in each for each in stub.asked[asked:]))
    browser.says("2 rows of 1,200, now", "#states")


def test_audit(browser, stub):
    """The button begins an audit, which says how far it is; then of each table what was compared, and what was found."""
    browser.open(f"{stub.address}/t/words")
    browser.find("#audit").click()
    browser.says("7 of 612 versions", "#check")
    assert stub.posted == [("/api/v1/topology/words/audit", b"{}")]
    stub.check_state = "same"
    browser.says("sound", "#check")
    browser.says("every transaction was committed once", "#check")
    browser.says("12,345 transactions, 1 to 12345, each once and in order", "#check")
    of_table = " ".join(browser.text("#check tbody tr").split())
    assert of_table == "word-counts up to 12345 600 612 7,200 3 2 versions no longer kept: rows not compared 1 repair"


def test_an_audit_that_finds_faults(browser, stub):
    """Each stands at the table that it is of, and those of the journal above; in every width and scheme."""
    stub.check_state = "differs"
    browser.open(f"{stub.address}/t/words")
    browser.find("#audit").click()
    browser.says("a fault was found", "#check")
    assert "transaction 8: a gap in words" in browser.text("#check > div > ul")
    assert "transaction 7, state 'word-counts', table version 9: it lacks ValueError: bad record" in browser.text(
        "#check td ul"
    )
    browser.picture("audit-faults")
    assert browser.script(LOW_CONTRAST) == []


def test_transaction_page(browser, stub):
    """It has the attempts with the reason of the failed one, writes, journal, and a replay."""
    browser.open(f"{stub.address}/t/words/tx/590")
    browser.says("raise ValueError")
    browser.picture("transaction", whole=True)
    for words in (
        "Attempt 1 failed in split",
        "Delta writes of its whole group",
        "word-counts",
    ):
        assert words in browser.text()
    assert browser.script(LOW_CONTRAST) == []
    browser.open(f"{stub.address}/t/words/tx/590", width=380, dark=True)
    browser.says("raise ValueError")
    browser.picture("transaction-dark-380", whole=True)
    assert browser.script("return document.scrollingElement.scrollWidth") <= 380
    assert browser.script(LOW_CONTRAST) == []
    browser.find("#replay-590").click()
    wait_for("a replay", lambda: stub.posted == [("/api/v1/topology/words/replay/590", b"{}")])
    browser.says("audit runs")  # the stub knows no other check; it moves what is below, so an earlier click could miss
    browser.find("a[data-transaction='591']").click()
    browser.says("transaction 591", "h1")


def test_what_a_table_costs(browser, stub):
    """Under their heads stand the files and bytes of the newest version, those on the disk with its past, and the points."""
    browser.open(f"{stub.address}/t/words#states")
    browser.says("800 KiB", "#states")
    rows = browser.script(
        "return [...document.querySelectorAll('#states table:first-of-type tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    shown = dict(zip(rows[0], rows[1], strict=True))
    assert [shown[head] for head in ("files", "size", "files on disk", "size on disk")] == [
        "8",
        "800 KiB",
        "1,234",
        "93.8 MiB",
    ]
    assert shown["points"].startswith("1 since 7, ")
    browser.find("#states summary").click()
    browser.says("Points: 7, and each commit group from 12000 on.", "#states")


@pytest.mark.covering(1)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 380])
def test_cluster(browser, stub, dark, width):
    """The start page has topologies and daemons, with a leader and one that is gone, in every width and scheme."""
    browser.open(stub.address, width=width, dark=dark)
    for words in ("leads", "waits to lead", "gone; it led", "6 min 40 s", "process 99"):
        browser.says(words, "#cluster")
    browser.picture(f"cluster-{'dark' if dark else 'light'}-{width}", whole=True)
    assert browser.script("return document.scrollingElement.scrollWidth") <= width
    assert browser.script(LOW_CONTRAST) == []


def test_what_a_cluster_does_asks_first(browser, stub):
    """By the keyboard alone: 'no' is what Enter says, Escape says it too, and only 'yes' posts."""
    stub.answers.can = dict.fromkeys(("activate", "rebalance", "kill"), True)
    browser.open(stub.address)
    browser.find("main a").send_keys(Keys.ENTER)
    kill = browser.find("#kill")
    for no in (Keys.ENTER, Keys.ESCAPE):
        kill.send_keys(Keys.ENTER)
        browser.says("words: End the topology", "dialog[open]")
        assert browser.script(LOW_CONTRAST) == []
        browser.keys(no)
        wait_for("the question goes", lambda: not browser.all("dialog[open]"))
        assert browser.driver.switch_to.active_element == kill
    browser.find("#rebalance").send_keys(Keys.ENTER)
    browser.find("dialog input").send_keys("topology.workers=3", Keys.TAB, Keys.TAB)
    browser.picture("cluster-rebalance")
    browser.keys(Keys.ENTER)
    browser.says("rebalance: done", "#check")
    assert stub.posted == [("/api/v1/topology/words/rebalance", b'{"settings":{"topology.workers":"3"}}')]


EVIL = "</script><script>hit=1</script>\"'><img src=x onerror=hit=1>&lt;b&gt;{{7*7}}\u202e\n\x00"


@BOTH
def test_injection(browser, kind):
    """What users' names, keys, values, errors, files and metadata hold is shown as text, everywhere."""
    with stub_server(Answers(kind, name=EVIL, text=EVIL)) as server:
        places = ["/", "/t/words/tx/590", *(f"/t/words#{view}" for view in VIEWS[kind])]
        for place in places:
            browser.driver.get("about:blank")
            browser.open(f"{server.address}{place}")
            browser.says("<script>hit=1</script>")
            if place.endswith("#timeline"):
                wait_for("rows", lambda: browser.rows() > 600)
                browser.script("gantt.pick(590)")
                browser.says("</script><script>hit=1</script>", "#hint")
                browser.says("raise ValueError", "#panel")
            if place.endswith("#states"):
                browser.script("for (const each of document.querySelectorAll('#states details')) each.open = true")
                browser.find(".lookup button").click()
                browser.says("<script>", ".answer")
            foreign = "return document.querySelectorAll('img, script:not([src]), iframe, [onerror], style').length"
            assert browser.script(foreign) == 0
            assert browser.script("return window.hit") is None
        if kind == "transactional":
            browser.open(f"{server.address}/t/words")
            browser.find("#audit").click()
            browser.says("<script>hit=1</script>", "#check pre")
            server.answers.can = {"kill": True}
            browser.find("#kill").click()
            browser.says("<script>hit=1</script>", "dialog")
            assert browser.script(foreign) == 0
        browser.driver.get("about:blank")
