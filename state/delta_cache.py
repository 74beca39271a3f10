"""The driver's caches of a table: its values by key, and its rows as Arrow columns.

What is cached is true of exactly one version of the table.

*Values*: a table of up to ``keys_max`` keys is loaded once and then kept current by the state's own writes, so that a
key costs a look into a dict, a new key too. Of a larger table the keys used last are kept, and that a key
is not there is kept as well; but not where many keys at once are found among its rows, for that costs less than
to keep them.

*Rows*: all rows of a table, a tenth of the memory that the same values take as Python objects, for those who
work on all of them: who folds columns into it, and who writes it anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from state.delta_index import KeyIndex, Positions
from state.delta_reading import key_mask, read_rows, row_count, rows_of
from state.delta_rows import TXID_FIELD, RowFormat, without_removed
from state.values import KeptValue
from txtopo.contracts.reduction import RowWrites
from txtopo.contracts.state import Key
from txtopo.phases.hashing import stable_hash

__all__ = ["RowCache", "ValueCache"]

ROWS_PER_KEY = 16
"""Rows that are kept as Arrow columns for each key that may be kept as a Python value."""


COLUMNS_KEYS_MIN = 100
"""Keys that are looked for among all rows at once, and not kept as values."""


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
            key: see :meth:`RowFormat.is_plain`.
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
        place = index.place_of(stable_hash(key))
        if place < 0:
            return ()
        row = [array[place].as_py(maps_as_pydicts="strict") for array in self._arrays]
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
        if self._index is None:
            self._index = KeyIndex.of(self.rows.select(self._keys))
        return self._index


class ValueCache:
    """The values of a table, or of the keys used last.

    Args:
        rows: the format of the table's rows.
        keys_max: the most keys to keep.
        all_rows: the cache of the table's rows.
    """

    def __init__(self, rows: RowFormat, keys_max: int, all_rows: RowCache) -> None:
        self._rows = rows
        self._all_rows = all_rows
        self._schema = rows.schema()
        self._keys_max = keys_max
        self._values: dict[Key, KeptValue | None] = {}
        self._version: int | None = None
        self._is_complete = False
        self._finds_rows = False
        """Whether all rows are at hand to look for keys in."""

    @property
    def is_used(self) -> bool:
        """Whether values were read since the cache was last cleared."""
        return self._version is not None

    def clear(self) -> None:
        """Forget everything."""
        self._values = {}
        self._version = None
        self._is_complete = self._finds_rows = False

    def multi_get(self, table: DeltaTable, keys: Sequence[Key]) -> list[KeptValue | None]:
        """Return the value of each key in the handle's version, None where there is none.

        Raises:
            FieldsError: a key does not fit the key fields.
        """
        if self._version != table.version():
            self._load(table)
        try:
            if self._is_complete:
                found = list(map(self._values.get, keys))
                return found if all(found) else self._found_again(keys, found)
            if len(keys) == 1 and self._finds_rows:
                return [self._looked_up_alone(table, keys[0])]
            return self._looked_up(table, keys)
        except TypeError as error:
            refusal = self._rows.unhashable(keys)
            if refusal is None:
                raise
            raise refusal from error

    @property
    def keeps_writes(self) -> bool:
        """Whether what is written is kept as values."""
        return self._is_complete or not self._finds_rows

    def columns_of(self, table: DeltaTable, keys: Sequence[Key]) -> tuple[npt.NDArray[np.bool_], pa.Table] | None:
        """Return for each key whether it is there, and the rows of those that are; None: ask for values.

        Raises:
            FieldsError: a key does not fit the key fields.
        """
        if self._version != table.version():
            self._load(table)
        if self._is_complete or not self._finds_rows or len(keys) < COLUMNS_KEYS_MIN:
            return None
        return self._all_rows.found_among(table, self._rows.fit_keys(keys).table)

    def written(self, before: int, after: int, values: Mapping[Key, Any]) -> None:
        """Take in a write of our own.

        Args:
            before: the version it was made on.
            after: the version it made; another one than the next means that somebody else wrote too.
            values: what was written; None for what was removed.
        """
        is_unread = isinstance(values, RowWrites) and not values.is_read
        if self._version != before or after != before + 1 or is_unread:
            self.clear()
            return
        values = values.mapping() if isinstance(values, RowWrites) else values
        self._version = after
        if self._is_complete:
            self._values.update(values)
            for key in [key for key, value in values.items() if value is None]:
                del self._values[key]
            self._is_complete = len(self._values) <= self._keys_max
        else:
            self._keep(values)
        self._shrink()

    def _load(self, table: DeltaTable) -> None:
        self.clear()
        if row_count(table) <= self._keys_max:
            rows = self._all_rows.rows(table)
            self._values.update(self._rows.read(read_rows(table, self._schema) if rows is None else rows))
            self._is_complete = True
        else:
            self._finds_rows = self._all_rows.rows(table) is not None
        self._version = table.version()

    def _found_again(self, keys: Sequence[Key], found: list[KeptValue | None]) -> list[KeptValue | None]:
        """Look at keys that were not found: do they fit, and are they there once they are fitted?"""
        missing = [position for position, value in enumerate(found) if value is None]
        fitted = self._rows.fit_keys([keys[position] for position in missing]).keys
        for position, key in zip(missing, fitted, strict=True):
            found[position] = self._values.get(key)
        return found

    def _looked_up_alone(self, table: DeltaTable, key: Key) -> KeptValue | None:
        """Return the value of one key, by a way that is short for one."""
        if key in self._values:
            return self._values[key]
        row = self._all_rows.row_of(table, key) if self._rows.is_plain(key) else None
        if row is None:
            return self._looked_up(table, (key,))[0]
        value = self._rows.read_row(row) if row else None
        self._values[key] = value
        self._shrink()
        return value

    def _looked_up(self, table: DeltaTable, keys: Sequence[Key]) -> list[KeptValue | None]:
        missing = [key for key in keys if key not in self._values]
        fitted = dict(zip(missing, self._rows.fit_keys(missing).keys, strict=True))
        unknown = list(dict.fromkeys(key for key in fitted.values() if key not in self._values))
        looked_up: dict[Key, KeptValue | None] = dict.fromkeys(unknown)
        if unknown:
            wanted = self._rows.fit_keys(unknown).table
            looked_up.update(self._rows.read(self._all_rows.rows_of(table, wanted)))
        own = [fitted.get(key, key) for key in keys]
        answer = [looked_up[key] if key in looked_up else self._values[key] for key in own]
        self._keep(dict(zip(own, answer, strict=True)))
        self._shrink()
        return answer

    def _keep(self, values: Mapping[Key, KeptValue | None]) -> None:
        """Put values at the young end."""
        for key, value in values.items():
            self._values.pop(key, None)
            self._values[key] = value

    def _shrink(self) -> None:
        """Drop the oldest values while there are too many."""
        excess = len(self._values) - self._keys_max
        for key in list(islice(self._values, max(excess, 0))):
            del self._values[key]
