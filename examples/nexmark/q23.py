"""Query 23: the bids with their bidders, and with the auctions that these sell themselves."""

from __future__ import annotations

from committers import AppendCommitter, JoinStream, StreamJoin
from examples.nexmark.q20 import OF_BID
from examples.nexmark.sources import AUCTION, BID, EVENTS, PERSON, spout
from state import DeltaRows
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

OF_PERSON = {"id": "bidder", "dateTime": "person_dateTime", "extra": "person_extra"}
OF_AUCTION = {"id": "selling", "dateTime": "auction_dateTime", "extra": "auction_extra"}


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q23") -> TransactionalTopology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder("nexmark-q23", "bids", spout(events, "bid"), 2)
    builder.add_spout("people", spout(events, "person"), 2)
    builder.add_spout("auctions", spout(events, "auction"), 2)
    sellers = StreamJoin(
        "people",
        "opened",
        left=JoinStream("people", key="id", fields=PERSON, rename=OF_PERSON),
        right=JoinStream("auctions", key="seller", fields=AUCTION, rename=OF_AUCTION),
    )
    selling = builder.set_committer_bolt("sellers", sellers, 2)
    selling.fields_grouping("people", Fields("id")).fields_grouping("auctions", Fields("seller"))
    builder.set_state("people", sellers.left_table(f"{output}/people"))
    builder.set_state("opened", sellers.right_table(f"{output}/opened"))
    join = StreamJoin(
        "bids",
        "sellers",
        left=JoinStream("bids", key="bidder", fields=BID, rename=OF_BID),
        right=JoinStream("sellers", key="bidder", fields=sellers.joined()),
    )
    joining = builder.set_committer_bolt("join", join, 2)
    joining.fields_grouping("bids", Fields("bidder")).fields_grouping("sellers", Fields("bidder"))
    builder.set_state("bids", join.left_table(f"{output}/bids"))
    builder.set_state("sellers", join.right_table(f"{output}/sellers"))
    builder.set_committer_bolt("append", AppendCommitter("answer"), 2).shuffle_grouping("join")
    builder.set_state("answer", DeltaRows(f"{output}/answer", join.joined()))
    return builder.build()
