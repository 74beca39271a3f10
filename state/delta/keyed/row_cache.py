"""All rows of a table in the driver, as Arrow columns: a tenth of the memory that they take as Python objects.

They are true of exactly one version of the table. A row keeps its place from version to version, so that the index of
their keys outlives a write, and what a write leaves alone is not copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from state.delta.keyed.index import KeyIndex, Positions
from state.delta.read.reading import key_mask, read_rows, row_count, rows_of
from state.delta.schema import TXID_FIELD, without_removed
from txtopo.api.state import Key
from txtopo.columnar.hashing import stable_hash

__all__ = ["ROWS_PER_KEY", "RowCache"]

ROWS_PER_KEY = 16
"""Rows that are kept as Arrow columns for each key that may be kept as a Python value."""


class RowCache:
    """All rows of a table, if they are not too many. A row keeps its place from version to version.

    Args:
        schema: the table's columns.
        keys: the names of the key columns.
        rows_max: the most rows to keep.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], rows_max: int) -> None:
        self._schema = schema
        self._keys = list(keys)
        self._rows_max = rows_max
        self._held: _Held | None = None
        self._next: _Held | None = None
        self._version: int | None = None

    def clear(self) -> None:
        """Forget everything."""
        self._held = self._next = self._version = None

    def rows(self, table: DeltaTable) -> pa.Table | None:
        """Return the rows of the handle's version, read if need be; None if they are too many."""
        held = self._hold(table)
        return None if held is None else held.rows

    def rows_of(self, table: DeltaTable, keys: pa.Table) -> pa.Table:
        """Return the rows of the handle's version whose keys are in ``keys``, a table of the key columns."""
        held = self._hold(table)
        return rows_of(table, self._schema, keys) if held is None else held.rows_of(keys)

    def found_among(self, table: DeltaTable, keys: pa.Table) -> tuple[npt.NDArray[np.bool_], pa.Table] | None:
        """Return for each key whether it is there, and the rows of those that are, in the same order.

        Returns None if the rows of the handle's version are too many, or have no index.

        Args:
            table: the handle.
            keys: a table of the key columns.
        """
        held = self._hold(table)
        return None if held is None else held.found_among(keys)

    def row_of(self, table: DeltaTable, key: Key) -> Sequence[Any] | None:
        """Return the row of one plain key, empty if there is none; None if it takes a search.

        Args:
            table: the handle.
            key: see :class:`~state.delta.keyed.index.PlainKeys`.
        """
        held = self._hold(table)
        return None if held is None else held.row_of(key)

    def after(self, table: DeltaTable, rows: pa.Table) -> pa.Table | None:
        """Return all rows of the version after the handle's; None unless its own ones are cached.

        Args:
            table: the handle.
            rows: what is written on top of it, each key once; one without a txid removes its key.
        """
        if self._held is None or self._version != table.version():
            return None
        self._next = self._held.after(rows)
        return self._next.rows

    def written(self, after: int, rows: pa.Table | None) -> None:
        """Take in a write of our own.

        Args:
            after: the version it made.
            rows: all rows of that version, if they are at hand.
        """
        made = self._next
        self.clear()
        if rows is not None and rows.num_rows <= self._rows_max:
            is_made_here = made is not None and made.rows is rows
            self._held = made if is_made_here else _Held(rows.combine_chunks(), self._keys)
            self._version = after

    def _hold(self, table: DeltaTable) -> _Held | None:
        if self._version != table.version():
            self.clear()
            if row_count(table) > self._rows_max:
                return None
            rows = read_rows(table, self._schema).combine_chunks()
            self._held, self._version = _Held(rows, self._keys), table.version()
        return self._held


class _Held:
    """Rows, and the index of their keys once somebody looks one up."""

    def __init__(self, rows: pa.Table, keys: list[str], index: KeyIndex | None = None) -> None:
        self.rows = rows
        self._keys = keys
        self._index = index
        self._has_no_index = False
        self._found: tuple[pa.Table, Positions] | None = None
        """The keys that were looked for last, and where they are."""
        is_whole = all(column.num_chunks == 1 for column in rows.columns)
        self._arrays = [column.chunk(0) for column in rows.columns] if is_whole else []

    def rows_of(self, keys: pa.Table) -> pa.Table:
        """Return the rows whose keys are in ``keys``."""
        found = self.found_among(keys)
        return self.rows.filter(key_mask(self.rows, keys)) if found is None else found[1]

    def found_among(self, keys: pa.Table) -> tuple[npt.NDArray[np.bool_], pa.Table] | None:
        """Return for each key whether it is there, and the rows of those that are; None if there is no index."""
        positions = self._positions(keys)
        if positions is None:
            return None
        is_there = positions >= 0
        return is_there, self.rows.take(positions[is_there])

    def row_of(self, key: Key) -> Sequence[Any] | None:
        """Return the row of one plain key, empty if there is none; None if it takes a search."""
        index = self._key_index()
        if index is None or not self._arrays:
            return None
        position = index.position_of(stable_hash(key))
        if position < 0:
            return ()
        row = [array[position].as_py(maps_as_pydicts="strict") for array in self._arrays]
        width = len(self._keys)
        return row if (row[0] if width == 1 else (*row[:width],)) == key else ()

    def after(self, rows: pa.Table) -> _Held:
        """Return what is held after ``rows`` were written."""
        if not rows.num_rows:
            return self
        keys = rows.select(self._keys)
        positions = None if rows[TXID_FIELD].null_count else self._positions(keys)
        if positions is None:
            others = self.rows.filter(pc.invert(key_mask(self.rows, keys)))
            return _Held(pa.concat_tables([others, without_removed(rows)]).combine_chunks(), self._keys)
        is_known = positions >= 0
        sources = np.arange(self.rows.num_rows)
        sources[positions[is_known]] = self.rows.num_rows + np.flatnonzero(is_known)
        both = pa.concat_tables([self.rows, rows])
        changed = {
            name: self.rows[name] if name in self._keys else both[name].combine_chunks().take(pa.array(sources))
            for name in self.rows.column_names
        }
        after = pa.table(changed, schema=self.rows.schema)
        if is_known.all():
            return _Held(after, self._keys, self._index)
        new = rows.filter(pa.array(~is_known))
        index = None if self._index is None else self._index.extended(new.select(self._keys))
        return _Held(pa.concat_tables([after, new]).combine_chunks(), self._keys, index)

    def _positions(self, keys: pa.Table) -> Positions | None:
        """Return where keys are; None if there is no index. The keys that a group folds are those it writes then."""
        index = self._key_index()
        if index is None:
            return None
        if self._found is None or not self._found[0].equals(keys):
            self._found = keys, index.positions(self.rows, keys)
        return self._found[1]

    def _key_index(self) -> KeyIndex | None:
        """Return the index; None if two keys have the same hash."""
        if self._index is None and not self._has_no_index:
            self._index = KeyIndex.of(self.rows.select(self._keys))
            self._has_no_index = self._index is None
        return self._index
