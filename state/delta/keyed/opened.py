"""An opened DeltaState: the values and rows of keys, cached, folded, merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import pyarrow as pa
from deltalake import DeltaTable

from state.delta.keyed.buckets import fold_on_executors, put_files
from state.delta.keyed.cache import ROWS_PER_KEY, TableCache
from state.delta.keyed.folding import Reducer, TooManyKeys
from state.delta.keyed.writing import TableWrite, put_rows
from state.delta.log.data_files import FileWrites
from state.delta.log.fence import Fence
from state.delta.log.location import Location
from state.delta.opened_table import OpenedDeltaTable, TableOptions
from state.delta.schema import RowFormat, reaches
from state.delta.upkeep import compact
from state.keyed_rows import KeyedRows
from txtopo.api.capabilities import FoldsRows
from txtopo.api.reduction import PreparedWrites, Reducible, Reduction, RowsFile, RowWrites, TransactionRows
from txtopo.api.state import Executors, Key, StagedWrite, StateValue, Writes, by_key
from txtopo.columnar.rows_file import read_rows_file, schema_of
from txtopo.errors import StateFailure

__all__ = ["OpenedDeltaState", "TableOptions"]


class OpenedDeltaState(KeyedRows, OpenedDeltaTable[RowWrites | FileWrites], FoldsRows):
    """A Delta table of keys and values in the hands of one coordinator; made by :meth:`DeltaState.open`."""

    def __init__(
        self, location: Location, table: DeltaTable, fence: Fence, rows: RowFormat, options: TableOptions
    ) -> None:
        OpenedDeltaTable.__init__(self, location, table, fence, rows.kind, options.upkeep)
        KeyedRows.__init__(self, rows)
        self._cache = TableCache(rows, options.cached_keys_max, options.cached_keys_max * ROWS_PER_KEY)
        self._reducer = Reducer(rows)

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value of each key, None where there is none, as of this coordinator's last write.

        Raises:
            FieldsError: a key does not fit the key fields.
            FailedException: the table cannot be read.
        """
        return list(self._reading(lambda: self._cache.multi_get(self._table, keys)))

    def befores(self, txid: int, keys: Sequence[Key]) -> Sequence[Any] | None:
        """Return the bare value that transaction ``txid`` starts from, for each key; None: ask each value.

        Raises:
            FieldsError: a key does not fit the key fields.
            FailedException: the table cannot be read.
        """
        if self.bulk is None:
            return None
        found = self._reading(lambda: self._cache.columns_of(self._table, keys))
        if found is None:
            return super().befores(txid, keys)
        is_there, rows = found
        if reaches(rows, txid):
            return None
        values = iter(self._rows.values_of(rows))
        return [next(values) if each else None for each in is_there.tolist()]

    def reducible_rows(self, values: Reducible, reduction: Reduction) -> Reducible | None:  # noqa: ARG002
        """Return ``values`` as rows to fold: whole numbers of a transactional state; None for all else."""
        if isinstance(values, RowsFile):
            if self._executors is not None and self._location.folder is not None:
                return values if self._reducer.takes(schema_of(values)) else None
            return self._reducer.reducible(read_rows_file(values))
        return self._reducer.reducible(values)

    def fold(self, parts: Sequence[TransactionRows], reduction: Reduction) -> Writes | None:
        """Return what is to be kept after the rows were folded into those of this coordinator's last write.

        Raises:
            FailedException: the table cannot be read.
        """
        executors = self._executors
        if executors is None or self._location.folder is None:
            new = self._reducer.contributions(parts, reduction)
        else:
            try:
                new = self._reducer.contributions(parts, reduction, self._driver_rows_max)
            except TooManyKeys:
                return self._folded_on_executors(executors, parts, reduction)
        if new is None:
            return None
        folded = self._reading(lambda: self._folded(new, parts[0].txid, reduction))
        return None if folded is None else RowWrites(folded, self._rows.read_writes)

    def _folded_on_executors(
        self, executors: Executors, parts: Sequence[TransactionRows], reduction: Reduction
    ) -> Writes | None:
        try:
            return self._reading(
                lambda: fold_on_executors(executors, self._location, self._table, self._rows, parts, reduction)
            )
        except StateFailure as error:
            raise self._failure("its rows cannot be read by the executors", error) from error

    def _folded(self, new: pa.Table, first: int, reduction: Reduction) -> pa.Table | None:
        keys = new.select(list(self._rows.key))
        found = self._cache.found_among(self._table, keys)
        if found is not None:
            return self._reducer.folded_at(*found, new, first, reduction)
        return self._reducer.folded(self._cache.rows_of(self._table, keys), new, first, reduction)

    def close(self) -> None:
        """Let go of what is cached."""
        self._cache.clear()

    def _fitted(self, txid: int, values: Writes) -> RowWrites | FileWrites:
        match values:
            case RowWrites() | FileWrites():
                return values
            case Mapping() | PreparedWrites():
                fitted = self._rows.fit(txid, by_key(values))
            case _:
                assert_never(values)
        kept = fitted.values if self._cache.keeps_writes else None
        return RowWrites(fitted.table, self._rows.read_writes, values=kept)

    def _staged(self, txid: int, writes: RowWrites | FileWrites) -> StagedWrite:
        match writes:
            case FileWrites():
                return self._staging.stage_files(txid, writes)
            case RowWrites():
                return self._staging.stage(txid, writes.rows)
            case _:
                assert_never(writes)

    def _read_staged(self, staged: StagedWrite) -> RowWrites | FileWrites:
        return self._staging.read(staged, self._rows.read_writes)

    def _write(self, txid: int, writes: RowWrites | FileWrites) -> pa.Table | None:
        match writes:
            case FileWrites():
                put_files(self._table, self._fence, txid, writes, self._rows)
                return None
            case RowWrites():
                after = self._cache.after(self._table, writes.rows)
                return put_rows(self._table, self._fence, txid, TableWrite(writes.rows, list(self._rows.key), after))
            case _:
                assert_never(writes)

    def _compact(self) -> bool:
        if len(self._table.file_uris()) <= self._upkeep.files_max:
            return False
        compact(self._table, self._fence)
        return True

    def _forget(self) -> None:
        self._cache.clear()

    def _landed(self, before: int, writes: RowWrites | FileWrites | None, rows: pa.Table | None) -> None:
        self._cache.written(before, self._table.version(), writes, rows)

    def _compacted(self, before: int) -> None:
        self._cache.written(before, self._table.version(), None)
