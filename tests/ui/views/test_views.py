"""Every view of every kind of answer: it says what is there, what is not, and takes nothing for HTML."""

from html.parser import HTMLParser

import pytest

from tests.ui.answers import Answers
from tests.ui.as_json import VIEWS, views
from txtopo.ui.views.states import key_names

EVIL = "<script>hit=1</script>\"'><img src=x onerror=hit=1>"


class Tags(HTMLParser):
    """Collects the tags and attributes of a document, and which elements are open at its end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.open: list[str] = []
        self.keys: list[list[str]] = [[]]
        """Of the children of each open element, those by which the browser finds an element again."""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, tuple(name for name, _ in attrs)))
        key = dict(attrs).get("data-key")
        assert key is None or key not in self.keys[-1], key
        self.keys[-1].append(key)
        if tag not in {"input", "br", "hr", "meta", "link"}:
            self.open.append(tag)
            self.keys.append([])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.keys.pop()


@pytest.mark.parametrize("kind", ["transactional", "plain"])
@pytest.mark.parametrize("name", VIEWS)
def test_foreign_text_is_text(kind, name):
    """With names and errors that look like HTML a view has the same elements and attributes as with harmless ones."""
    harmless, evil = (Tags(VIEWS[name](Answers(kind, name=text, text=text))) for text in ("harmless", EVIL))
    assert evil.found == harmless.found
    assert evil.open == []
    assert not any(name.startswith("on") or name == "style" for _, names in evil.found for name in names)


@pytest.mark.parametrize(
    ("view", "empty", "says"),
    [
        (views.plots_part, {"secs": 1, "at": [], "plots": [], "until": 1, "isLast": True}, "nothing measured yet"),
        (
            views.plots_part,
            {"secs": 1, "at": [], "plots": [], "until": 1, "isLast": False},
            "nothing was measured then",
        ),
        (
            views.graph_part,
            {"topology": "t", "components": [], "why": "an older version ran it"},
            "an older version ran it",
        ),
        (views.states_part, {"states": [], "why": ""}, "no table is known"),
        (views.errors_part, {"groups": [], "total": 0}, "nothing has failed"),
        (views.settings_part, {"settings": [], "arguments": {}, "why": "unknown here"}, "unknown here"),
        (views.transactions_part, {"transactions": [], "isCut": False}, "no such transaction"),
        (views.topologies_part, {"topologies": [], "place": "/data"}, "there is no topology in /data"),
    ],
)
def test_nothing_to_show(view, empty, says):
    """A view without content says what is missing."""
    assert says in view(empty)


def test_header_without_numbers():
    """A run that has only begun has dashes where nobody knows a number."""
    unknown = dict.fromkeys(
        ("committed", "begun", "attempts", "failures", "lag", "lowest", "lastFailure", "pending", "process")
    )
    header = {
        **Answers().header(), **unknown, "status": "starting", "rate": {"transactions": None, "tuples": None},
        "latency": {"p50Secs": None, "p99Secs": None},
    }  # fmt: skip
    part = views.header_part(header)
    assert "nothing is pending" in part
    assert "None" not in part


def test_failures_of_the_past():
    """They are counted and told with their time, but are not red; those of the last minute are."""
    header, graph = Answers().header(), Answers().graph()
    assert "tile bad broad" in views.header_part(header)
    assert " bad" in views.graph_part(graph)
    header["isFailing"] = False
    for component in graph["components"]:
        component["isFailing"] = False
    part = views.header_part(header)
    assert "tile bad" not in part
    assert "the last 21.0 s ago" in part
    assert 'class="reason"' not in part
    part = views.graph_part(graph)
    assert " bad" not in part.replace(": bad record", "")
    assert 'class="reason"' not in part
    assert "4 failed earlier" in part


def test_a_run_that_an_error_has_ended():
    """That error is no attempt that failed and was replayed, and what was pending is not in line any more."""
    part = views.header_part({**Answers().header(), "status": "failed", "failures": 0, "lowest": None})
    assert "; the run ended 21.0 s ago" in part
    assert "the run is over" in part
    assert "nothing is pending" not in part
    assert "the run is over" not in views.header_part({**Answers().header(), "lowest": None}), "its snapshot is older"


def test_first_in_line():
    """The header says which transaction holds the others up, since when, and whom it waits for itself."""
    part = views.header_part(Answers().header())
    assert 'data-transaction="595"' in part
    assert "processing, attempt 2, for 3.2 s, waits for" in part


def test_group_that_writes_nothing():
    """Its commit phase lasts until its end, and it has no Delta write."""
    transaction = Answers().transaction()
    transaction["attempts"] = [{**transaction["attempts"][1], "phasesAt": None}]
    part = views.transaction_part(transaction)
    assert "commit phase: 60 ms" in part
    assert "Delta write: " not in part.partition("</svg>")[0].replace("Delta write: 24 ms", "").replace(
        "Delta write: 42 ms", ""
    )


def test_many_lines_of_a_kind():
    """A transaction that has read a thousand files shows the first of them; the others open."""
    transaction = {**Answers().transaction(), "story": [{"label": "input", "text": f"file {n}"} for n in range(1000)]}
    assert "<summary>995 more</summary>" in views.transaction_part(transaction)


def test_key_names():
    """A key has a field for each of its names; types may hold commas."""
    assert key_names("word: string, at: decimal(10,2), of: struct<a: int, b: int>") == ["word", "at", "of"]
    assert key_names("") == []


def test_plots_of_a_young_run():
    """All begin with its first value, and have room for a minute at least."""
    at = list(range(300))
    line = [None] * 200 + [1.0] * 100
    plots = {
        "secs": 300,
        "until": 299,
        "isLast": True,
        "at": at,
        "plots": [{"name": "rate", "title": "rate", "unit": "/s", "lines": {"a": line, "b": [None] * 300}}],
    }
    assert ">00:03:20</text>" in views.plots_part(plots)
    assert ">00:04:59</text>" in views.plots_part(plots)
    plots["plots"][0]["lines"] = {"a": [None] * 299 + [1.0]}
    assert ">00:04:00</text>" in views.plots_part(plots)


@pytest.mark.parametrize(
    ("status", "is_bad"),
    [
        ("committed", False),
        ("processing", False),
        ("processed", False),
        ("committing", False),
        ("ready", False),
        ("failed", True),
        ("dead letter", True),
    ],
)
def test_what_is_red(status, is_bad):
    """A transaction that is on its way is as well as one that is committed."""
    answer = Answers().transactions()
    answer["transactions"] = [{**answer["transactions"][0], "status": status, "error": None}]
    assert (f'class="bad">{status}<' in str(views.transactions_part(answer))) == is_bad


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ({"lag": 12, "lagFiles": 3}, ">12<"),
        ({"lag": None, "lagFiles": 3, "lagBytes": 5 << 20, "remaining": 7}, ">3 files</dd>"),
        ({"lag": None, "lagFiles": 1, "lagBytes": None}, ">1 file</dd>"),
        ({"lag": None, "lagFiles": 0, "lagBytes": 0, "remaining": 0}, "nothing left, 0 B"),
        ({"lag": None, "lagFiles": None}, "not known"),
    ],
)
def test_lag(known, says):
    """In records, or as the files and bytes that wait."""
    assert says in views.header_part({**Answers().header(), **known})


@pytest.mark.slow
def test_plots_of_many_lines():
    """A plot of 200 components shows the largest ones, in their order, and says so; a line without values takes no place."""
    lines = {f"bolt {n}": [float(n), None] for n in range(200)} | {"none": [None, None], "cold": [-1e6, None]}
    plots = {
        "secs": 300,
        "until": 1,
        "isLast": True,
        "at": [0, 1],
        "plots": [{"name": "rate", "title": "rate", "unit": "/s", "lines": lines}],
    }
    part = views.plots_part(plots)
    assert part.count("swatch") == part.count('class="line ') == 12
    assert part.index("bolt 189 ") < part.index("bolt 199 ") < part.index("cold ")
    assert "bolt 188 " not in part
    assert "the 12 largest of 202" in part
