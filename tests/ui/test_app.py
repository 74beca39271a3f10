"""The page's application: what it answers of a run, and to whom."""

import json
import os
import re
import time
from urllib.parse import quote

import attrs
import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.testclient import TestClient

from spouts.memory import MemoryTransactionalSpout
from state.delta.keyed.state import DeltaState
from tests.bolts import Count
from tests.ui.runs import EVIL, SCRIPT, SECRET, TRANSACTIONS, run_in, run_topology
from tests.ui.shapes import misfits
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.engine.exposition import WrittenMetrics
from txtopo.engine.timeline.records import path_of
from txtopo.files.places import folder_at
from txtopo.inspect.backend import FolderBackend
from txtopo.inspect.run.known import KnownRun
from txtopo.inspect.run.slugs import slug_of
from txtopo.inspect.timeline.series import last_growth
from txtopo.ui.app import Page, application, routes
from txtopo.ui.checks import Checks
from txtopo.ui.openapi import OPERATIONS, document
from txtopo.ui.security import INVITATION_SECS, Sessions, hosts_of

PORT = 8123
ORIGIN = f"http://127.0.0.1:{PORT}"
SLUG = slug_of(EVIL)
TOPOLOGY = f"/api/v1/topology/{SLUG}"
OWNER = "the owner's secret"


@attrs.define
class Served:
    """A page, and a browser that it has let in."""

    page: Page
    app: object
    client: TestClient

    def stranger(self, origin: str = ORIGIN) -> TestClient:
        """Return a browser without a session."""
        return TestClient(self.app, base_url=origin, follow_redirects=False)

    def json(self, path: str, status: int = 200):
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    output = tmp_path_factory.mktemp("page")
    run_in(output)
    backend = FolderBackend(folder_at(output), can_replay=True)
    page = Page(
        backend,
        Sessions(),
        Checks(output),
        lambda slug: (f"--topology={backend.header(slug).id}", "--", str(output)),
        lambda _, txid: ("--version", str(txid)),
        ORIGIN,
    )
    app = application(page, hosts_of(["127.0.0.1", "localhost"], PORT), PORT, OWNER)
    client = TestClient(app, base_url=ORIGIN, follow_redirects=False)
    assert client.get(f"/?token={page.sessions.invite()}").status_code == 200
    yield Served(page, app, client)
    page.checks.close()
    backend.close()


def test_document_names_the_routes(served):
    """The OpenAPI document has each route of the API with its methods, and no other."""
    found = {
        (method.lower(), route.path)
        for route in routes(served.page)
        for method in getattr(route, "methods", None) or ()
        if route.path.startswith("/api/") and method != "HEAD"
    }
    declared = {(method, path) for path, methods in document()["paths"].items() for method in methods}
    assert found == declared == set(OPERATIONS)
    assert served.json("/openapi.json") == document()


