"""WindowCommitter, Deduplicate and EventClock: what they say of generated streams is what a plain loop says."""

import contextlib
import datetime as dt
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from committers import (
    AppendCommitter,
    Count,
    Days,
    Deduplicate,
    EventClock,
    Hours,
    Sessions,
    Sliding,
    Sum,
    Tumbling,
    WindowCommitter,
)
from committers.event_time import Window
from committers.event_time.times import MICROS_MAX, TIMESTAMP
from committers.event_time.windows import sessions, window_name, window_of
from spouts import MemoryTransactionalSpout
from state import DeltaRows, read_table
from tests.budgets import examples
from tests.committers.event_time import oracle
from tests.committers.event_time.oracle import Row
from tests.committers.event_time.scripted import declared
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.api.data.utc import MICROS_MIN
from txtopo.errors import ConfigError, FailedException, PoisonTransaction
from txtopo.testing.inline import run_inline

SECOND = dt.timedelta(seconds=1)
DAY = 86_400_000_000
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
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
    return [[*transaction, *[(None, "pad", None)] * (width - len(transaction))] for transaction in transactions]


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
        builder.set_state(name, DeltaRows(root / name, declared(committer)[stream]))
    return builder.build()


def table(root: Path, name: str, *fields: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table in order."""
    found = read_table(root / name)
    return sorted(zip(*(found[field].to_pylist() for field in fields), strict=True), key=repr)


AGGREGATES = {"rows": Count(), "total": Sum("n: long")}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["WAIT", "SKIP"])
def test_the_end_is_never_skipped(tmp_path, monkeypatch, policy) -> None:
    """The run stops at the transaction that ends event time, and says so; the next run says the windows that it closes."""

    def fail(committer: AppendCommitter) -> None:
        raise FailedException("the sink is down")

    def run(until: int | None = None) -> None:
        committer = WindowCommitter(
            "open", clock="clock", time="at", key=Fields("key: string"), window=Tumbling(SECOND), aggregates=AGGREGATES
        )
        config = Config(transaction_max_attempts=2, transaction_max_attempts_policy=policy)
        run_inline(built(tmp_path, [[(START, "a", 1)]], TYPED, committer, SECOND), config, until=until)

    run(until=1)
    with (
        monkeypatch.context() as patched,
        pytest.raises(PoisonTransaction, match="can't be skipped: it ends event time"),
    ):
        patched.setattr(AppendCommitter, "finish_batch", fail)
        run()
    run()
    assert table(tmp_path, "said", "key", "rows") == [("a", 1)]


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
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


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
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


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    transactions=streams,
    fields=st.sampled_from([TYPED, UNTYPED]),
    window=st.sampled_from([Tumbling(10 * SECOND), Sliding(12 * SECOND, 8 * SECOND), Sessions(15 * SECOND)]),
    delay=st.integers(0, 10),
    group=st.integers(1, 4),
)
def test_whole_late_rows(transactions, fields, window, delay, group) -> None:
    """On request, what is late or untimed is emitted as whole rows, of the same windows; the others say the same."""
    found = []
    for late_rows in (None, TYPED):
        committer = WindowCommitter(
            "open", clock="clock", time="at", key=Fields("key: string"), window=window, aggregates=AGGREGATES,
            late_rows=late_rows,
        )  # fmt: skip
        with ran(transactions, fields, committer, delay, group) as root:
            times = ("txid", "key", "window_start", "window_end")
            values = ("rows", "total") if late_rows is None else ("at", "n")
            found.append(
                (
                    table(root, "said", *times, "rows", "total"),
                    table(root, "late", *times, *values),
                    table(root, "untimed", "txid", "key", *values),
                )
            )
    reduced, whole = found
    assert whole[0] == reduced[0]
    assert summed(whole[1]) == reduced[1]
    assert summed(whole[2]) == reduced[2]
    assert all(start <= at < end for _, _, start, end, at, _ in whole[1])


def summed(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return whole rows, which end with time and value, as counts and sums by what is before."""
    values: dict[Any, list[Any]] = defaultdict(list)
    for *key, _, value in rows:
        values[tuple(key)].append(value)
    made = [
        (*key, len(value), sum(n for n in value if n is not None) if any(n is not None for n in value) else None)
        for key, value in values.items()
    ]
    return sorted(made, key=repr)


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
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


def micros(*times: dt.datetime) -> Any:
    """Return times as a committer of event time has them."""
    return np.array([time // SECOND * 1_000_000 for time in (each - EPOCH for each in times)], dtype=np.int64)


def pane(window: Window, time: dt.datetime) -> tuple[str, str]:
    """Return the window of a time as text, in UTC."""
    starts, ends = window.panes(micros(time))
    return tuple(f"{EPOCH + dt.timedelta(microseconds=int(each[0])):%Y-%m-%d %H:%M}" for each in (starts, ends))  # type: ignore[return-value]


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc] # three to six integers


@pytest.mark.parametrize(
    ("window", "time", "start", "end"),
    [
        (Days(), utc(2026, 3, 29, 12), "2026-03-29 00:00", "2026-03-30 00:00"),
        (Days("Europe/Berlin"), utc(2026, 3, 28, 23), "2026-03-28 23:00", "2026-03-29 22:00"),  # 23 hours
        (Days("Europe/Berlin"), utc(2026, 10, 25, 22, 59), "2026-10-24 22:00", "2026-10-25 23:00"),  # 25 hours
        (Days("Asia/Kathmandu"), utc(2026, 1, 1, 18, 14), "2025-12-31 18:15", "2026-01-01 18:15"),
        # Clocks went from 24:00 to 01:00, so the day begins at 01:00 and has 23 hours.
        (Days("America/Sao_Paulo"), utc(2018, 11, 4, 3), "2018-11-04 03:00", "2018-11-05 02:00"),
        (Days("America/Sao_Paulo"), utc(2018, 11, 4, 2, 59), "2018-11-03 03:00", "2018-11-04 03:00"),
        # Clocks went back from 24:00 to 23:00: the hour before midnight came twice, and both belong to the old day.
        (Days("America/Sao_Paulo"), utc(2018, 2, 18, 2, 30), "2018-02-17 02:00", "2018-02-18 03:00"),
        # Clocks went back at 01:00 to 00:00: midnight came twice, and the day begins with the first.
        (Days("America/Havana"), utc(2026, 11, 1, 4, 30), "2026-11-01 04:00", "2026-11-02 05:00"),
        (Days("America/Havana"), utc(2026, 11, 1, 5, 30), "2026-11-01 04:00", "2026-11-02 05:00"),
        # Clocks went back at 00:01 to 23:01: an hour shows the old day once more, but the new one has begun.
        (Days("America/St_Johns"), utc(1987, 10, 25, 2, 29), "1987-10-24 02:30", "1987-10-25 02:30"),
        (Days("America/St_Johns"), utc(1987, 10, 25, 3), "1987-10-25 02:30", "1987-10-26 03:30"),
        # Clocks left out midnight, from 23:30 to 00:30, where the day begins.
        (Days("America/Toronto"), utc(1919, 3, 31, 4, 29), "1919-03-30 05:00", "1919-03-31 04:30"),
        (Days("America/Toronto"), utc(1919, 3, 31, 4, 30), "1919-03-31 04:30", "1919-04-01 04:00"),
        # A day was left out when the date line moved.
        (Days("Pacific/Apia"), utc(2011, 12, 30, 9, 59), "2011-12-29 10:00", "2011-12-30 10:00"),
        (Days("Pacific/Apia"), utc(2011, 12, 30, 10), "2011-12-30 10:00", "2011-12-31 10:00"),
        (Days("Europe/Berlin"), utc(1969, 6, 1, 22), "1969-05-31 23:00", "1969-06-01 23:00"),
        (Hours("Europe/Berlin"), utc(2026, 3, 29, 1, 30), "2026-03-29 01:00", "2026-03-29 02:00"),
        (Hours("Asia/Kolkata"), utc(2026, 1, 1, 0, 29), "2025-12-31 23:30", "2026-01-01 00:30"),
        (Hours("Asia/Kolkata"), utc(1969, 12, 31, 23, 45), "1969-12-31 23:30", "1970-01-01 00:30"),
        # Clocks go back by half an hour at 02:00, to 01:30: that half hour comes by itself.
        (Hours("Australia/Lord_Howe"), utc(2026, 4, 4, 14, 40), "2026-04-04 14:00", "2026-04-04 15:00"),
        (Hours("Australia/Lord_Howe"), utc(2026, 4, 4, 15, 10), "2026-04-04 15:00", "2026-04-04 15:30"),
        (Hours("Australia/Lord_Howe"), utc(2026, 4, 4, 15, 30), "2026-04-04 15:30", "2026-04-04 16:30"),
        # Clocks go on by half an hour at 02:00, to 02:30.
        (Hours("Australia/Lord_Howe"), utc(2026, 10, 3, 15, 20), "2026-10-03 14:30", "2026-10-03 15:30"),
        (Hours("Australia/Lord_Howe"), utc(2026, 10, 3, 15, 40), "2026-10-03 15:30", "2026-10-03 16:00"),
        # After 2037, too.
        (Hours("Australia/Lord_Howe"), utc(2038, 1, 1, 0, 10), "2038-01-01 00:00", "2038-01-01 01:00"),
        (Hours("Australia/Lord_Howe"), utc(2038, 7, 1, 0, 10), "2038-06-30 23:30", "2038-07-01 00:30"),
        (Hours("Australia/Lord_Howe"), utc(2040, 3, 31, 15, 10), "2040-03-31 15:00", "2040-03-31 15:30"),
        (Hours("Australia/Lord_Howe"), utc(2040, 10, 6, 15, 40), "2040-10-06 15:30", "2040-10-06 16:00"),
        (Days("Europe/Berlin"), utc(2038, 7, 1, 22), "2038-07-01 22:00", "2038-07-02 22:00"),
        (Days("Europe/Berlin"), utc(2040, 3, 24, 23), "2040-03-24 23:00", "2040-03-25 22:00"),
        (Days("America/New_York"), utc(9998, 7, 1, 3, 59), "9998-06-30 04:00", "9998-07-01 04:00"),
    ],
)
def test_calendars(window: Window, time: dt.datetime, start: str, end: str) -> None:
    """Days and hours are as clocks in the zone show them, without a gap and without an overlap, whatever clocks do."""
    assert pane(window, time) == (start, end)


ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "America/Havana",
    "America/St_Johns",
]


@given(
    window=st.builds(lambda kind, zone: kind(zone), st.sampled_from([Days, Hours]), st.sampled_from(ZONES)),
    times=st.lists(st.datetimes(utc(2, 1, 1).replace(tzinfo=None), utc(9998, 12, 31).replace(tzinfo=None)), min_size=1),
)
def test_windows_of_calendars_are_apart(window, times) -> None:
    """A time is in its window, and every time of a window has the same one, its first and its last too."""
    at = micros(*(time.replace(tzinfo=dt.UTC) for time in times))
    starts, ends = window.panes(at)
    assert ((starts <= at) & (at < ends)).all()
    for times_of_it in (starts, ends - 1):
        again = window.panes(times_of_it)
        assert (again[0] == starts).all()
        assert (again[1] == ends).all()
    assert (window.panes(ends)[0] == ends).all(), "the next one begins where it ends"


@pytest.mark.parametrize("kind", [Days, Hours])
@pytest.mark.parametrize("zone", ZONES)
def test_the_first_and_the_last_day_that_python_knows(kind: Any, zone: str) -> None:
    """Windows that begin before the year 1 or end after the year 9999 are windows like others."""
    edges = np.arange(4) * DAY // 2
    at = np.concatenate([MICROS_MIN + edges, MICROS_MAX - edges])
    starts, ends = kind(zone).panes(at)
    assert ((starts <= at) & (at < ends)).all()
    assert (ends - starts <= 25 * DAY // 24).all()
    for times_of_it in (np.maximum(starts, MICROS_MIN), np.minimum(ends - 1, MICROS_MAX)):
        again = kind(zone).panes(times_of_it)
        assert (again[0] == starts).all()
        assert (again[1] == ends).all()


def test_no_zone() -> None:
    """A zone that does not exist is refused."""
    with pytest.raises(ConfigError, match="there is no time zone 'Europe/Bärlin'"):
        Days("Europe/Bärlin")


def test_a_row_within_a_session_does_not_end_it() -> None:
    """What others have made a long session of, and a row in the midst of it, end when the longer one does."""
    spans = [("a", 0, 100), ("a", 10, 20), ("b", 15, 25), ("a", 100, 110), ("b", 5, 9)]
    keys, starts, ends = (list(each) for each in zip(*spans, strict=True))
    rows = pa.table({"key": keys, "window_start": pa.array(starts, TIMESTAMP), "window_end": pa.array(ends, TIMESTAMP)})
    found = [session.tolist() for session in sessions(rows, ["key"])]
    assert found == [[0, 0, 15, 0, 5], [110, 110, 25, 110, 9]]
    found = [session.tolist() for session in sessions(rows.slice(0, 3), ["key"])]
    assert found == [[0, 0, 15], [100, 100, 25]]


@pytest.mark.parametrize(
    ("window", "name"),
    [
        (Tumbling(90 * SECOND), "90s"),
        (Tumbling("60m"), "1h"),
        (Sliding("1h", 300 * SECOND), "1h-every-5m"),
        (Sessions("30m"), "sessions-30m"),
        (Days(), "days"),
        (Hours(), "hours"),
        (Tumbling(SECOND / 1000 * 1.5), "1500us"),
    ],
)
def test_names_of_windows(window, name):
    """They are read from the window alone, so that a name does not depend on how it was written."""
    assert window_name(window) == window_name(window_of(window)) == name


def test_sizes_as_texts():
    """A duration is the size of tumbling windows, and sizes are written as texts wherever durations are."""
    assert window_of("90s") == window_of(90 * SECOND) == Tumbling(90 * SECOND) == Tumbling("90s")
    assert Sessions("30m") == Sessions(1800 * SECOND)
    for wrong in ("30", "0s", "-1m"):
        with pytest.raises(ConfigError, match="gap"):
            Sessions(wrong)
