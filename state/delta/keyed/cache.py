"""The driver's cache of a keyed table: values by key, and all rows in :class:`~state.delta.keyed.segments.Segments`.

The cache is valid for exactly one version of the table. A table of up to ``keys_max`` keys is loaded once and then
updated by the state's own writes, so that a lookup, even of a new key, is a dict lookup. For a larger table, recently
used keys are cached, including the fact that a key is missing. Lookups of many keys among cached rows are not cached,
because that would cost more than the lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable
from pyroaring import BitMap64

from state.delta.keyed.segments import Marks, Rewrite, Segments
from state.delta.log.data_files import DataFile, DataFolder
from state.delta.read.reading import read_rows, rows_of
from state.delta.schema import RowFormat
from txtopo.api.fields import Fields
from txtopo.api.map_state import Key
from txtopo.api.values import StateValue
from txtopo.columnar.key_index import Mask
from txtopo.columnar.taking import BYTES_MAX

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
    def files(self) -> Mapping[str, DataFile]:
        """Its data files, by path."""

    @property
    def table(self) -> DeltaTable:
        """A handle of it; the version may be a later one afterwards, which the handle is of."""


class TableCache:
    """The values of a table, or of its recently used keys; and all of its rows, if there are not too many.

    It keeps up to ``keys_max`` keys as values, and up to ``rows_max`` rows, of ``ROWS_BYTES_MAX`` bytes, as columns.
    """

    def __init__(self, rows: RowFormat, data: DataFolder, keys_max: int, rows_max: int) -> None:
        self._rows = rows
        self._data = data
        self._schema = rows.schema()
        self._plain_keys = PlainKeys(rows.key)
        self._keys_max = keys_max
        self._rows_max = rows_max
        self._held = Segments(self._schema, list(rows.key))
        self._held_version: int | None = None
        """The version whose rows are held; None if they are not known to be of one."""
        self.forget_values()

    def clear(self) -> None:
        """Drop everything."""
        self.forget_values()
        self._held.clear()
        self._held_version = None

    def forget_values(self) -> None:
        """Drop the values."""
        self._values: dict[Key, StateValue | None] = {}
        self._version: int | None = None
        self._is_complete = False
        self._finds_rows = False
        """Whether all rows are cached, so that keys can be searched in them."""

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
                is_there, rows = self.found_among(source, self._rows.fit_keys(keys).table)
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

    def found_among(self, source: Source, keys: pa.Table) -> tuple[Mask, pa.Table]:
        """Return for each key whether it exists, and the rows of the existing keys, in the same order.

        ``keys`` is a table of the key columns, each key once.
        """
        held = self._hold(source)
        if held is None:
            found = rows_of(self._data.location, source.table, self._schema, keys)
            held = Segments.of(found, list(self._rows.key))
        numbers = held.find(keys)
        is_there = numbers >= 0
        return is_there, held.take(numbers[is_there])

    def rewritten(self, source: Source, rows: pa.Table) -> list[Rewrite] | None:
        """Return what a write on top of the source's version makes of its files; None if it has too many rows.

        ``rows`` are those to write, each key once; a row without a txid removes its key.
        """
        held = self._hold(source)
        return None if held is None else held.rewritten(rows)

    def marked(self, source: Source, rows: pa.Table) -> Marks | None:
        """Return what a write makes of the version's rows if its files stay; as :meth:`rewritten`."""
        held = self._hold(source)
        return None if held is None else held.marked(rows)

    def dead(self, source: Source, file: DataFile) -> BitMap64:
        """Return the positions of the dead rows of a file of the source's version."""
        held = self._held.dead(file.path) if self._held_version == source.version else None
        return self._data.dead(file) if held is None else held

    def moved(self, version: int, hold: Callable[[Segments], None] | None = None) -> None:
        """Update the cache after an own version that changes no row; ``hold`` as in :meth:`written`."""
        self._take(version, hold)
        if self._version == version - 1:
            self._version = version

    def written(
        self,
        version: int,
        values: Mapping[Key, StateValue | None] | None,
        hold: Callable[[Segments], None] | None = None,
    ) -> None:
        """Update the cache after an own write.

        Args:
            version: the version that it made.
            values: the values of the keys that it has changed; None if they are not at hand.
            hold: makes of the rows in memory what the write has made of them; None if they are read anew.
        """
        self._take(version, hold)
        # Another writer's version is in between, or the values are unknown: the next read loads them.
        if self._version != version - 1 or values is None:
            self.forget_values()
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

    def _take(self, version: int, hold: Callable[[Segments], None] | None) -> None:
        is_known, self._held_version = hold is not None and self._held_version == version - 1, None
        if hold is not None and is_known:
            hold(self._held)
            self._held_version = version
            self._drop_too_many()

    def _hold(self, source: Source) -> Segments | None:
        """Return the rows of the source's version, and read them if necessary; None if there are too many."""
        if self._held_version != source.version:
            self._held_version, version = None, source.version
            if source.rows > self._rows_max:
                self._held.clear()
                return None
            self._held.hold(source.files, self._read)
            self._held_version = version
            self._drop_too_many()
        return None if self._held_version is None else self._held

    def _read(self, file: DataFile) -> tuple[pa.Table, BitMap64]:
        portions = list(self._data.portions(file, self._schema, with_dead=True))  # each of them is progress
        return pa.concat_tables(portions or [self._schema.empty_table()]), self._data.dead(file)

    def _drop_too_many(self) -> None:
        """Drop the rows if they are more than may be held."""
        count = self._held.num_rows
        if count > self._rows_max or self._held.nbytes > ROWS_BYTES_MAX:
            self._rows_max = min(self._rows_max, count - 1)  # so that they are not read again for each lookup
            self._held.clear()
            self._held_version = None

    def _load(self, source: Source) -> None:
        self.forget_values()
        held = self._hold(source)
        if source.rows <= self._keys_max:
            rows = read_rows(self._data.location, source.table, self._schema) if held is None else held.rows
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
        if held is None:
            return self._looked_up(source, (key,))[0]
        row = held.find_one(key)
        value = None if row is None else self._rows.read_row(row)
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
            looked_up.update(self._rows.read(self.found_among(source, wanted)[1]))
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
