"""Query 16: as query 15 for each channel and day, with the last minute of a bid."""

from __future__ import annotations

import polars as pl

from examples.nexmark.q15 import COUNTS, DAY, ranked
from examples.nexmark.sources import EVENTS
from txtopo import TransactionalTopology
from txtopo.streams import Days, Flow, Max


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q16") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q16", output, parallelism=2)
    channels = ranked(flow, events, "channel").group_by("channel")
    days = channels.window(Days()).agg(**COUNTS, last=Max("dateTime"))
    days.select("channel", *COUNTS, day=DAY, minute=pl.col("last").dt.strftime("%H:%M")).append("answer")
    return flow.build()
