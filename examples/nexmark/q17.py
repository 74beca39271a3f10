"""Query 17: bids by the rank of the price, and prices, of each auction and day."""

from __future__ import annotations

from examples.nexmark.q15 import BIDS, DAY, ranked
from examples.nexmark.sources import EVENTS
from txtopo import TransactionalTopology
from txtopo.streams import Days, Flow, Max, Mean, Min, Sum

PRICES = {
    "min_price": Min("price"),
    "max_price": Max("price"),
    "mean_price": Mean("price"),
    "sum_price": Sum("price"),
}


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q17") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q17", output, parallelism=2)
    days = ranked(flow, events).group_by("auction").window(Days()).agg(**BIDS, **PRICES)
    days.select("auction", *BIDS, *PRICES, day=DAY).append("answer")
    return flow.build()
