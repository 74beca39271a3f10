"""Query 18: the last bid of each bidder on each auction."""

from __future__ import annotations

from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q18") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q18", output, parallelism=2)
    bids = flow.source("bids", spout(events, "bid"))
    bids.apply_changes("answer", key=["bidder", "auction"], sequence=["dateTime", "extra"], deletion_vectors=True)
    return flow.build()
