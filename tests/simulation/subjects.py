"""Topologies that the simulator is let loose on, and what must hold of their tables."""

import operator
from collections.abc import Mapping
from typing import Any

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import MemoryState
from txtopo import (
    BasicBolt,
    BatchBolt,
    Fields,
    ICommitter,
    Topology,
    TransactionalTopologyBuilder,
)
from txtopo.api.values import StateKind

DATA = {
    0: [[word] for word in ["cat", "dog", "cat", "apple", "zebra", "dog", "cat", "bird"]],
    1: [[word] for word in ["dog", "dog", "apple", "cat"]],
    2: [[word] for word in ["zebra", "cat", "bird", "bird", "apple", "dog"]],
}


class Partial(BatchBolt):
    output_fields = Fields("attempt", "word", "count")

    def prepare(self, config, context, collector, attempt):
        self.counts: dict[str, int] = {}

    def execute(self, tuple):
        self.counts[tuple["word"]] = self.counts.get(tuple["word"], 0) + 1

    def finish_batch(self):
        for word, count in self.counts.items():
            self.collector.emit((self.attempt, word, count))


class Count(BatchBolt, ICommitter):
    """Counts words, and takes those out again that have come four times."""

    output_fields = Fields("attempt", "delta")

    def prepare(self, config, context, collector, attempt):
        self.words = context.state("words")
        self.counts: dict[str, int] = {}

    def execute(self, tuple):
        self.counts[tuple["word"]] = self.counts.get(tuple["word"], 0) + tuple["count"]

    def finish_batch(self):
        self.words.multi_reduce(self.counts, operator.add)
        for count in self.counts.values():
            self.collector.emit((self.attempt, count))


class Double(BasicBolt):
    output_fields = Fields("attempt", "delta")

    def execute(self, tuple, collector):
        collector.emit((tuple.attempt, 2 * tuple["delta"]))


class Total(BatchBolt, ICommitter):
    def prepare(self, config, context, collector, attempt):
        self.total = context.state("total")
        self.sum = 0

    def execute(self, tuple):
        self.sum += tuple["delta"]

    def finish_batch(self):
        if self.sum:
            self.total.update("twice", lambda old: (old or 0) + self.sum)


LONG_DATA = {0: [[word] for word in "abacbdacbcdabdcabbcdacbadcbadbcaacdbbadc"]}
"""Of which two make a transaction: twenty of them, so that a process lives long enough to delete what it has replaced."""


def words(*, opaque_source: bool = False, opaque_state: bool = False, data: Any = DATA) -> Topology:
    """A committer, a bolt below it, and a committer below that; two tables."""
    kind = StateKind.OPAQUE if opaque_state else StateKind.TRANSACTIONAL
    spout: Any = (OpaqueMemoryTransactionalSpout if opaque_source else MemoryTransactionalSpout)(
        data, Fields("word"), 2
    )
    builder = TransactionalTopologyBuilder("words", "spout", spout, 2)
    builder.set_bolt("partial", Partial(), 2).shuffle_grouping("spout")
    builder.set_committer_bolt("count", Count(), 2).fields_grouping("partial", Fields("word"))
    builder.set_bolt("double", Double(), 1).global_grouping("count")
    builder.set_committer_bolt("total", Total(), 1).global_grouping("double")
    builder.set_state("words", MemoryState(Fields("word: string"), Fields("n: long"), kind))  # folded in columns
    builder.set_state("total", MemoryState(Fields("name"), Fields("n"), kind))
    return builder.build()


def topology(opaque_source: bool = False, opaque_state: bool = False) -> Topology:
    """For ``txtopo simulate tests.simulation.subjects``."""
    return words(opaque_source=opaque_source, opaque_state=opaque_state)


def check_state(tables: Mapping[str, Mapping[Any, Any]]) -> None:
    """One table is never behind the other."""
    assert tables["total"].get("twice", 0) == 2 * sum(tables["words"].values())
