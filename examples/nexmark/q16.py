"""Query 16: as query 15 for each channel and day, with the last minute of a bid."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from committers import AppendCommitter, Days, EventClock, Max, WindowCommitter
from examples.nexmark.bolts import Rows
from examples.nexmark.events import DELAY
from examples.nexmark.q15 import BID, COUNTS, with_day, with_ranks
from examples.nexmark.sources import EVENTS, spout
from state import DeltaRows
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

CHANNEL = Fields("channel: string")
ANSWER = CHANNEL + Fields("day: string", "minute: string", *(f"{name}: long" for name in COUNTS))


def with_day_and_minute(windows: pa.Table) -> pa.Table:
    """Return windows with their day, and the minute of the last bid, as strings."""
    return with_day(windows).append_column("minute", pc.strftime(windows["last"], "%H:%M"))


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q16") -> TransactionalTopology:
    """Return the topology."""
    bids = spout(events, "bid", "channel", "auction", "bidder", "price", "dateTime")
    builder = TransactionalTopologyBuilder("nexmark-q16", "bids", bids, 2)
    clock = EventClock("clock", time="dateTime", delay=DELAY, close_at_end=True)
    builder.set_committer_bolt("clock", clock).global_grouping("bids")
    builder.set_state("clock", clock.state(f"{output}/clock"))
    builder.set_bolt("ranks", Rows(with_ranks, CHANNEL + BID), 2).shuffle_grouping("bids")
    counts = {**COUNTS, "last": Max("dateTime: timestamp")}
    days = WindowCommitter("open", clock="clock", time="dateTime", key=CHANNEL, window=Days(), aggregates=counts)
    builder.set_committer_bolt("days", days, 2).fields_grouping("ranks", CHANNEL).all_grouping("clock")
    builder.set_state("open", days.state(f"{output}/open"))
    builder.set_bolt("day", Rows(with_day_and_minute, ANSWER)).shuffle_grouping("days")
    builder.set_committer_bolt("append", AppendCommitter("answer")).shuffle_grouping("day")
    builder.set_state("answer", DeltaRows(f"{output}/answer", ANSWER))
    return builder.build()
