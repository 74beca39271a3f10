"""Query 10: every bid, in files by day and minute."""

from __future__ import annotations

import polars as pl

from examples.nexmark.q0 import PASSED
from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q10") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q10", output, parallelism=2)
    at = pl.col("dateTime").dt
    bids = flow.source("bids", spout(events, "bid", *PASSED))
    parts = bids.with_columns(day=at.strftime("%Y-%m-%d"), minute=at.strftime("%H:%M"))
    parts.append("answer", partition_by=["day", "minute"])
    return flow.build()
