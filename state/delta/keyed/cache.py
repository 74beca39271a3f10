"""The driver's cache of a keyed table: values by key, all rows as Arrow columns, and an index of their keys.

The cache is valid for exactly one version of the table. A table of up to ``keys_max`` keys is loaded once and then
updated by the state's own writes, so that a lookup, even of a new key, is a dict lookup. For a larger table, recently
used keys are cached, including the fact that a key is missing. Lookups of many keys among cached rows are not cached,
because that would cost more than the lookup.

Rows need 10x less memory as Arrow columns than as Python objects. A row keeps its position from version to version, so
that the index of keys stays valid after a write, and unchanged columns are not copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from state.delta.read.reading import key_mask, read_rows, rows_of
from state.delta.schema import TXID_FIELD, RowFormat, without_removed
from txtopo.api.fields import Fields
from txtopo.api.map_state import Key
from txtopo.api.values import StateValue
from txtopo.columnar.hashing import stable_hash
from txtopo.columnar.key_index import KeyIndex, Positions
from txtopo.columnar.taking import BYTES_MAX
from txtopo.transactional.tasks.progress_probe import current_probe

__all__ = ["ROWS_PER_KEY", "TableCache"]

ROWS_PER_KEY = 16
"""The number of rows kept as Arrow columns for each key that may be kept as a Python value."""

ROWS_BYTES_MAX = BYTES_MAX
"""The bytes of the rows kept as Arrow columns: all that Arrow takes rows out of at once."""

COLUMNS_KEYS_MIN = 100
"""The number of keys from which a lookup searches the cached rows and does not cache values."""


class Source(Protocol):
    """What a cache reads from."""

    @property
    def version(self) -> int:
        """The version to read."""

    @property
    def rows(self) -> int:
        """The number of its rows."""

    @property
    def table(self) -> DeltaTable:
        """A handle of it; the version may be a later one afterwards, which the handle is of."""


class TableCache:
    """The values of a table, or of its recently used keys; and all of its rows, if there are not too many.

    It keeps up to ``keys_max`` keys as values, and up to ``rows_max`` rows, of ``ROWS_BYTES_MAX`` bytes, as columns.
    """

    def __init__(self, rows: RowFormat, keys_max: int, rows_max: int) -> None:
        self._rows = rows
        self._schema = rows.schema()
        self._plain_keys = PlainKeys(rows.key)
        self._keys_max = keys_max
        self._rows_max = rows_max
        self._held: _Held | None = None
        self._held_version: int | None = None
        self._next: _Held | None = None
        self._forget_values()

    def clear(self) -> None:
        """Drop everything."""
        self._forget_values()
        self._forget_rows()

    def _forget_values(self) -> None:
        self._values: dict[Key, StateValue | None] = {}
        self._version: int | None = None
        self._is_complete = False
        self._finds_rows = False
        """Whether all rows are cached, so that keys can be searched in them."""

    def _forget_rows(self) -> None:
        self._held = self._next = self._held_version = None

    def multi_get(self, source: Source, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value of each key in the source's version; None for missing keys."""
        if self._version != source.version:
            self._load(source)
        try:
            if self._is_complete:
                found = list(map(self._values.get, keys))
                # A key that is not found may have been given in another form than it is kept in.
                return found if all(found) else self._found_again(keys, found)
            if len(keys) == 1 and self._finds_rows:
                return [self._looked_up_alone(source, keys[0])]
            if len(keys) >= COLUMNS_KEYS_MIN and self._finds_rows:
                found_rows = self.found_among(source, self._rows.fit_keys(keys).table)
                if found_rows is not None:
                    is_there, rows = found_rows
                    stored = iter(self._rows.read_values(rows))
                    return [next(stored) if each else None for each in is_there.tolist()]
            return self._looked_up(source, keys)
        except TypeError as error:
            refusal = self._rows.unhashable(keys)
            if refusal is None:
                raise
            raise refusal from error

    @property
    def keeps_writes(self) -> bool:
        """Whether written values are cached."""
        return self._is_complete or not self._finds_rows

    def found_among(self, source: Source, keys: pa.Table) -> tuple[npt.NDArray[np.bool_], pa.Table] | None:
        """Return for each key whether it exists, and the rows of the existing keys, in the same order.

        ``keys`` is a table of the key columns. Returns None if the source's version has too many rows or no index.
        """
        held = self._hold(source)
        return None if held is None else held.found_among(keys)

    def rows_of(self, source: Source, keys: pa.Table) -> pa.Table:
        """Return the rows of the source's version whose keys are in ``keys``, a table of the key columns."""
        held = self._hold(source)
        return rows_of(source.table, self._schema, keys) if held is None else held.rows_of(keys)

    def after(self, source: Source, rows: pa.Table) -> pa.Table | None:
        """Return all rows of the version after the source's; None if there are too many.

        ``rows`` are those to write on top of it, each key once; a row without a txid removes its key.
        """
        held = self._hold(source)
        fits = held is not None and held.rows.nbytes + rows.nbytes <= ROWS_BYTES_MAX
        self._next = held.after(rows) if held is not None and fits else None
        return None if self._next is None else self._next.rows

    def moved(self, version: int) -> None:
        """Update the cache after an own version that changes no row."""
        if self._held_version == version - 1:
            self._held_version = version
        if self._version == version - 1:
            self._version = version

    def written(
        self, version: int, values: Mapping[Key, StateValue | None] | None, rows: pa.Table | None = None
    ) -> None:
        """Update the cache after an own write.

        Args:
            version: the version that it made.
            values: the values of the keys that it has changed; None if they are not at hand.
            rows: all rows of that version, if they are in memory.
        """
        self._take_rows(version, rows)
        # Another writer's version is in between, or the values are unknown: the next read loads them.
        if self._version != version - 1 or values is None:
            self._forget_values()
            return
        self._version = version
        if self._is_complete:
            self._values.update(values)
            for key in [key for key, value in values.items() if value is None]:
                del self._values[key]
            self._is_complete = len(self._values) <= self._keys_max
        else:
            self._keep(values)
        self._shrink()

    def _take_rows(self, version: int, rows: pa.Table | None) -> None:
        made = self._next
        self._forget_rows()
        if rows is not None and rows.num_rows <= self._rows_max and rows.nbytes <= ROWS_BYTES_MAX:
            is_made_here = made is not None and made.rows is rows
            self._held = made if is_made_here else _Held(rows.combine_chunks(), list(self._rows.key))
            self._held_version = version

    def _hold(self, source: Source) -> _Held | None:
        """Return the rows of the source's version, and read them if necessary; None if there are too many."""
        if self._held_version != source.version:
            self._forget_rows()
            if source.rows > self._rows_max:
                return None
            table = source.table
            rows = read_rows(table, self._schema)
            if rows.nbytes > ROWS_BYTES_MAX:
                self._rows_max = rows.num_rows - 1  # so that it is not read again for each lookup
                return None
            self._held, self._held_version = _Held(rows.combine_chunks(), list(self._rows.key)), table.version()
        return self._held

    def _load(self, source: Source) -> None:
        self._forget_values()
        held = self._hold(source)
        if source.rows <= self._keys_max:
            rows = read_rows(source.table, self._schema) if held is None else held.rows
            self._values.update(self._rows.read(rows))
            self._is_complete = True
        else:
            self._finds_rows = held is not None
        self._version = source.version

    def _found_again(self, keys: Sequence[Key], found: list[StateValue | None]) -> list[StateValue | None]:
        """Fit the keys that were not found, and look them up again."""
        missing = [position for position, value in enumerate(found) if value is None]
        fitted = self._rows.fit_keys([keys[position] for position in missing]).keys
        for position, key in zip(missing, fitted, strict=True):
            found[position] = self._values.get(key)
        return found

    def _looked_up_alone(self, source: Source, key: Key) -> StateValue | None:
        """Return the value of one key, by a path that is fast for a single key."""
        if key in self._values:
            value = self._values[key] = self._values.pop(key)  # to the young end: 0.1 µs of an update's 3
            return value
        held = self._hold(source) if self._plain_keys.takes(key) else None
        row = None if held is None else held.row_of(key)
        if row is None:
            return self._looked_up(source, (key,))[0]
        value = self._rows.read_row(row) if row else None
        self._values[key] = value
        self._shrink()
        return value

    def _looked_up(self, source: Source, keys: Sequence[Key]) -> list[StateValue | None]:
        missing = [key for key in keys if key not in self._values]
        fitted = dict(zip(missing, self._rows.fit_keys(missing).keys, strict=True))
        unknown = list(dict.fromkeys(key for key in fitted.values() if key not in self._values))
        looked_up: dict[Key, StateValue | None] = dict.fromkeys(unknown)
        if unknown:
            wanted = self._rows.fit_keys(unknown).table
            looked_up.update(self._rows.read(self.rows_of(source, wanted)))
        own = [fitted.get(key, key) for key in keys]
        answer = [looked_up[key] if key in looked_up else self._values[key] for key in own]
        self._keep(dict(zip(own, answer, strict=True)))
        self._shrink()
        return answer

    def _keep(self, values: Mapping[Key, StateValue | None]) -> None:
        """Add values as the most recent ones."""
        for key, value in values.items():
            self._values.pop(key, None)
            self._values[key] = value

    def _shrink(self) -> None:
        """Drop the oldest values if there are too many, and some more.

        A dictionary keeps the places of deleted keys in front, and each look for the oldest key passes them all. So
        dropping a share of the keys now and then is 2x faster than dropping one key for each new one.
        """
        excess = len(self._values) - self._keys_max
        if excess > 0:
            for key in list(islice(self._values, excess + self._keys_max // 64)):
                del self._values[key]


class _Held:
    """Rows, and the index of their keys, which is built on first use."""

    def __init__(self, rows: pa.Table, keys: list[str], index: KeyIndex | None = None) -> None:
        self.rows = rows
        self._keys = keys
        self._index = index
        self._has_no_index = False
        self._found: tuple[pa.Table, Positions] | None = None
        """The keys of the last lookup, and their positions."""
        is_whole = all(column.num_chunks == 1 for column in rows.columns)
        self._arrays = [column.chunk(0) for column in rows.columns] if is_whole else []

    def rows_of(self, keys: pa.Table) -> pa.Table:
        """Return the rows whose keys are in ``keys``."""
        found = self.found_among(keys)
        return self.rows.filter(key_mask(self.rows, keys)) if found is None else found[1]

    def found_among(self, keys: pa.Table) -> tuple[npt.NDArray[np.bool_], pa.Table] | None:
        """Return for each key whether it exists, and the rows of the existing keys; None if there is no index."""
        positions = self._positions(keys)
        if positions is None:
            return None
        is_there = positions >= 0
        return is_there, self.rows.take(positions[is_there])

    def row_of(self, key: Key) -> Sequence[Any] | None:
        """Return the row of one plain key, empty if there is none; None if a search is needed."""
        index = self._key_index()
        if index is None or not self._arrays:
            return None
        position = index.position_of(stable_hash(key))
        if position < 0:
            return ()
        # The wanted key may be missing, and another one may have its hash.
        row = [array[position].as_py(maps_as_pydicts="strict") for array in self._arrays]
        width = len(self._keys)
        return row if (row[0] if width == 1 else (*row[:width],)) == key else ()

    def after(self, rows: pa.Table) -> _Held:
        """Return the rows after a write of ``rows``."""
        if not rows.num_rows:
            return self
        keys = rows.select(self._keys)
        positions = None if rows[TXID_FIELD].null_count else self._positions(keys)
        if positions is None:
            others = self.rows.filter(pc.invert(key_mask(self.rows, keys)))
            return _Held(pa.concat_tables([others, without_removed(rows)]).combine_chunks(), self._keys)
        # Each row keeps its place. In ``both``, its new content is there, or in the written row.
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
        """Return the positions of keys; None if there is no index.

        The last result is kept, because a group folds keys and then writes the same keys.
        """
        index = self._key_index()
        if index is None:
            return None
        if self._found is None or not self._found[0].equals(keys):
            self._found = keys, index.positions(self.rows, keys)
        return self._found[1]

    def _key_index(self) -> KeyIndex | None:
        """Return the index; None if two keys have the same hash."""
        if self._index is None and not self._has_no_index:
            probe = current_probe()
            probe.step()
            self._index = KeyIndex.of(self.rows.select(self._keys))
            self._has_no_index = self._index is None
            probe.step()
        return self._index


class PlainKeys:
    """Keys of strings and integers that fit their fields: they are kept and hashed unchanged."""

    def __init__(self, fields: Fields) -> None:
        self._bits = [_bits(kind) for kind in fields.types]

    def takes(self, key: Key) -> bool:
        """Whether a key is plain."""
        if len(self._bits) == 1:
            return _is_plain(key, self._bits[0])
        return type(key) is tuple and len(key) == len(self._bits) and all(map(_is_plain, key, self._bits))


def _bits(kind: pa.DataType | None) -> int | None:
    """Return the width of an integer type, 0 for strings, None for other types."""
    if kind is None or not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        return None
    return 0 if pa.types.is_string(kind) else int(kind.bit_width)


def _is_plain(part: Any, bits: int | None) -> bool:
    if bits is None:
        return False
    if bits == 0:
        return type(part) is str and part.isascii()
    return type(part) is int and -(1 << bits - 1) <= part < 1 << bits - 1
