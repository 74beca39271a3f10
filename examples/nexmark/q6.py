"""Query 6: the mean of the final prices of each seller's last 10 auctions, which change as auctions are bid for."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from committers import Count, JoinStream, LastN, Max, Mean, ReduceCommitter, StreamJoin
from examples.nexmark.bolts import Rows
from examples.nexmark.q9 import add_join
from examples.nexmark.sources import AUCTION, BID, EVENTS, spout
from state import read_table
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

PLACED = BID.subset(["auction", "dateTime", "price"])
OPENED = AUCTION.subset(["id", "seller", "dateTime", "expires"])
SELLER = Fields("seller: long")
FINALS = ReduceCommitter(
    "finals",
    Fields("auction: long"),
    values={"seller": Max("seller: long"), "expires": Max("expires: timestamp"), "price": Max("price: long")},
)
LASTS = ReduceCommitter(
    "lasts",
    SELLER,
    values={
        "auctions": Count(),
        "last": LastN(Fields("auction: long", "price: long"), n=10, by="expires: timestamp"),
    },
    diff="diff",
)
MEANS = ReduceCommitter("answer", SELLER, values={"auctions": Count(), "final": Mean("price: long")}, diff="diff")


def of_lists(changes: pa.Table) -> pa.Table:
    """Return a row for each auction in the lists."""
    lists = changes["last"].combine_chunks()
    of = pc.list_parent_indices(lists)
    made = {"seller": changes["seller"].take(of), "price": lists.flatten().field("price")}
    return pa.table({**made, "diff": changes["diff"].take(of)})


def answer(output: str) -> pa.Table:
    """Return the means of the table."""
    return MEANS.results(read_table(f"{output}/answer"))


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q6") -> TransactionalTopology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder("nexmark-q6", "bids", spout(events, "bid", *PLACED), 2)
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
    builder.set_committer_bolt("lasts", LASTS, 2).fields_grouping("finals", SELLER, "changes")
    builder.set_state("lasts", LASTS.state(f"{output}/lasts", deletion_vectors=True))
    last = Rows(of_lists, SELLER + Fields("price: long", "diff: long"))
    builder.set_bolt("each", last, 2).fields_grouping("lasts", SELLER, "changes")
    builder.set_committer_bolt("means", MEANS, 2).fields_grouping("each", SELLER)
    builder.set_state("answer", MEANS.state(f"{output}/answer", deletion_vectors=True))
    return builder.build()
