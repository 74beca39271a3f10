"""A topology with two tables that add up to the same: what the audit, readers and other commands are tested on."""

import pathlib

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaState, StateKind, read_tables
from tests.acceptance.topologies import CountWords, Partial, SumDeltas, make_data
from txtopo import Fields, Topology, TransactionalTopologyBuilder
from txtopo.errors import ConfigError

DATA = make_data(2, 7)
"""Seventeen rows, which make four transactions of three rows a partition."""


def two_tables(output: pathlib.Path, *, opaque: bool = False, **options) -> Topology:
    """Return spout → partial → count (words) → sum (total): one state of each committer's own."""
    spouts = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    kind = StateKind.OPAQUE if opaque else StateKind.TRANSACTIONAL
    builder = TransactionalTopologyBuilder("crash", "spout", spouts(DATA, Fields("word"), 3), 2)
    builder.set_bolt("partial", Partial(), 2).shuffle_grouping("spout")
    builder.set_committer_bolt("count", CountWords(), 2).fields_grouping("partial", Fields("word"))
    builder.set_bolt("sum", SumDeltas(), 1).global_grouping("count")
    for name, key in (("words", "word"), ("total", "name")):
        state = DeltaState(output / name, Fields(f"{key}: string"), Fields("n: long"), kind, **options)
        builder.set_state(name, state)
    return builder.build()


class Reader:
    """Reads a view of both tables again and again: the words add up to the total, and txids do not fall."""

    def __init__(self, output: pathlib.Path) -> None:
        self.output = output
        self.txid = 0
        self.reads = 0

    def __call__(self) -> None:
        try:
            view = read_tables(self.output)
        except ConfigError:
            assert self.txid == 0, "a journal that was there stays there"
            return
        words = sum(view.tables["words"]["n"].to_pylist())
        assert words == sum(view.tables["total"]["n"].to_pylist()), view
        assert view.txid >= self.txid
        self.txid = view.txid
        self.reads += 1
