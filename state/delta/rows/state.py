"""``DeltaRows``: a table to which committers append rows, or whose partitions they replace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import assert_never

import attrs
import pyarrow as pa
from deltalake import DeltaTable

from state.delta.declared import DeclaredDeltaTable
from state.delta.log.data_files import DataFile, DataFolder, FileChange, files_of, put_change
from state.delta.log.location import Location
from state.delta.log.ownership import Fence
from state.delta.opened_table import OpenedDeltaTable
from state.delta.rows.files import compact_rows
from state.delta.rows.format import KeylessRows, RowsFormat, checked_rows_fields, fitted_rows, no_keys
from state.delta.rows.group import RowsWrites, place_here, place_on_executors
from state.delta.rows.past import PastDeltaRows
from state.delta.staging import StagedWrite
from state.delta.upkeep import Upkeep
from state.delta.writer import NextVersion
from txtopo.api.fields import Fields
from txtopo.api.reduction import PreparedWrites, Rows, RowsMode, TransactionRows
from txtopo.api.state import StateKind, TakesRows, Writes
from txtopo.columnar.rows_file import in_memory

__all__ = ["DeltaRows", "OpenedDeltaRows"]


class DeltaRows(DeclaredDeltaTable):
    """A table of rows without keys in its own Delta table, with the columns of the fields and txid.

    Bolts put rows with ``append`` and ``replace_partitions``, and cannot read single rows.

    *You* must not write to the table with anything else; anybody may read it.
    *txtopo* guarantees that the rows of each transaction are in it exactly once.

    Args:
        path: the table's path, absolute or relative to the working directory of the coordinator, or an address in an
            object store. The table is created when the state is first opened. A topology with several states needs
            local paths, see :mod:`state.delta.staging`.
        fields: the fields, each with a type.
        partition_by: the partition fields: strings, integers, booleans or dates; a row must have a value there.
        storage_options: options for the object store, passed to delta-rs.
        upkeep_every_writes: the number of writes between two checkpoints of the log.
        files_max: small files are combined when that saves at least this many files.
        vacuum_retention_hours: how long unreferenced data files are kept, in hours, at least 168; None (the default):
            forever.

    Raises:
        ConfigError: an option is out of range.
        FieldsError: two fields have the same name, or a field has no type or a type that partitions cannot have.
    """

    def __init__(  # noqa: PLR0913  each has a default, and is named
        self,
        path: str | os.PathLike[str],
        fields: Fields,
        *,
        partition_by: Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
        upkeep_every_writes: int = 50,
        files_max: int = 32,
        vacuum_retention_hours: int | None = None,
    ) -> None:
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        checked_rows_fields(fields, self.partition_by)
        super().__init__(path, storage_options, Upkeep(upkeep_every_writes, files_max, vacuum_retention_hours))
        self.key = Fields()
        self.value = fields
        self.kind = StateKind.ROWS

    def as_rows(self, name: str, rows: Rows) -> pa.Table:
        """Return rows with the table's fields; see :meth:`State.as_rows`."""
        return in_memory(fitted_rows(self.form(name), rows, RowsMode.APPEND))

    def open_as_of(self, topology_id: str, name: str, txid: int) -> PastDeltaRows:
        """Open the table as of a transaction, read-only and without fencing anybody.

        Raises:
            ConfigError: there is no table.
            StateAccessError: that version is no longer kept.
        """
        return PastDeltaRows(self, topology_id, self._location(), self.form(name), txid)

    def _schema(self) -> pa.Schema:
        return self.form("").schema()

    def _opened(self, location: Location, table: DeltaTable, fence: Fence) -> OpenedDeltaRows:
        return OpenedDeltaRows(self, location, table, fence, self._upkeep)

    def form(self, name: str) -> RowsFormat:
        """Return the format of the rows of the state with this name."""
        return RowsFormat(name, self.value, tuple(self.partition_by))

    def __repr__(self) -> str:
        return f"DeltaRows({self.path!r}, {self.value}, partition_by={self.partition_by})"


