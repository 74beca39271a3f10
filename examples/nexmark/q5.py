"""Query 5: the auctions with the most bids of each 10 s, every 2 s."""

from __future__ import annotations

from examples.nexmark.events import DELAY
from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import ArgMax, Count, Flow, Sliding


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q5") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q5", output, parallelism=2)
    bids = flow.source("bids", spout(events, "bid", "auction", "dateTime"))
    timed = bids.event_time("dateTime", delay=DELAY, close_at_end=True)
    counts = timed.group_by("auction").window(Sliding("10s", "2s")).agg(num=Count())
    most = counts.group_by("window_start").agg(most=ArgMax("auction", by="num", rows_max=100_000))
    most.explode("most").rename({"window_start": "starttime"}).append("answer")
    return flow.build()