@pytest.mark.parametrize(
    ("method", "path"),
    [operation for operation in OPERATIONS if "{number}" not in operation[1] and "cluster" not in operation[1]],
)
def test_answers_have_their_shape(served, method, path):
    """Every answer has the names and types that the document gives it, and no others."""
    place = path.replace("{slug}", SLUG).replace("{txid}", "3") + ("?name=" + quote(EVIL) if "rows" in path else "")
    if method == "get":
        answer = served.client.get(place)
        schema = document()["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert answer.status_code == 200
        assert list(misfits(answer.json(), schema)) == []


def test_a_failure_is_over(served, monkeypatch):
    """A topology and a component fail until a minute went without a failure, or until the run has ended in order."""

    def failing():
        backend = served.page.backend
        components = backend.graph(SLUG).components
        assert [component.id for component in components if component.last_failed_at] == ["fails"]
        return backend.header(SLUG).is_failing, [component.id for component in components if component.is_failing]

    assert failing() == (False, [])
    monkeypatch.setattr(KnownRun, "ended", "")
    assert failing() == (True, ["fails"])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    assert failing() == (False, [])


def test_when_a_count_has_grown():
    """Also a count that stands at its first sample already, or began anew with another run."""
    rows = np.zeros(5, [("at", "i8"), ("numbers", "f8", 2)])
    rows["at"] = np.arange(1, 6) * 1_000_000
    for counts, at in (([0, 0, 2, 2, 2], 3.0), ([1, 1, 1, 1, 1], 1.0), ([0, 3, 0, 0, 0], 2.0), ([0] * 5, None)):
        rows["numbers"][:, 1] = counts
        assert last_growth(rows, 1) == at


def test_what_happened(served):
    """Counts, failures with their traceback's lines, rows by key and as of a transaction, settings, graph."""
    header = served.json(TOPOLOGY)
    assert (header["status"], header["committed"], header["failures"]) == ("ended", TRANSACTIONS, 2)
    (group,) = served.json(f"{TOPOLOGY}/errors")["groups"]
    assert (group["component"], group["count"]) == ("fails", 2)
    assert group["errors"][0]["text"].endswith(f"in a second line\nat the tuple (word='{SCRIPT}')")
    failed = served.json(f"{TOPOLOGY}/transactions?failed=1&limit=1")
    assert [transaction["txid"] for transaction in failed["transactions"]] == [6]
    assert failed["isCut"]
    rows = f"{TOPOLOGY}/state/rows?name={quote(EVIL)}&key=storm"
    assert served.json(rows)["rows"] == [["storm", "8", str(TRANSACTIONS)]]
    assert "nearest" in (served.json(f"{rows}&txid=1")["error"] or "nearest")
    changed = [
        setting["name"] for setting in served.json(f"{TOPOLOGY}/settings")["settings"] if not setting["isDefault"]
    ]
    assert changed == ["shop.password", "topology.max.spout.pending"]
    counts = {component["id"]: component["counts"] for component in served.json(f"{TOPOLOGY}/graph")["components"]}
    assert (counts["spout"]["emitted"], counts["fails"]["in"], counts["fails"]["failed"]) == (12, 12, 2)
    story = served.json(f"{TOPOLOGY}/transaction/3")
    assert [attempt["outcome"] for attempt in story["attempts"]] == ["failed", "visible"]
    assert story["headline"] == "transaction 3: committed"


def test_there_is_no_transaction_0(served):
    """It is what comes before the first one, and was never committed."""
    assert (
        served.json(f"{TOPOLOGY}/transaction/0", 404)["errorMessage"] == "there is no transaction 0: the first one is 1"
    )


def test_an_empty_text_is_a_key(served):
    """It is that of its own field, and moves no other one."""
    rows = f"{TOPOLOGY}/state/rows?name={quote(EVIL)}"
    assert [served.json(f"{rows}{keys}")["found"] for keys in ("", "&key=", "&key=storm&key=8")] == [2, 0, 1]
    assert "'storm' is not of type int64" in served.json(f"{rows}&key=&key=storm")["error"]


def test_timeline_in_portions(served):
    """What a page has, it is not sent again; a number from elsewhere gets all."""
    every = served.json(f"{TOPOLOGY}/timeline")
    assert len(every["attempts"]["txid"]) == TRANSACTIONS + 2
    again = served.json(f"{TOPOLOGY}/timeline?since={every['head']}")
    assert (again["attempts"]["txid"], again["lost"]) == ([], False)
    assert served.json(f"{TOPOLOGY}/timeline?since={every['head'] + 1}")["lost"]


def test_nothing_of_the_run_is_html(served):
    """Names, keys, values and errors of a topology are text, in every part and document."""
    paths = [
        f"/t/{SLUG}",
        f"/t/{SLUG}/tx/3",
        "/part/topologies",
        *(f"/part/{SLUG}/{part}" for part in ("header", "plots", "graph", "states", "errors", "settings")),
        f"/part/{SLUG}/transactions",
        f"/part/{SLUG}/transaction/3",
        f"/part/{SLUG}/rows?name={quote(EVIL)}",
        f"/part/{SLUG}/rows?name={quote(SCRIPT)}",
        f"/t/{quote(EVIL)}",
    ]
    for path in paths:
        text = served.client.get(path).text
        assert EVIL not in text, path
        assert SCRIPT not in text, path
    for path in [*paths, *(place.replace("{slug}", SLUG).replace("{txid}", "3") for _, place in OPERATIONS)]:
        assert SECRET not in served.client.get(path).text


def test_a_token_works_once(served):
    """It becomes a cookie that scripts can't read and other sites can't use; a HEAD uses nothing up."""
    token = served.page.sessions.invite()
    stranger = served.stranger()
    assert stranger.head(f"/?token={token}").status_code == 401
    answer = stranger.get(f"/?token={token}")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"txtopo-{PORT}=")
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert stranger.get(TOPOLOGY).status_code == 200
    assert served.stranger().get(f"/?token={token}").status_code == 401
    assert served.stranger().get("/?token=").status_code == 401


