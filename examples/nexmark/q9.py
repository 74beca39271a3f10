"""Query 9: for each auction the highest bid while it was open, the earliest of several."""

from __future__ import annotations

import pyarrow as pa

from examples.nexmark.q0 import PASSED
from examples.nexmark.q20 import with_auctions
from examples.nexmark.sources import EVENTS
from state import read_table
from txtopo import Fields, TransactionalTopology
from txtopo.streams import Flow, Last

OF_BID = ("bid_dateTime", "bid_extra", "bidder")
OF_AUCTION = (
    "initialBid",
    "reserve",
    "seller",
    "category",
    "itemName",
    "description",
    "auction_extra",
    "auction_dateTime",
)
WON = Last(Fields(*OF_BID, *OF_AUCTION, "expires"), by="price", ties="smallest")


def answer(output: str) -> pa.Table:
    """Return the table with the names that the query has."""
    names = {"auction": "auction", "won_at": "price", **{f"won_{name}": name for name in WON.field}}
    return read_table(f"{output}/answer").select(list(names)).rename_columns(names)


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q9") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q9", output, parallelism=2)
    bids = with_auctions(flow, events, *PASSED).filter("bid_dateTime >= auction_dateTime AND bid_dateTime <= expires")
    bids.group_by("auction").agg(won=WON).upsert("answer", deletion_vectors=True)
    return flow.build()
