"""Query 23: the bids with their bidders, and with the auctions that these sell themselves."""

from __future__ import annotations

from examples.nexmark.q20 import OF_BID
from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow

OF_PERSON = {"id": "bidder", "dateTime": "person_dateTime", "extra": "person_extra"}
OF_AUCTION = {"id": "selling", "dateTime": "auction_dateTime", "extra": "auction_extra"}


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q23") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q23", output, parallelism=2)
    bids = flow.source("bids", spout(events, "bid")).rename(OF_BID)
    people = flow.source("people", spout(events, "person")).rename(OF_PERSON)
    auctions = flow.source("auctions", spout(events, "auction")).rename(OF_AUCTION)
    sellers = people.join(auctions, {"bidder": "seller"})
    bids.join(sellers, "bidder").append("answer")
    return flow.build()
