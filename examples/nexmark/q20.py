"""Query 20: the bids on auctions of category 10, with their auctions."""

from __future__ import annotations

from committers import AppendCommitter, JoinStream, StreamJoin
from examples.nexmark.bolts import Rows
from examples.nexmark.q3 import tens
from examples.nexmark.sources import AUCTION, BID, EVENTS, spout
from state import DeltaRows
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

OF_BID = {"dateTime": "bid_dateTime", "extra": "bid_extra"}
OF_AUCTION = {"id": "auction", "dateTime": "auction_dateTime", "extra": "auction_extra"}


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q20") -> TransactionalTopology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder("nexmark-q20", "bids", spout(events, "bid"), 2)
    builder.add_spout("auctions", spout(events, "auction"), 2)
    builder.set_bolt("tens", Rows(tens, AUCTION), 2).shuffle_grouping("auctions")
    join = StreamJoin(
        "bids",
        "opened",
        left=JoinStream("bids", key="auction", fields=BID, rename=OF_BID),
        right=JoinStream("tens", key="id", fields=AUCTION, rename=OF_AUCTION),
    )
    joining = builder.set_committer_bolt("join", join, 2)
    joining.fields_grouping("bids", Fields("auction")).fields_grouping("tens", Fields("id"))
    builder.set_state("bids", join.left_table(f"{output}/bids"))
    builder.set_state("opened", join.right_table(f"{output}/opened"))
    builder.set_committer_bolt("append", AppendCommitter("answer"), 2).shuffle_grouping("join")
    builder.set_state("answer", DeltaRows(f"{output}/answer", join.joined()))
    return builder.build()
