"""Orders by event time: the revenue of each minute, running totals, and each order once, however late it comes.

Orders come in any order, some of them twice, some much too late. A clock moves the watermark: the event time below
which no order is waited for any more. ``unique`` passes on the first of the orders with the same id. What it passes on
goes into a table of orders, into running totals of each shop, and into windows of a minute, each of which is said once,
when the watermark has passed it. What comes too late goes into a separate table.

Orders are JSON lines in the files of a folder that grows. Start the run, and let orders come in another terminal::

    txtopo run examples.orders_by_minute
    python -m examples.orders_by_minute_load

With ``ORDERS_KAFKA=127.0.0.1:9092`` in the environment of both, they come from the topic ``orders`` of those servers;
``txtopo kafka dev --topic orders:4`` starts a broker.

Kill the run at any moment and start it again: ``python -m examples.orders_by_minute_load --check`` compares the tables
with the load. ``txtopo run examples.orders_by_minute --set watch=false`` takes the orders that are there, closes all
windows and ends; orders of later runs are late then.
"""

from __future__ import annotations

import datetime as dt
import os
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from committers import (
    AppendCommitter,
    Count,
    Deduplicate,
    EventClock,
    Last,
    Max,
    ReduceCommitter,
    Sum,
    Tumbling,
    WindowCommitter,
)
from spouts import FilesTransactionalSpout
from spouts.kafka import TransactionalKafkaSpout
from state import DeltaRows, DeltaState, read_table
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

OUTPUT = "txtopo-data/orders_by_minute"
FOLDER = "txtopo-data/orders"
SERVERS = os.environ.get("ORDERS_KAFKA", "")
"""Kafka's brokers; without any, orders come from a folder."""
TOPIC = "orders"

ORDER = Fields("id: string", "at: timestamp", "shop: string", "price: decimal(18,2)")
FILES_A_TRANSACTION = 4

MINUTE = dt.timedelta(minutes=1)
DELAY = dt.timedelta(seconds=30)
"""How long after the latest order an earlier one may come."""
LATENESS = dt.timedelta(seconds=30)
"""How long, after that, an order is remembered and its minute is kept open. Both alike: what is not too late for
``unique`` is not too late for its minute either."""
IDLE = dt.timedelta(seconds=10)
"""How long no order comes until the watermark goes on by itself, so that the last minutes close."""