def test_another_browser(served):
    """A page gives out an address for another browser, which works for a while."""
    url = served.client.post("/api/v1/session", headers={"Origin": ORIGIN}).json()["url"]
    assert url.startswith(f"{ORIGIN}/?token=")
    assert served.stranger().get(url).status_code == 200
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    token = sessions.invite(INVITATION_SECS)
    now[0] += INVITATION_SECS + 1
    assert sessions.begin(token) is None


@pytest.mark.parametrize("path", ["/", f"/t/{SLUG}", f"/part/{SLUG}/header", TOPOLOGY, "/openapi.json", "/nothing"])
def test_strangers_see_nothing(served, path):
    """Without a session there is no answer, not even that something does not exist."""
    answers = [served.stranger().get(path, headers=headers) for headers in ({}, {"Cookie": f"txtopo-{PORT}=x"})]
    assert [answer.status_code for answer in answers] == [401, 401]
    assert all(SLUG not in answer.text for answer in answers)


def test_open_paths(served):
    """Metrics, health and the static files need no token: they hold nothing that is private."""
    assert {served.stranger().get(path).status_code for path in ("/metrics", "/health", "/static/page.js")} == {200}


@pytest.mark.parametrize("host", ["evil.example:8123", "127.0.0.1", "127.0.0.1:80", "", "127.0.0.1:8123.evil.example"])
def test_other_names(served, host):
    """A name that was made to point here is refused, with a session and without."""
    assert served.client.get(TOPOLOGY, headers={"Host": host}).status_code == 421
    assert served.client.get("/metrics", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:1"]
)
def test_posts_of_others(served, origin):
    """A POST that another site sends with the browser's cookie is refused, and so is any other method."""
    headers = {} if origin is None else {"Origin": origin}
    assert served.client.post(f"{TOPOLOGY}/audit", headers=headers).status_code == 403
    assert served.client.put(TOPOLOGY, headers={"Origin": ORIGIN}).status_code == 405


@pytest.mark.parametrize(
    "others", ["{name}=x; {own}", "{own}; {name}=x", "{name}=; {own}", 'a="; {own}; b=\\"', "; ;={own};{own}"]
)
def test_cookies_of_others(served, others):
    """One of the same name for another path, or one that is not as it should be, hides nothing."""
    own = "; ".join(f"{name}={value}" for name, value in served.client.cookies.items())
    cookies = others.format(name=f"txtopo-{PORT}", own=own)
    assert served.stranger().get(TOPOLOGY, headers={"Cookie": cookies}).status_code == 200


def test_owner(served):
    """Whoever started the page's process may ask for an address, and for nothing else."""
    headers = {"Authorization": f"Bearer {OWNER}"}
    assert served.stranger().post("/api/v1/session", headers=headers).status_code == 200
    assert served.stranger().get(TOPOLOGY, headers=headers).status_code == 401
    assert served.stranger().post(f"{TOPOLOGY}/audit", headers=headers).status_code == 401
    wrong = {"Authorization": "Bearer guess"}
    assert served.stranger().post("/api/v1/session", headers=wrong).status_code == 403


def test_policy(served):
    """Every answer lets no script but the page's run, and stays out of caches and frames."""
    for path in (f"/t/{SLUG}", TOPOLOGY, "/nothing", "/static/page.js", "/metrics"):
        headers = served.client.get(path).headers
        assert "script-src 'self';" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == ("no-cache" if "static" in path else "no-store")


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/t/..%2f..%2fetc"],
)
def test_paths_lead_nowhere(served, path):
    """No name leads out of what the page serves."""
    assert served.client.get(path).status_code in {401, 404}


@pytest.mark.parametrize("name", ["..", "../_txtopo", "/etc/passwd", "counts"])
def test_names_lead_nowhere(served, name):
    """A state is looked up by its name, which is no path."""
    assert served.client.get(f"{TOPOLOGY}/state/rows", params={"name": name}).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/timeline?since=-1",
        "/timeline?since=1e3",
        "/plots?secs=9999999",
        "/transaction/x",
        "/state/rows",
        "/transactions?to=²",
    ],
)
def test_bad_requests(served, path):
    """What is no number, or too large, or missing, is named."""
    assert served.json(f"{TOPOLOGY}{path}", 400)["errorMessage"]


@pytest.mark.parametrize("path", [f"{TOPOLOGY}/transaction/99", "/api/v1/topology/other", "/api/v1/check/9"])
def test_not_there(served, path):
    """What is not there is 404, with words."""
    assert served.json(path, 404)["errorMessage"]


