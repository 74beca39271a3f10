"""Query 21: the channel's number of each bid that has one: of four channels a known one, of others that of the url."""

from __future__ import annotations

import polars as pl

from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Flow

NUMBERS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
KNOWN = pl.col("channel").str.to_lowercase().replace_strict(NUMBERS, default=None)
OF_URL = pl.col("url").str.extract("channel_id=([^&]*)")


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q21") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q21", output, parallelism=2)
    bids = flow.source("bids", spout(events, "bid", "auction", "bidder", "price", "channel", "url"))
    numbered = bids.with_columns(channel_id=pl.coalesce(KNOWN, OF_URL)).drop("url")
    numbered.filter("channel_id <> ''").append("answer")
    return flow.build()
