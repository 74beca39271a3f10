"""A table as of a past transaction, read-only: a replay runs on it, and is compared with it."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Never, TypeVar

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from state.delta.log.data_files import DataFile, files_of, fitted
from state.delta.log.entries import version_after
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS, Owner
from state.delta.read.history import FoundTable, shown_schema
from state.delta.read.points import TableVersions
from state.delta.read.reading import read_rows
from state.delta.schema import TXID_FIELD
from txtopo.api.state import OpenedState, State
from txtopo.api.table_history import StateComparison
from txtopo.api.writes import Writes
from txtopo.columnar.rows_by_time import BEFORE_ALL, not_over
from txtopo.errors import ConfigError, StateAccessError

R = TypeVar("R")


@attrs.frozen(eq=False)
class Change:
    """What a transaction has changed in a table, and what its replay changes.

    Args:
        txid: the transaction.
        then: the rows that it has put, as the table has them.
        now: those that the replay has put.
        writes: all that the replay has put of its group, up to this transaction.
        may_be_removed: whether keys that the transaction put may be missing.
    """

    txid: int
    then: pa.Table
    now: pa.Table
    writes: Writes
    may_be_removed: bool


class PastDeltaTable(OpenedState):
    """A table at the newest version whose txid is not above a wanted one.

    How it is looked into is up to its kind, as when it is opened to be written: a subclass has the same base for that.

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
        owner = Owner.of(latest) or Owner(topology_id, state, "", declared.kind)
        self._versions = TableVersions(location, latest, owner)
        handle = self._versions.exact_as_of(txid)
        self._is_before = handle is None and (not txid or self._versions.is_last_write(0, txid))
        """Whether it is meant as it was before its first write, of which no version is left."""
        if handle is None and not self._is_before:
            raise self._gone(txid)
        self._table: DeltaTable = latest if handle is None else handle
        self._txid = txid

    @property
    def identity(self) -> str:
        """Delta's id of the table."""
        return str(self._table.metadata().id)

    @property
    def last_txid(self) -> int | None:
        """The last transaction in this version of the table; None before the first."""
        return None if self._is_before else self._versions.txid_of(self._table)

    @property
    def version(self) -> int:
        """The number of this version."""
        return int(self._table.version())

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) of this version, or as of an earlier transaction."""
        schema = shown_schema(self._table, self.declared.kind)
        if txid is not None and txid < self._txid:
            return FoundTable.of(self._location).rows(txid, is_exact=False).select(schema.names)
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
        if not self._is_comparable(txid, last):
            return StateComparison(self._state, None, None)
        recorded = self.all.filter(pc.equal(self.all[TXID_FIELD], txid))
        now = self._put_now(txid, writes, recorded)
        # The table had no column for what is put into a new field now.
        now = fitted(now.select([name for name in now.column_names if name in self._columns]), self._schema)
        if self.declared.expires:
            recorded, now = (not_over(rows, self.declared.expires, self.taken_until()) for rows in (recorded, now))
        changed = Change(txid, recorded, now, writes, may_be_removed=may_be_removed and txid < last)
        return StateComparison(self._state, recorded.num_rows, self._difference(changed))

    def _is_comparable(self, txid: int, last: int) -> bool:  # noqa: ARG002 - it depends on the kind
        """Return whether rows say which transaction of a group has put them, as of its ``last``."""
        return True

    @abstractmethod
    def _put_now(self, txid: int, writes: Writes, recorded: pa.Table) -> pa.Table:
        """Return the rows that a replay has put for a transaction, which had put ``recorded``."""

    @abstractmethod
    def _difference(self, change: Change) -> str | None:
        """Describe the first row that differs; None if none does."""

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return sum(file.live for file in self.files.values())

    @functools.cached_property
    def files(self) -> Mapping[str, DataFile]:
        """Its data files, by path."""
        return {} if self._is_before else files_of(self._location, self._table, self.declared.partition_by)

    @functools.cached_property
    def all(self) -> pa.Table:
        """All its rows."""
        return self._read(self._schema)

    @functools.cached_property
    def _columns(self) -> frozenset[str]:
        """The columns that the table had when the transaction that it is as of was written.

        This version may be a later one without a transaction of its own, which has added some.
        """
        version = version_after(self._location, self._table.version(), self._txid)
        table = self._table if version is None else self._location.handle(version)
        return frozenset(field.name for field in table.schema().fields)

    def taken_until(self) -> int:
        """Return the time up to which rows and keys have expired in this version."""
        return BEFORE_ALL if self._is_before else self._versions.numbers_of(self._table).taken_until

    def reading(self, read: Callable[[], R]) -> R:
        """Do what reads the table; raise StateAccessError if this version is gone, or cannot be read."""
        try:
            return read()
        except WORLD_ERRORS as error:
            raise self._gone(self._txid) from error

    def _read(self, schema: pa.Schema) -> pa.Table:
        if self._is_before:
            return schema.empty_table()
        return self.reading(lambda: read_rows(self._location, self._table, schema))

    def _gone(self, txid: int) -> StateAccessError:
        return StateAccessError(
            f"state {self._state!r}: the version of the table at {self._location.address} as of transaction {txid} "
            "is no longer kept, or cannot be read; try a later transaction",
            txid=txid,
        )