class OpenedDeltaRows(KeylessRows, OpenedDeltaTable, TakesRows):
    """A table of rows opened by one coordinator; made by :meth:`DeltaRows.open`."""

    def __init__(
        self, declared: DeltaRows, location: Location, table: DeltaTable, fence: Fence, upkeep: Upkeep
    ) -> None:
        OpenedDeltaTable.__init__(self, declared, location, table, fence, upkeep)
        KeylessRows.__init__(self, declared.form(fence.state))
        self._folder = DataFolder(location)

    def write_rows(self, parts: Sequence[TransactionRows]) -> RowsWrites:
        """Write the rows of some transactions to data files that are not in a version of the table yet."""
        # A crash between this and write() leaves files that no version names: a vacuum of upkeep removes them.
        last = self._writer.fence.last_txid(self._writer.table)
        parts = [part for part in parts if last is None or part.txid > last]
        if not parts:
            return RowsWrites([], [])
        is_large = sum(part.count for part in parts) > self._driver_rows_max
        with self._writer.failing("its rows cannot be written", parts[-1].txid):
            if self._executors is not None and self._location.folder is not None and is_large:
                writes = place_on_executors(self._executors, self._folder, self._form, parts)
            else:
                writes = place_here(self._folder, self._form, parts)
        return attrs.evolve(writes, rows_removed=sum(file.rows for file in self._replaced(writes)))

    def _replaced(self, writes: RowsWrites) -> list[DataFile]:
        """Return the files of the handle's version that a write removes."""
        if not writes.replaced:
            return []
        names = self._form.partition_by
        replaced = {tuple(partition[name] for name in names) for partition in writes.replaced}
        held = files_of(self._writer.table, names)
        return [file for file in held if tuple(file.partition[name] for name in names) in replaced]

    def write(self, txid: int, values: Writes) -> None:
        """Add the files of a write of :meth:`write_rows` to the table's log, in one Delta write; see :meth:`stage`."""
        writes = self._fitted(values)
        for version in self._writer.tries(txid):
            self._put(version, txid, writes)

    def stage(self, txid: int, values: Writes) -> StagedWrite:
        """Note the files of a write of :meth:`write_rows`, which are not in a version of the table yet.

        Raises:
            ConfigError: the table is in an object store.
            DivergenceError: somebody else has changed rows.
        """
        writes = self._fitted(values)
        note = {"files": [attrs.asdict(file) for file in writes.added], "replaced": [dict(p) for p in writes.replaced]}
        with self._writer.staging(txid):
            return self._staging.stage_note(txid, note)

    def write_staged(self, staged: StagedWrite) -> None:
        """Make a staged write of any epoch visible; do nothing if it is already visible."""
        for version in self._writer.tries(staged.txid):
            with self._writer.failing(f"{staged.location} cannot be read", staged.txid):
                note = self._staging.read(staged)
            self._put(version, staged.txid, RowsWrites([DataFile(**file) for file in note["files"]], note["replaced"]))

    def _fitted(self, values: Writes) -> RowsWrites:
        match values:
            case RowsWrites():
                return values
            case Mapping() | PreparedWrites():
                if values:
                    raise no_keys(self._form.state)
                return RowsWrites([], [])
            case _:
                assert_never(values)

    def _put(self, version: NextVersion, txid: int, writes: RowsWrites) -> None:
        form = self._form
        with version:
            # Looked up anew in each try: somebody may have compacted the partitions since.
            change = FileChange(writes.added, self._replaced(writes), form.schema(), form.partition_by)
            put_change(self._writer.table, self._writer.fence, txid, self._folder, change)

    def _compact(self) -> bool:
        table = self._writer.table
        is_compacted = compact_rows(table, self._writer.fence, self._folder, self._form, self._upkeep.files_max)
        table.update_incremental()
        return is_compacted
