"""Query 12: the bids of each bidder and 10 s."""

from __future__ import annotations

from examples.nexmark.events import DELAY
from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Count, Flow


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q12") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q12", output, parallelism=2)
    bids = flow.source("bids", spout(events, "bid", "bidder", "dateTime"))
    timed = bids.event_time("dateTime", delay=DELAY, close_at_end=True)
    counts = timed.group_by("bidder").window("10s").agg(num=Count())
    counts.rename({"window_start": "starttime"}).append("answer")
    return flow.build()
