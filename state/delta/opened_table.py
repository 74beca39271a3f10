"""A Delta table opened by the one coordinator that writes to it: what keyed tables and tables of rows share."""

from __future__ import annotations

from abc import abstractmethod

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from state.delta.log.location import Location
from state.delta.log.ownership import NO_HOOKS, WORLD_ERRORS, Fence, state_application
from state.delta.log.sync import sync_files, sync_log
from state.delta.read.history import read_snapshot, shown_schema
from state.delta.staging import Staging
from state.delta.table import kept_handle
from state.delta.upkeep import Upkeep, vacuum, vacuum_data_folder
from state.delta.writer import WRITE_TRIES_MAX, NextVersion, TableWriter
from txtopo.api.state import CanBeRepaired, Executors, OpenedState, State, UsesExecutors
from txtopo.errors import StateAccessError

__all__ = ["OpenedDeltaTable"]


class OpenedDeltaTable(OpenedState, UsesExecutors, CanBeRepaired):
    """A Delta table opened by one coordinator, whose marker the handle has seen.

    Its subclasses write rows; all else is here.
    """

    def __init__(self, declared: State, location: Location, table: DeltaTable, fence: Fence, upkeep: Upkeep) -> None:
        self.declared = declared
        self._location = location
        self._writer = TableWriter(location, table, fence)
        self._staging = Staging(fence.state, fence.epoch, location)
        self._upkeep = upkeep
        self._checkpoints = 0
        self._executors: Executors | None = None
        self._driver_rows_max = 0

    @abstractmethod
    def _compact(self) -> bool:
        """Compact the table in one Delta write if it has too many files; update the handle; return whether it did."""

    @property
    def identity(self) -> str:
        """Delta's id of the table."""
        return str(self._writer.table.metadata().id)

    @property
    def last_txid(self) -> int | None:
        """The txid of the last write, read with a fresh handle; None before the first."""
        return self._writer.fence.last_txid(self._writer.fresh_handle())

    @property
    def version(self) -> int:
        """The last version that this coordinator has made, by its marker or by a write."""
        return self._writer.own_version

    def use_executors(self, executors: Executors, driver_rows_max: int) -> None:
        """Use the executors for groups with more than ``driver_rows_max`` rows."""
        self._executors = executors
        self._driver_rows_max = driver_rows_max

    def prepare(self, txid, values):
        return {"staged": self.stage(txid, values).location}

    def publish(self, txid, note):
        from state.delta.staging import StagedWrite
        self.write_staged(StagedWrite(self._writer.fence.state, txid, note["staged"]))

    def clean_up(self) -> None:
        """Remove the staged writes of this coordinator and of earlier ones."""
        with self._writer.failing("staged writes cannot be removed"):
            self._staging.discard()

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest.

        Transactions that were written together can only be seen together; see :func:`read_snapshot`.
        """
        fence = self._writer.fence
        schema = shown_schema(self._writer.table, self.declared.kind)
        return read_snapshot(self._location, state_application(fence.topology_id, fence.state), schema, txid)

    def make_durable(self) -> None:
        """Sync the table's files and the log entries since the last checkpoint."""
        self._writer.make_durable()

    def roll_back(self, txid: int | None) -> None:
        """Write a version that equals the one of transaction ``txid``; see :meth:`CanBeRepaired.roll_back`."""
        writer = self._writer
        for _ in range(WRITE_TRIES_MAX):
            writer.is_visible(txid or 0)  # for the update of the handle and the check of the fence
            # An earlier repair may have written this version and died before it had synced it.
            if (writer.fence.last_txid(writer.table) or 0) == (txid or 0) and writer.changed_since(None) is None:
                writer.make_durable()
                return
            with NextVersion(writer, txid or 0):
                self._write_as_of(txid)
        raise writer.overtaken(txid)

    def _write_as_of(self, txid: int | None) -> None:
        """Write the version after the handle's, with the rows as of transaction ``txid``; None: without rows.

        delta-rs' ``restore`` would do this without copying, but it neither respects the fence nor carries application
        transactions. So the old version is streamed into the next one, as in compaction.
        """
        table = self._writer.table
        old = kept_handle(self._location, table, txid) if txid else None
        if txid and old is None:
            where = self._location.address
            raise StateAccessError(f"the table at {where} no longer keeps its version of transaction {txid}", txid=txid)
        empty = pa.schema(table.schema()).empty_table()
        write_deltalake(
            table,
            empty if old is None else old.scan(),
            mode="overwrite",
            commit_properties=self._writer.fence.properties(txid or 0, rolled_back_at=table.version() + 1),
            post_commithook_properties=NO_HOOKS,
        )

    def adopt(self) -> None:
        """Record the last transaction again, on top of foreign writes; see :meth:`CanBeRepaired.adopt`."""
        writer = self._writer
        for _ in range(WRITE_TRIES_MAX):
            last = self.last_txid or 0
            writer.is_visible(last)  # for the update of the handle and the check of the fence
            if writer.changed_since(None) is None:
                writer.make_durable()
                return
            with NextVersion(writer, last):
                writer.fence.mark(writer.table, last)
        raise writer.overtaken(None)

    def maintain(self) -> None:
        """Checkpoint the log after every ``every_writes`` own writes; compact and vacuum if that is due.

        A crash at any moment leaves the rows as they are: no step changes those of the newest version. The next upkeep
        begins with the first step again.
        """
        writer, folder = self._writer, self._location.folder
        if writer.writes < self._upkeep.every_writes:
            return
        try:
            writer.advance()
            writer.table.create_checkpoint()
            writer.table.cleanup_metadata()
            before, files = writer.table.version(), set(writer.table.file_uris())
            is_compacted = self._compact()
            if folder is not None:
                sync_files(self._location.paths_of(writer.table, set(writer.table.file_uris()) - files))
                sync_log(folder)
            if is_compacted:
                writer.compacted(before + 1)
            if self._upkeep.is_vacuum_due(self._checkpoints):
                retention_hours = self._upkeep.vacuum_retention_hours or 0
                vacuum(writer.table, retention_hours)
                if folder is not None:
                    vacuum_data_folder(writer.table, folder, retention_hours, self._staging.data_files())
        except WORLD_ERRORS as error:
            # A compaction fails, too, if a newer coordinator has taken its version: that is a LostLead.
            writer.fence.check(writer.fresh_handle())
            raise writer.failure("upkeep failed", error) from error
        writer.writes = 0
        self._checkpoints += 1
