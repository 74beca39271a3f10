"""Query 1: every bid with its price in euros."""

from __future__ import annotations

from decimal import Decimal

import polars as pl

from examples.nexmark.q0 import PASSED
from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow

EUROS = pl.col("price").cast(pl.Decimal(19, 0)) * pl.lit(Decimal("0.908"))


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q1") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q1", output, parallelism=2)
    flow.source("bids", spout(events, "bid", *PASSED)).with_columns(price=EUROS).append("answer")
    return flow.build()
