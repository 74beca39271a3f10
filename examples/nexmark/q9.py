"""Query 9: for each auction the highest bid while it was open, the earliest of several."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from committers import JoinStream, Last, ReduceCommitter, StreamJoin
from examples.nexmark.bolts import Rows
from examples.nexmark.q20 import OF_AUCTION, OF_BID
from examples.nexmark.sources import AUCTION, BID, EVENTS, spout
from state import read_table
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

PLACED = BID.subset(["auction", "dateTime", "extra", "bidder", "price"])
JOIN = StreamJoin(
    "bids",
    "opened",
    left=JoinStream("bids", key="auction", fields=PLACED, rename=OF_BID),
    right=JoinStream("auctions", key="id", fields=AUCTION, rename=OF_AUCTION),
)
WON = Last(
    JOIN.joined().subset([name for name in JOIN.joined() if name not in {"auction", "price"}]),
    by="price: long",
    ties="smallest",
)


def while_open(bids: pa.Table) -> pa.Table:
    """Return the bids that came while their auction was open."""
    time = pc.field("bid_dateTime")
    return bids.filter((time >= pc.field("auction_dateTime")) & (time <= pc.field("expires")))


def add_join(builder: TransactionalTopologyBuilder, join: StreamJoin, output: str) -> None:
    """Add a join of bids with their auctions, and a bolt that leaves those that came while these were open."""
    joining = builder.set_committer_bolt("join", join, 2)
    joining.fields_grouping("bids", Fields("auction")).fields_grouping("auctions", Fields("id"))
    builder.set_state("bids", join.left_table(f"{output}/bids"))
    builder.set_state("opened", join.right_table(f"{output}/opened"))
    builder.set_bolt("open", Rows(while_open, join.joined()), 2).shuffle_grouping("join")


def answer(output: str) -> pa.Table:
    """Return the table with the names that the query has."""
    names = {"auction": "auction", "won_at": "price", **{f"won_{name}": name for name in WON.field}}
    return read_table(f"{output}/answer").select(list(names)).rename_columns(names)


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q9") -> TransactionalTopology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder("nexmark-q9", "bids", spout(events, "bid", *PLACED), 2)
    builder.add_spout("auctions", spout(events, "auction"), 2)
    add_join(builder, JOIN, output)
    won = ReduceCommitter("answer", Fields("auction: long"), values={"won": WON})
    builder.set_committer_bolt("won", won, 2).fields_grouping("open", Fields("auction"))
    builder.set_state("answer", won.state(f"{output}/answer", deletion_vectors=True))
    return builder.build()
