"""An opened DeltaRows: a table of rows in the hands of one coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

import attrs
from deltalake import DeltaTable

from state.delta.log.data_files import DataFile, DataFolder, FileChange, files_of, put_change
from state.delta.log.fence import WORLD_ERRORS, Fence
from state.delta.log.location import Location
from state.delta.opened_table import OpenedDeltaTable
from state.delta.rows.compaction import compact_rows
from state.delta.rows.format import RowsFormat
from state.delta.rows.group import RowsWrites, place_here, place_on_executors
from state.delta.rows.keyless import KeylessRows, no_keys
from state.delta.upkeep import Upkeep
from txtopo.api.capabilities import TakesRows
from txtopo.api.reduction import PreparedWrites, RowsToWrite
from txtopo.api.state import Key, KeyedWrites, StagedWrite, StateKind, Writes

__all__ = ["OpenedDeltaRows"]


class OpenedDeltaRows(KeylessRows, OpenedDeltaTable[RowsWrites], TakesRows):
    """A table of rows in the hands of one coordinator; made by :meth:`DeltaRows.open`."""

    def __init__(self, location: Location, table: DeltaTable, fence: Fence, form: RowsFormat, upkeep: Upkeep) -> None:
        OpenedDeltaTable.__init__(self, location, table, fence, StateKind.ROWS, upkeep)
        KeylessRows.__init__(self, form)
        self._folder = DataFolder(location)

    def check(self, txid: int, values: KeyedWrites, new_keys: Sequence[Key] | None = None) -> None:  # noqa: ARG002
        """Refuse values by key."""
        if values:
            raise no_keys(self._form.state)

    def write_rows(self, parts: Sequence[RowsToWrite]) -> RowsWrites:
        """Write the rows of some transactions to data files, which are in no version of the table yet.

        Raises:
            FailedException: they cannot be written; it may be tried again.
        """
        last = self._fence.last_txid(self._table)
        parts = [part for part in parts if last is None or part.txid > last]
        if not parts:
            return RowsWrites([], [])
        is_large = sum(part.count for part in parts) > self._driver_rows_max
        try:
            if self._executors is not None and self._location.folder is not None and is_large:
                writes = place_on_executors(self._executors, self._folder, self._form, parts)
            else:
                writes = place_here(self._folder, self._form, parts)
        except WORLD_ERRORS as error:
            raise self._failure("its rows cannot be written", error, parts[-1].txid) from error
        return attrs.evolve(writes, rows_removed=sum(file.rows for file in self._replaced(writes)))

    def _replaced(self, writes: RowsWrites) -> list[DataFile]:
        """Return the files of the handle's version that a write takes out."""
        if not writes.replaced:
            return []
        names = self._form.partition_by
        replaced = {tuple(partition[name] for name in names) for partition in writes.replaced}
        held = files_of(self._table, names)
        return [file for file in held if tuple(file.partition[name] for name in names) in replaced]

    def _fitted(self, txid: int, values: Writes) -> RowsWrites:  # noqa: ARG002 - as its likes
        match values:
            case RowsWrites():
                return values
            case Mapping() | PreparedWrites():
                if values:
                    raise no_keys(self._form.state)
                return RowsWrites([], [])
            case _:
                assert_never(values)

    def _staged(self, txid: int, writes: RowsWrites) -> StagedWrite:
        note = {"files": [attrs.asdict(file) for file in writes.added], "replaced": [dict(p) for p in writes.replaced]}
        return self._staging.stage_note(txid, note)

    def _read_staged(self, staged: StagedWrite) -> RowsWrites:
        note = self._staging.read_note(staged)
        return RowsWrites([DataFile(**file) for file in note["files"]], note["replaced"])

    def _write(self, txid: int, writes: RowsWrites) -> None:
        form = self._form
        change = FileChange(writes.added, self._replaced(writes), form.schema(), form.partition_by)
        put_change(self._table, self._fence, txid, self._folder, change)

    def _compact(self) -> bool:
        return compact_rows(self._table, self._fence, self._folder, self._form, self._upkeep.files_max)
