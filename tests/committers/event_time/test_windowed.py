"""WindowCommitter: what it says at the edges: other settings after a restart, silence, null keys, all aggregates."""

import datetime as dt
import decimal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from committers import (
    AppendCommitter,
    ApproxCountDistinct,
    ApproxQuantile,
    Collect,
    Count,
    CountDistinct,
    EventClock,
    First,
    Last,
    Max,
    Mean,
    Min,
    Sessions,
    Sliding,
    Sum,
    Tumbling,
    WindowCommitter,
    WindowUpdateCommitter,
)
from committers.spill import SpillLimits
from spouts import MemoryTransactionalSpout
from state import DeltaRows, read_table
from tests.committers.event_time.scripted import SECOND, START, Planned, Script, rows_of, run_timed
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.errors import FieldsError
from txtopo.testing import run_inline

ROWS = Fields("at: timestamp", "key: string", "n: long")
NO_DELAY = dt.timedelta()


def at(second: float | None, key: str | None = "k", n: int | None = 1) -> tuple[Any, ...]:
    return None if second is None else START + second * SECOND, key, n


def counting(window: Any, lateness: float = 0, **options: Any) -> WindowCommitter:
    return WindowCommitter(
        "windows",
        clock="clock",
        time="at",
        key=Fields("key: string"),
        window=window,
        aggregates={"n": Sum("n: long")},
        lateness=lateness * SECOND,
        **options,
    )


def run_parts(root: Path, transactions: list[Planned], *parts: tuple[int, WindowCommitter], **of_clock: Any) -> None:
    """Run a script in parts, up to a transaction each, with a committer each."""
    for until, committer in parts:
        run_timed(root, Script(transactions, ROWS), committer, until=until, delay=NO_DELAY, **of_clock)


def said(root: Path, stream: str = "default") -> list[tuple[Any, ...]]:
    """Return the windows in a table: txid, start, end, sum."""
    return rows_of(root, stream, "txid", "window_start", "window_end", "n")


def seconds(*times: float) -> list[Planned]:
    """Return a script of a row for each transaction."""
    return [Planned(number, [at(second)]) for number, second in enumerate(times)]


@pytest.mark.parametrize("window", [Tumbling(10 * SECOND), Sessions(2 * SECOND)], ids=["tumbling", "sessions"])
def test_order(tmp_path: Path, window: Any) -> None:
    """What closes together comes by key and start, in whichever order a table has its rows: a replay has another one."""
    script = [
        Planned(n, [at(second, key)]) for n, (second, key) in enumerate([(9, "b"), (25, "a"), (12, "b"), (7, "a")])
    ]
    run_parts(tmp_path, [*script, Planned(9, [at(99, "c")])], (99, counting(window, lateness=30)))
    found = read_table(tmp_path / "default").to_pylist()
    assert [(row["key"], row["n"]) for row in found if row["txid"] == 5] == [("a", 1), ("a", 1), ("b", 1), ("b", 1)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Tumbling, Sessions])
def test_more_lateness_after_a_restart(tmp_path: Path, kind: Any) -> None:
    """What was closed stays closed, and is late; what is open waits for the new lateness, and is said once."""
    window = kind(10 * SECOND)
    script = seconds(2, 12.5, 2, 24, 41, 15, 100)
    run_parts(tmp_path, script, (2, counting(window)), (5, counting(window, 20)), (7, counting(window, 20)))
    if kind is Tumbling:
        assert said(tmp_path) == [(2, 0, 10, 1), (5, 10, 20, 1), (7, 20, 30, 1), (7, 40, 50, 1)]
        assert said(tmp_path, "late") == [(3, 0, 10, 1), (6, 10, 20, 1)]
    else:
        assert said(tmp_path) == [(2, 2, 12, 1), (7, 12.5, 34, 3), (7, 41, 51, 1)]
        assert said(tmp_path, "late") == [(3, 2, 12, 1)]


