"""What the tests of drivers submit: a folder with one module, which counts in a Delta table, slowly if asked to."""

import time
from pathlib import Path
from typing import Any

from state import DeltaState
from txtopo import (
    BatchBolt,
    Config,
    Coordinator,
    Emitter,
    Fields,
    ICommitter,
    Topology,
    TransactionalSpout,
    TransactionalTopologyBuilder,
)

KEYS = 7
ROWS = 10


class PacedCoordinator(Coordinator):
    """Begins transactions with pauses in between, up to a total."""

    def __init__(self, total: int, pause_secs: float) -> None:
        self.total, self.pause_secs = total, pause_secs
        self.last = 0
        self.next_at = 0.0

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        self.last, self.next_at = txid, time.monotonic() + self.pause_secs
        return txid

    def resume(self, txid: int, metadata: Any) -> None:
        self.last = txid

    def is_ready(self) -> bool:
        return time.monotonic() >= self.next_at

    def is_exhausted(self) -> bool:
        return self.last >= self.total


class PacedEmitter(Emitter):
    """Emits ROWS keys for a transaction, from one task."""

    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None:
        for row in range(ROWS):
            collector.emit((attempt, (metadata * ROWS + row) % KEYS))


class PacedSpout(TransactionalSpout):
    """Emits numbers."""

    output_fields = Fields("attempt", "key: long")

    def __init__(self, total: int, pause_secs: float) -> None:
        self.total, self.pause_secs = total, pause_secs

    def coordinator(self, config: Any, context: Any) -> Coordinator:
        return PacedCoordinator(self.total, self.pause_secs)

    def emitter(self, config: Any, context: Any) -> Emitter:
        return PacedEmitter()


class Count(BatchBolt, ICommitter):
    """Counts each key; raises an error of its own at a transaction, if asked to."""

    def __init__(self, step: int, bug_at: int) -> None:
        self.step, self.bug_at = step, bug_at

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.state = context.state("counts")
        self.txid = attempt.txid
        self.counts: dict[int, int] = {}

    def execute(self, tuple: Any) -> None:
        self.counts[tuple["key"]] = self.counts.get(tuple["key"], 0) + self.step

    def finish_batch(self) -> None:
        if self.txid == self.bug_at:
            raise ValueError("a bug in the committer")
        self.state.multi_update(list(self.counts), lambda key, old: (old or 0) + self.counts[key])


def topology(output: str, total: int = 40, pause: float = 0.1, bug_at: int = 0, name: str = "counting") -> Topology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder(name, "numbers", PacedSpout(total, pause), 1)
    builder.set_committer_bolt("count", Count(1, bug_at), 1).global_grouping("numbers")
    table = DeltaState(Path(output) / "counts", key=Fields("key: long"), value=Fields("count: long"))
    builder.set_state("counts", table)
    return builder.build()


def config() -> Config:
    """Return its configuration: one core, a small window, so that much commits while things are killed."""
    return Config(spark_master="local[1]", max_spout_pending=4)
