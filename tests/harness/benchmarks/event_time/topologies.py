"""Txtopo's topologies over event time."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from committers import (
    AppendCommitter,
    Count,
    Deduplicate,
    EventClock,
    Max,
    ReduceCommitter,
    Sum,
    Tumbling,
    WindowCommitter,
)
from spouts import FilesTransactionalSpout
from state import DeltaRows, DeltaState
from tests.harness.benchmarks.event_time import page_views
from tests.harness.benchmarks.event_time.doubled import WITHIN_SECS
from tests.harness.benchmarks.event_time.events import DELAY_SECS, WINDOW_SECS
from tests.harness.benchmarks.event_time.files import FILES
from txtopo import Fields, Topology, TransactionalTopologyBuilder

TABLE = "closed"
"""The folder of the table with the results."""

_PARALLELISM = 2


def windows(source: Path, output: Path, delay_secs: int = DELAY_SECS) -> Topology:
    """Return transactions of files → windows of each key → closed windows, appended."""
    builder = _of_files("windows", source, Fields("key: string", "at: timestamp", "value: long"))
    minutes = WindowCommitter(
        "open",
        clock="clock",
        time="at",
        key=Fields("key: string"),
        window=Tumbling(dt.timedelta(seconds=WINDOW_SECS)),
        aggregates={"events": Count(), "total": Sum("value: long")},
    )
    _clock(builder, output, EventClock("clock", time="at", delay=dt.timedelta(seconds=delay_secs)))
    builder.set_committer_bolt("windows", minutes, _PARALLELISM).fields_grouping("spout", Fields("key")).all_grouping(
        "clock"
    )
    builder.set_state("open", minutes.state(output / "open"))
    closed = AppendCommitter("closed", ("key", "window_start", "events", "total"))
    builder.set_committer_bolt("closed", closed).shuffle_grouping("windows")
    rows = Fields("key: string", "start: timestamp", "events: long", "total: long")
    builder.set_state("closed", DeltaRows(output / TABLE, rows))
    return builder.build()


def once_each(source: Path, output: Path) -> Topology:
    """Return transactions of files → the first event of each id, appended."""
    fields = Fields("id: long", "at: timestamp", "value: long")
    builder = _of_files("deduplication", source, fields)
    within = dt.timedelta(seconds=WITHIN_SECS)
    _clock(builder, output, EventClock("clock", time="at", delay=within))
    first = Deduplicate("seen", clock="clock", time="at", key="id", within=within, fields=fields)
    builder.set_committer_bolt("first", first, _PARALLELISM).fields_grouping("spout", Fields("id")).all_grouping(
        "clock"
    )
    builder.set_state("seen", first.state(output / "seen"))
    builder.set_committer_bolt("closed", AppendCommitter("closed")).shuffle_grouping("first")
    builder.set_state("closed", DeltaRows(output / TABLE, fields))
    return builder.build()


def four_tables(source: Path, output: Path, batch_bytes: int | None = None) -> Topology:
    """Return page views as JSON lines → the four tables; ``batch_bytes`` is the size of a transaction."""
    views = Fields(*page_views.FIELDS)
    sizes = {} if batch_bytes is None else {"batch_bytes": batch_bytes}
    spout = FilesTransactionalSpout(source, views, **sizes)
    builder = TransactionalTopologyBuilder("page-views", "spout", spout, _PARALLELISM)
    builder.set_committer_bolt("views", AppendCommitter("views"), _PARALLELISM).shuffle_grouping("spout")
    builder.set_state("views", DeltaRows(output / "views", views))

    pages = ReduceCommitter("pages", "page", values={"views": Count(), "ms": Sum("ms")})
    builder.set_committer_bolt("pages", pages, _PARALLELISM).fields_grouping("spout", Fields("page"))
    totals = DeltaState(output / "pages", key=Fields("page: string"), value=Fields("views: long", "ms: long"))
    builder.set_state("pages", totals)

    users = ReduceCommitter("users", "user", values={"views": Count(), "last": Max("at")})
    builder.set_committer_bolt("users", users, _PARALLELISM).fields_grouping("spout", Fields("user"))
    latest = DeltaState(output / "users", key=Fields("user: long"), value=Fields("views: long", "last: timestamp"))
    builder.set_state("users", latest)

    delay = dt.timedelta(seconds=page_views.DELAY_SECS)
    _clock(builder, output, EventClock("clock", time="at", delay=delay, close_at_end=True))
    minutes = WindowCommitter(
        "open",
        clock="clock",
        time="at",
        key=Fields("page: string"),
        window=Tumbling(dt.timedelta(minutes=1)),
        aggregates={"views": Count()},
    )
    builder.set_committer_bolt("windows", minutes, _PARALLELISM).fields_grouping("spout", Fields("page")).all_grouping(
        "clock"
    )
    builder.set_state("open", minutes.state(output / "open"))
    closed = AppendCommitter("minutes", ("page", "window_start", "views"))
    builder.set_committer_bolt("minutes", closed).shuffle_grouping("windows")
    builder.set_state(
        "minutes", DeltaRows(output / "minutes", Fields("page: string", "minute: timestamp", "views: long"))
    )
    return builder.build()


def _of_files(name: str, source: Path, fields: Fields) -> TransactionalTopologyBuilder:
    # A transaction is bounded by its files alone.
    spout = FilesTransactionalSpout(source, fields, batch_bytes=2**40, batch_files_max=FILES)
    return TransactionalTopologyBuilder(name, "spout", spout, _PARALLELISM)


def _clock(builder: TransactionalTopologyBuilder, output: Path, clock: EventClock) -> None:
    builder.set_committer_bolt("clock", clock).global_grouping("spout")
    builder.set_state("clock", clock.state(output / "clock"))