@pytest.mark.slow
def test_less_lateness_after_a_restart(tmp_path: Path) -> None:
    """An open window that is over by the new lateness closes as it is, once."""
    window = Tumbling(10 * SECOND)
    script = seconds(2, 15, 3, 4, 16)
    run_parts(tmp_path, script, (2, counting(window, 20)), (5, counting(window)))
    assert said(tmp_path) == [(3, 0, 10, 1)]
    assert said(tmp_path, "late") == [(3, 0, 10, 1), (4, 0, 10, 1)]


@pytest.mark.slow
def test_another_size_after_a_restart(tmp_path: Path) -> None:
    """Open windows close as they were, beside those of the new size, in which no earlier row counts."""
    script = seconds(2, 3, 4, 5, 100)
    run_parts(tmp_path, script, (2, counting(Tumbling(10 * SECOND))), (5, counting(Tumbling(20 * SECOND))))
    assert said(tmp_path) == [(5, 0, 10, 2), (5, 0, 20, 2)]


@pytest.mark.slow
def test_another_gap_after_a_restart(tmp_path: Path) -> None:
    """A row keeps the gap that it came with; sessions that touch are one."""
    script = [*seconds(2, 3), Planned(2, [at(12), at(40)]), Planned(3, [at(41)]), Planned(4, [at(200)])]
    parts = (2, counting(Sessions(10 * SECOND))), (5, counting(Sessions(4 * SECOND)))
    run_parts(tmp_path, script, *parts)
    assert said(tmp_path) == [(3, 2, 16, 3), (5, 40, 45, 2)]


