"""A Delta table opened by the one coordinator that writes to it: the base of every kind of Delta state.

It writes with one handle, which it updates before each write. Each finding of that update is handled before anything
is written:

1. A newer marker: another coordinator leads. Raise LostLead.
2. The transaction itself: it is already written. Do nothing.
3. Rows that somebody else has changed: the totals no longer follow from the transactions. Raise DivergenceError. The
   next start raises it too, until ``txtopo repair`` has resolved it.
4. A version that changed no row, for example a vacuum: continue.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from state.delta.log.damage import state_failure
from state.delta.log.entries import foreign_change
from state.delta.log.location import Location
from state.delta.log.ownership import NO_HOOKS, WORLD_ERRORS, Fence, state_application
from state.delta.log.sync import sync_files, sync_log, sync_version
from state.delta.read.history import read_snapshot, shown_schema
from state.delta.staging import Staging
from state.delta.table import kept_handle
from state.delta.upkeep import Upkeep, vacuum, vacuum_data_folder
from txtopo.api.state import (
    CanBeRepaired,
    Executors,
    OpenedState,
    StagedWrite,
    StagesWrites,
    State,
    UsesExecutors,
    Writes,
)
from txtopo.errors import DivergenceError, FailedException, StateAccessError, StateFailure
from txtopo.failpoints import reach

__all__ = ["OpenedDeltaTable"]

WRITE_TRIES_MAX = 10
"""The maximum number of tries of one write if other writers take its version."""

T = TypeVar("T")
W = TypeVar("W")
"""The type of a prepared write of this kind of state."""


class OpenedDeltaTable(OpenedState, StagesWrites, UsesExecutors, CanBeRepaired, Generic[W]):
    """A Delta table opened by one coordinator."""

    def __init__(self, declared: State, location: Location, table: DeltaTable, fence: Fence, upkeep: Upkeep) -> None:
        self.declared = declared
        self._location = location
        self._table = table
        self._fence = fence
        self._upkeep = upkeep
        self._executors: Executors | None = None
        self._driver_rows_max = 0
        self._staging = Staging(fence.state, fence.epoch, location)
        self._own_version = table.version()
        self._seen_version = table.version()
        self._foreign_change: str | None = None
        self._writes = 0
        self._checkpoints = 0

    # For subclasses to implement:

    @abstractmethod
    def _fitted(self, txid: int, values: Writes) -> W:
        """Prepare ``values`` for the write.

        Raises:
            FieldsError: one of them does not fit.
        """

    @abstractmethod
    def _staged(self, txid: int, writes: W) -> StagedWrite:
        """Make a write durable beside the table's data."""

    @abstractmethod
    def _read_staged(self, staged: StagedWrite) -> W:
        """Return a staged write."""

    @abstractmethod
    def _write(self, txid: int, writes: W) -> pa.Table | None:
        """Write the version after the handle's; return all of its rows if they are in memory."""

    @abstractmethod
    def _compact(self) -> bool:
        """Compact the table in one Delta write if it has too many files; return whether it had."""

    def _forget(self) -> None:
        """Drop everything that was read from an older version of the table."""

    def _landed(self, before: int, writes: W | None, rows: pa.Table | None) -> None:
        """Handle an own write on top of version ``before``."""

    def _compacted(self, before: int) -> None:
        """Handle a compaction of version ``before``."""

    # Shared by all kinds:

    @property
    def identity(self) -> str:
        """Delta's id of the table."""
        return str(self._table.metadata().id)

    @property
    def last_txid(self) -> int | None:
        """The txid of the last write, read with a fresh handle; None before the first.

        Raises:
            DivergenceError: the table is missing.
            FailedException: the table cannot be read.
        """
        return self._fence.last_txid(self._fresh_handle())

    @property
    def version(self) -> int:
        """The last version that this coordinator has made, by its marker or by a write."""
        return self._own_version

    def use_executors(self, executors: Executors, driver_rows_max: int) -> None:
        """Use the executors for groups with more than ``driver_rows_max`` rows."""
        self._executors = executors
        self._driver_rows_max = driver_rows_max

    def write(self, txid: int, values: Writes) -> None:
        """Insert or replace the row of each key, in one Delta write; without values, only record the txid.

        Raises:
            FieldsError: a key or value does not fit; nothing was written.
            LostLead: a newer epoch has opened the table; nothing was written.
            DivergenceError: somebody else has changed rows; nothing was written.
            FailedException: the write failed; it may be tried again.
        """
        writes = self._fitted(txid, values)
        for _ in range(WRITE_TRIES_MAX):
            if self._is_visible(txid):
                self.make_durable()
                return
            self._refuse_foreign_change(txid)
            if self._put(txid, writes):
                return
        raise self._failure(f"other writers were faster {WRITE_TRIES_MAX} times", None, txid)

    def stage(self, txid: int, values: Writes) -> StagedWrite:
        """Write the rows to a file beside the table's data, where no reader of the table sees them.

        Raises:
            FieldsError: a key or value does not fit; nothing was written.
            ConfigError: the table is in an object store.
            LostLead: a newer epoch has opened the table.
            DivergenceError: somebody else has changed rows.
            FailedException: the file cannot be written.
        """
        writes = self._fitted(txid, values)
        self._is_visible(txid)
        self._refuse_foreign_change(txid)
        try:
            return self._staged(txid, writes)
        except OSError as error:
            raise self._failure("a write cannot be staged", error, txid) from error

    def write_staged(self, staged: StagedWrite) -> None:
        """Make a staged write of any epoch visible; do nothing if it is already visible.

        Raises:
            LostLead: a newer epoch has opened the table.
            DivergenceError: its file is missing, and it is not visible.
            FailedException: the write failed; try again.
        """
        for _ in range(WRITE_TRIES_MAX):
            if self._is_visible(staged.txid):
                self.make_durable()
                return
            self._refuse_foreign_change(staged.txid)
            try:
                writes = self._read_staged(staged)
            except WORLD_ERRORS as error:
                raise self._failure(f"{staged.location} cannot be read", error, staged.txid) from error
            if self._put(staged.txid, writes):
                return
        raise self._failure(f"other writers were faster {WRITE_TRIES_MAX} times", None, staged.txid)

    def discard_staged(self) -> None:
        """Remove the staged writes of this coordinator and of earlier ones."""
        try:
            self._staging.discard()
        except OSError as error:
            raise self._failure("staged writes cannot be removed", error) from error

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest.

        Transactions that were written together can only be seen together.

        Raises:
            StateAccessError: the table has not reached the transaction yet, or no longer keeps that version.
        """
        application = state_application(self._fence.topology_id, self._fence.state)
        return read_snapshot(self._location, application, shown_schema(self._table, self.declared.kind), txid)

    def roll_back(self, txid: int | None) -> None:
        """Write a version that equals the one of transaction ``txid``; see :meth:`CanBeRepaired.roll_back`.

        Raises:
            StateAccessError: that version is not kept.
            LostLead: a newer epoch has opened the table; nothing was written.
            FailedException: the write failed; it may be tried again.
        """
        for _ in range(WRITE_TRIES_MAX):
            self._is_visible(txid or 0)
            if (self._fence.last_txid(self._table) or 0) == (txid or 0) and self._changed_since(None) is None:
                self.make_durable()
                return
            self._write_once(txid or 0, lambda: self._write_as_of(txid), None)
            self._forget()
        raise self._failure(f"other writers were faster {WRITE_TRIES_MAX} times", None, txid)

    def _write_as_of(self, txid: int | None) -> None:
        """Write the version after the handle's, with the rows as of transaction ``txid``; None: without rows.

        delta-rs' ``restore`` would do this without copying, but it neither respects the fence nor carries application
        transactions. So the old version is streamed into the next one, as in compaction.
        """
        old = kept_handle(self._location, self._table, txid) if txid else None
        if txid and old is None:
            where = self._location.address
            raise StateAccessError(f"the table at {where} no longer keeps its version of transaction {txid}", txid=txid)
        empty = pa.schema(self._table.schema()).empty_table()
        write_deltalake(
            self._table,
            empty if old is None else old.scan(),
            mode="overwrite",
            commit_properties=self._fence.properties(txid or 0, rolled_back_at=self._table.version() + 1),
            post_commithook_properties=NO_HOOKS,
        )

    def adopt(self) -> None:
        """Record the last transaction again, on top of foreign writes.

        Raises:
            LostLead: a newer epoch has opened the table; nothing was written.
            FailedException: the write failed; it may be tried again.
        """
        for _ in range(WRITE_TRIES_MAX):
            last = self.last_txid or 0
            self._is_visible(last)
            if self._changed_since(None) is None:
                self.make_durable()
                return
            self._write_once(last, functools.partial(self._fence.mark, self._table, last), None)
            self._forget()
        raise self._failure(f"other writers were faster {WRITE_TRIES_MAX} times", None)

    def make_durable(self) -> None:
        """Sync the table's files and the log entries since the last checkpoint.

        Raises:
            FailedException: they cannot be synced.
        """
        if self._location.folder is None:
            return
        try:
            table = self._fresh_handle()
            sync_files(self._location.paths_of(table, table.file_uris()))
            sync_log(self._location.folder)
        except WORLD_ERRORS as error:
            raise self._failure("its last writes may not survive a power loss", error) from error

    def maintain(self) -> None:
        """Checkpoint the log after every ``every_writes`` own writes; compact and vacuum if that is due.

        Raises:
            LostLead: a newer epoch has opened the table; nothing was done.
            FailedException: it failed; the table's rows are unchanged.
        """
        if self._writes < self._upkeep.every_writes:
            return
        try:
            self._advance()
            self._table.create_checkpoint()
            self._table.cleanup_metadata()
            before = self._table.version()
            files = set(self._table.file_uris())
            is_compacted = self._compact()
            self._table.update_incremental()
            if self._location.folder is not None:
                sync_files(self._location.paths_of(self._table, set(self._table.file_uris()) - files))
                sync_log(self._location.folder)
            if is_compacted:
                self._compacted(before)
                if self._foreign_change is None:
                    self._own_version = self._seen_version = before + 1
            if self._upkeep.is_vacuum_due(self._checkpoints):
                retention_hours = self._upkeep.vacuum_retention_hours or 0
                vacuum(self._table, retention_hours)
                if self._location.folder is not None:
                    staged = self._staging.data_files()
                    vacuum_data_folder(self._table, self._location.folder, retention_hours, staged)
        except WORLD_ERRORS as error:
            self._fence.check(self._fresh_handle())
            raise self._failure("upkeep failed", error) from error
        self._writes = 0
        self._checkpoints += 1

    def _reading(self, read: Callable[[], T]) -> T:
        """Return the result of ``read`` on the handle's version or, if that can no longer be read, on the latest one.

        Somebody else may have moved the rows to other files, and removed those that the handle knows.

        Raises:
            LostLead: a newer epoch has opened the table.
            FailedException: the latest version can't be read either.
        """
        try:
            try:
                return read()
            except (FailedException, *WORLD_ERRORS):
                version = self._table.version()
                self._advance()
                if self._table.version() == version:
                    raise
                return read()
        except WORLD_ERRORS as error:
            raise self._failure("its table cannot be read", error) from error

    def _put(self, txid: int, writes: W) -> bool:
        return self._write_once(txid, lambda: self._write(txid, writes), writes)

    def _is_visible(self, txid: int) -> bool:
        """Update the writing handle, check the fence, and return whether the transaction is already written."""
        try:
            self._advance()
        except WORLD_ERRORS as error:
            raise self._failure("its table cannot be read", error, txid) from error
        last = self._fence.last_txid(self._table)
        return last is not None and last >= txid

    def _advance(self) -> None:
        """Update the handle and check the fence; drop everything that was read from an older version."""
        self._table.update_incremental()
        self._fence.check(self._table)
        self._see_others()

    def _see_others(self) -> None:
        """Check new versions of other writers; drop everything that was read from an older version."""
        if self._table.version() == self._seen_version:
            return
        self._foreign_change = self._foreign_change or self._changed_since(self._own_version)
        self._seen_version = self._table.version()
        self._forget()

    def _changed_since(self, version: int | None) -> str | None:
        return foreign_change(self._location, self._table, version)

    def _refuse_foreign_change(self, txid: int) -> None:
        if self._foreign_change is not None:
            last = self._fence.last_txid(self._table)
            raise DivergenceError(
                f"state {self._fence.state!r}: somebody else has changed the table at {self._location.address} "
                f"({self._foreign_change}) since its last transaction, {last}; nothing of transaction {txid} was "
                "written to it. Only txtopo may write to it; 'txtopo repair' undoes or accepts the change",
                txid=txid,
            )

    def _write_once(self, txid: int, write: Callable[[], pa.Table | None], writes: W | None) -> bool:
        """Write the version after the handle's; return False if there is one already, perhaps this very write.

        Args:
            txid: the transaction that the write makes visible.
            write: makes the write, and returns all rows of that version if they are in memory.
            writes: the prepared write; None if it puts nothing.

        Raises:
            LostLead: the other writer was a newer coordinator.
            FailedException: the write failed for another reason.
        """
        before = self._table.version()
        files = set(self._table.file_uris())
        reach("delta.write.checked")
        try:
            rows = write()
            self._table.update_incremental()
        except WORLD_ERRORS as error:
            self._look_again(txid, before, error)
            return False
        reach("delta.write.landed")
        fresh = self._location.paths_of(self._table, set(self._table.file_uris()) - files)
        self._sync(txid, before + 1, fresh)
        self._landed(before, writes, rows)
        self._own_version = self._seen_version = before + 1
        self._foreign_change = None
        self._see_others()
        self._writes += 1
        return True

    def _sync(self, txid: int, version: int, new_files: Sequence[str]) -> None:
        if self._location.folder is None:
            return
        try:
            sync_version(self._location.folder, version, new_files)
        except OSError as error:
            raise self._failure("it was written, but may not survive a power loss", error, txid) from error

    def _look_again(self, txid: int, before: int, error: Exception) -> None:
        """Open the table again after a write on top of version ``before`` has raised ``error``.

        If there is a new version, it may be another writer's, or our own, whose answer was lost: callers look for
        their transaction, and sync it or try again.

        Raises:
            LostLead: a newer coordinator has opened the table.
            FailedException: there is no new version.
        """
        self._table = self._fresh_handle()
        self._fence.check(self._table)
        self._see_others()
        if self._table.version() == before:
            raise self._failure("its table could not be written", error, txid) from error

    def _fresh_handle(self) -> DeltaTable:
        try:
            return self._location.handle()
        except TableNotFoundError as error:
            raise DivergenceError(
                f"state {self._fence.state!r}: its table at {self._location.address} is missing; restore it, "
                "or start again from a new coordinator state",
            ) from error
        except WORLD_ERRORS as error:
            raise self._failure("its table cannot be opened", error) from error

    def _failure(self, what: str, error: Exception | None, txid: int | None = None) -> StateFailure:
        where = f"state {self._fence.state!r} at {self._location.address}"
        if error is None:
            return StateFailure(f"{where}: {what}", txid=txid)
        return state_failure(f"{where}: {what}", error, self._location.folder, self._table, txid=txid)
