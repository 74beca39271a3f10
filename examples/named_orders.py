"""Orders with the names of their customers, from a table that others change while the topology runs.

Change the table ``txtopo-data/customers`` as you like meanwhile: each order has the name of the version that its
transaction saw, and ``txtopo explain examples.named_orders 1`` says which that was.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import write_deltalake

from committers import AppendCommitter, LookupJoin
from spouts import MemoryTransactionalSpout
from state import DeltaReference, DeltaRows
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

CUSTOMERS = "txtopo-data/customers"
OUTPUT = "txtopo-data/named_orders"
ORDERS = [[order, order % 4, 10 * order] for order in range(1_000)]
NAMED = Fields("order: long", "price: long", "buyer: string")


def topology(customers: str = CUSTOMERS, output: str = OUTPUT) -> TransactionalTopology:
    """Return the topology; make a table of customers if there is none."""
    write_deltalake(customers, pa.table({"id": [0, 1, 2], "name": ["ann", "bob", "cid"]}), mode="ignore")
    spout = MemoryTransactionalSpout(ORDERS, Fields("order: long", "customer: long", "price: long"), 100)
    builder = TransactionalTopologyBuilder("named-orders", "orders", spout)
    builder.set_reference("customers", DeltaReference(customers, key="id"))
    order, name, names = Fields("order: long", "price: long"), Fields("name: string"), {"name": "buyer"}
    join = LookupJoin("customer", reference="customers", fields=order, values=name, rename=names, how="left")
    builder.set_bolt("join", join, 2).shuffle_grouping("orders")
    builder.set_bolt("append", AppendCommitter("named")).shuffle_grouping("join")
    builder.set_state("named", DeltaRows(f"{output}/named", NAMED))
    return builder.build()
