"""Query 19: the 10 highest bids of each auction, and their ranks; of equal ones the earlier is first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.nexmark.sources import EVENTS, spout
from state import read_table
from txtopo import Fields, TransactionalTopology
from txtopo.streams import Flow, TopN

ROW = Fields("dateTime", "extra", "bidder", "price", "channel", "url")
TOP = TopN(ROW, n=10, by="price", ties="smallest")


def answer(output: str) -> pa.Table:
    """Return a row for each bid of the table's lists."""
    table = read_table(f"{output}/answer").combine_chunks()
    lists = table["bids"].combine_chunks()
    bids, of = lists.flatten(), pc.list_parent_indices(lists)
    ranks = np.arange(len(bids)) - np.asarray(lists.offsets)[np.asarray(of)] + 1
    fields = {field.name: bids.field(field.name) for field in bids.type}
    return pa.table({"auction": table["auction"].take(of), "rank": ranks, **fields})


def topology(events: str = EVENTS, output: str = f"{EVENTS}-q19") -> TransactionalTopology:
    """Return the topology."""
    flow = Flow("nexmark-q19", output, parallelism=2)
    bids = flow.source("bids", spout(events, "bid")).group_by("auction")
    bids.agg(bids=TOP).upsert("answer", deletion_vectors=True)
    return flow.build()
