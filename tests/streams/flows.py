"""Flows in memory, for tests: rows in, tables out."""

from typing import Any

from spouts import MemoryTransactionalSpout
from state import read_table
from txtopo import Fields
from txtopo.streams import Flow
from txtopo.testing import run_inline

ORDER = Fields("id: long", "shop: string", "at: timestamp", "price: long", "paid: boolean")


def memory(rows: list[Any], fields: Fields = ORDER, size: int = 2) -> MemoryTransactionalSpout:
    """Return a spout of some rows, a few a transaction."""
    return MemoryTransactionalSpout(rows, fields, size)


def table(flow: Flow, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table of a flow, without the txid, in an order that says nothing."""
    rows = read_table(flow._graph.table(name)).drop_columns(["txid"]).to_pylist()
    return sorted(rows, key=repr)


def ran(flow: Flow, *names: str) -> list[list[dict[str, Any]]]:
    """Run a flow in this process; return the rows of some of its tables."""
    run_inline(flow.build())
    return [table(flow, name) for name in names]
