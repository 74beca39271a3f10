"""Query 6: the mean of the final prices of each seller's last 10 auctions, which change as auctions are bid for."""

from __future__ import annotations

from examples.nexmark.q4 import answer, while_open
from examples.nexmark.sources import EVENTS
from txtopo import Fields, TransactionalTopology
from txtopo.streams import Count, Flow, LastN, Max, Mean

__all__ = ["answer", "topology"]

OF_LAST = Fields("auction", "price")


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q6") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q6", output, parallelism=2)
    bids = while_open(flow, events, "seller").group_by("auction", "seller")
    finals = bids.agg(expires=Max("expires"), price=Max("price")).upsert("finals", deletion_vectors=True)
    lasts = finals.changes.group_by("seller").agg(auctions=Count(), last=LastN(OF_LAST, n=10, by="expires"))
    each = lasts.upsert("lasts", deletion_vectors=True).changes.explode("last").select("seller", "price", "diff")
    each.group_by("seller").agg(auctions=Count(), final=Mean("price")).upsert("answer", deletion_vectors=True)
    return flow.build()
