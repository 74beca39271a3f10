"""Query 15: bids, distinct bidders and distinct auctions of each day, in all and by the rank of the price."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from committers import AppendCommitter, Count, CountDistinct, Days, EventClock, WindowCommitter
from examples.nexmark.bolts import Rows
from examples.nexmark.events import DELAY
from examples.nexmark.sources import EVENTS, spout
from state import DeltaRows
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

RANKS = ("rank1", "rank2", "rank3")
BID = Fields("auction: long", "bidder: long", "dateTime: timestamp", *(f"{rank}: boolean" for rank in RANKS))
OF_ALL = {"total": None, **{rank: rank for rank in RANKS}}
COUNTS = {
    **{f"{name}_bids": Count(where=where) for name, where in OF_ALL.items()},
    **{
        f"{name}_{field}s": CountDistinct(f"{field}: long", where=where, values_max=1_000_000)
        for field in ("bidder", "auction")
        for name, where in OF_ALL.items()
    },
}
ANSWER = Fields("day: string", *(f"{name}: long" for name in COUNTS))


def with_ranks(bids: pa.Table) -> pa.Table:
    """Return bids with the rank of their price, as three flags."""
    price = bids["price"]
    is_low, is_high = pc.less(price, 10_000), pc.greater_equal(price, 1_000_000)
    flags = {"rank1": is_low, "rank2": pc.invert(pc.or_(is_low, is_high)), "rank3": is_high}
    for rank, flag in flags.items():
        bids = bids.append_column(rank, flag)
    return bids


def with_day(windows: pa.Table) -> pa.Table:
    """Return windows with their day as a string."""
    return windows.append_column("day", pc.strftime(windows["window_start"], "%Y-%m-%d"))


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q15") -> TransactionalTopology:
    """Return the topology."""
    bids = spout(events, "bid", "auction", "bidder", "price", "dateTime")
    builder = TransactionalTopologyBuilder("nexmark-q15", "bids", bids, 2)
    clock = EventClock("clock", time="dateTime", delay=DELAY, close_at_end=True)
    builder.set_committer_bolt("clock", clock).global_grouping("bids")
    builder.set_state("clock", clock.state(f"{output}/clock"))
    builder.set_bolt("ranks", Rows(with_ranks, BID), 2).shuffle_grouping("bids")
    days = WindowCommitter("open", clock="clock", time="dateTime", window=Days(), aggregates=COUNTS)
    builder.set_committer_bolt("days", days).global_grouping("ranks").all_grouping("clock")
    builder.set_state("open", days.state(f"{output}/open"))
    builder.set_bolt("day", Rows(with_day, ANSWER)).shuffle_grouping("days")
    builder.set_committer_bolt("append", AppendCommitter("answer")).shuffle_grouping("day")
    builder.set_state("answer", DeltaRows(f"{output}/answer", ANSWER))
    return builder.build()
