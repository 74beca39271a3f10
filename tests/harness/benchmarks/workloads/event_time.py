"""Event time: windows and deduplication below a watermark, beside Structured Streaming and bytewax."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from tests.harness.benchmarks.event_time import topologies
from tests.harness.benchmarks.event_time.bytewax_peer import BYTEWAX, bytewax_python, windows_by_bytewax
from tests.harness.benchmarks.event_time.doubled import KEYS as DISTINCT, DoubledEvents
from tests.harness.benchmarks.event_time.events import (
    COLUMNS,
    EVENTS,
    KEYS,
    AfterBatches,
    AfterEvents,
    Events,
    LateRule,
    answers,
    check_rows,
    check_windows,
)
from tests.harness.benchmarks.event_time.files import write_transactions
from tests.harness.benchmarks.event_time.orders import MINUTES, ORDER, ORDERS, PAYMENT, Orders, joined_of
from tests.harness.benchmarks.event_time.ours import events_contender
from tests.harness.benchmarks.event_time.streaming_peer import (
    STREAMING,
    Read,
    joined as joined_streams,
    once_each,
    stream_into_delta,
    windows_of,
)
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.txtopo_contender import TXTOPO

SMALL, LARGE = "small transactions", "large transactions"
ROWS = {SMALL: 20_000, LARGE: 500_000}
"""Events of a transaction."""

SMALL_BATCHES = 30
"""Small batches of windows of Structured Streaming in a round: it needs minutes for all, and is not slower later on."""

SKIPPED = {SMALL: 2, LARGE: 1}
"""Batches that start a stream."""

UNIT = Unit("events/s")

_WINDOWS_SCHEMA = "key string, at timestamp, value long"
_DOUBLED_SCHEMA = "id long, at timestamp, value long"


def windows_dense(bench: Bench) -> Outcome:
    """Measure windows of many events each: they are reduced to few rows."""
    return _windows(bench, "windows_dense", minutes=10, bound=5)


def windows_sparse(bench: Bench) -> Outcome:
    """Measure windows of two events each, which reduce hardly at all."""
    return _windows(bench, "windows_sparse", minutes=1_000, bound=2)


def deduplication(bench: Bench) -> Outcome:
    """Measure deduplication of as many keys as there are events, all of them known to the end."""
    measured = measure(_deduplicating, bench)
    keys = bench.times(DISTINCT, 1_000)
    return Outcome(
        workload="deduplication",
        title=f"{keys:,} keys, 5 % of them twice, known for as long as all of it lasts",
        unit=UNIT,
        lines=measured.lines,
        targets=tuple(Target(_name(TXTOPO, size), _name(STREAMING, size), 1.5) for size in ROWS),
        phases=measured.phases,
        notes=(*_notes(bench, keys), "Structured Streaming by dropDuplicatesWithinWatermark"),
    )


def interval_join(bench: Bench) -> Outcome:
    """Measure an inner join of two streams by key within ten minutes, of a hundred."""
    measured = measure(_joining, bench)
    orders = bench.times(ORDERS, 1_000)
    return Outcome(
        workload="interval_join",
        title=f"{orders:,} orders over {MINUTES} minutes, joined with as many payments that come within ten of them",
        unit=UNIT,
        lines=measured.lines,
        targets=(
            Target(_name(TXTOPO, SMALL), _name(STREAMING, SMALL), 10),
            Target(_name(TXTOPO, LARGE), _name(STREAMING, LARGE), 3),
        ),
        phases=measured.phases,
        notes=(
            *_notes(bench, 2 * orders),
            f"with {SMALL}, {STREAMING} is measured over at most {SMALL_BATCHES} of them",
        ),
    )


def _windows(bench: Bench, workload: str, minutes: int, bound: float) -> Outcome:
    python = bytewax_python()
    measured = measure(functools.partial(_windowing, minutes=minutes, python=python), bench)
    events = _events(bench, minutes)
    return Outcome(
        workload=workload,
        title=f"{events.count:,} events over {minutes:,} minutes, {KEYS:,} keys, one-minute windows, 5 % late",
        unit=UNIT,
        lines=measured.lines,
        targets=(
            Target(_name(TXTOPO, SMALL), _name(STREAMING, SMALL), 20),
            Target(_name(TXTOPO, LARGE), _name(STREAMING, LARGE), bound),
            Target(_name(TXTOPO, LARGE), BYTEWAX, 5),
        ),
        phases=measured.phases,
        notes=(
            *_notes(bench, events.count),
            *_answered(bench, events),
            f"with {SMALL}, {STREAMING} is measured over at most {SMALL_BATCHES} of them",
            f"{BYTEWAX}: no recovery, no table, results kept in memory; from the start of the flow to its end",
            *([python] if isinstance(python, str) else []),
        ),
    )


def _windowing(bench: Bench, *, minutes: int, python: Path | str) -> Sequence[Contender]:
    events = _events(bench, minutes).table()
    inputs = bench.work / "inputs" / f"{minutes} minutes"
    contenders = []
    for size, rows in _sizes(bench, len(events)).items():
        source = write_transactions(inputs / f"{size}, {len(events)}", events, rows)
        make = functools.partial(topologies.windows, source)
        check = functools.partial(_check_windows, _name(TXTOPO, size), events, AfterBatches(rows, lag=1), "closed")
        contenders.append(events_contender(bench.spark, _name(TXTOPO, size), make, len(events), check))
        first = events.slice(0, rows * SMALL_BATCHES) if size == SMALL else events
        peers_source = write_transactions(inputs / f"{size}, {len(first)}", first, rows)
        check = functools.partial(_check_windows, _name(STREAMING, size), first, AfterBatches(rows, lag=2), "table")
        contenders.append(
            _streaming(bench, size, functools.partial(_of_one, peers_source, _WINDOWS_SCHEMA, windows_of), check)
        )
    if isinstance(python, Path):
        contenders.append(_bytewax(python, inputs / f"{LARGE}, {len(events)}", events))
    return contenders


def _deduplicating(bench: Bench) -> Sequence[Contender]:
    doubled = DoubledEvents(bench.times(DISTINCT, 1_000))
    events, once = doubled.table(), doubled.once()
    contenders = []
    for size, rows in _sizes(bench, len(events)).items():
        source = write_transactions(bench.work / "inputs" / "doubled" / f"{size}, {len(events)}", events, rows)
        make = functools.partial(topologies.once_each, source)
        check = functools.partial(_check_once, _name(TXTOPO, size), once, "closed")
        contenders.append(events_contender(bench.spark, _name(TXTOPO, size), make, len(events), check))
        check = functools.partial(_check_once, _name(STREAMING, size), once, "table")
        contenders.append(
            _streaming(bench, size, functools.partial(_of_one, source, _DOUBLED_SCHEMA, once_each), check)
        )
    return contenders


def _joining(bench: Bench) -> Sequence[Contender]:
    made = Orders(bench.times(ORDERS, 1_000))
    contenders = []
    for size, rows in _sizes(bench, 2 * made.count).items():
        share = rows // 2
        folders, joined = _orders(bench, made, made.count, share)
        make = functools.partial(topologies.joined, *folders)
        check = functools.partial(_check_joined, _name(TXTOPO, size), joined, "closed")
        contenders.append(events_contender(bench.spark, _name(TXTOPO, size), make, 2 * made.count, check))
        first = min(made.count, share * SMALL_BATCHES) if size == SMALL else made.count
        folders, joined = _orders(bench, made, first, share)
        check = functools.partial(_check_joined, _name(STREAMING, size), joined, "table")
        contenders.append(_streaming(bench, size, functools.partial(_joined_of, folders), check))
    return contenders


def _orders(bench: Bench, made: Orders, first: int, share: int) -> tuple[list[Path], pa.Table]:
    """Write the first orders and payments in transactions of a share each; return their folders, and what they join to."""
    tables = {"orders": made.orders.slice(0, first), "payments": made.payments.slice(0, first)}
    inputs = bench.work / "inputs"
    folders = [
        write_transactions(inputs / f"{first} {name} by {share}", table, share) for name, table in tables.items()
    ]
    return folders, joined_of(*tables.values())


def _joined_of(sources: Sequence[Path], read: Read) -> DataFrame:
    orders, payments = map(read, sources, (ORDER, PAYMENT))
    return joined_streams(orders, payments)


def _of_one(source: Path, schema: str, transform: Callable[[DataFrame], DataFrame], read: Read) -> DataFrame:
    return transform(read(source, schema))


def _streaming(bench: Bench, size: str, make: Callable[[Read], DataFrame], check: Callable[[Path], None]) -> Contender:
    def once(folder: Path) -> Sample:
        rate = stream_into_delta(bench.spark, make, folder, SKIPPED[size])
        check(folder)
        return Sample({"": rate})

    return Contender(_name(STREAMING, size), Role.PEER, once, needs_delta_jars=True)


def _bytewax(python: Path, source: Path, events: pa.Table) -> Contender:
    def once(folder: Path) -> Sample:
        secs, closed = windows_by_bytewax(python, source, folder)
        check_windows(BYTEWAX, closed, answers(events, AfterEvents()))
        return Sample({"": len(events) / secs})

    return Contender(BYTEWAX, Role.PEER, once)


def _check_windows(who: str, events: pa.Table, rule: LateRule, table: str, folder: Path) -> None:
    check_windows(who, _read(folder / table, COLUMNS), answers(events, rule))


def _check_once(who: str, once: pa.Table, table: str, folder: Path) -> None:
    check_rows(who, _read(folder / table, once.column_names), once, "id")


def _check_joined(who: str, joined: pa.Table, table: str, folder: Path) -> None:
    order = [(name, "ascending") for name in joined.column_names]
    if not _read(folder / table, joined.column_names).cast(joined.schema).sort_by(order).equals(joined.sort_by(order)):
        raise AssertionError(f"{who}: the joined rows are not those of one join of all orders and payments")


def _read(table: Path, columns: Sequence[str]) -> pa.Table:
    return pa.table(DeltaTable(str(table)).scan(columns=list(columns)))


def _name(who: str, size: str) -> str:
    return f"{who}, {size}"


def _events(bench: Bench, minutes: int) -> Events:
    return Events(bench.times(EVENTS, 1_000), minutes)


def _sizes(bench: Bench, events: int) -> dict[str, int]:
    """Return the events of a transaction; in a small run there are at least ten small ones, and always four large ones."""
    return {SMALL: min(ROWS[SMALL], -(-events // 10)), LARGE: -(-events // 4)}


def _notes(bench: Bench, events: int) -> tuple[str, ...]:
    sizes = ", ".join(f"{size}: {rows:,} events" for size, rows in _sizes(bench, events).items())
    return (
        sizes,
        "txtopo's figure is for all transactions from start to stop",
        f"{STREAMING}'s is from its second large batch on, or its third small one, to the last one with events",
    )


def _answered(bench: Bench, events: Events) -> list[str]:
    """Return what each rule for late events says; each contender is checked by its own."""
    table, sizes = events.table(), _sizes(bench, events.count)
    rules = {
        **{_name(TXTOPO, size): AfterBatches(rows, lag=1) for size, rows in sizes.items()},
        **{_name(STREAMING, size): AfterBatches(rows, lag=2) for size, rows in sizes.items()},
        BYTEWAX: AfterEvents(),
    }
    found = {who: answers(table, rule) for who, rule in rules.items()}
    return [
        f"{who}: of all events, {each.late:,} are too late, {each.windows.num_rows:,} windows close"
        for who, each in found.items()
    ]