def topology(  # noqa: PLR0913 - the parameters of a run
    folder: str = FOLDER,
    output: str = OUTPUT,
    parallelism: int = 2,
    servers: str = SERVERS,
    topic: str = TOPIC,
    *,
    watch: bool = True,
) -> TransactionalTopology:
    """Return the topology, of a topic if there are ``servers``; without ``watch`` it ends with what is there."""
    unreadable = f"{output}/unreadable"
    spout: FilesTransactionalSpout | TransactionalKafkaSpout
    if servers:
        spout = TransactionalKafkaSpout(servers, topic, ORDER, dead_letter=unreadable, until_end=not watch)
    else:
        Path(folder).mkdir(parents=True, exist_ok=True)
        spout = FilesTransactionalSpout(
            folder,
            ORDER,
            "json",
            batch_files_max=FILES_A_TRANSACTION,
            dead_letter=unreadable,
            watch=watch,
            settle_secs=0,  # the load renames its files into place
        )
    builder = TransactionalTopologyBuilder("orders-by-minute", "orders", spout, parallelism)

    clock = EventClock("clock", time="at", delay=DELAY, idle_after=IDLE, close_at_end=not watch)
    builder.set_committer_bolt("clock", clock).global_grouping("orders")
    builder.set_state("clock", clock.state(f"{output}/clock"))

    unique = Deduplicate("seen", clock="clock", time="at", key="id", within=LATENESS, fields=ORDER)
    deduplicated = builder.set_committer_bolt("unique", unique, parallelism)
    deduplicated.fields_grouping("orders", Fields("id")).all_grouping("clock")
    builder.set_state("seen", unique.state(f"{output}/seen"))
    for table, stream in (("orders", "default"), ("late", "late"), ("untimed", "untimed")):
        builder.set_committer_bolt(f"append-{table}", AppendCommitter(table)).shuffle_grouping("unique", stream)
        builder.set_state(table, DeltaRows(f"{output}/{table}", ORDER))

    minutes = WindowCommitter(
        "open-minutes",
        clock="clock",
        time="at",
        key=Fields("shop: string"),
        window=Tumbling(MINUTE),
        aggregates={"orders": Count(), "revenue": Sum("price: decimal(18,2)")},
        lateness=LATENESS,
    )
    by_minute = builder.set_committer_bolt("by-minute", minutes)
    by_minute.fields_grouping("unique", Fields("shop")).all_grouping("clock")
    builder.set_state("open-minutes", minutes.state(f"{output}/open_minutes"))
    builder.set_committer_bolt("append-revenue", AppendCommitter("revenue")).shuffle_grouping("by-minute")
    builder.set_state("revenue", DeltaRows(f"{output}/revenue", minutes.results()))

    values = {"orders": Count(), "revenue": Sum("price"), "largest": Max("price"), "last": Last("price", by="at")}
    totals = builder.set_committer_bolt("totals", ReduceCommitter("totals", "shop", values=values))
    totals.fields_grouping("unique", Fields("shop"))
    prices = [f"{name}: decimal(28,2)" for name in ("revenue", "largest", "last")]
    sums = Fields("orders: long", *prices, "last_at: timestamp")
    builder.set_state("totals", DeltaState(f"{output}/totals", key=Fields("shop: string"), value=sums))
    return builder.build()


@attrs.frozen
class Results:
    """What the tables say."""

    orders: Mapping[str, tuple[Any, ...]]
    """Time, shop and price of each order by its id."""
    late: Mapping[str, tuple[Any, ...]]
    minutes: Mapping[tuple[str, dt.datetime], tuple[int, Decimal]]
    """The number of orders and the revenue, by shop and start of the minute."""
    totals: Mapping[str, tuple[int, Decimal, Decimal]]
    """Number of orders, revenue and the largest price, by shop."""
    doubled: int
    """How many orders or minutes are in a table twice."""


def results_in(output: str) -> Results:
    """Read the tables."""
    orders, late, revenue = (read_table(f"{output}/{name}").to_pylist() for name in ("orders", "late", "revenue"))
    by_id = {row["id"]: (row["at"], row["shop"], row["price"]) for row in orders}
    late_by_id = {row["id"]: (row["at"], row["shop"], row["price"]) for row in late}
    minutes = {(row["shop"], row["window_start"]): (row["orders"], row["revenue"]) for row in revenue}
    totals = {
        row["shop"]: (row["orders"], row["revenue"], row["largest"])
        for row in read_table(f"{output}/totals").to_pylist()
    }
    return Results(by_id, late_by_id, minutes, totals, len(orders) - len(by_id) + len(revenue) - len(minutes))


def show_results(console: Console, output: str) -> None:
    """Print the last closed minute, the totals and the number of late orders."""
    found = results_in(output)
    by_start: dict[dt.datetime, list[str]] = defaultdict(list)
    for (shop, start), (orders, revenue) in found.minutes.items():
        by_start[start].append(f"{shop:<10} {orders:>7,} orders {revenue:>14,}")
    for start in sorted(by_start)[-1:]:
        console.print(f"{start:%H:%M}, the last of {len(by_start):,} closed minutes:")
        console.print("\n".join(sorted(by_start[start])))
    console.print("all minutes, closed and open:")
    for shop, (orders, revenue, _largest) in sorted(found.totals.items()):
        console.print(f"{shop:<10} {orders:>7,} orders {revenue:>14,}")
    console.print(f"{len(found.orders):,} orders, {len(found.late):,} late ones")
