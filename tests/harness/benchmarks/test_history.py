"""The history of benchmarks: pages show the ranges that it has, and only what left the noise has moved."""

from pathlib import Path

import attrs
import pytest
from rich.console import Console

from tests.harness.benchmarks import outcome, peers, txtopo_contender
from tests.harness.benchmarks.history import (
    DELTA_RS,
    DRAWN,
    LIMIT,
    MERGE,
    ROOT,
    TXTOPO,
    Entry,
    Figures,
    Moved,
    current,
    drawn,
    entry_of,
    history,
    keep,
    last_like,
    moved,
    times,
)
from tests.harness.benchmarks.nexmark.costs import Cost, Series, published
from tests.harness.benchmarks.peers import DeltaRsPeer, MergePeer


@pytest.mark.parametrize("name", DRAWN)
def test_a_page_is_current(name: str) -> None:
    """``python -m tests.harness.benchmarks.history`` was run since the history was changed."""
    assert current(name) == (ROOT / name).read_text(encoding="utf-8")


def test_blocks_that_a_page_lacks() -> None:
    """A page whose blocks are others than those that are drawn is refused by name."""
    with pytest.raises(ValueError, match=r"the page has the blocks \[\] instead of \['small'\]"):
        drawn("# A page", {"small": "| |"})


def entry(**lines: list[float]) -> Entry:
    return Entry("2026-11-28", 2, "a machine", {"python": "3.11.7"}, "", [Figures("small", "a second", False, lines)])


@pytest.mark.parametrize(
    ("before", "after", "has_moved"),
    [
        ([100, 101, 102], [110, 111, 112], True),
        ([100, 101, 102], [90, 91, 92], True),
        ([100, 101, 112], [109, 110, 111], False),  # a round of before was as good
        ([100, 101, 102], [100, 110, 111], False),  # a round of now is as bad
        ([100.0, 100.1], [102.8, 102.9], False),  # within 3 %
        ([100.0, 100.1], [103.2, 103.3], True),
        ([100.0], [114.0, 114.1], False),  # one round: within 15 %
        ([100.0, 100.1], [114.0], False),
        ([100.0], [116.0], True),
    ],
)
def test_what_moved(before: list[float], after: list[float], *, has_moved: bool) -> None:
    """A figure has moved if each run's median is outside of the other's rounds, by 3 % at least; of one round by 15."""
    assert bool(moved(entry(txtopo=before), entry(txtopo=after))) is has_moved


def test_which_way_it_moved() -> None:
    """The factor says how many times better it is, also where lower is better; what one run lacks has not moved."""
    old, new = entry(txtopo=[100], peer=[7]), entry(txtopo=[200], other=[7])
    assert moved(old, new) == [Moved("small", "txtopo", 100, 200, 2.0)]
    lower = [
        attrs.evolve(each, workloads=[attrs.evolve(each.workloads[0], is_lower_better=True)]) for each in (old, new)
    ]
    assert moved(*lower) == [Moved("small", "txtopo", 100, 200, 0.5)]


def test_compared_with_what_is_alike() -> None:
    """The last entry counts that has the same machine, the same versions and one of the workloads."""
    new = entry(txtopo=[1])
    others = [
        attrs.evolve(new, machine="another"),
        attrs.evolve(new, versions={"python": "3.13.0"}),
        attrs.evolve(new, workloads=[attrs.evolve(new.workloads[0], workload="large")]),
    ]
    assert last_like(others, new) is None
    first, second = attrs.evolve(new, note="first"), attrs.evolve(new, note="second")
    assert last_like([first, second, *others], new) == second


def test_ranges_over_all_runs() -> None:
    """A ratio is shown as the range over runs, of medians, whether figures were kept or only ratios."""
    entries = [entry(txtopo=[500, 90, 100], peer=[1, 2, 3]), entry(txtopo=[30], peer=[10])]
    assert times(entries, "small", "txtopo", "peer") == "3\N{EN DASH}50x"
    assert times(entries[:1], "small", "txtopo", "peer") == "50x"
    assert times(entries, "large", "txtopo", "peer") == ""


def test_names_of_contenders() -> None:
    """The history calls contenders as the benchmarks do."""
    assert (MergePeer.name, DeltaRsPeer.name, peers.LIMIT, txtopo_contender.TXTOPO) == (MERGE, DELTA_RS, LIMIT, TXTOPO)


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        ([], "has no run of these workloads"),
        ([100.0, 101.0], "nothing has moved by more than noise since 2026-11-20"),
        ([50.0], "2.00"),
    ],
)
def test_what_has_moved_is_printed(
    kept: list[float], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run says what has moved since the last one on such a machine."""
    if kept:
        keep(attrs.evolve(entry(txtopo=kept), at="2026-11-20"), "before", tmp_path)
    monkeypatch.setattr(outcome, "history", lambda: history(tmp_path))
    console = Console(record=True, width=120)
    outcome.print_moved(console, entry(txtopo=[100.0]))
    assert says in console.export_text()


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    """What benchmarks write becomes an entry with every round, and is read as it was kept."""
    line = {"contender": "txtopo", "figure": "p50", "role": "txtopo", "rounds": [3.0, 4.0]}
    document = {
        "workload": "latency",
        "unit": {"name": "ms", "is_lower_better": True},
        "lines": [line],
        "cores": 2,
        "versions": {"python": "3.11.7"},
    }
    made = entry_of([document], "2026-11-28", "a machine", "quiet")
    keep(made, "quiet", tmp_path)
    assert history(tmp_path) == [made]
    assert list(made.workloads) == [Figures("latency", "ms", True, {"txtopo p50": [3.0, 4.0]})]


def test_the_table_of_nexmark(tmp_path: Path) -> None:
    """It is drawn from the kept costs: both systems side by side, what differs said, medians, and who is behind."""
    own = Cost("q1", 5, 20_000, 100_000, secs=1.0, core_secs=2.0, rows=9, missing=0, surplus=0)
    peer = attrs.evolve(own, lines=7, secs=4.0, core_secs=5.0, missing=1)
    large, slow = (attrs.evolve(each, each=50_000, secs=secs) for each, secs in ((own, 2.0), (peer, 0.5)))
    series = Series(
        "2026-11-29", "a machine", 2, {"python": "3.11"}, "micro-batch", [(own, peer), (large, slow), (own, None)]
    )
    series.keep(tmp_path / "kept.json")
    text = published(tmp_path / "kept.json")
    assert "| q1 | 5, 7 | 9, 9 (1 missing, 0 too many) | 100, 25 | 4.0 | 20.0, 50.0 | 2.5 |" in text
    assert "| median | | | | 4.0 | | 2.5 |" in text
    assert text.endswith("txtopo does 0.5x as many events a second in the median, and is behind in q1 (0.50x).")
    assert published(tmp_path / "none.json") == "A series on a quiet machine is still to be published."


def test_what_was_not_compared() -> None:
    """A cost without rows to compare is not right, and says so."""
    nothing = Cost("q5", 5, 20_000, 100_000, secs=1.0, core_secs=2.0, rows=0, missing=0, surplus=0)
    assert not nothing.is_right
    assert str(nothing).endswith("NOTHING WAS COMPARED")
