"""A table as of a past transaction, read-only: a replay runs on it, and is compared with it."""

from __future__ import annotations

import functools
from abc import abstractmethod
from typing import Never

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from state.delta.log.data_files import fitted
from state.delta.log.entries import version_after
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS, Owner, state_application, taken_until
from state.delta.read.history import exact_version_as_of, is_last_write, read_snapshot, shown_schema
from state.delta.read.reading import read_rows
from state.delta.schema import TXID_FIELD
from txtopo.api.state import OpenedState, State, Writes
from txtopo.api.table_history import StateComparison
from txtopo.columnar.rows_by_time import BEFORE_ALL, not_over
from txtopo.errors import ConfigError, StateAccessError

__all__ = ["PastDeltaTable"]


class PastDeltaTable(OpenedState):
    """A table at the newest version whose txid is not above a wanted one.

    Raises:
        ConfigError: there is no table.
        StateAccessError: that version is no longer kept.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a table, its declaration, and when
        self, declared: State, topology_id: str, location: Location, state: str, schema: pa.Schema, txid: int
    ) -> None:
        self.declared = declared
        self._location = location
        self._state = state
        self._schema = schema
        latest = location.existing()
        if latest is None:
            raise ConfigError(f"state {state!r}: there is no table at {location.address}")
        owner = Owner.of(latest)
        self._application = state_application(topology_id, state) if owner is None else owner.application
        found = exact_version_as_of(location, latest, self._application, txid)
        self._is_before = found is None and (
            not txid or (owner is not None and is_last_write(location, latest, owner, 0, txid))
        )
        """Whether it is meant as it was before its first write, of which no version is left."""
        if found is None and not self._is_before:
            raise self._gone(txid)
        self._table: DeltaTable = latest if found is None else found
        self._txid = txid

    @property
    def identity(self) -> str:
        """Delta's id of the table."""
        return str(self._table.metadata().id)

    @property
    def last_txid(self) -> int | None:
        """The last transaction in this version of the table; None before the first."""
        return None if self._is_before else self._table.transaction_version(self._application)

    @property
    def version(self) -> int:
        """The number of this version."""
        return int(self._table.version())

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) of this version, or as of an earlier transaction."""
        schema = shown_schema(self._table, self.declared.kind)
        if txid is not None and txid < self._txid:
            return read_snapshot(self._location, self._application, schema, txid)
        return self._read(schema)

    def write(self, txid: int, values: Writes) -> Never:  # noqa: ARG002 - refused
        """Raise a ``StateAccessError``."""
        raise StateAccessError(f"state {self._state!r} is opened as of the past and cannot be written")

    def compare(self, txid: int, writes: Writes, last: int, *, may_be_removed: bool) -> StateComparison:
        """Compare this table's rows of a transaction with the rows that a replay has put.

        Rows that have expired since are left out: nobody sees them again, and the table may never have had them.

        Args:
            txid: the transaction.
            writes: what the replay of its group has put, up to this transaction.
            last: the last transaction of the group, as of which this table is.
            may_be_removed: whether keys that this transaction put may be missing.
        """
        then = self._all.filter(pc.equal(self._all[TXID_FIELD], txid))
        now = self._put_now(txid, writes, then)
        # The table had no column for what is put into a new field now.
        now = fitted(now.select([name for name in now.column_names if name in self._columns]), self._schema)
        if self.declared.expires:
            then, now = (not_over(rows, self.declared.expires, self._taken_until()) for rows in (then, now))
        difference = self._first_difference(txid, then, now, writes, may_be_removed=may_be_removed and txid < last)
        return StateComparison(self._state, then.num_rows, difference)

    @abstractmethod
    def _put_now(self, txid: int, writes: Writes, then: pa.Table) -> pa.Table:
        """Return the rows that a replay has put for a transaction, which had put ``then``."""

    @abstractmethod
    def _first_difference(
        self, txid: int, then: pa.Table, now: pa.Table, writes: Writes, *, may_be_removed: bool
    ) -> str | None:
        """Describe the first row that differs; None if none does."""

    @functools.cached_property
    def _all(self) -> pa.Table:
        return self._read(self._schema)

    @functools.cached_property
    def _columns(self) -> frozenset[str]:
        """The columns that the table had when the transaction that it is as of was written.

        This version may be a later one without a transaction of its own, which has added some.
        """
        version = version_after(self._location, self._table.version(), self._txid)
        table = self._table if version is None else self._location.handle(version)
        return frozenset(field.name for field in table.schema().fields)

    def _taken_until(self) -> int:
        """Return the time up to which expired rows are taken out."""
        return BEFORE_ALL if self._is_before else taken_until(self._table, self._application)

    def _read(self, schema: pa.Schema) -> pa.Table:
        if self._is_before:
            return schema.empty_table()
        try:
            return read_rows(self._location, self._table, schema)
        except WORLD_ERRORS as error:
            raise self._gone(self._txid) from error

    def _gone(self, txid: int) -> StateAccessError:
        return StateAccessError(
            f"state {self._state!r}: the version of the table at {self._location.address} as of transaction {txid} "
            "is no longer kept, or cannot be read; try a later transaction",
            txid=txid,
        )
