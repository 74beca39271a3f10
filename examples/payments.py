"""Orders with the payments that come for them within an hour; those that nobody pays come without one, exactly once."""

import datetime as dt

from rich.console import Console

from committers import AppendCommitter, EventClock, EventTime, IntervalJoin, JoinStream
from spouts import MemoryTransactionalSpout
from state import DeltaRows, read_table
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

START, MINUTE = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC), dt.timedelta(minutes=1)
ORDER, PAYMENT = Fields("id: long", "at: timestamp"), Fields("order: long", "paid_at: timestamp", "sum: long")
ORDERS = [(number, START + number * MINUTE) for number in range(90)]
PAYMENTS = [(number, START + 2 * number * MINUTE, 10) for number in range(0, 90, 2)]


def topology(output: str = "txtopo-data/payments") -> TransactionalTopology:
    """Return the topology; the table is ``OUTPUT/paid``."""
    builder = TransactionalTopologyBuilder("payments", "orders", MemoryTransactionalSpout(ORDERS, ORDER, 10))
    builder.add_spout("payments", MemoryTransactionalSpout(PAYMENTS, PAYMENT, 10))
    times = {"orders": EventTime("at", delay=MINUTE), "payments": EventTime("paid_at", delay=MINUTE)}
    clock = EventClock("clock", sources=times, close_at_end=True)
    builder.set_committer_bolt("clock", clock).global_grouping("orders").global_grouping("payments")
    builder.set_state("clock", clock.state(f"{output}/clock"))
    left = JoinStream("orders", key="id", time="at", fields=ORDER)
    right = JoinStream("payments", key="order", time="paid_at", fields=PAYMENT, rename={"order": "id"})
    join = IntervalJoin("open", clock="clock", left=left, right=right, lower=0 * MINUTE, upper=60 * MINUTE, how="left")
    joining = builder.set_committer_bolt("join", join, 2).all_grouping("clock")
    joining.fields_grouping("orders", Fields("id")).fields_grouping("payments", Fields("order"))
    builder.set_state("open", join.state(f"{output}/open"))
    builder.set_committer_bolt("paid", AppendCommitter("paid")).shuffle_grouping("join")
    builder.set_state("paid", DeltaRows(f"{output}/paid", join.joined()))
    return builder.build()


def show_results(console: Console, output: str) -> None:
    """Print how many orders are paid."""
    paid = read_table(f"{output}/paid")["sum"]
    console.print(f"{len(paid)} orders, {len(paid) - paid.null_count} of which are paid within an hour")
