"""Query 20: the bids on auctions of category 10, with their auctions."""

from __future__ import annotations

from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow, Stream

OF_BID = {"dateTime": "bid_dateTime", "extra": "bid_extra"}
OF_AUCTION = {"id": "auction", "dateTime": "auction_dateTime", "extra": "auction_extra"}


def with_auctions(flow: Flow, events: str, *names: str, condition: str = "true") -> Stream:
    """Return bids, of their fields those with some names or all, with their auctions of which a condition is true."""
    bids = flow.source("bids", spout(events, "bid", *names)).rename(OF_BID)
    auctions = flow.source("auctions", spout(events, "auction")).filter(condition).rename(OF_AUCTION)
    return bids.join(auctions, "auction")


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q20") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q20", output, parallelism=2)
    with_auctions(flow, events, condition="category = 10").append("answer")
    return flow.build()