@pytest.mark.slow
def test_an_open_session_with_a_larger_gap(tmp_path: Path) -> None:
    """It is said as one, although the first of its rows are away from the watermark by the gap before the others."""
    script = [*seconds(10, 13), *(Planned(second, [at(second, "z")]) for second in (18, 19, 30))]
    run_parts(tmp_path, script, (2, counting(Sessions(4 * SECOND))), (5, counting(Sessions(7 * SECOND))))
    found = rows_of(tmp_path, "default", "txid", "key", "window_start", "window_end", "n")
    assert found == [(5, "k", 10, 17, 2), (5, "z", 18, 26, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("late_rows", [None, ROWS])
def test_a_larger_gap_after_a_restart(tmp_path: Path, late_rows: Any) -> None:
    """What was late stays so: no session touches one that was said so long ago that its end is forgotten."""
    script = [Planned(0, [at(0)]), Planned(1, [at(23, "z")]), Planned(2, [at(8, n=2), at(12, n=4), at(14, n=8)])]
    script += [Planned(3, [at(64, n=16)]), Planned(4, [at(64.000002, "z")]), Planned(5, [at(500, "z")])]
    for until, gap in ((2, 10), (3, 50), (4, 20), (6, 50)):
        run_parts(tmp_path, script, (until, counting(Sessions(gap * SECOND), late_rows=late_rows)))
    found = [each[1:] for each in rows_of(tmp_path, "default", "txid", "key", "window_start", "window_end", "n")]
    assert [each[1:] for each in found if each[0] != "z"] == [(0, 10, 1), (14, 84, 24)]
    assert sorted(each[-1] for each in rows_of(tmp_path, "late", "txid", "window_start", "n")) == [2, 4]


@pytest.mark.slow
@pytest.mark.parametrize("lateness", [0, 5])
def test_the_very_end_of_a_session(tmp_path: Path, lateness: float) -> None:
    """A row at a session's end belongs to it, also if the watermark is there already: it is no row that is late."""
    script = [Planned(0, [at(0)]), Planned(1, [at(10 + lateness, "other")]), Planned(2, [at(10)]), Planned(3, [at(90)])]
    run_parts(tmp_path, script, (3, counting(Sessions(10 * SECOND), lateness)))
    assert said(tmp_path) == []
    run_parts(tmp_path, script, (4, counting(Sessions(10 * SECOND), lateness)))
    assert sorted(said(tmp_path)) == [(4, 0, 20, 2), (4, 10 + lateness, 20 + lateness, 1)]
    assert said(tmp_path, "late") == []


@pytest.mark.few(1)
@pytest.mark.parametrize("lateness", [0, 5])
def test_right_after_the_end_of_a_session(tmp_path: Path, lateness: float) -> None:
    """It closes with the first watermark behind its end, not with the next one."""
    script = [Planned(0, [at(0)]), Planned(1, [at(10.000001 + lateness, "other")])]
    run_parts(tmp_path, script, (2, counting(Sessions(10 * SECOND), lateness)))
    assert said(tmp_path) == [(2, 0, 10, 1)]


@pytest.mark.slow
def test_a_quiet_source(tmp_path: Path) -> None:
    """The last windows close although nothing comes any more: by transactions without input."""
    script = [Planned(0, [at(1), at(11)]), *(Planned(60 * minute, None) for minute in range(1, 4)), Planned(185, [])]
    run_parts(tmp_path, script, (5, counting(Tumbling(10 * SECOND))), idle_after=60 * SECOND)
    assert said(tmp_path) == [(1, 0, 10, 1), (3, 10, 20, 1)]


@pytest.mark.slow
def test_far_ahead(tmp_path: Path) -> None:
    """Rows later than the clock allows are late, whatever else is in their window, and close nothing."""
    script = [
        Planned(0, [at(1), at(29, n=8), at(30, n=16), at(30.000001), at(31), at(9e8)]),
        Planned(1, [at(2), at(30.5, n=32), at(59.5)]),
        Planned(70, [at(100)]),
    ]
    windows = Tumbling(10 * SECOND), Sessions(10 * SECOND)
    for window, whole in [(window, whole) for window in windows for whole in (None, ROWS)]:
        root = tmp_path / f"{type(window).__name__}-{whole}"
        ahead = {"delay": 30 * SECOND, "ahead_max": 30 * SECOND}
        run_timed(root, Script(script, ROWS), counting(window, late_rows=whole), **ahead)
        late = [(1, 30.000001, 1), (1, 31, 1), (1, 9e8, 1), (2, 59.5, 1)]
        if whole is not None:
            assert rows_of(root, "late", "txid", "at", "n") == sorted(late, key=repr)
        elif window.merges:
            assert said(root, "late") == sorted(((txid, at, at + 10, n) for txid, at, n in late), key=repr)
        else:
            # At 0 the limit is 30, and that of the second transaction 31: it brings a row for a window with late ones.
            assert said(root, "late") == sorted([(1, 30, 40, 2), (1, 9e8, 9e8 + 10, 1), (2, 50, 60, 1)], key=repr)
        ends = [(3, 1, 12, 2), (3, 29, 40.5, 56)] if window.merges else [(3, 0, 10, 2), (3, 20, 30, 8), (3, 30, 40, 48)]
        assert said(root) == ends


def test_before_1970(tmp_path: Path) -> None:
    """Windows of times before 1970 start before 1970."""
    old = (dt.datetime(1969, 12, 31, 23, 59, 55, tzinfo=dt.UTC) - START).total_seconds()
    script = [Planned(0, [at(old), at(old + 4), at(old + 5)]), Planned(1, [at(0)])]
    run_parts(tmp_path, script, (2, counting(Sliding(10 * SECOND, 5 * SECOND))))
    windows = [(1, old - 5, old + 5, 2), (2, old, old + 10, 3), (2, old + 5, old + 15, 1)]
    assert said(tmp_path) == sorted(windows, key=repr)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [Tumbling, Sessions])
def test_null_keys(tmp_path: Path, kind: Any) -> None:
    """A null is a key like another: of windows, of sessions, of what is late and of what has no time."""
    script = [
        Planned(0, [at(1, None), at(1, "k", 5), at(None, None, 3)]),
        Planned(1, [at(2, None), at(50, "k")]),
        Planned(2, [at(3, None)]),
    ]
    run_parts(tmp_path, script, (3, counting(kind(10 * SECOND))))
    ends = (0, 10, 10) if kind is Tumbling else (1, 11, 12)
    assert rows_of(tmp_path, "default", "key", "window_start", "window_end", "n") == sorted(
        [("k", ends[0], ends[1], 5), (None, ends[0], ends[2], 2)], key=repr
    )
    assert rows_of(tmp_path, "late", "key", "txid", "n") == [(None, 3, 1)]
    assert rows_of(tmp_path, "untimed", "key", "n") == [(None, 3)]


AGGREGATES = {
    "rows": Count(),
    "priced": Count("price"),
    "revenue": Sum("price: decimal(18,2)"),
    "largest": Max("price: decimal(18,2)"),
    "smallest": Min("price: decimal(18,2)"),
    "mean": Mean("price: decimal(18,2)"),
    "opening": First("word: string", by="at: timestamp"),
    "closing": Last("word: string", by="at: timestamp"),
    "words": CountDistinct("word: string"),
    "prices": Collect("price: decimal(18,2)"),
    "about": ApproxCountDistinct("word: string"),
    "middle": ApproxQuantile("price: decimal(18,2)"),
}
SALES = ("at: timestamp", "key: string", "price: decimal(18,2)", "word: string")


def expected_of(rows: list[Any]) -> tuple[Any, ...]:
    """Return the aggregates of the rows of a window."""
    prices = [price for _, _, price, _ in rows if price is not None]
    words = sorted((time, word) for time, _, _, word in rows if word is not None)
    total = sum(prices) if prices else None
    mean = None if total is None else (total / len(prices)).quantize(decimal.Decimal("1e-6"), decimal.ROUND_HALF_UP)
    ends = words and (words[0][1], max(word for time, word in words if time == words[-1][0]))
    return (
        len(rows),
        len(prices),
        total,
        max(prices, default=None),
        min(prices, default=None),
        mean,
        *(ends or [None] * 2),
        len({word for _, word in words}),
        sorted(prices) or None,
        len({word for _, word in words}),
        pytest.approx(sorted(map(float, prices))[(len(prices) - 1) // 2], rel=0.01) if prices else None,
    )


@pytest.mark.slow
@pytest.mark.parametrize("is_spilled", [False, True])
@pytest.mark.parametrize("fields", [Fields(*SALES), Fields(*(sale.split(":")[0] for sale in SALES))])
def test_all_aggregates(tmp_path: Path, fields: Fields, is_spilled: bool) -> None:
    """Every aggregate of every window, over several tasks, transactions and groups, is that of the window's rows.

    So it is with rows that go to the commit phase in files.
    """
    cents = [None if n % 5 == 0 else decimal.Decimal((n * 7919) % 10007 - 4000) / 100 for n in range(240)]
    rows = [
        (START + (n * 37 % 120) * SECOND, "abc"[n % 3], cents[n], None if n % 4 == 0 else f"w{n * 31 % 17}")
        for n in range(240)
    ]
    script = [Planned(first, rows[first : first + 24]) for first in range(0, 240, 24)]
    committer = WindowCommitter(
        "windows",
        clock="clock",
        time="at",
        key=Fields("key: string"),
        window=Tumbling(30 * SECOND),
        aggregates=AGGREGATES,
    )
    if is_spilled:
        committer.spill_limits = SpillLimits(file_rows=1)
    run_timed(tmp_path, Script(script, fields), committer, delay=1000 * SECOND, close_at_end=True, tasks=3)
    windows: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        windows[row[1], (row[0] - START) // (30 * SECOND) * 30].append(row)
    expected = [(*key, *expected_of(found)) for key, found in windows.items()]
    assert rows_of(tmp_path, "default", "key", "window_start", *AGGREGATES) == sorted(expected, key=repr)


def test_readings(tmp_path: Path) -> None:
    """The report says what was closed, late and untimed, what is open, and where the watermark is."""
    script = [
        Planned(70, [at(1), at(11), at(None)]),
        Planned(71, [at(2), at(42, "b")]),
        Planned(72, [at(3), at(4), at(5, "c"), at(65)]),
        Planned(73, [at(30, "c"), at(45, "b"), at(66)]),
        Planned(74, [at(3)]),
    ]
    committer = counting(Tumbling(10 * SECOND))
    report = run_timed(tmp_path, Script(script, ROWS), committer, partition="key", delay=5 * SECOND)
    times = {
        ("clock", "watermark", of): START.timestamp() + at for of, at in [("", 25), ("k", 61), ("b", 40), ("c", 25)]
    }
    assert {(reading.component, reading.name, reading.of): reading.value for reading in report.readings} == times | {
        ("clock", "watermark_lag_seconds", ""): 49,
        ("timed", "closed", ""): 3,
        ("timed", "late", ""): 1,
        ("timed", "untimed", ""): 1,
        ("timed", "open_rows", ""): 5,
    }


def test_without_a_key(tmp_path: Path) -> None:
    """Without a key a window is that of all rows, whichever task has them."""
    committer = WindowCommitter(
        "windows", clock="clock", time="at", window=Tumbling(10 * SECOND), aggregates={"n": Sum("n: long")}
    )
    script = [Planned(0, [at(1, "a"), at(2, "b"), at(3, "c")]), Planned(1, [at(4, "b")])]
    run_timed(tmp_path, Script(script, ROWS), committer, close_at_end=True)
    assert said(tmp_path) == [(3, 0, 10, 4)]


def test_what_it_refuses() -> None:
    """Names that it needs, and sessions without a key."""
    with pytest.raises(FieldsError, match="a column 'window_end' of its own"):
        WindowCommitter("w", clock="clock", time="at", window=Tumbling(SECOND), aggregates={"window_end": Count()})
    with pytest.raises(FieldsError, match="sessions are those of a key"):
        WindowCommitter("w", clock="clock", time="at", window=Sessions(SECOND), aggregates={"n": Count()})


def updating(lateness: float = 0, window: Any = None, **aggregates: Any) -> WindowUpdateCommitter:
    return WindowUpdateCommitter(
        "windows",
        clock="clock",
        time="at",
        key=Fields("key: string"),
        window=window or Tumbling(10 * SECOND),
        aggregates=aggregates or {"n": Sum("n: long")},
        lateness=lateness * SECOND,
    )


def held(root: Path, *values: str) -> list[tuple[Any, ...]]:
    """Return the windows in the table of a WindowUpdateCommitter: txid, start, end, values."""
    return rows_of(root, "windows", "txid", "window_start", "window_end", *(values or ("n",)))


@pytest.mark.slow
def test_updates(tmp_path: Path) -> None:
    """Each transaction updates the windows it touches; late ones stay as they are, in the table, and are told."""
    script = [
        Planned(0, [at(1), at(11)]),
        Planned(1, [at(2), at(None)]),
        Planned(2, [at(21)]),
        Planned(3, [at(3), at(12)]),
    ]
    run = [(2, [(1, 10, 20, 1), (2, 0, 10, 2)]), (3, [(1, 10, 20, 1), (2, 0, 10, 2), (3, 20, 30, 1)])]
    for until, expected in run:
        run_parts(tmp_path, script, (until, updating(10)))
        assert held(tmp_path) == sorted(expected, key=repr)
    run_parts(tmp_path, script, (4, updating(10)))
    assert held(tmp_path) == [(2, 0, 10, 2), (3, 20, 30, 1), (4, 10, 20, 2)]
    assert said(tmp_path, "late") == [(4, 0, 10, 1)]
    assert rows_of(tmp_path, "untimed", "txid", "key", "n") == [(2, "k", 1)]


@pytest.mark.slow
def test_more_lateness_opens_windows_again(tmp_path: Path) -> None:
    """A window in the table takes rows again when it is late no more."""
    script = seconds(2, 15, 3, 4)
    run_parts(tmp_path, script, (3, updating()), (4, updating(20)))
    assert held(tmp_path) == [(2, 10, 20, 1), (4, 0, 10, 2)]
    assert said(tmp_path, "late") == [(3, 0, 10, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 4])
def test_all_aggregates_are_updated(tmp_path: Path, group: int) -> None:
    """The table has the partial aggregates of all rows of each window, over several tasks, transactions and groups."""
    rows = [(START + (n * 37 % 120) * SECOND, "abc"[n % 3], n * 31 % 17 or None) for n in range(120)]
    script = [Planned(first, rows[first : first + 12]) for first in range(0, 120, 12)]
    committer = updating(
        window=Sliding(30 * SECOND, 10 * SECOND),
        rows=Count(),
        largest=Max("n: long"),
        mean=Mean("n"),
        last=Last("n", by="at: timestamp"),
        different=CountDistinct("n"),
    )
    run_timed(tmp_path, Script(script, ROWS), committer, delay=1000 * SECOND, group=group, tasks=3)
    windows: dict[Any, list[Any]] = defaultdict(list)
    for time, key, n in rows:
        last = (time - START) // (10 * SECOND) * 10
        for start in (last - 20, last - 10, last):
            windows[key, start].append((time, n))
    expected = []
    for key, found in windows.items():
        known = [each for each in found if each[1] is not None]
        numbers = [n for _, n in known]
        last = max(known, default=(None, None))
        assert known, "every window has a value"
        expected.append((*key, len(found), max(numbers), sum(numbers), len(numbers), last[1], sorted(set(numbers))))
    names = ("key", "window_start", "rows", "largest", "mean_sum", "mean_count", "last", "different_values")
    assert rows_of(tmp_path, "windows", *names) == sorted(expected, key=repr)


def test_tuples_without_types(tmp_path: Path) -> None:
    """An event time without a zone is UTC; a value that Arrow would cut to fit is refused by its field."""
    script = [Planned(0, [(START.replace(tzinfo=None) + SECOND, "k", 1)]), Planned(1, [at(40)])]
    untyped = Fields("at", "key", "n")
    run_timed(tmp_path, Script(script, untyped), counting(Tumbling(10 * SECOND)), delay=NO_DELAY)
    assert said(tmp_path) == [(2, 0, 10, 1)]
    script = [Planned(0, [at(1, "k", 1.5)])]
    with pytest.raises(FieldsError, match=r"field 'n: bigint', in '.*': 1\.5 \(float\) does not fit"):
        run_timed(tmp_path / "cut", Script(script, untyped), counting(Tumbling(10 * SECOND)), delay=NO_DELAY)


def test_sessions_are_not_updated() -> None:
    """A session has no row of its own while it grows."""
    with pytest.raises(FieldsError, match="give a WindowCommitter the sessions"):
        updating(window=Sessions(SECOND))


def test_a_field_without_a_type() -> None:
    """A type that another aggregate has is enough; without any, it is asked for at once."""
    updating(mean=Mean("n"), largest=Max("n: int"))
    with pytest.raises(FieldsError, match="field 'n' has no type; write 'n: long'"):
        updating(mean=Mean("n"))


@pytest.mark.slow
def test_sessions_that_do_not_end(tmp_path: Path) -> None:
    """A session that goes on is held in a few rows, however many it has: it is put back as one, and said as one."""
    script = [Planned(number, [at(4 * number), at(4 * number + 1), at(4 * number, "j")]) for number in range(30)]
    script.append(Planned(30, [at(999, "z")]))
    report = None
    for until in (30, 31):
        committer = counting(Sessions(10 * SECOND), 1)
        report = run_timed(tmp_path, Script(script, ROWS), committer, until=until, delay=NO_DELAY)
        if until < 31:
            held = {reading.name: reading.value for reading in report.readings}["open_rows"]
            assert held <= 2 * 6, "for each key one of what was put back, and those of the last gap"
            assert said(tmp_path) == []
    assert said(tmp_path) == [(31, 0, 116 + 10, 30), (31, 0, 117 + 10, 60)]


@pytest.mark.slow
def test_rows_of_a_session_are_late_one_by_one(tmp_path: Path) -> None:
    """By the session that each would be alone: whether they come in one transaction or in two changes nothing."""
    rows = [at(5, n=2), at(12, n=4), at(12, n=8)]
    for name, late in {"one": [Planned(2, rows)], "two": [Planned(2, rows[:1]), Planned(3, rows[1:])]}.items():
        script = [Planned(0, [at(0)]), Planned(1, [at(16, "z")]), *late, Planned(4, [at(90, "z")])]
        run_parts(tmp_path / name, script, (9, counting(Sessions(10 * SECOND))))
        assert [each[1:] for each in said(tmp_path / name, "late")] == [(5, 15, 2)]
        assert [each[1:] for each in said(tmp_path / name)] == [(0, 10, 1), (12, 22, 12), (16, 26, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("late_rows", [None, ROWS])
@pytest.mark.parametrize("key", ["k", None])
def test_a_session_that_was_said_is_touched_by_no_other(tmp_path: Path, key: str | None, late_rows: Any) -> None:
    """A row that touches it is late; one a moment after its end begins the next session. Its key's alone matters."""
    script = [
        Planned(0, [at(0, key), at(0, "j")]),
        Planned(1, [at(10.000001, "z")]),
        Planned(2, [at(5, key, 2), at(10, key, 4), at(10.000001, key, 8)]),
        Planned(3, [at(10, key, 16), at(18, key, 32), at(5, "l")]),
        Planned(4, [at(99, "z")]),
    ]
    for until in (2, 3, 5):  # others are told by the coordinator that comes next
        run_parts(tmp_path, script, (until, counting(Sessions(10 * SECOND), late_rows=late_rows)))
    found = rows_of(tmp_path, "default", "txid", "key", "window_start", "window_end", "n")
    expected = [(2, key, 0, 10, 1), (2, "j", 0, 10, 1), (5, key, 10.000001, 28, 8 + 32), (4, "l", 5, 15, 1)]
    assert [each for each in found if each[1] != "z"] == sorted(expected, key=repr)
    late = [(3, 10, 20, 4), (3, 5, 15, 2), (4, 10, 20, 16)]
    assert rows_of(tmp_path, "late", "txid", "window_start", "window_end", "n") == late


def test_how_long_the_end_of_a_session_is_kept(tmp_path: Path) -> None:
    """As long as a row that touches it may be in time, which is a gap; not for ever."""
    script = [Planned(0, [at(0)]), Planned(1, [at(11, "z")]), Planned(2, [at(20, "z")])]
    script += [Planned(3, [at(10, n=2), at(10.000001, n=4), at(21, "z")]), Planned(4, [at(99, "z")])]
    report = run_timed(tmp_path, Script(script, ROWS), counting(Sessions(10 * SECOND)), delay=NO_DELAY)
    assert [each for each in said(tmp_path) if each[1] < 11] == [(2, 0, 10, 1), (4, 10.000001, 20.000001, 4)]
    assert said(tmp_path, "late") == [(4, 10, 20, 2)]
    # The last row alone: a row at the end of any session would be late by its own window.
    assert {reading.name: reading.value for reading in report.readings}["open_rows"] == 1


@pytest.mark.parametrize("late_rows", [None, Fields("n: long")], ids=["aggregates", "rows"])
def test_windows_of_windows(tmp_path: Path, late_rows: Any) -> None:
    """An event time may have the name of a column of windows, as that of closed windows has."""
    windows = WindowCommitter(
        "open",
        clock="clock",
        time="window_end",
        window=Tumbling(10 * SECOND),
        aggregates={"n": Sum("n: long")},
        late_rows=late_rows,
    )
    fields = Fields("window_end: timestamp", "n: long")
    rows = [(START + each * SECOND, each) for each in (1, 2, 11, 30)]
    builder = TransactionalTopologyBuilder("windows", "rows", MemoryTransactionalSpout(rows, fields, 1))
    clock = EventClock("clock", time="window_end", delay=SECOND)
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_state("clock", clock.state(tmp_path / "clock"))
    builder.set_committer_bolt("windows", windows).global_grouping("rows").all_grouping("clock")
    builder.set_state("open", windows.state(tmp_path / "open"))
    builder.set_bolt("append", AppendCommitter("closed")).shuffle_grouping("windows")
    builder.set_state("closed", DeltaRows(tmp_path / "closed", windows.results()))
    run_inline(builder.build())
    assert sorted(read_table(tmp_path / "closed")["n"].to_pylist()) == [3, 11]
