"""Query 15: bids, distinct bidders and distinct auctions of each day, in all and by the rank of the price."""

from __future__ import annotations

import polars as pl

from examples.nexmark.events import DELAY
from examples.nexmark.sources import EVENTS, spout
from txtopo import TransactionalTopology
from txtopo.streams import Count, CountDistinct, Days, Flow, Stream

RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}
OF_ALL = {"total": None, **{rank: rank for rank in RANKS}}
BIDS = {f"{name}_bids": Count(where=where) for name, where in OF_ALL.items()}
COUNTS = BIDS | {
    f"{name}_{field}s": CountDistinct(field, where=where, values_max=1_000_000)
    for field in ("bidder", "auction")
    for name, where in OF_ALL.items()
}
DAY = pl.col("window_start").dt.strftime("%Y-%m-%d")


def ranked(flow: Flow, events: str, *names: str) -> Stream:
    """Return bids with the rank of their price, as three flags, and a clock."""
    bids = flow.source("bids", spout(events, "bid", "auction", "bidder", "price", "dateTime", *names))
    return bids.with_columns(**RANKS).event_time("dateTime", delay=DELAY, close_at_end=True)


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q15") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q15", output, parallelism=2)
    days = ranked(flow, events).group_by().window(Days()).agg(**COUNTS)
    days.select(*COUNTS, day=DAY).append("answer")
    return flow.build()
