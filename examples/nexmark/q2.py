"""Query 2: the bids on some of the auctions."""

from __future__ import annotations

from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q2") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q2", output, parallelism=2)
    flow.source("bids", spout(events, "bid", "auction", "price")).filter("auction % 123 = 0").append("answer")
    return flow.build()
