"""Orders by event time, said as a flow: the tables of ``orders_by_minute``, in a quarter of the lines.

Start the run, and let orders come in another terminal::

    txtopo run examples.orders_flow
    python -m examples.orders_by_minute_load

``txtopo run examples.orders_flow --set watch=false`` takes the orders that are there, closes all windows and ends.
"""

from __future__ import annotations

from pathlib import Path

from examples.orders_by_minute import FOLDER, ORDER
from spouts import FilesTransactionalSpout
from txtopo import TransactionalTopology
from txtopo.streams import Count, Flow, Last, Max, Sum

OUTPUT = "txtopo-data/orders_flow"


def topology(folder: str = FOLDER, output: str = OUTPUT, *, watch: bool = True) -> TransactionalTopology:
    """Return the topology; without ``watch`` it ends with what is there."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    spout = FilesTransactionalSpout(folder, ORDER, "json", batch_files_max=4, watch=watch, settle_secs=0)
    flow = Flow("orders-flow", output, parallelism=2)
    orders = (
        flow.source("orders", spout, bad="unreadable")
        .event_time("at", delay="30s", lateness="30s", idle_after="10s", close_at_end=not watch)
        .distinct("id")
    )
    orders.append("orders")
    orders.late.append("late")
    orders.untimed.append("untimed")
    shops = orders.group_by("shop")
    shops.window("1m").agg(orders=Count(), revenue=Sum("price")).append("revenue")
    shops.agg(orders=Count(), revenue=Sum("price"), largest=Max("price"), last=Last("price", by="at")).upsert("totals")
    return flow.build()
