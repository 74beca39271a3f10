"""DeltaState: keyed state in a Delta table, by delta-rs. No Spark takes part.

One coordinator writes to the table, by one handle, which it brings up to date before each write. What that
brings to light is dealt with before anything is written:

1. A newer marker: another coordinator leads. LostLead.
2. The transaction itself: it is written already.
3. Rows that somebody else has changed: totals are not what the transactions make them any more.
   DivergenceError; the next start says so, too, until ``txtopo repair`` has settled it.
4. A version that changed no row, a vacuum for example: go on.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence

import attrs
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from state.delta_cache import ValueCache
from state.delta_fence import WORLD_ERRORS, Fence, state_application
from state.delta_foreign import foreign_change
from state.delta_history import read_snapshot, read_table, shown_schema
from state.delta_location import Location, parent_of
from state.delta_owner import Owner
from state.delta_past import PastDeltaState
from state.delta_rollback import roll_back
from state.delta_rows import RowFormat, checked_fields
from state.delta_staging import Staging
from state.delta_sync import sync_version
from state.delta_table import DeltaStateTable
from state.delta_upkeep import Upkeep, compact, vacuum
from state.delta_writing import put_rows
from state.values import KeptValue, first_value
from txtopo.contracts.fields import Fields
from txtopo.contracts.state import Key, OpenedState, StagedWrite, State, StateKind, StateValue, Writes
from txtopo.errors import ConfigError, DivergenceError, FailedException
from txtopo.failpoints import reach

__all__ = ["DeltaState", "OpenedDeltaState", "read_table"]

WRITE_TRIES_MAX = 10
"""Tries at one write while versions of others come before it."""


@attrs.frozen(kw_only=True)
class _Options:
    """How the table is kept, apart from what is in it."""

    storage: dict[str, str] | None
    cached_keys_max: int
    upkeep: Upkeep


class DeltaState(State):
    """A state in a Delta table of its own: key fields, value fields, txid.

    The table of an opaque state has the previous value of each value field too.

    Args:
        path: the table: a local path, absolute or relative to the working directory of the coordinator, or an
            address in an object store. It is made when the state is first opened. A topology with several
            states needs local ones, see :mod:`state.delta_staging`.
        key: the key fields, each with a type: string, an integer, boolean, decimal, date, timestamp, binary.
        value: the value fields, each with a type.
        kind: what is kept beside each value. An opaque state with several value fields does not take values
            whose every field is null.
        storage_options: what the object store needs, passed on to delta-rs.
        cached_keys_max: the most keys that the coordinator keeps in its memory. A table with more keys is
            read again, all of it, whenever a key is asked for that is not among those used last.
        upkeep_every_writes: writes between two checkpoints of the log.
        files_max: the most data files before the table is compacted.
        vacuum_retention_hours: how long data files that are no longer referenced stay, at least 168; None
            (the default): for ever.

    Raises:
        ConfigError: an option is out of its range.
        FieldsError: a field has no type, no name of its own, or a type that keys cannot have.
    """

    def __init__(  # noqa: PLR0913  each has a default, and is named
        self,
        path: str | os.PathLike[str],
        key: Fields,
        value: Fields,
        kind: StateKind = StateKind.TRANSACTIONAL,
        *,
        storage_options: Mapping[str, str] | None = None,
        cached_keys_max: int = 1_000_000,
        upkeep_every_writes: int = 50,
        files_max: int = 32,
        vacuum_retention_hours: int | None = None,
    ) -> None:
        checked_fields(key, value, kind, typed=True)
        if not os.fspath(path):
            raise ConfigError("a DeltaState needs the path of its table; write DeltaState('out/counts', …)")
        if cached_keys_max < 1:
            raise ConfigError(f"cached_keys_max of a DeltaState is {cached_keys_max}; it must be at least 1")
        self.path = os.fspath(path)
        self.key = key
        self.value = value
        self.kind = StateKind(kind)
        self._options = _Options(
            storage=dict(storage_options) if storage_options is not None else None,
            cached_keys_max=cached_keys_max,
            upkeep=Upkeep(upkeep_every_writes, files_max, vacuum_retention_hours),
        )

    @property
    def address(self) -> str | None:
        """The table's path, or its address in an object store."""
        return self.path

    @property
    def home(self) -> str | None:
        """The folder that holds the table's; None for a table in an object store."""
        return parent_of(self.path)

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest.

        Raises:
            ConfigError: there is no table yet.
            StateAccessError: the table has not got so far yet, or what it held then is no longer kept.
        """
        return read_table(self.path, txid, storage_options=self._options.storage)

    def table(self) -> DeltaStateTable:
        """Return the table, to be looked at without opening it."""
        location = Location.resolve(self.path, self._options.storage)
        return DeltaStateTable(location, self.kind, RowFormat("", self.key, self.value, self.kind).schema())

    def open_as_of(self, topology_id: str, name: str, txid: int) -> PastDeltaState:
        """Open what the table held as of a transaction, for reading only; it fences nobody.

        Args:
            topology_id: the topology that the state belongs to.
            name: the state's name in it.
            txid: the last transaction to see.

        Raises:
            ConfigError: there is no table.
            StateAccessError: what it held then is no longer kept.
        """
        location = Location.resolve(self.path, self._options.storage)
        return PastDeltaState(topology_id, location, RowFormat(name, self.key, self.value, self.kind), txid)

    def open(self, topology_id: str, name: str, life: str, epoch: int) -> OpenedDeltaState:
        """Open the table, made now if there is none, and write the marker of ``epoch``.

        Args:
            topology_id: the topology that the state belongs to.
            name: the state's name in it.
            life: the topology's life.
            epoch: the epoch of the coordinator that opens it.

        Raises:
            DivergenceError: something else lies there, or the table of another topology, state, life or kind.
            LostLead: a newer epoch has opened it.
            FailedException: the table cannot be reached.
        """
        fence = Fence(topology_id, name, epoch)
        location = Location.resolve(self.path, self._options.storage)
        rows = RowFormat(name, self.key, self.value, self.kind)
        try:
            Owner(topology_id, name, life, self.kind).take(location, rows.schema())
            table = fence.close_behind(location)
        except WORLD_ERRORS as error:
            raise FailedException(
                f"state {name!r}: the table at {location.address} cannot be opened", cause=str(error)
            ) from error
        return OpenedDeltaState(location, table, fence, rows, self._options)

    def __repr__(self) -> str:
        return f"DeltaState({self.path!r}, key={self.key}, value={self.value}, kind={self.kind})"


class OpenedDeltaState(OpenedState):
    """A Delta table in the hands of one coordinator; made by :meth:`DeltaState.open`."""

    def __init__(self, location: Location, table: DeltaTable, fence: Fence, rows: RowFormat, options: _Options) -> None:
        self._location = location
        self._table = table
        self._fence = fence
        self._rows = rows
        self._upkeep = options.upkeep
        self._cache = ValueCache(rows, options.cached_keys_max)
        self._staging = Staging(fence.state, fence.epoch, location)
        self._own_version = table.version()
        self._seen_version = table.version()
        self._foreign_change: str | None = None
        self._writes = 0
        self._checkpoints = 0

    @property
    def identity(self) -> str:
        """Delta's id of the table."""
        return str(self._table.metadata().id)

    @property
    def last_txid(self) -> int | None:
        """The txid of the last write, by a fresh handle; None before the first.

        Raises:
            DivergenceError: the table is gone.
            FailedException: the table cannot be read.
        """
        return self._fence.last_txid(self._fresh_handle())

    @property
    def version(self) -> int:
        """The version that this coordinator has made last: by its marker, or by a write."""
        return self._own_version

    def make_value(self, txid: int, value: object) -> KeptValue:
        """Return what is kept when transaction ``txid`` is the first to put ``value`` for a key."""
        return first_value(self._rows.kind, txid, value)

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value of each key, None where there is none, as of this coordinator's last write.

        Raises:
            FieldsError: a key does not fit the key fields.
            FailedException: the table cannot be read.
        """
        try:
            found = self._cache.multi_get(self._table, keys)
        except WORLD_ERRORS as error:
            raise self._failure("its table cannot be read", error) from error
        return list(found)

    def check(self, txid: int, values: Writes) -> None:
        """Refuse a key or value that does not fit."""
        self._rows.fit(txid, values)

    def write(self, txid: int, values: Writes) -> None:
        """Insert or replace the row of each key, in one Delta write; with no values, note the txid alone.

        Raises:
            FieldsError: a key or value does not fit; nothing was written.
            LostLead: a newer epoch has opened the table; nothing was written.
            DivergenceError: somebody else has changed rows; nothing was written.
            FailedException: the write failed; it may be tried again.
        """
        rows = self._rows.fit(txid, values)
        for _ in range(WRITE_TRIES_MAX):
            if self._is_visible(txid):
                return
            self._refuse_foreign_change(txid)
            if self._put(txid, rows.table, rows.values):
                return
        raise self._failure(f"other writers were faster {WRITE_TRIES_MAX} times", None, txid)

    def stage(self, txid: int, values: Writes) -> StagedWrite:
        """Write the rows to a file beside the table's data, where no reader of the table sees them.

        Raises:
            FieldsError: a key or value does not fit; nothing was written.
            ConfigError: the table lies in an object store.
            LostLead: a newer epoch has opened the table.
            DivergenceError: somebody else has changed rows.
            FailedException: the file cannot be written.
        """
        rows = self._rows.fit(txid, values)
        self._is_visible(txid)
        self._refuse_foreign_change(txid)
        try:
            return self._staging.stage(txid, rows.table)
        except OSError as error:
            raise self._failure("a write cannot be staged", error, txid) from error

    def write_staged(self, staged: StagedWrite) -> None:
        """Make a staged write visible, whichever epoch staged it; do nothing if it is visible already.

        Raises:
            LostLead: a newer epoch has opened the table.
            DivergenceError: its file is gone, and it is not visible.
            FailedException: the write failed; try again.
        """
        for _ in range(WRITE_TRIES_MAX):
            if self._is_visible(staged.txid):
                return
            self._refuse_foreign_change(staged.txid)
            try:
                table = self._staging.read(staged)
            except WORLD_ERRORS as error:
                raise self._failure(f"{staged.location} cannot be read", error, staged.txid) from error
            if self._put(staged.txid, table, self._rows.read_writes(table)):
                return
        raise self._failure(f"other writers were faster {WRITE_TRIES_MAX} times", None, staged.txid)

    def discard_staged(self) -> None:
        """Remove what this coordinator and earlier ones have staged."""
        try:
            self._staging.discard()
        except OSError as error:
            raise self._failure("staged writes cannot be removed", error) from error

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest.

        Transactions that were written together are seen together.

        Raises:
            StateAccessError: the table has not got so far yet, or what it held then is no longer kept.
        """
        application = state_application(self._fence.topology_id, self._fence.state)
        return read_snapshot(self._location, application, shown_schema(self._table, self._rows.kind), txid)

    def roll_back(self, txid: int | None) -> None:
        """Write a version that equals the one which transaction ``txid`` made; see :meth:`OpenedState.roll_back`.

        Raises:
            StateAccessError: that version is not kept.
            LostLead: a newer epoch has opened the table; nothing was written.
            FailedException: the write failed; it may be tried again.
        """
        for _ in range(WRITE_TRIES_MAX):
            self._is_visible(txid or 0)
            if (self._fence.last_txid(self._table) or 0) == (txid or 0) and self._changed_since(None) is None:
                return
            self._write_once(txid or 0, lambda: roll_back(self._location, self._table, self._fence, txid), {})
            self._cache.clear()
        raise self._failure(f"other writers were faster {WRITE_TRIES_MAX} times", None, txid)

    def adopt(self) -> None:
        """Note the last transaction again, on top of what somebody else has written.

        Raises:
            LostLead: a newer epoch has opened the table; nothing was written.
            FailedException: the write failed; it may be tried again.
        """
        for _ in range(WRITE_TRIES_MAX):
            last = self.last_txid or 0
            self._is_visible(last)
            if self._changed_since(None) is None:
                return
            self._write_once(last, functools.partial(self._fence.mark, self._table, last), {})
            self._cache.clear()
        raise self._failure(f"other writers were faster {WRITE_TRIES_MAX} times", None)

    def maintain(self) -> None:
        """Checkpoint the log every so many own writes; compact and vacuum where that is due.

        Raises:
            LostLead: a newer epoch has opened the table; nothing was done.
            FailedException: it failed; the table is as good as before.
        """
        if self._writes < self._upkeep.every_writes:
            return
        try:
            self._advance()
            self._table.create_checkpoint()
            self._table.cleanup_metadata()
            before = self._table.version()
            if len(self._table.file_uris()) > self._upkeep.files_max:
                compact(self._table, self._fence)
                self._table.update_incremental()
                self._cache.written(before, self._table.version(), {})
                if self._foreign_change is None:
                    self._own_version = self._seen_version = before + 1
            if self._upkeep.is_vacuum_due(self._checkpoints):
                vacuum(self._table, self._upkeep.vacuum_retention_hours or 0)
        except WORLD_ERRORS as error:
            self._fence.check(self._fresh_handle())
            raise self._failure("upkeep failed", error) from error
        self._writes = 0
        self._checkpoints += 1

    def close(self) -> None:
        """Let go of the cached values."""
        self._cache.clear()

    def _put(self, txid: int, rows: pa.Table, values: Mapping[Key, KeptValue | None]) -> bool:
        keys = list(self._rows.key)
        return self._write_once(txid, lambda: put_rows(self._table, self._fence, txid, rows, keys), values)

    def _is_visible(self, txid: int) -> bool:
        """Bring the writing handle up to date, and ask it: may we write, and is it written already?"""
        try:
            self._advance()
        except WORLD_ERRORS as error:
            raise self._failure("its table cannot be read", error, txid) from error
        last = self._fence.last_txid(self._table)
        return last is not None and last >= txid

    def _advance(self) -> None:
        """Bring the handle up to date and check the fence; forget what was read from an older version."""
        self._table.update_incremental()
        self._fence.check(self._table)
        self._see_others()

    def _see_others(self) -> None:
        """Look at versions that have come from elsewhere; forget what was read from an older one."""
        if self._table.version() == self._seen_version:
            return
        self._foreign_change = self._foreign_change or self._changed_since(self._own_version)
        self._seen_version = self._table.version()
        self._cache.clear()

    def _changed_since(self, version: int | None) -> str | None:
        return foreign_change(self._location, self._table, version)

    def _refuse_foreign_change(self, txid: int) -> None:
        if self._foreign_change is not None:
            last = self._fence.last_txid(self._table)
            raise DivergenceError(
                f"state {self._fence.state!r}: somebody else has changed the table at {self._location.address} "
                f"({self._foreign_change}) since its last transaction, {last}; nothing of transaction {txid} was "
                "written to it. Let txtopo alone write to it; 'txtopo repair' takes the change back, or accepts it",
                txid=txid,
            )

    def _write_once(self, txid: int, write: Callable[[], None], values: Mapping[Key, KeptValue | None]) -> bool:
        """Write the version after the handle's; return False if another writer took it.

        Raises:
            LostLead: and it was a newer coordinator.
            FailedException: the world failed in another way.
        """
        before = self._table.version()
        files = set(self._table.file_uris())
        reach("delta.write.checked")
        try:
            write()
            self._table.update_incremental()
        except WORLD_ERRORS as error:
            return self._recover(txid, before, error)
        reach("delta.write.landed")
        self._sync(txid, before + 1, set(self._table.file_uris()) - files)
        self._cache.written(before, self._table.version(), values)
        self._own_version = self._seen_version = before + 1
        self._foreign_change = None
        self._see_others()
        self._writes += 1
        return True

    def _sync(self, txid: int, version: int, new_files: set[str]) -> None:
        if self._location.folder is None:
            return
        try:
            sync_version(self._location.folder, version, new_files)
        except OSError as error:
            raise self._failure("it was written, but may not outlive a loss of power", error, txid) from error

    def _recover(self, txid: int, before: int, error: Exception) -> bool:
        """Find out what became of a write that raised ``error``.

        1. A newer coordinator has opened the table: LostLead. 2. The write is there, what failed came
        after it: fine. 3. Another version took its place: it may be tried again. 4. Anything else.
        """
        self._table = self._fresh_handle()
        self._fence.check(self._table)
        self._see_others()
        last = self._fence.last_txid(self._table)
        if last is not None and last >= txid:
            return True
        if self._table.version() > before:
            return False
        raise self._failure("its table could not be written", error, txid) from error

    def _fresh_handle(self) -> DeltaTable:
        try:
            return self._location.handle()
        except TableNotFoundError as error:
            raise DivergenceError(
                f"state {self._fence.state!r}: its table at {self._location.address} is gone; bring it back, "
                "or start again from a new coordinator state",
            ) from error
        except WORLD_ERRORS as error:
            raise self._failure("its table cannot be opened", error) from error

    def _failure(self, what: str, error: Exception | None, txid: int | None = None) -> FailedException:
        return FailedException(
            f"state {self._fence.state!r} at {self._location.address}: {what}",
            txid=txid,
            cause=None if error is None else f"{type(error).__name__}: {error}",
        )
