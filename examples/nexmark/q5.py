"""Query 5: the auctions with the most bids of each 10 s, every 2 s."""

from __future__ import annotations

import datetime as dt

from committers import AppendCommitter, Count, EventClock, Sliding, WindowCommitter
from examples.nexmark.bolts import Largest
from examples.nexmark.events import DELAY
from examples.nexmark.sources import EVENTS, spout
from state import DeltaRows
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

WINDOW = Sliding(dt.timedelta(seconds=10), dt.timedelta(seconds=2))


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q5") -> TransactionalTopology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder("nexmark-q5", "bids", spout(events, "bid", "auction", "dateTime"), 2)
    clock = EventClock("clock", time="dateTime", delay=DELAY, close_at_end=True)
    builder.set_committer_bolt("clock", clock).global_grouping("bids")
    builder.set_state("clock", clock.state(f"{output}/clock"))
    auction, bids = Fields("auction: long"), {"num": Count()}
    windows = WindowCommitter("open", clock="clock", time="dateTime", key=auction, window=WINDOW, aggregates=bids)
    builder.set_committer_bolt("count", windows, 2).fields_grouping("bids", auction).all_grouping("clock")
    builder.set_state("open", windows.state(f"{output}/open"))
    most = Largest("num", key="window_start", fields=windows.results())
    builder.set_bolt("most", most).global_grouping("count")
    answer = AppendCommitter("answer", ["window_start", "auction", "num"])
    builder.set_committer_bolt("append", answer).shuffle_grouping("most")
    fields = Fields("starttime: timestamp", "auction: long", "num: long")
    builder.set_state("answer", DeltaRows(f"{output}/answer", fields))
    return builder.build()
