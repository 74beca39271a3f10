"""The marks of states: one row for each table in ``txtopo_states``, written in the transactions that write the table.

A mark says whose the table is, which epoch has opened it last, and its last transaction. Whoever writes the table locks
its mark first, so writers of one table come one after another, and each sees what the one before has done.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import attrs
import pyarrow as pa

from state.sql.database import Columns, Transaction
from txtopo.errors import DivergenceError, LostLead

__all__ = ["MARKS_TABLE", "Mark", "Owner", "Turns"]

MARKS_TABLE = "txtopo_states"
"""The table of the marks, in the schema of the tables that they are of."""

_TEXTS = ("name", "topology", "state", "incarnation", "identity", "kind", "turns")

_COLUMNS = Columns(
    pa.schema([*((name, pa.string()) for name in _TEXTS), ("epoch", pa.int64()), ("txid", pa.int64())]), keys=1
)


@attrs.frozen
class Owner:
    """The state that a table is of."""

    topology_id: str
    state: str
    incarnation: str


@attrs.frozen
class Turns:
    """The epochs that have rolled a table back, and those at which its topology has gone back, each with where to."""

    undone: tuple[tuple[int, int], ...] = ()
    turned: tuple[tuple[int, int], ...] = ()

    def undone_to(self, epoch: int) -> int | None:
        """Return the lowest transaction that the table was rolled back to after an epoch; None if it was not."""
        return min((txid for later, txid in self.undone if later > epoch), default=None)

    def turned_to(self, epoch: int) -> int | None:
        """Return the lowest transaction that the topology went back to after an epoch; None if it did not."""
        return min((txid for later, txid in self.turned if later > epoch), default=None)


@attrs.frozen
class Mark:
    """What the database says of one state's table."""

    owner: Owner
    identity: str
    kind: str
    epoch: int
    txid: int | None
    turns: Turns = Turns()

    @staticmethod
    def new(owner: Owner, kind: str, epoch: int) -> Mark:
        """Return the mark of a table that is made now."""
        return Mark(owner, uuid.uuid4().hex, kind, epoch, None)

    def check_epoch(self, epoch: int, address: str) -> None:
        """Raise LostLead if a newer epoch than this one has opened the table."""
        if self.epoch > epoch:
            raise LostLead(
                f"the table {address} of state {self.owner.state!r} of topology {self.owner.topology_id!r} was opened "
                f"by a coordinator of epoch {self.epoch}; this one has epoch {epoch} and writes nothing more"
            )

    def check_owner(self, owner: Owner, address: str) -> None:
        """Raise DivergenceError if the table is of another state, topology or incarnation."""
        if self.owner != owner:
            whose = f"state {self.owner.state!r} of topology {self.owner.topology_id!r}"
            raise DivergenceError(
                f"the table {address} belongs to {whose}, incarnation {self.owner.incarnation}, and is at transaction "
                f"{self.txid}; this is state {owner.state!r} of topology {owner.topology_id!r}, incarnation "
                f"{owner.incarnation}: give the state a table of its own",
                txid=self.txid,
            )


def create_marks(transaction: Transaction) -> None:
    """Create the table of the marks."""
    transaction.create(_COLUMNS)


def read_mark(transaction: Transaction, name: str, *, locks: bool = False) -> Mark | None:
    """Return the mark of a table; None if it has none.

    Args:
        transaction: one on the table of the marks.
        name: the name of the table that the mark is of.
        locks: whether nobody else may write it, or the table, before the transaction ends.
    """
    lock = " FOR UPDATE" if locks and transaction.connection.dialect.name == "postgresql" else ""
    at = "%s" if transaction.connection.dialect.name == "postgresql" else "?"
    found = transaction.all(_COLUMNS, f"WHERE name = {at}{lock}", [name]).to_pylist()
    return _of_row(found[0]) if found else None


def put_mark(transaction: Transaction, name: str, mark: Mark) -> None:
    """Insert or replace the mark of a table."""
    row: dict[str, Any] = {
        "name": name,
        "topology": mark.owner.topology_id,
        "state": mark.owner.state,
        "incarnation": mark.owner.incarnation,
        "identity": mark.identity,
        "kind": mark.kind,
        "turns": json.dumps(attrs.asdict(mark.turns)),
        "epoch": mark.epoch,
        "txid": mark.txid,
    }
    transaction.upsert(pa.Table.from_pylist([row], schema=_COLUMNS.schema), _COLUMNS)


def names_of_marks(transaction: Transaction) -> list[str]:
    """Return the names of all tables with marks."""
    return [str(name) for name in transaction.all(_COLUMNS)["name"].to_pylist()]


def rename_mark(transaction: Transaction, name: str, to: str) -> None:
    """Make the mark of a table that of another name."""
    mark = read_mark(transaction, name, locks=True)
    if mark is not None:
        put_mark(transaction, to, mark)
        transaction.delete(pa.table({"name": [name]}), _COLUMNS)


def _of_row(row: dict[str, Any]) -> Mark:
    turns = {name: tuple(map(tuple, pairs)) for name, pairs in json.loads(row["turns"]).items()}
    owner = Owner(row["topology"], row["state"], row["incarnation"])
    return Mark(owner, row["identity"], row["kind"], row["epoch"], row["txid"], Turns(**turns))
