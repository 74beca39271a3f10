"""Query 0: every bid."""

from __future__ import annotations

from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow

PASSED = ("auction", "bidder", "price", "dateTime", "extra")


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q0") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q0", output, parallelism=2)
    flow.source("bids", spout(events, "bid", *PASSED)).append("answer")
    return flow.build()
