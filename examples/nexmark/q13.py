"""Query 13: each bid with a value from a table."""

from __future__ import annotations

from examples.nexmark.sources import EVENTS, spout
from state import DeltaReference
from txtopo import Fields, TransactionalTopology
from txtopo.streams import Flow


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q13") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q13", output, parallelism=2)
    side = flow.reference("side", DeltaReference(f"{events}/side", key="key"))
    bids = flow.source("bids", spout(events, "bid", "auction", "bidder", "price", "dateTime"))
    keyed = bids.with_columns(key="auction % 10000")
    keyed.join(side, "key", values=Fields("value: string")).drop("key").append("answer")
    return flow.build()
