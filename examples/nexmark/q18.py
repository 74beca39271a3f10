"""Query 18: the last bid of each bidder on each auction."""

from __future__ import annotations

import pyarrow as pa

from examples.nexmark.sources import EVENTS, spout
from state import read_table
from txtopo import Fields, TransactionalTopology
from txtopo.streams import Flow, Last

LAST = Last(Fields("extra", "price", "channel", "url"), by="dateTime")


def answer(output: str) -> pa.Table:
    """Return the table with the names that the query has."""
    names = {"bidder": "bidder", "auction": "auction", "bid_at": "dateTime"}
    names |= {f"bid_{name}": name for name in LAST.field}
    return read_table(f"{output}/answer").select(list(names)).rename_columns(names)


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q18") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q18", output, parallelism=2)
    bids = flow.source("bids", spout(events, "bid")).group_by("bidder", "auction")
    bids.agg(bid=LAST).upsert("answer", deletion_vectors=True)
    return flow.build()
