"""Query 14: the bids of some prices in euros, with the time of day and how often their text has the letter c."""

from __future__ import annotations

import polars as pl

from examples.nexmark.q0 import PASSED
from examples.nexmark.q1 import EUROS
from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q14") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q14", output, parallelism=2)
    hour = pl.col("dateTime").dt.hour()
    time = pl.when(hour.is_between(8, 18)).then(pl.lit("dayTime")).when(hour.is_in([7, 19])).then(pl.lit("otherTime"))
    letters = pl.col("extra").str.count_matches("c").cast(pl.Int64)
    bids = flow.source("bids", spout(events, "bid", *PASSED)).with_columns(price=EUROS)
    some = bids.filter("price > 1000000 AND price < 50000000")
    some.with_columns(bidTimeType=time.otherwise(pl.lit("nightTime")), c_counts=letters).append("answer")
    return flow.build()
