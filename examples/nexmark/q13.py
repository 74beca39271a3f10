"""Query 13: each bid with a value from a table."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from committers import AppendCommitter, LookupJoin
from examples.nexmark.bolts import Rows
from examples.nexmark.sources import BID, EVENTS, spout
from state import DeltaReference, DeltaRows
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

PASSED = BID.subset(["auction", "bidder", "price", "dateTime"])


def with_key(bids: pa.Table) -> pa.Table:
    """Return bids with the key to look up: the last four digits of their auctions."""
    auction = bids["auction"]
    return bids.append_column("key", pc.subtract(auction, pc.multiply(pc.divide(auction, 10_000), 10_000)))


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q13") -> TransactionalTopology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder("nexmark-q13", "bids", spout(events, "bid", *PASSED), 2)
    builder.set_reference("side", DeltaReference(f"{events}/side", key="key"))
    builder.set_bolt("key", Rows(with_key, PASSED + Fields("key: long")), 2).shuffle_grouping("bids")
    join = LookupJoin("key", reference="side", fields=PASSED, values=Fields("value: string"))
    builder.set_bolt("join", join, 2).shuffle_grouping("key")
    builder.set_committer_bolt("append", AppendCommitter("answer"), 2).shuffle_grouping("join")
    builder.set_state("answer", DeltaRows(f"{output}/answer", PASSED + Fields("value: string")))
    return builder.build()