def test_slugs():
    """Slugs of different names differ, and hold nothing that a browser changes."""
    names = ["a", "~61", "a.b", ".", "..", "a b", "ä", "A", EVIL, "-x", "a%2fb", "\udc80"]
    slugs = [slug_of(name) for name in names]
    assert len(set(slugs)) == len(names)
    assert all(set(slug) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~") for slug in slugs)
    assert not any(slug.startswith(".") for slug in slugs)


def test_a_run_that_is_over_says_so(served, tmp_path):
    """Rates are those of the whole run, plots end where it did, nothing fails any more, and metrics know its end."""
    header = served.json(TOPOLOGY)
    assert (header["status"], header["isFailing"]) == ("ended", False)
    assert header["rate"]["transactions"] > 0
    assert re.match(r"ended .* m?s ago: the spout is exhausted", header["statusText"])
    plots = served.json(f"{TOPOLOGY}/plots?secs=60")
    ended = header["endedAt"]
    assert ended <= plots["at"][-1] <= ended + plots["stepSecs"]
    text = served.client.get("/metrics").text
    assert re.search(r"^txtopo_run_up\{topology=.*\} 0.0$", text, re.MULTILINE)
    assert served.json("/health") == {"status": "ok", "runs": {EVIL: "ended"}}


def test_plots_of_a_run_that_ended_hours_ago(served, monkeypatch):
    """They show its last minutes, whenever they are asked for."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 7 * 3600)
    plots = served.json(f"{TOPOLOGY}/plots?secs=300")
    assert {"latency", "pending"} <= {plot["name"] for plot in plots["plots"]}
    assert "ended 7 h 0 min ago" in served.json(TOPOLOGY)["statusText"]


def test_plots_of_earlier(served):
    """They end at the moment that is asked for, or with the run; before it there is nothing, which they say."""
    ended = int(served.json(TOPOLOGY)["endedAt"])
    for until, end, is_last in ((ended + 9_999, ended + 1, True), (ended - 100, ended - 99, False)):
        found = served.json(f"{TOPOLOGY}/plots?secs=60&until={until}")
        assert (found["until"], found["isLast"]) == (end, is_last)
        assert bool(found["plots"]) == is_last
    assert "nothing was measured then" in served.client.get(f"/part/{SLUG}/plots?until={ended - 100}").text
    later = served.json(f"{TOPOLOGY}/plots?secs=60&until={ended}")
    assert later["plots"] == [] or later["at"][-1] == ended + 1
    assert served.json(f"{TOPOLOGY}/plots?until=x", 400)["errorMessage"]


def test_a_run_that_was_killed_is_not_healthy(served, monkeypatch):
    monkeypatch.setattr(FolderBackend, "health", lambda _: {"words": "killed", "other": "running"})
    assert served.json("/health", 503)["status"] == "the run of 'words' was killed"


def test_metrics_of_several_runs(tmp_path):
    """Each family comes once, as Prometheus asks, and what was written a minute ago is left out."""
    files = {}
    for name, age_secs in (("a", 0), ("b", 5), ("c", 61)):
        files[name] = tmp_path / name
        files[name].write_text(f'# HELP txtopo_x A number.\n# TYPE txtopo_x gauge\ntxtopo_x{{topology="{name}"}} 1\n')
        os.utime(files[name], (time.time() - age_secs,) * 2)
    registry = CollectorRegistry()
    registry.register(WrittenMetrics("topology", lambda: files))
    text = generate_latest(registry).decode()
    assert text.count("# TYPE txtopo_x") == 1
    assert [line for line in text.splitlines() if line[0] != "#"] == [
        'txtopo_x{topology="a"} 1.0',
        'txtopo_x{topology="b"} 1.0',
    ]


@pytest.fixture(scope="module")
def restarted(tmp_path_factory):
    """The client of a folder of three runs, of which the second was killed."""
    output = tmp_path_factory.mktemp("runs")
    folder = run_in(output, until=2)
    run_in(output, until=4)
    record = path_of(folder, 2, "run")
    record.write_text(json.dumps({**json.loads(record.read_text()), "ended": ""}))
    run_in(output)
    backend = FolderBackend(folder_at(output))
    page = Page(backend, Sessions())
    client = TestClient(application(page, hosts_of(["127.0.0.1"], PORT), PORT), base_url=ORIGIN)
    assert client.get(f"/?token={page.sessions.invite()}").status_code == 200
    backend.past_open_max = 1
    yield client
    backend.close()


@pytest.mark.slow
def test_runs(restarted):
    """The list has each run with its end and its counts, and leads to its page."""
    runs = restarted.get(f"{TOPOLOGY}/runs").json()["runs"]
    assert [run["slug"] for run in runs] == [SLUG, f"{SLUG}@2", f"{SLUG}@1"]
    assert [run["status"] for run in runs] == ["ended", "killed", "ended"]
    assert [(run["committed"], run["transactions"], run["failures"]) for run in runs] == [
        (TRANSACTIONS, 2, 1),
        (4, 2, 1),
        (2, 2, 0),
    ]
    assert restarted.get(f"{TOPOLOGY}@1/runs").json()["runs"] == runs
    assert f'href="/t/{SLUG}@1"' in restarted.get(f"/part/{SLUG}/runs").text


@pytest.mark.parametrize(("number", "txids", "status"), [(1, [2, 1], "ended"), (2, [4, 3], "killed")])
def test_an_earlier_run_is_whole(restarted, number, txids, status):
    """It has its own figures, transactions, plots, errors, graph and settings, and is never taken for one that runs."""
    run = f"{TOPOLOGY}@{number}"
    found = restarted.get(run).json()
    assert (found["status"], found["past"], found["committed"], found["begun"]) == (status, number, txids[0], txids[0])
    assert found["rate"]["transactions"] > 0
    assert not any(found["can"].values())
    shown = restarted.get(f"{run}/transactions").json()["transactions"]
    assert [each["txid"] for each in shown] == txids
    assert set(restarted.get(f"{run}/timeline").json()["attempts"]["txid"]) == set(txids)
    assert "latency" in {plot["name"] for plot in restarted.get(f"{run}/plots").json()["plots"]}
    assert len(restarted.get(f"{run}/errors").json()["groups"]) == number - 1
    assert [component["id"] for component in restarted.get(f"{run}/graph").json()["components"]] == [
        "spout",
        "fails",
        "count",
    ]
    assert restarted.get(f"{run}/settings").json()["settings"]
    one = restarted.get(f"{run}/transaction/{txids[0]}").json()
    assert one["headline"] == f"transaction {txids[0]}: committed in this run"
    assert (one["previous"], one["next"]) == (txids[1], None)
    assert restarted.get(f"{run}/transaction/5").status_code == 404
    assert restarted.get(f"/t/{SLUG}@{number}/tx/{txids[0]}").status_code == 200
    document = restarted.get(f"/t/{SLUG}@{number}").text
    assert "not audited" not in document
    assert f"run {number}" in document
    assert 'href="#states"' not in document


@pytest.mark.parametrize("number", ["0", "3", "x", "", "../1", "²", "1" * 30, "01"])
def test_no_such_run(restarted, number):
    assert restarted.get(f"{TOPOLOGY}@{quote(number, safe='')}").status_code in {404, 200 if number == "01" else 404}


def test_answers_of_an_earlier_run_have_their_shape(restarted):
    for method, path in OPERATIONS:
        if method == "get" and "{slug}" in path and "rows" not in path:
            schema = document()["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            answer = restarted.get(path.replace("{slug}", f"{SLUG}@1").replace("{txid}", "1"))
            assert list(misfits(answer.json(), schema)) == [], path


def test_many_earlier_runs_are_looked_at(restarted):
    """Those that nobody looks at are closed, and opened again when somebody does."""
    for _ in range(3):
        for number, txid in ((1, 1), (2, 3)):
            assert restarted.get(f"{TOPOLOGY}@{number}/transaction/{txid}").status_code == 200


@pytest.mark.slow
def test_two_topologies_in_a_folder(tmp_path):
    """Both are listed, one whose id looks like an earlier run of the other, too, and each has its own answers."""
    for name, rows in (("a", 3), ("a@1", 2)):
        builder = TransactionalTopologyBuilder(
            name, "spout", MemoryTransactionalSpout({0: [["x"]] * rows}, Fields("word: string"), 1)
        )
        builder.set_bolt("count", Count(name)).shuffle_grouping("spout")
        builder.set_state(name, DeltaState(tmp_path / name, Fields("word: string"), Fields("n: long")))
        for until in (1, None):
            run_topology(builder.build(), until)
    backend = FolderBackend(folder_at(tmp_path))
    assert [(topology.id, topology.committed) for topology in backend.topologies().topologies] == [("a", 3), ("a@1", 2)]
    assert [backend.header(slug).committed for slug in ("a", "a@1", "a~401", "a~401@1")] == [3, 1, 2, 1]
    backend.close()
