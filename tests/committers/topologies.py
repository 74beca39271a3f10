"""Topologies whose committers put rows, and what their tables must hold."""

import pathlib
from collections import Counter

from committers import AppendCommitter, ReduceCommitter, ReplaceCommitter
from committers.spill import SpillLimits
from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState, read_table
from txtopo import FailedException, Fields, Topology, TransactionalTopologyBuilder

DAYS = ("mon", "tue", "wed", "thu")
TYPED = Fields("day: string", "n: long")
UNTYPED = Fields("day", "n")
BATCH = 3


def make_rows(partitions: int = 2, count: int = 8) -> dict[int, list[list[object]]]:
    """Return rows of days and numbers for each of the spout's partitions."""
    return {p: [[DAYS[(i * (p + 1)) % len(DAYS)], 100 * p + i] for i in range(count + p)] for p in range(partitions)}


def transactions_of(data) -> list[list[tuple]]:
    """Return the rows of each transaction: so many of each partition."""
    longest = max(map(len, data.values()))
    return [
        [tuple(row) for rows in data.values() for row in rows[first : first + BATCH]]
        for first in range(0, longest, BATCH)
    ]


def appended(data) -> Counter:
    """Return the rows that an appended table must hold."""
    return Counter((*row, txid) for txid, rows in enumerate(transactions_of(data), 1) for row in rows)


def replaced(data) -> Counter:
    """Return the rows that a table must hold whose partitions were replaced."""
    held: Counter = Counter()
    for txid, rows in enumerate(transactions_of(data), 1):
        days = {day for day, _ in rows}
        held = Counter({row: count for row, count in held.items() if row[0] not in days})
        held += Counter((*row, txid) for row in rows)
    return held


class FailsFirst:
    """Fails in every first attempt of one of its tasks, after it has put its rows."""

    def finish_batch(self) -> None:
        super().finish_batch()
        if self.attempt.attempt & 0xFFFF == 1 and self.context.this_task_index == 1:
            raise FailedException("once each")


def rows_topology(
    output: pathlib.Path, data=None, *, fields: Fields = TYPED, spout=None, limits: SpillLimits | None = None, **options
) -> Topology:
    """Return spout → append (rows), replace (days), reduce (sums): three tables from one stream."""
    spout = spout or MemoryTransactionalSpout(data or make_rows(), fields, BATCH)
    builder = TransactionalTopologyBuilder("rows", "spout", spout, 2)
    append, replace, reduce = AppendCommitter("rows"), ReplaceCommitter("days"), ReduceCommitter("sums", "day", "n")
    for committer in (append, replace, reduce):
        committer.spill_limits = limits or committer.spill_limits
    builder.set_bolt("append", append, 2).shuffle_grouping("spout")
    builder.set_bolt("replace", replace, 2).shuffle_grouping("spout")
    builder.set_bolt("sum", reduce, 2).fields_grouping("spout", Fields("day"))
    builder.set_state("rows", DeltaRows(output / "rows", TYPED, **options))
    builder.set_state("days", DeltaRows(output / "days", TYPED, partition_by="day", **options))
    builder.set_state("sums", DeltaState(output / "sums", Fields("day: string"), Fields("n: long"), **options))
    return builder.build()


def rows_of(table: pathlib.Path) -> Counter:
    """Return what a table of rows holds."""
    return Counter(tuple(row.values()) for row in read_table(table).to_pylist())


def check(output: pathlib.Path, data=None) -> None:
    """See that all three tables are as if each transaction had run once."""
    data = data or make_rows()
    assert rows_of(output / "rows") == appended(data)
    assert rows_of(output / "days") == replaced(data)
    sums = Counter()
    for day, n, _ in appended(data).elements():
        sums[day] += n
    assert {row["day"]: row["n"] for row in read_table(output / "sums").to_pylist()} == sums
