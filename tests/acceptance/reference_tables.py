"""A topology that reads a reference table while somebody changes it: each version says which it is."""

import contextlib
import datetime as dt
import sys
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaReference, DeltaRows, read_table
from tests.journals import opened_journal
from txtopo import (
    BasicBolt,
    BatchBolt,
    Config,
    FailedException,
    Fields,
    ICommitter,
    TransactionalTopology,
    TransactionalTopologyBuilder,
    run,
)
from txtopo.api.reference import ReferenceTable
from txtopo.attempts import epoch_and_try
from txtopo.journal.entries import JournalTransaction
from txtopo.journal.journal import read_journal

ORDERS = 12
CUSTOMER = 7


def write_version(customers: Path) -> None:
    """Write the next version of the reference, with a row of its own."""
    rows = pa.table({"id": [CUSTOMER], "saw": [uuid.uuid4().int >> 66]})
    write_deltalake(str(customers), rows, mode="overwrite")


class Changing(BasicBolt):
    """Has somebody write the reference table while a transaction is processed, which may fail at its first try."""

    output_fields = Fields("attempt", "order: long")

    def __init__(self, customers: Path, *, fails: bool) -> None:
        self.customers, self.fails = customers, fails

    def execute(self, tuple: Any, collector: Any) -> None:
        from deltalake.exceptions import CommitFailedError  # its module has no name to pickle it by

        with contextlib.suppress(CommitFailedError):  # another task writes it at the same time
            write_version(self.customers)
        if self.fails and epoch_and_try(tuple.attempt.attempt)[1] == 1:
            raise FailedException("once")
        collector.emit(tuple.values)


class Both(BatchBolt, ICommitter):
    """Writes which version it has seen in each phase."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.customers = context.reference("customers")
        self.seen: list[Any] = []

    def execute(self, tuple: Any) -> None:
        self.seen.append((tuple["order"], self.customers.version, saw(self.customers)))

    def finish_batch(self) -> None:
        self.context.state("out").append([(*row, saw(self.customers)) for row in self.seen])


def saw(customers: ReferenceTable) -> int:
    """Return what the row of the table says."""
    (row,) = customers.look_up(pa.table({"id": [CUSTOMER]})).to_pylist()
    return row["saw"]


def topology(
    root: str, *, fails: bool = False, changes: bool = True, opaque: bool = False, orders: int = ORDERS
) -> TransactionalTopology:
    """Return the topology, with an order in each transaction."""
    customers = Path(root) / "customers"
    if not customers.exists():
        write_version(customers)
    make: Any = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    spout = make([[order] for order in range(1, orders + 1)], Fields("order: long"), 1)
    builder = TransactionalTopologyBuilder("seen", "orders", spout)
    builder.set_reference("customers", DeltaReference(customers, "id", refresh=dt.timedelta(0)))
    above = "orders"
    if changes:
        builder.set_bolt("changing", Changing(customers, fails=fails)).shuffle_grouping("orders")
        above = "changing"
    builder.set_bolt("both", Both()).shuffle_grouping(above)
    columns = ("order", "version", "processing", "commit")
    builder.set_state("out", DeltaRows(Path(root) / "out" / "out", Fields(*(f"{name}: long" for name in columns))))
    return builder.build()


def transactions(root: Path) -> list[JournalTransaction]:
    """Return what the journal has of the committed transactions."""
    parts = read_journal(opened_journal(root / "out"))
    found = {
        transaction.txid: transaction for part in parts for entry in part.entries for transaction in entry.transactions
    }
    return [found[txid] for txid in sorted(found)]


def versions_seen(root: Path, *, are_kept: bool = True) -> list[int]:
    """Check that each order is there once and has seen the version that the journal has; return these versions."""
    rows = sorted(read_table(root / "out" / "out").to_pylist(), key=lambda row: row["txid"])
    assert [row["order"] for row in rows] == list(range(1, ORDERS + 1))
    planned = {transaction.txid: transaction.planned.references[0].version for transaction in transactions(root)}
    for row in rows:
        assert row["version"] == planned[row["txid"]]
        assert row["processing"] == row["commit"]
        if are_kept:
            table = DeltaTable(str(root / "customers"), version=row["version"])
            assert table.to_pyarrow_table()["saw"].to_pylist() == [row["commit"]]
    return [row["version"] for row in rows]


if __name__ == "__main__":
    run(topology(sys.argv[1]), Config({"topology.processing.mode": sys.argv[2], "topology.max.spout.pending": 3}))
