"""Query 18: the last bid of each bidder on each auction."""

from __future__ import annotations

import pyarrow as pa

from committers import Last, ReduceCommitter
from examples.nexmark.sources import BID, EVENTS, spout
from state import read_table
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

KEY = Fields("bidder: long", "auction: long")
LAST = Last(BID.subset(["extra", "price", "channel", "url"]), by="dateTime: timestamp")


def answer(output: str) -> pa.Table:
    """Return the table with the names that the query has."""
    names = {**{name: name for name in KEY}, "last_at": "dateTime", **{f"last_{name}": name for name in LAST.field}}
    return read_table(f"{output}/answer").select(list(names)).rename_columns(names)


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q18") -> TransactionalTopology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder("nexmark-q18", "bids", spout(events, "bid"), 2)
    last = ReduceCommitter("answer", KEY, values={"last": LAST})
    builder.set_committer_bolt("last", last, 2).fields_grouping("bids", KEY)
    builder.set_state("answer", last.state(f"{output}/answer", deletion_vectors=True))
    return builder.build()
