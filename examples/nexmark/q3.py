"""Query 3: the people of three states who opened auctions of category 10, and these."""

from __future__ import annotations

from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q3") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q3", output, parallelism=2)
    people = flow.source("people", spout(events, "person", "id", "name", "city", "state"))
    auctions = flow.source("auctions", spout(events, "auction", "id", "seller", "category"))
    near = people.filter("state IN ('OR', 'ID', 'CA')")
    tens = auctions.filter("category = 10").select("id", "seller")
    tens.join(near, {"seller": "id"}, rename={"id": "seller"}).append("answer")
    return flow.build()
