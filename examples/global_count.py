"""Storm's TransactionalGlobalCount: counts all tuples exactly once.

Run it with ``txtopo run examples.global_count``. Run it again: every transaction is already committed, so the
count does not change.
"""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

from spouts import MemoryTransactionalSpout
from state import DeltaState, read_table
from txtopo import (
    BatchBolt,
    BatchOutputCollector,
    Config,
    Fields,
    ICommitter,
    TopologyContext,
    TransactionalTopology,
    TransactionalTopologyBuilder,
    Tuple,
    run,
)

DATA = {
    0: ["cat", "dog", "chicken", "cat", "dog", "apple"],
    1: ["cat", "dog", "apple", "banana"],
    2: ["cat", "cat", "cat", "cat", "cat", "dog", "dog", "dog", "dog"],
}
"""Storm's own words, in three partitions."""

OUTPUT = "txtopo-data/global-count"


class BatchCount(BatchBolt):
    """Counts the tuples of one batch that reach one task, in the processing phase."""

    output_fields = Fields("attempt", "count")

    def prepare(self, config: Any, context: TopologyContext, collector: BatchOutputCollector, attempt: Any) -> None:
        """Start at zero: each attempt has a fresh object."""
        self.count = 0

    def execute(self, tuple: Tuple) -> None:
        """Count one tuple."""
        self.count += 1

    def finish_batch(self) -> None:
        """Emit this task's part of the count."""
        self.collector.emit((self.attempt, self.count))


class UpdateGlobalCount(BatchBolt, ICommitter):
    """Adds the parts to the total, one transaction after another."""

    def prepare(self, config: Any, context: TopologyContext, collector: BatchOutputCollector, attempt: Any) -> None:
        """Get the state that holds the total."""
        self.state = context.state("global-count")
        self.sum = 0

    def execute(self, tuple: Tuple) -> None:
        """Add one part; this still runs in the processing phase, for many transactions at once."""
        self.sum += tuple["count"]

    def finish_batch(self) -> None:
        """Update the total in the commit phase. A replay adds nothing, because the state compares txids."""
        self.state.update("total", lambda old: (old or 0) + self.sum)


def topology(output: str = OUTPUT) -> TransactionalTopology:
    """Return the topology; the table is ``OUTPUT/global_count``."""
    spout = MemoryTransactionalSpout(DATA, Fields("word"), 3)
    builder = TransactionalTopologyBuilder("global-count", "spout", spout, 3)
    builder.set_bolt("partial-count", BatchCount(), 5).shuffle_grouping("spout")
    builder.set_committer_bolt("sum", UpdateGlobalCount(), 1).global_grouping("partial-count")
    table = f"{output}/global_count"
    builder.set_state("global-count", DeltaState(table, key=Fields("name: string"), value=Fields("n: long")))
    return builder.build()


def show_results(console: Console, output: str) -> None:
    """Print the total and the path of its table."""
    table = f"{output}/global_count"
    total = sum(read_table(table)["n"].to_pylist())
    console.print(f"{total} tuples in total; the table is {table}", soft_wrap=True)


if __name__ == "__main__":
    sys.stdout.write(f"{run(topology(), Config(max_spout_pending=3))}\n")
