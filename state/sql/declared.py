"""What both kinds of states in SQL databases share: how they are declared, and how a group's write is made visible."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, Self

import attrs
import pyarrow as pa

from state.delta.log.data_files import fitted
from state.marks import Mark, Owner
from state.noted_rows import HasNotedRows
from state.sql.columns import NAME_BYTES_MAX, checked_names, column_type, misfit_in_columns
from state.sql.database import Columns, Database, Transaction, checked_url, database_of, dataset_of_table
from state.sql.marks import put_mark, read_mark
from state.sql.table import ASIDE, SqlTable
from txtopo.api.dataset import Dataset
from txtopo.api.state import CanBeRepaired, State
from txtopo.api.writes import Writes
from txtopo.attempts import not_reached
from txtopo.errors import ConfigError, DivergenceError, FieldsError, StateAccessError

TABLE_BYTES_MAX = NAME_BYTES_MAX - len(ASIDE) - 6
"""So that a table can be set aside under another name."""


class DeclaredSqlTable(State):
    """A state in a table of a database."""

    def __init__(self, url: str, table: str, schema: str | None) -> None:
        checked_url(url)
        if not table or len(table.encode()) > TABLE_BYTES_MAX:
            raise ConfigError(f"the table of a state can't be named {table!r}: use 1 to {TABLE_BYTES_MAX} bytes")
        self.url = url
        self.table_name = table
        self.schema = schema
        columns = self.columns
        checked_names([table, *([] if schema is None else [schema]), *columns.schema.names])
        for field in columns.schema:
            column_type(field.name, field.type)

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """The columns of the table."""

    def table(self) -> SqlTable:
        """Return the table, which can be inspected without opening it."""
        return self._table(database_of(self.url))

    @property
    def dataset(self) -> Dataset:
        """The table, in its database; see :attr:`State.dataset`."""
        return dataset_of_table(self.url, self.table_name, self.schema)

    def _table(self, database: Database) -> SqlTable:
        return SqlTable(database, self.table_name, self.schema, self.kind, self.columns)

    def open(self, topology_id: str, name: str, incarnation: str, epoch: int) -> OpenedSqlTable:
        """Open the table, creating it if it does not exist, and record ``epoch`` in the database; see :class:`State`.

        Raises:
            StateFailure: the database can't be reached.
        """
        table = self._table(database_of(self.url, keeps_connection=True))
        owner = Owner(topology_id, name, incarnation)
        try:
            return self._opened(table, owner, table.open(owner, epoch))
        except BaseException:
            table.database.close()
            raise

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows as of transaction ``txid`` or the latest.

        Raises:
            ConfigError: there is no table yet.
            StateAccessError: the table does not have the rows as of that transaction.
        """
        return snapshot_of(self.table(), txid)

    def forked(self, topology_id: str) -> Self:
        """Return this state with a separate table in the same database, which begins empty; see :class:`State`."""
        fork = copy.copy(self)
        fork.table_name = f"{self.table_name}_{topology_id}"
        if len(fork.table_name.encode()) > TABLE_BYTES_MAX:
            raise ConfigError(
                f"the table of a fork would be named {fork.table_name!r}, which is too long: give the fork a shorter id"
            )
        return fork

    @abstractmethod
    def _opened(self, table: SqlTable, owner: Owner, mark: Mark) -> OpenedSqlTable:
        """Return the opened state, whose table is fenced."""


