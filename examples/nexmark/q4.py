"""Query 4: the mean of the final prices of each category's auctions: a mean over what changes with each higher bid."""

from __future__ import annotations

import pyarrow as pa

from committers import Count, JoinStream, Max, Mean, ReduceCommitter, StreamJoin
from examples.nexmark.q9 import add_join
from examples.nexmark.sources import AUCTION, BID, EVENTS, spout
from state import read_table
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

PLACED = BID.subset(["auction", "dateTime", "price"])
OPENED = AUCTION.subset(["id", "category", "dateTime", "expires"])
FINALS = ReduceCommitter(
    "finals", Fields("auction: long"), values={"category": Max("category: long"), "price": Max("price: long")}
)
MEANS = ReduceCommitter(
    "answer", Fields("category: long"), values={"auctions": Count(), "final": Mean("price: long")}, diff="diff"
)


def answer(output: str) -> pa.Table:
    """Return the means of the table."""
    return MEANS.results(read_table(f"{output}/answer"))


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q4") -> TransactionalTopology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder("nexmark-q4", "bids", spout(events, "bid", *PLACED), 2)
    builder.add_spout("auctions", spout(events, "auction", *OPENED), 2)
    join = StreamJoin(
        "bids",
        "opened",
        left=JoinStream("bids", key="auction", fields=PLACED, rename={"dateTime": "bid_dateTime"}),
        right=JoinStream("auctions", key="id", fields=OPENED, rename={"id": "auction", "dateTime": "auction_dateTime"}),
    )
    add_join(builder, join, output)
    builder.set_committer_bolt("finals", FINALS, 2).fields_grouping("open", Fields("auction"))
    builder.set_state("finals", FINALS.state(f"{output}/finals", deletion_vectors=True))
    builder.set_committer_bolt("means", MEANS).fields_grouping("finals", Fields("category"), "changes")
    builder.set_state("answer", MEANS.state(f"{output}/answer"))
    return builder.build()
