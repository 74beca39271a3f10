"""The driver's cache of a keyed table: values by key, and all rows in a mirror of segments.

The cache is valid for exactly one version of the table. A table of up to ``keys_max`` keys is loaded as Python values
and then updated by the state's writes, so that a lookup, even of a new key, is a dict lookup. In a larger table,
keys are looked up among the rows; those that are looked up alone are cached, also that a key is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa
from pyroaring import BitMap64

from state.delta.keyed.segments import Segments
from state.delta.log.data_files import DataFile, DataFolder
from state.delta.mirror import Mirror, Mirrored
from state.delta.schema import RowFormat
from txtopo.api.data.fields import Fields
from txtopo.api.values import Key, StateValue


class CachedTable(Mirrored, Protocol):
    """What a cache reads from."""

    @property
    def rows(self) -> int:
        """The number of its rows."""


class TableCache:
    """The values of a table, or of some of its keys; and all of its rows, in memory or in files that are mapped.

    At most ``keys_max`` keys are kept as values, and ``bytes_max`` of rows in memory; None: as ``data.sizes`` says.
    """

    def __init__(self, rows: RowFormat, data: DataFolder, keys_max: int, bytes_max: int | None = None) -> None:
        self._rows = rows
        self._data = data
        self._schema = rows.schema()
        self._simple_keys = SimpleKeys(rows.key)
        self._keys_max = keys_max
        held_bytes = data.sizes.held_bytes if bytes_max is None else bytes_max
        self.mirror = Mirror(
            lambda size: Segments(self._schema, list(rows.key), size, data.sizes), self._read, held_bytes
        )
        """The rows."""
        self.forget_values()

    def load_in_background(self, source: Mirrored, bytes_max: int) -> None:
        """Begin to load the rows of the source's version into so much memory; see :meth:`Mirror.load_in_background`."""
        self.forget_values()
        self.mirror.load_in_background(source, bytes_max)

    def clear(self) -> None:
        """Drop everything."""
        self.forget_values()
        self.mirror.clear()

    def forget_values(self) -> None:
        """Drop the values."""
        self._values: dict[Key, StateValue | None] = {}
        self._version: int | None = None
        self._is_complete = False

    def multi_get(self, source: CachedTable, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value of each key in the source's version; None for missing keys."""
        if self._version != source.version:
            self._load(source)
        try:
            if self._is_complete:
                values = list(map(self._values.get, keys))
                # A key that is not found may have been given in another form than it is kept in.
                return values if all(values) else self._found_again(keys, values)
            return [self._looked_up(source, keys[0])] if len(keys) == 1 else self._searched(source, keys)
        except TypeError as error:
            refusal = self._rows.unhashable(keys)
            if refusal is None:
                raise
            raise refusal from error

    @property
    def keeps_writes(self) -> bool:
        """Whether written values are cached."""
        return self._is_complete

    def dead(self, source: Mirrored, file: DataFile) -> BitMap64:
        """Return the positions of the dead rows of a file of the source's version."""
        positions = self.mirror.held.dead(file.path) if self.mirror.version == source.version else None
        return self._data.dead(file) if positions is None else positions

    def moved(self, version: int, hold: Callable[[Segments], None] | None = None) -> None:
        """Update the cache after an own version that changes no row; ``hold`` as in :meth:`written`."""
        self.mirror.turned(version, hold)
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
        self.mirror.turned(version, hold)
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
        self._shrink()

    def _read(self, file: DataFile) -> tuple[Iterator[pa.Table], BitMap64]:
        return self._data.portions(file, self._schema, with_dead=True), self._data.dead(file)

    def _load(self, source: CachedTable) -> None:
        self.forget_values()
        segments = self.mirror.of(source)
        if source.rows <= self._keys_max:
            self._values.update(self._rows.read(segments.rows))
            self._is_complete = True
        self._version = source.version

    def _found_again(self, keys: Sequence[Key], values: list[StateValue | None]) -> list[StateValue | None]:
        """Fit the keys that were not found, and look them up again."""
        missing = [position for position, value in enumerate(values) if value is None]
        fitted = self._rows.fit_keys([keys[position] for position in missing]).keys
        for position, key in zip(missing, fitted, strict=True):
            values[position] = self._values.get(key)
        return values

    def _searched(self, source: CachedTable, keys: Sequence[Key]) -> list[StateValue | None]:
        positions, rows = self.mirror.of(source).found_among(self._rows.fit_keys([*keys]).table)
        values: list[StateValue | None] = [None] * len(keys)
        for position, value in zip(positions.tolist(), self._rows.read_values(rows), strict=True):
            values[position] = value
        return values

    def _looked_up(self, source: CachedTable, key: Key) -> StateValue | None:
        """Return the value of one key, by a path that is fast for a single key."""
        if key in self._values:
            value = self._values[key] = self._values.pop(key)  # to the young end: 0.1 µs of an update's 3
            return value
        if self._simple_keys.takes(key):
            row = self.mirror.of(source).find_one(key)
            value = None if row is None else self._rows.read_row(row)
        else:
            (key,) = self._rows.fit_keys((key,)).keys
            (value,) = self._searched(source, (key,))
        self._values[key] = value
        self._shrink()
        return value

    def _shrink(self) -> None:
        """Drop the oldest values if there are too many, and some more.

        A dictionary keeps the places of deleted keys in front, and each look for the oldest key passes them all. So
        dropping a share of the keys now and then is 2x faster than dropping one key for each new one.
        """
        excess = len(self._values) - self._keys_max
        if excess > 0:
            for key in list(islice(self._values, excess + self._keys_max // 64)):
                del self._values[key]


class SimpleKeys:
    """Keys of strings and integers that fit their fields: they are kept and hashed unchanged.

    A single one is looked up in 13 µs, where one of any other form takes 600.
    """

    def __init__(self, fields: Fields) -> None:
        self._bits = [_bits(kind) for kind in fields.types]

    def takes(self, key: Key) -> bool:
        """Whether a key is one."""
        if len(self._bits) == 1:
            return _is_simple(key, self._bits[0])
        return type(key) is tuple and len(key) == len(self._bits) and all(map(_is_simple, key, self._bits))


def _bits(kind: pa.DataType | None) -> int | None:
    """Return the width of an integer type, 0 for strings, None for other types."""
    if kind is None or not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        return None
    return 0 if pa.types.is_string(kind) else int(kind.bit_width)


def _is_simple(part: Any, bits: int | None) -> bool:
    if bits is None:
        return False
    if bits == 0:
        return type(part) is str and part.isascii()
    return type(part) is int and -(1 << bits - 1) <= part < 1 << bits - 1
