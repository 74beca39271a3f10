"""Query 8: the people who joined and opened an auction in the same 10 s."""

from __future__ import annotations

import polars as pl

from examples.nexmark.events import DELAY
from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow

START = pl.col("dateTime").dt.truncate("10s")


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q8") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q8", output, parallelism=2)
    people = flow.source("people", spout(events, "person", "id", "name", "dateTime")).with_columns(starttime=START)
    sellers = flow.source("auctions", spout(events, "auction", "seller", "dateTime")).with_columns(starttime=START)
    joined, opened = (stream.event_time("dateTime", delay=DELAY, close_at_end=True) for stream in (people, sellers))
    once = opened.distinct(["seller", "starttime"], within="10s").rename({"seller": "id", "dateTime": "opened"})
    both = joined.join(once, ["id", "starttime"], lower="-10s", upper="10s")
    both.select("id", "name", "starttime").append("answer")
    return flow.build()
