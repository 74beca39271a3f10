"""A topology whose states change between two runs; folders of earlier versions were made with it.

It must stay as it is, as :mod:`tests.legacy.interrupted` must. Its two states count the same input, so each table shows
by itself which transactions it has.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Collection

from spouts import MemoryTransactionalSpout
from state import DeltaState
from txtopo import BatchBolt, Fields, ICommitter, Topology, TransactionalTopologyBuilder

TRANSACTIONS = 90
STATES = ("always", "sometimes")


class Count(BatchBolt, ICommitter):
    """Counts the tuples in a state."""

    def __init__(self, state: str) -> None:
        self.state = state

    def prepare(self, config, context, collector, attempt):
        self.counts = context.state(self.state)
        self.tuples = 0

    def execute(self, tuple):
        self.tuples += 1

    def finish_batch(self):
        self.counts.update("all", lambda old: (old or 0) + self.tuples)


def topology(output: str | os.PathLike[str] = ".", states: Collection[str] = STATES) -> Topology:
    """Return the topology with some of its states, each with a bolt of its name."""
    spout = MemoryTransactionalSpout({0: [[number] for number in range(TRANSACTIONS)]}, Fields("number: long"), 1)
    builder = TransactionalTopologyBuilder("changed", "spout", spout, 1)
    for name in states:
        builder.set_committer_bolt(name, Count(name), 1).global_grouping("spout")
        table = DeltaState(pathlib.Path(output) / name, Fields("name: string"), Fields("n: long"))
        builder.set_state(name, table)
    return builder.build()
