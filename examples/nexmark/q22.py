"""Query 22: the three folders of each bid's url."""

from __future__ import annotations

import polars as pl

from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q22") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q22", output, parallelism=2)
    bids = flow.source("bids", spout(events, "bid", "auction", "bidder", "price", "channel", "url"))
    parts = pl.col("url").str.split("/").list
    bids.with_columns(dir1=parts.get(3), dir2=parts.get(4), dir3=parts.get(5)).drop("url").append("answer")
    return flow.build()
