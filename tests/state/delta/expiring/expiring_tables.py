"""Tables of rows that expire, as their tests open and fill them, and a topology that uses one."""

import datetime as dt
import pathlib
import random
from collections import Counter

import pyarrow as pa

from committers import AppendCommitter
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaExpiringRows, DeltaRows, read_table
from tests.state.delta.delta_tables import sized
from txtopo import (
    BatchBolt,
    FailedException,
    Fields,
    ICommitter,
    Topology,
    TransactionalTopologyBuilder,
)
from txtopo.transactional.commit.write_buffer import group_state

FIELDS = Fields("k: string", "end: timestamp")
UTC = dt.UTC


def at(second: int) -> dt.datetime:
    """Return a time, so many seconds after the epoch."""
    return dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(seconds=second)


def us(second: int) -> int:
    return second * 1_000_000


def declared(path, **options) -> DeltaExpiringRows:
    return DeltaExpiringRows(path / "t", FIELDS, "end", **options)


def opened(path, *, epoch=1, sizes=None, **options):
    return sized(declared(path, **options), **(sizes or {})).open("topology", "s", "life", epoch)


def some(*rows: tuple[str, int]) -> pa.Table:
    """Return rows of a name and the second at which they expire."""
    return pa.table(
        {"k": [name for name, _ in rows], "end": [at(second) for _, second in rows]}, schema=FIELDS.arrow_schema()
    )


def held(rows: pa.Table) -> list[tuple[str, int]]:
    """Return rows as :func:`some` takes them, sorted."""
    return sorted(
        (row["k"], round((row["end"] - at(0)).total_seconds())) for row in rows.select(["k", "end"]).to_pylist()
    )


def in_table(path, txid=None, *, nearest: bool = False) -> list[tuple[str, int]]:
    return held(read_table(path / "t", txid, nearest=nearest))


def put(state, *transactions, then=None):
    """Commit a group: of each transaction its txid, and rows to append or the second up to which to take.

    Return what each call has taken.
    """
    group = group_state(state)
    taken = []
    for txid, *calls in transactions:
        view = group.begin(txid)
        for call in calls:
            if isinstance(call, int):
                taken.append(held(view.take_expired(us(call))))
            else:
                view.append(some(*call))
        view.check()
        view.finish()
    (then or state.write)(transactions[-1][0], group.writes())
    return taken


# A topology: rows that are held until a watermark passes them

BATCH = 5
"""Rows of a transaction, of each of two partitions."""


def make_rows(count: int = 40, seed: int = 7) -> dict[int, list[list[object]]]:
    """Return rows (name, second, end) of two partitions: most end soon, and some late."""
    draw = random.Random(seed)
    return {p: [[f"{p}-{i}", i, i + draw.choice([1, 3, 8, 20, 1_000])] for i in range(count + 3 * p)] for p in range(2)}


def gone(data) -> Counter:
    """Return the rows that the transactions take, with the txid of each, as the table of them must hold them."""
    longest = max(map(len, data.values()))
    found: Counter = Counter()
    open_rows: list[tuple[str, int]] = []
    for txid, first in enumerate(range(0, longest, BATCH), 1):
        batch = [row for rows in data.values() for row in rows[first : first + BATCH]]
        open_rows += [(name, end) for name, _, end in batch]
        watermark = max(second for _, second, _ in batch)
        found.update((name, end, txid) for name, end in open_rows if end <= watermark)
        open_rows = [row for row in open_rows if row[1] > watermark]
    return found


def left(data) -> list[tuple[str, int]]:
    """Return the rows that are not taken in the end."""
    taken = {name for name, _, _ in gone(data)}
    return sorted((name, end) for rows in data.values() for name, _, end in rows if name not in taken)


FAILS: set[tuple[int, int]] = set()
"""Transactions that fail at a try, each by its txid and the number of the try, after they have written all."""


class Hold(BatchBolt, ICommitter):
    """Appends what comes, takes what the largest second has passed, and emits that."""

    output_fields = Fields("attempt", "name", "end")

    def prepare(self, config, context, collector, attempt) -> None:
        self.collector, self.attempt, self.rows = collector, attempt, []
        self.state = context.state("held")
        self.watermark = 0

    def execute(self, tuple) -> None:
        self.rows.append((tuple["name"], tuple["end"]))
        self.watermark = max(self.watermark, tuple["second"])

    def finish_batch(self) -> None:
        self.state.append(some(*self.rows))
        taken = self.state.take_expired(us(self.watermark))
        if (self.attempt.txid, self.attempt.attempt) in FAILS:
            raise FailedException("once more")
        for name, end in held(taken):
            self.collector.emit((self.attempt, name, end))


def holding(output: pathlib.Path, data=None, *, opaque: bool = False, **options) -> Topology:
    """Return spout → hold (held) → append (gone)."""
    spouts = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    spout = spouts(data or make_rows(), Fields("name", "second", "end"), BATCH)
    builder = TransactionalTopologyBuilder("holding", "spout", spout, 2)
    builder.set_committer_bolt("hold", Hold(), 1).global_grouping("spout")
    builder.set_bolt("append", AppendCommitter("gone"), 1).global_grouping("hold")
    builder.set_state("held", DeltaExpiringRows(output / "held", FIELDS, "end", **options))
    builder.set_state("gone", DeltaRows(output / "gone", Fields("name: string", "end: long"), **options))
    return builder.build()


def check(output: pathlib.Path, data=None) -> None:
    """See that what was taken and what is left is as if each transaction had run once."""
    data = data or make_rows()
    assert Counter(tuple(row.values()) for row in read_table(output / "gone").to_pylist()) == gone(data)
    assert held(read_table(output / "held")) == left(data)
