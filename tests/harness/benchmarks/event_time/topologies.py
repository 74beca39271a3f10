"""Txtopo's topologies over event time."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from committers import (
    AppendCommitter,
    Count,
    Deduplicate,
    EventClock,
    EventTime,
    IntervalJoin,
    JoinStream,
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
from tests.harness.benchmarks.event_time.orders import (
    DELAY_SECS as ORDERS_DELAY_SECS,
    ORDER,
    PAYMENT,
    WITHIN_SECS as PAID_WITHIN_SECS,
)
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


def joined(orders: Path, payments: Path, output: Path) -> Topology:
    """Return transactions of files of orders and of payments → each order with its payments, appended."""
    order, payment = (Fields(*(each.replace(" ", ": ") for each in of.split(", "))) for of in (ORDER, PAYMENT))
    builder = _of_files("join", orders, order)
    builder.add_spout("payments", _files(payments, payment), _PARALLELISM)
    delay = dt.timedelta(seconds=ORDERS_DELAY_SECS)
    sources = {"spout": EventTime("at", delay=delay), "payments": EventTime("paid_at", delay=delay)}
    clock = EventClock("clock", sources=sources)
    builder.set_committer_bolt("clock", clock).global_grouping("spout").global_grouping("payments")
    builder.set_state("clock", clock.state(output / "clock"))
    join = IntervalJoin(
        "open",
        clock="clock",
        left=JoinStream("spout", key="id", time="at", fields=order),
        right=JoinStream("payments", key="order", time="paid_at", fields=payment, rename={"order": "id"}),
        lower=dt.timedelta(),
        upper=dt.timedelta(seconds=PAID_WITHIN_SECS),
    )
    joining = builder.set_committer_bolt("join", join, _PARALLELISM).all_grouping("clock")
    joining.fields_grouping("spout", Fields("id")).fields_grouping("payments", Fields("order"))
    builder.set_state("open", join.state(output / "open"))
    builder.set_committer_bolt("closed", AppendCommitter("closed")).shuffle_grouping("join")
    builder.set_state("closed", DeltaRows(output / TABLE, join.joined()))
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
    return TransactionalTopologyBuilder(name, "spout", _files(source, fields), _PARALLELISM)


def _files(source: Path, fields: Fields) -> FilesTransactionalSpout:
    # A transaction is bounded by its files alone.
    return FilesTransactionalSpout(source, fields, batch_bytes=2**40, batch_files_max=FILES)


def _clock(builder: TransactionalTopologyBuilder, output: Path, clock: EventClock) -> None:
    builder.set_committer_bolt("clock", clock).global_grouping("spout")
    builder.set_state("clock", clock.state(output / "clock"))
