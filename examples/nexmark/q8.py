"""Query 8: the people who joined and opened an auction in the same 10 s."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc

from committers import AppendCommitter, Count, EventClock, EventTime, Max, Tumbling, WindowCommitter
from examples.nexmark.bolts import Rows
from examples.nexmark.events import DELAY
from examples.nexmark.sources import EVENTS, spout
from state import DeltaRows
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

PERSON = Fields("id: long", "name: string", "dateTime: timestamp")
ANSWER = Fields("id: long", "name: string", "starttime: timestamp")


def as_people(auctions: pa.Table) -> pa.Table:
    """Return the sellers of auctions as people without a name."""
    named = auctions.rename_columns({"seller": "id"})
    return named.append_column("name", pa.nulls(named.num_rows, pa.string()))


def who_did_both(windows: pa.Table) -> pa.Table:
    """Return people who are there with a name and without one."""
    both = windows.filter((pc.field("named") > 0) & (pc.field("rows") > pc.field("named")))
    return both.rename_columns({"window_start": "starttime"})


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q8") -> TransactionalTopology:
    """Return the topology."""
    builder = TransactionalTopologyBuilder("nexmark-q8", "people", spout(events, "person", *PERSON), 2)
    builder.add_spout("auctions", spout(events, "auction", "seller", "dateTime"), 2)
    time = EventTime("dateTime", delay=DELAY)
    clock = EventClock("clock", sources={"people": time, "auctions": time}, close_at_end=True)
    builder.set_committer_bolt("clock", clock).global_grouping("people").global_grouping("auctions")
    builder.set_state("clock", clock.state(f"{output}/clock"))
    builder.set_bolt("sellers", Rows(as_people, PERSON), 2).shuffle_grouping("auctions")
    windows = WindowCommitter(
        "open",
        clock="clock",
        time="dateTime",
        key=Fields("id: long"),
        window=Tumbling(dt.timedelta(seconds=10)),
        aggregates={"name": Max("name: string"), "rows": Count(), "named": Count("name")},
    )
    windowing = builder.set_committer_bolt("windows", windows, 2).all_grouping("clock")
    windowing.fields_grouping("people", Fields("id")).fields_grouping("sellers", Fields("id"))
    builder.set_state("open", windows.state(f"{output}/open"))
    builder.set_bolt("both", Rows(who_did_both, ANSWER)).shuffle_grouping("windows")
    builder.set_committer_bolt("append", AppendCommitter("answer")).shuffle_grouping("both")
    builder.set_state("answer", DeltaRows(f"{output}/answer", ANSWER))
    return builder.build()
