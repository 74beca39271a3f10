"""The marks of states: one row for each table in ``txtopo_states``, written in the transactions that write the table.

A mark says whose the table is, which epoch has opened it last, and its last transaction. Whoever writes the table locks
its mark first, so writers of one table come one after another, and each sees what the one before has done.
"""

from __future__ import annotations

import pyarrow as pa

from state.marks import Mark
from state.sql.database import Columns, Transaction

MARKS_TABLE = "txtopo_states"
"""The table of the marks, in the schema of the tables that they are of."""

_TEXTS = ("name", "topology", "state", "incarnation", "identity", "kind", "turns")

_COLUMNS = Columns(
    pa.schema([*((name, pa.string()) for name in _TEXTS), ("epoch", pa.int64()), ("txid", pa.int64())]), keys=1
)


def create_marks(transaction: Transaction) -> None:
    """Create the table of the marks."""
    transaction.create(_COLUMNS)


def read_mark(transaction: Transaction, name: str, *, locks: bool = False) -> Mark | None:
    """Return the mark of the table ``name``, None without one; ``locks`` it, and the table, for the transaction."""
    lock = " FOR UPDATE" if locks and transaction.connection.dialect.name == "postgresql" else ""
    at = "%s" if transaction.connection.dialect.name == "postgresql" else "?"
    rows = transaction.all(_COLUMNS, f"WHERE name = {at}{lock}", [name]).to_pylist()
    return Mark.of_row(rows[0]) if rows else None


def put_mark(transaction: Transaction, name: str, mark: Mark) -> None:
    """Insert or replace the mark of a table."""
    transaction.upsert(pa.Table.from_pylist([{"name": name, **mark.to_row()}], schema=_COLUMNS.schema), _COLUMNS)


def names_of_marks(transaction: Transaction) -> list[str]:
    """Return the names of all tables with marks."""
    return [str(name) for name in transaction.all(_COLUMNS)["name"].to_pylist()]


def rename_mark(transaction: Transaction, name: str, to: str) -> None:
    """Make the mark of a table that of another name."""
    mark = read_mark(transaction, name, locks=True)
    if mark is not None:
        put_mark(transaction, to, mark)
        transaction.delete(pa.table({"name": [name]}), _COLUMNS)
