"""How fast a ``StreamJoin`` is over rows that it keeps: ``python -m tests.harness.benchmarks.joins``.

It prints the rows a second of CPU time of commit groups of transactions, by rows that are kept: half of them on each
side, and each new row finds about one partner. A figure is of all that a group does: look-ups, pairs, and the writes of
both tables with the merges of their files; of it the share of the bolt, without the writes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
import pyarrow as pa

from committers import JoinStream, StreamJoin
from txtopo import Config, Fields, TransactionAttempt
from txtopo.api.data.tuples import TupleSource
from txtopo.testing.context import PlainContext
from txtopo.transactional.commit.write_buffer import group_state

SIDES = ("orders", "payments")
_LOAD_ROWS = 250_000


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


@click.command()
@click.option("--rows", multiple=True, default=(100_000, 1_000_000), show_default=True, type=click.IntRange(1_000))
@click.option("--each", default=1_000, show_default=True, type=click.IntRange(2), help="Rows of a transaction.")
@click.option("--transactions", default=20, show_default=True, type=click.IntRange(1), help="Of a group.")
@click.option("--groups", default=10, show_default=True, type=click.IntRange(1))
@click.option("--how", default="inner", show_default=True, type=click.Choice(["inner", "left"]))
def main(rows: Sequence[int], each: int, transactions: int, groups: int, how: str) -> None:
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
