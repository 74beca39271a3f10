"""Query 11: the bids of each bidder and session, which ends after 10 s without one."""

from __future__ import annotations

from examples.nexmark.events import DELAY
from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Count, Flow, Sessions


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q11") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q11", output, parallelism=2)
    bids = flow.source("bids", spout(events, "bid", "bidder", "dateTime"))
    timed = bids.event_time("dateTime", delay=DELAY, close_at_end=True)
    sessions = timed.group_by("bidder").window(Sessions("10s")).agg(num=Count())
    sessions.rename({"window_start": "starttime", "window_end": "endtime"}).append("answer")
    return flow.build()
