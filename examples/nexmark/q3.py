"""Query 3: the people of three states who opened auctions of category 10, and these."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from committers import AppendCommitter, JoinStream, StreamJoin
from examples.nexmark.bolts import Rows
from examples.nexmark.sources import AUCTION, EVENTS, PERSON, spout
from state import DeltaRows
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

SELLER = PERSON.subset(["id", "name", "city", "state"])
OPENED = AUCTION.subset(["id", "seller"])


def near(people: pa.Table) -> pa.Table:
    """Return the people of the three states."""
    return people.filter(pc.is_in(people["state"], pa.array(["OR", "ID", "CA"])))


def tens(auctions: pa.Table) -> pa.Table:
    """Return the auctions of category 10."""
    return auctions.filter(pc.equal(auctions["category"], 10))


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q3") -> TransactionalTopology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder("nexmark-q3", "people", spout(events, "person", *SELLER), 2)
    builder.add_spout("auctions", spout(events, "auction", "id", "seller", "category"), 2)
    builder.set_bolt("near", Rows(near, SELLER), 2).shuffle_grouping("people")
    builder.set_bolt("tens", Rows(tens, OPENED), 2).shuffle_grouping("auctions")
    join = StreamJoin(
        "opened",
        "sellers",
        left=JoinStream("tens", key="seller", fields=OPENED),
        right=JoinStream("near", key="id", fields=SELLER, rename={"id": "seller"}),
    )
    joining = builder.set_committer_bolt("join", join, 2)
    joining.fields_grouping("tens", Fields("seller")).fields_grouping("near", Fields("id"))
    builder.set_state("opened", join.left_table(f"{output}/opened"))
    builder.set_state("sellers", join.right_table(f"{output}/sellers"))
    builder.set_committer_bolt("append", AppendCommitter("answer")).shuffle_grouping("join")
    builder.set_state("answer", DeltaRows(f"{output}/answer", join.joined()))
    return builder.build()
