"""Topologies whose components fork, for tests inline and on Spark: each says how the children ended."""

import os
from pathlib import Path

from committers import AppendCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaRows
from txtopo import (
    BasicBolt,
    Fields,
    PlainTopology,
    RichBolt,
    Spout,
    TopologyBuilder,
    TransactionalTopology,
    TransactionalTopologyBuilder,
)

WAYS = ("returns", "raises", "exits")
"""How a child comes back from the code that forked it."""

STATUSES = {"returns": 1, "raises": 1, "exits": 7}


def forked(way: str) -> int:
    """Return how a child of this process ended that came back in this way."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if way == "raises":
        raise ValueError("in the child")
    if way == "exits":
        raise SystemExit(7)
    return -1


class Ways(Spout):
    """Emits each way once, and forks itself."""

    output_fields = Fields("way")

    def open(self, config, context, collector):
        self._collector = collector
        self._left = list(WAYS)

    def next_tuple(self):
        if self._left:
            assert forked("returns") == 1
            way = self._left.pop()
            self._collector.emit((way,), message_id=way)

    def is_exhausted(self):
        return not self._left


class Fork(BasicBolt):
    """Forks, and emits how the child ended."""

    output_fields = Fields("attempt", "way: string", "status: long")

    def execute(self, tuple, collector):
        collector.emit((tuple.attempt, tuple["way"], forked(tuple["way"])))


class PlainFork(BasicBolt):
    """The same in a plain topology."""

    output_fields = Fields("way", "status")

    def execute(self, tuple, collector):
        collector.emit((tuple["way"], forked(tuple["way"])))


class Write(RichBolt):
    """Adds a line for each tuple to a file; forks in a call of the batch."""

    def __init__(self, path: Path):
        self._path = path

    def prepare(self, config, context, collector):
        self._collector = collector

    def execute_batch(self, tuples):
        assert forked("returns") == 1
        with self._path.open("a") as file:
            file.writelines(f"{each['way']} {each['status']}\n" for each in tuples)
        self._collector.ack_batch(tuples)


def plain(path: Path) -> PlainTopology:
    """Return a plain topology in whose spout and bolts children come back."""
    builder = TopologyBuilder("forks")
    builder.set_spout("ways", Ways())
    builder.set_bolt("fork", PlainFork()).shuffle_grouping("ways")
    builder.set_bolt("write", Write(path)).shuffle_grouping("fork")
    return builder.build()


def transactional(path: Path) -> TransactionalTopology:
    """Return a transactional topology in whose bolt children come back."""
    spout = MemoryTransactionalSpout(list(WAYS), Fields("way: string"), 1)
    builder = TransactionalTopologyBuilder("forks", "ways", spout)
    builder.set_bolt("fork", Fork()).shuffle_grouping("ways")
    builder.set_bolt("append", AppendCommitter("statuses")).shuffle_grouping("fork")
    builder.set_state("statuses", DeltaRows(path, Fields("way: string", "status: long")))
    return builder.build()
