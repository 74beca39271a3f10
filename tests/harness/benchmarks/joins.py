"""How fast joins of two streams are: ``python -m tests.harness.benchmarks.joins kept``, or ``intervals``.

*kept* prints the rows a second of CPU time of commit groups of a ``StreamJoin``, by rows that are kept: half of them on
each side, and each new row finds about one partner. A figure is of all that a group does: look-ups, pairs, and the
writes of both tables with the merges of their files; of it the share of the bolt, without the writes.

*intervals* runs an ``IntervalJoin`` beside Structured Streaming's over the same files, once over a few to warm up and
once measured, and compares every joined row with one join of all. Orders come over 100 minutes, and a payment of 95 in
100 of them, 5 in 100 of these after the ten minutes that it may take: so a tenth of the orders is kept at any time.
"""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession, functions as F

from committers import JoinStream, StreamJoin
from spouts import FilesTransactionalSpout
from state import read_table
from tests.harness.benchmarks.core_secs import CoreSecs
from tests.harness.benchmarks.inputs import FILES, write_transactions
from tests.harness.benchmarks.nexmark.structured_streaming import session_of
from tests.harness.benchmarks.session import benchmark_session
from txtopo import Config, Fields, TransactionAttempt, run
from txtopo.api.data.tuples import TupleSource
from txtopo.streams import Flow
from txtopo.testing.context import PlainContext
from txtopo.topology.plans.description import fields_text
from txtopo.transactional.commit.write_buffer import group_state

SIDES = ("orders", "payments")
_LOAD_ROWS = 250_000

ORDER, PAYMENT = (
    Fields("id: string", "at: timestamp", "price: long"),
    Fields("order: string", "paid_at: timestamp", "sum: long"),
)
JOINED = ("id", "at", "price", "paid_at", "sum")
WITHIN_SECS, SPAN_SECS, DELAY_SECS = 600, 6_000, 10
_START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_PAID_SHARE, _TOO_LATE_SHARE = 0.95, 0.05


@attrs.define(eq=False)
class Context(PlainContext):
    """A context of batches from one component after another."""

    source: Any = None


class Pairs:
    """A collector that counts rows."""

    rows = 0

    def emit_batch(self, batch: pa.RecordBatch) -> None:
        """Count a batch."""
        self.rows += batch.num_rows


