"""WindowCommitter, Deduplicate and EventClock: what they say of generated streams is what a plain loop says."""

from __future__ import annotations

import contextlib
import datetime as dt
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from committers import (
    AppendCommitter,
    Count,
    Deduplicate,
    EventClock,
    Sessions,
    Sliding,
    Sum,
    Tumbling,
    WindowCommitter,
)
from spouts import MemoryTransactionalSpout
from state import DeltaRows, read_table
from tests.committers.event_time import oracle
from tests.committers.event_time.oracle import Row
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.testing.inline import run_inline

SECOND = dt.timedelta(seconds=1)
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
TYPED = Fields("at: timestamp", "key: string", "n: long")
UNTYPED = Fields("at", "key", "n")

rows = st.tuples(
    st.one_of(st.integers(-5, 120).map(lambda secs: START + secs * SECOND), st.none()),
    st.sampled_from(["a", "b", None]),
    st.one_of(st.integers(-5, 5), st.none()),
)
streams = st.lists(st.lists(rows, min_size=1, max_size=6), min_size=1, max_size=8)


def padded(transactions: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Return transactions of equally many rows: a spout takes one of each partition."""
    width = max(map(len, transactions))
    return [[*each, *[(None, "pad", None)] * (width - len(each))] for each in transactions]


def built(
    root: Path, transactions: Sequence[Sequence[Row]], fields: Fields, committer: Any, delay: dt.timedelta
) -> Any:
    """Return a topology of a clock, a committer of event time, and tables of its three streams."""
    data = dict(enumerate(map(list, zip(*transactions, strict=True))))
    builder = TransactionalTopologyBuilder("timed", "rows", MemoryTransactionalSpout(data, fields, 1), 2)
    clock = EventClock("clock", time="at", delay=delay, close_at_end=True)
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_state("clock", clock.state(root / "clock"))
    bolt = builder.set_committer_bolt("timed", committer, 2)
    bolt.fields_grouping("rows", Fields("key")).all_grouping("clock")
    builder.set_state("open", committer.state(root / "open"))
    for name, stream in (("said", "default"), ("late", "late"), ("untimed", "untimed")):
        builder.set_committer_bolt(name, AppendCommitter(name)).shuffle_grouping("timed", stream)
    if isinstance(committer, WindowCommitter):
        said = committer.results()
        keys = said.subset([name for name in said if not name.startswith("window_")])
    else:
        said = keys = TYPED
    builder.set_state("said", DeltaRows(root / "said", said))
    builder.set_state("late", DeltaRows(root / "late", said))
    builder.set_state("untimed", DeltaRows(root / "untimed", keys))
    return builder.build()


def table(root: Path, name: str, *fields: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table in order."""
    found = read_table(root / name)
    return sorted(zip(*(found[field].to_pylist() for field in fields), strict=True), key=repr)


AGGREGATES = {"rows": Count(), "total": Sum("n: long")}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    transactions=streams,
    fields=st.sampled_from([TYPED, UNTYPED]),
    sizes=st.sampled_from([(10, 10), (10, 5), (12, 8)]),
    delay=st.integers(0, 20),
    lateness=st.sampled_from([0, 7]),
    group=st.integers(1, 4),
)
def test_windows(transactions, fields, sizes, delay, lateness, group) -> None:
    """Tumbling and sliding ones: each is said once, by the transaction that closes it; all else is late or untimed."""
    size, slide = (each * SECOND for each in sizes)
    window = Tumbling(size) if size == slide else Sliding(size, slide)
    committer = WindowCommitter(
        "open", clock="clock", time="at", key=Fields("key: string"), window=window, aggregates=AGGREGATES,
        lateness=lateness * SECOND,
    )  # fmt: skip

    def spans(time: dt.datetime) -> list[tuple[dt.datetime, dt.datetime]]:
        origin = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        last = origin + (time - origin) // slide * slide
        starts = [last - number * slide for number in range(-(-size // slide))]
        return [(start, start + size) for start in starts if start + size > time]

    with ran(transactions, fields, committer, delay, group) as root:
        check(root, oracle.windows(padded(transactions), spans, delay * SECOND, lateness * SECOND))


@contextlib.contextmanager
def ran(
    transactions: Sequence[Sequence[Row]], fields: Fields, committer: Any, delay: int, group: int
) -> Iterator[Path]:
    """Run a topology to its end; return the folder of its tables."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        config = Config(max_spout_pending=4, group_transactions_max=group)
        run_inline(built(Path(folder), padded(transactions), fields, committer, delay * SECOND), config)
        yield Path(folder)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    transactions=streams,
    fields=st.sampled_from([TYPED, UNTYPED]),
    gap=st.sampled_from([4, 15]),
    delay=st.integers(0, 20),
    group=st.integers(1, 4),
)
def test_sessions(transactions, fields, gap, delay, group) -> None:
    """A session is said once, when the watermark has passed its end, whatever merged in it and when."""
    committer = WindowCommitter(
        "open",
        clock="clock",
        time="at",
        key=Fields("key: string"),
        window=Sessions(gap * SECOND),
        aggregates=AGGREGATES,
    )
    with ran(transactions, fields, committer, delay, group) as root:
        check(root, oracle.sessions(padded(transactions), gap * SECOND, delay * SECOND))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    transactions=streams,
    fields=st.sampled_from([TYPED, UNTYPED]),
    within=st.sampled_from([1, 10, 60]),
    delay=st.integers(0, 20),
    group=st.integers(1, 4),
)
def test_deduplication(transactions, fields, within, delay, group) -> None:
    """The first row of a key is passed on, exactly once within the time; what is late is told."""
    committer = Deduplicate("open", clock="clock", time="at", key="key", within=within * SECOND, fields=TYPED)
    with ran(transactions, fields, committer, delay, group) as root:
        passed, late = oracle.first_rows(padded(transactions), within * SECOND, delay * SECOND)
        assert table(root, "said", "txid", "at", "key", "n") == sorted(passed, key=repr)
        assert table(root, "late", "txid", "at", "key", "n") == sorted(late, key=repr)


def check(root: Path, expected: oracle.Said) -> None:
    """Compare the tables with what must be in them."""
    window = ("key", "window_start", "window_end")
    said = [(*key, *values) for key, values in expected.closed.items()]
    assert table(root, "said", *window, "txid", "rows", "total") == sorted(said, key=repr)
    late = [(*key, *values) for key, values in expected.late.items()]
    assert table(root, "late", "txid", *window, "rows", "total") == sorted(late, key=repr)
    untimed = [(*key, *values) for key, values in expected.untimed.items()]
    assert table(root, "untimed", "txid", "key", "rows", "total") == sorted(untimed, key=repr)
