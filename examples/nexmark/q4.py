"""Query 4: the mean of the final prices of each category's auctions, which change as auctions are bid for."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from examples.nexmark.sources import EVENTS, spout
from state import read_table
from txtopo import TransactionalTopology
from txtopo.streams import Count, Flow, Max, Mean, Stream


def while_open(flow: Flow, events: str, *names: str) -> Stream:
    """Return the bids that came while their auctions were open, with fields of these."""
    bids = flow.source("bids", spout(events, "bid", "auction", "dateTime", "price"))
    auctions = flow.source("auctions", spout(events, "auction", "id", "dateTime", "expires", *names))
    joined = bids.join(auctions, {"auction": "id"}, rename={"id": "auction", "dateTime": "begins"})
    return joined.filter("dateTime >= begins AND dateTime <= expires")


def answer(output: str) -> pa.Table:
    """Return the means of the table."""
    table = read_table(f"{output}/answer")
    means = pc.divide(table["final_sum"].cast(pa.float64()), table["final_count"].cast(pa.float64()))
    return table.append_column("final", means)


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q4") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q4", output, parallelism=2)
    finals = while_open(flow, events, "category").group_by("auction").agg(category=Max("category"), price=Max("price"))
    changes = finals.upsert("finals", deletion_vectors=True).changes
    changes.group_by("category").agg(auctions=Count(), final=Mean("price")).upsert("answer")
    return flow.build()
