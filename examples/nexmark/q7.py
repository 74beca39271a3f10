"""Query 7: the bids with the highest price of each 10 s."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc

from committers import AppendCommitter, ArgMax, EventClock, Tumbling, WindowCommitter
from examples.nexmark.bolts import Rows
from examples.nexmark.events import DELAY
from examples.nexmark.sources import BID, EVENTS, spout
from state import DeltaRows
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

PASSED = BID.subset(["auction", "bidder", "price", "dateTime", "extra"])
ANSWER = Fields("starttime: timestamp") + PASSED


def a_row_each(windows: pa.Table) -> pa.Table:
    """Return a row for each bid in the lists of windows."""
    bids = windows["bids"].combine_chunks()
    starts = windows["window_start"].take(pc.list_parent_indices(bids))
    return pa.Table.from_struct_array(bids.flatten()).append_column("starttime", starts)


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q7") -> TransactionalTopology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder("nexmark-q7", "bids", spout(events, "bid", *PASSED), 2)
    clock = EventClock("clock", time="dateTime", delay=DELAY, close_at_end=True)
    builder.set_committer_bolt("clock", clock).global_grouping("bids")
    builder.set_state("clock", clock.state(f"{output}/clock"))
    size, highest = Tumbling(dt.timedelta(seconds=10)), {"bids": ArgMax(PASSED, by="price")}
    windows = WindowCommitter("open", clock="clock", time="dateTime", window=size, aggregates=highest)
    builder.set_committer_bolt("highest", windows).global_grouping("bids").all_grouping("clock")
    builder.set_state("open", windows.state(f"{output}/open"))
    builder.set_bolt("rows", Rows(a_row_each, ANSWER)).shuffle_grouping("highest")
    builder.set_committer_bolt("append", AppendCommitter("answer")).shuffle_grouping("rows")
    builder.set_state("answer", DeltaRows(f"{output}/answer", ANSWER))
    return builder.build()