class OpenedSqlTable(HasNotedRows, CanBeRepaired):
    """A table opened by one coordinator."""

    def __init__(self, declared: DeclaredSqlTable, table: SqlTable, owner: Owner, mark: Mark) -> None:
        self.declared = declared
        self._table = table
        self._columns = table.columns
        self._owner = owner
        self._epoch = mark.epoch
        self._identity = mark.identity
        self._seen = mark.txid
        """The last transaction that the database has told of, or acknowledged."""

    @property
    def identity(self) -> str:
        """A random id, drawn when the table was made."""
        return self._identity

    @property
    def last_txid(self) -> int | None:
        """The txid of the last write, read anew."""
        return self._mark().txid

    def prepare(self, txid: int, values: Writes) -> Any:
        """Return a note with the rows; see :meth:`OpenedState.prepare`."""
        note = super().prepare(txid, values)
        self._mark().check_epoch(self._epoch, self._table.address)
        return note

    def _write(self, txid: int, rows: pa.Table) -> None:
        # 1. A crash before the commit leaves nothing. 2. One during it, or a lost answer, leaves a database that has
        # the rows with the mark, or neither: whoever comes next reads the mark, and does nothing or all of it again.
        with self._table.transaction("can't be written") as (table, marks):
            mark = self._locked(marks)
            if mark.txid is None or mark.txid < txid:
                # The fields of whoever made the note may have been fewer, or in another order.
                self._put(table, fitted(rows, self._columns.schema), mark.txid or 0)
                mark = attrs.evolve(mark, txid=txid)
                put_mark(marks, self._table.name, mark)
        self._seen = mark.txid

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows as of transaction ``txid`` or the latest; see :meth:`DeclaredSqlTable.snapshot`."""
        return snapshot_of(self._table, txid)

    def roll_back(self, txid: int | None) -> None:
        """Remove the rows of later transactions; see :meth:`CanBeRepaired.roll_back`.

        A keyed table can only be emptied: it has no earlier values.
        """
        target_txid = txid or 0
        with self._table.transaction("can't be rolled back") as (table, marks):
            mark = self._locked(marks)
            if (mark.txid or 0) != target_txid:
                if target_txid > (mark.txid or 0) or (self._columns.keys and target_txid):
                    raise StateAccessError(not_kept(self._table, target_txid, mark.txid), txid=txid)
                table.run(f"DELETE FROM {table.table} WHERE {table.quoted('txid')} > {target_txid:d}")  # noqa: S608 - a number
                mark = mark.rolled_back(target_txid, self._epoch)
                put_mark(marks, self._table.name, mark)
        self._seen = mark.txid

    def record_turn(self, txid: int) -> None:
        """Keep in the mark that the topology has gone back; see :meth:`CanBeRepaired.record_turn`."""
        with self._table.transaction("can't be marked") as (_, marks):
            mark = self._locked(marks)
            put_mark(marks, self._table.name, mark.turned(txid, self._epoch))

    def adopt(self) -> None:
        """Do nothing but look for a newer epoch: changes of others are not known."""
        self._mark().check_epoch(self._epoch, self._table.address)

    def close(self) -> None:
        """Close the connections."""
        self._table.database.close()

    @abstractmethod
    def _put(self, table: Transaction, rows: pa.Table, last: int) -> None:
        """Write rows in a transaction on a table that has all transactions up to ``last``."""

    def _mark(self) -> Mark:
        return self._ours(self._table.mark())

    def _locked(self, marks: Transaction) -> Mark:
        """Return the mark, which nobody else can change before the transaction ends."""
        mark = self._ours(read_mark(marks, self._table.name, locks=True))
        mark.check_epoch(self._epoch, self._table.address)
        mark.check_seen(self._seen, self._table.address)
        return mark

    def _ours(self, mark: Mark | None) -> Mark:
        address = self._table.address
        if mark is None:
            raise DivergenceError(f"the mark of the table {address} is gone from txtopo_states")
        if mark.owner != self._owner:  # renamed, by a newer epoch
            mark.check_epoch(self._epoch, address)
            mark.check_owner(self._owner, address)
        return mark

    def _refuse(self, rows: pa.Table, key_of: Any) -> None:
        misfit = misfit_in_columns(rows, self.declared.key, is_postgresql=self._table.database.is_postgresql)
        if misfit is not None:
            at, why = misfit
            raise FieldsError(f"state {self._owner.state!r}, {key_of(at)}: {why}; nothing was written")


def snapshot_of(table: SqlTable, txid: int | None) -> pa.Table:
    """Return the rows of a table as of a transaction; a keyed one has only the newest.

    Raises:
        ConfigError: there is no table.
        StateAccessError: the table does not have them.
    """
    if table.describe() is None:
        raise ConfigError(f"there is no table {table.address} of a state yet: run its topology first")
    with table.transaction("can't be read", is_write=False) as (rows, marks):
        mark = read_mark(marks, table.name)
        last = None if mark is None else mark.txid
        shown = table.columns.of_readers
        if txid is None:
            return rows.all(shown)
        if txid > (last or 0) or (table.columns.keys and txid != (last or 0)):
            raise StateAccessError(not_kept(table, txid, last), txid=txid)
        return rows.all(shown, f"WHERE {rows.quoted('txid')} <= {txid:d}")


def not_kept(table: SqlTable, txid: int, last: int | None) -> str:
    """Return in words that a table does not have the rows as of a transaction."""
    if txid > (last or 0):
        return not_reached(txid, f"the table {table.address}", last)
    return (
        f"the table {table.address} has the values of its last transaction, {last}, and none of earlier ones, such as "
        f"{txid}"
    )
