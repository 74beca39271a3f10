"""Query 7: the bids with the highest price of each 10 s."""

from __future__ import annotations

from examples.nexmark.events import DELAY
from examples.nexmark.q0 import PASSED
from examples.nexmark.sources import EVENTS, spout
from txtopo import Fields, TransactionalTopology
from txtopo.streams import ArgMax, Flow


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q7") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q7", output, parallelism=2)
    bids = flow.source("bids", spout(events, "bid", *PASSED)).event_time("dateTime", delay=DELAY, close_at_end=True)
    highest = bids.group_by().window("10s").agg(bids=ArgMax(Fields(*PASSED), by="price"))
    highest.explode("bids").rename({"window_start": "starttime"}).append("answer")
    return flow.build()