class Joined:
    """A join with its two tables, and the groups that it gets.

    Args:
        path: the folder of the tables.
        keys: how many keys there are.
        how: as of a ``StreamJoin``.
    """

    def __init__(self, path: Path, keys: int, how: Any) -> None:
        streams = (JoinStream(side, key="id", fields=Fields("id: long", f"{side}: long")) for side in SIDES)
        left, right = streams
        self._join = StreamJoin(*SIDES, left=left, right=right, how=how)
        tables = (self._join.left_table(path / "orders"), self._join.right_table(path / "payments"))
        self._states = [each.open("benchmark", side, "life", 1) for each, side in zip(tables, SIDES, strict=True)]
        for state in self._states:
            state.hold_rows(Config().state_bytes_max)  # type: ignore[attr-defined] # expiring rows are held
        self._keys, self._drawing, self._txid = keys, np.random.default_rng(7), 0
        self.bolt_secs = 0.0
        self.pairs = Pairs()

    def group(self, sizes: Sequence[int]) -> float:
        """Join a group of transactions with so many rows each; return its CPU seconds."""
        given = [[self._rows(side, size // 2) for side in SIDES] for size in sizes]
        began = time.process_time()
        groups = [group_state(state) for state in self._states]
        for batches in given:
            self._txid += 1
            views = [each.begin(self._txid) for each in groups]
            self._transaction(dict(zip(SIDES, views, strict=True)), batches)
            for view in views:
                view.check()
                view.finish()
        self.bolt_secs += time.process_time() - began
        for state, each in zip(self._states, groups, strict=True):
            state.write(self._txid, each.writes())
            state.maintain()
        return time.process_time() - began

    def _transaction(self, views: dict[str, Any], batches: Sequence[pa.RecordBatch]) -> None:
        context = Context(states=views)
        self._join.context = context
        self._join.collector = self.pairs  # type: ignore[assignment]
        self._join.attempt = TransactionAttempt(self._txid, 1)
        self._join.prepare({}, context, self._join.collector, self._join.attempt)
        for side, batch in zip(SIDES, batches, strict=True):
            context.source = TupleSource(side, "default", 0, Fields(*batch.schema.names))
            self._join.execute_batch(batch)
        self._join.finish_batch()

    def _rows(self, side: str, count: int) -> pa.RecordBatch:
        keys = pa.array(self._drawing.integers(0, self._keys, count))
        return pa.RecordBatch.from_arrays([keys, pa.array(np.arange(count))], names=["id", side])

    def close(self) -> None:
        """End what goes on beside the groups."""
        for state in self._states:
            state.close()


@attrs.frozen
class Orders:
    """Orders, and as many payments, each in the order of their times, so that none is late; ids are as long as uuids."""

    orders: pa.Table
    payments: pa.Table

    @classmethod
    def made(cls, count: int) -> Orders:
        """Return so many, always the same."""
        drawing, due_us = np.random.default_rng(7), np.arange(count) * (SPAN_SECS * 1_000_000) // count
        ids = np.char.zfill((np.arange(count) * 7919 % count).astype(str), 36)
        after_us = drawing.integers(0, WITHIN_SECS * 1_000_000 + 1, count)
        after_us[drawing.random(count) < _TOO_LATE_SHARE] += WITHIN_SECS * 1_000_000 + 1
        order = np.argsort(due_us + after_us, kind="stable")
        paid = np.where(drawing.random(count) < _PAID_SHARE, ids, "of no order")
        return cls(
            *(
                pa.Table.from_arrays([pa.array(keys), _times(times), pa.array(drawing.integers(1, 100, count))], names)
                for keys, times, names in (
                    (ids, due_us, ORDER.names),
                    (paid[order], (due_us + after_us)[order], PAYMENT.names),
                )
            )
        )

    def first(self, count: int) -> Orders:
        """Return the first orders and payments."""
        return Orders(self.orders.slice(0, count), self.payments.slice(0, count))

    def joined(self) -> pa.Table:
        """Return each order with each payment that came in time, by one join of all."""
        both = self.orders.join(self.payments, "id", "order", "inner")
        after = np.subtract(*(both[name].cast(pa.int64()).to_numpy() for name in ("paid_at", "at")))
        return _sorted(both.filter(pa.array((after >= 0) & (after <= WITHIN_SECS * 1_000_000))))


def by_txtopo(orders: Path, payments: Path, output: Path, spark: SparkSession) -> None:
    """Join by an ``IntervalJoin``, on Spark."""
    flow = Flow("intervals", output, parallelism=FILES)
    left, right = (
        flow.source(name, FilesTransactionalSpout(path, fields, batch_bytes=2**40, batch_files_max=FILES)).event_time(
            time, delay=f"{DELAY_SECS}s"
        )
        for name, path, fields, time in (("orders", orders, ORDER, "at"), ("payments", payments, PAYMENT, "paid_at"))
    )
    left.join(right, {"id": "order"}, upper=f"{WITHIN_SECS}s").append("joined")
    run(flow.build(), Config(), spark=spark)


def by_structured_streaming(orders: Path, payments: Path, output: Path, spark: SparkSession) -> None:
    """Join by a stream-stream join that is appended to Delta."""
    session = session_of(spark)
    left, right = (
        session.readStream.schema(fields_text(fields).replace(":", ""))
        .option("maxFilesPerTrigger", FILES)
        .parquet(str(path))
        .withWatermark(time, f"{DELAY_SECS} seconds")
        for path, fields, time in ((orders, ORDER, "at"), (payments, PAYMENT, "paid_at"))
    )
    within = f"id = order AND paid_at BETWEEN at AND at + INTERVAL {WITHIN_SECS} SECONDS"
    rows = left.join(right, F.expr(within)).select(*JOINED)
    writer = rows.writeStream.format("delta").option("checkpointLocation", str(output / "checkpoint"))
    writer.trigger(availableNow=True).start(str(output / "joined")).awaitTermination()


SYSTEMS: Mapping[str, Callable[[Path, Path, Path, SparkSession], None]] = {
    "txtopo": by_txtopo,
    "Structured Streaming": by_structured_streaming,
}


def _times(since_start_us: Any) -> pa.Array:
    return pa.array(since_start_us + int(_START.timestamp()) * 1_000_000).cast(pa.timestamp("us", "UTC"))


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.select(JOINED).sort_by([(name, "ascending") for name in JOINED])


@click.group()
def main() -> None:
    """Measure joins of two streams."""


@main.command()
@click.option("--each", multiple=True, default=(20_000, 500_000), show_default=True, help="Rows of a transaction.")
@click.option("--transactions", default=30, show_default=True, type=click.IntRange(2), help="Of each size, at most.")
@click.option("--rows", default=2_000_000, show_default=True, type=click.IntRange(1_000), help="Of each size, at most.")
def intervals(each: Sequence[int], transactions: int, rows: int) -> None:
    """Print how fast an IntervalJoin is, beside Structured Streaming."""
    with tempfile.TemporaryDirectory(prefix="txtopo-benchmark-") as name, benchmark_session() as spark:
        for size in each:
            count = min(rows, size * transactions) // 2
            parts = {"few": Orders.made(count).first(size), "all": Orders.made(count)}
            rates = []
            for system, join in SYSTEMS.items():
                for part, made in parts.items():
                    folder = Path(name, str(size), part)
                    sources = [
                        write_transactions(folder / side, getattr(made, side), size // 2)  # half of each
                        for side in SIDES
                    ]
                    shutil.rmtree(output := folder / "output", ignore_errors=True)
                    began, cores = time.perf_counter(), CoreSecs.now()
                    join(*sources, output, spark)
                    secs, core_secs = time.perf_counter() - began, sum(CoreSecs.now().since(cores))
                expected = made.joined()
                if not _sorted(read_table(output / "joined")).cast(expected.schema).equals(expected):
                    raise click.ClickException(f"{system}: the rows are not those of one join of all")
                rates.append((2 * count / secs, 2 * count / core_secs))
                click.echo(
                    f"{size:,} rows a transaction, {2 * count:,} rows, {expected.num_rows:,} joined: {system}: "
                    f"{rates[-1][0]:,.0f} rows/s, {rates[-1][1]:,.0f} rows a CPU-second"
                )
            (own, own_cores), (peer, peer_cores) = rates
            click.echo(
                f"{size:,} rows a transaction: {own / peer:.1f}x by the clock, {own_cores / peer_cores:.1f}x by CPU"
            )


@main.command()
@click.option("--rows", multiple=True, default=(100_000, 1_000_000), show_default=True, type=click.IntRange(1_000))
@click.option("--each", default=1_000, show_default=True, type=click.IntRange(2), help="Rows of a transaction.")
@click.option("--transactions", default=20, show_default=True, type=click.IntRange(1), help="Of a group.")
@click.option("--groups", default=10, show_default=True, type=click.IntRange(1))
@click.option("--how", default="inner", show_default=True, type=click.Choice(["inner", "left"]))
def kept(rows: Sequence[int], each: int, transactions: int, groups: int, how: str) -> None:
    """Print how fast rows are joined, by how many are kept."""
    for count in rows:
        with tempfile.TemporaryDirectory(prefix="txtopo-benchmark-") as folder:
            joined = Joined(Path(folder), count // 2, how)
            for start in range(0, count, _LOAD_ROWS):
                joined.group([min(_LOAD_ROWS, count - start)])
            joined.group([each] * transactions)  # which makes the index
            joined.bolt_secs, joined.pairs.rows = 0.0, 0
            secs = sum(joined.group([each] * transactions) for _ in range(groups))
            done = groups * transactions * each
            click.echo(
                f"{count:,} rows kept: {done / secs:,.0f} rows a CPU-second, {done / joined.bolt_secs:,.0f} without the "
                f"writes; {joined.pairs.rows / done:.2f} pairs a row"
            )
            joined.close()


if __name__ == "__main__":
    main()
