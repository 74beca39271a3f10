"""The driver's cache of a keyed table: values by key, and all rows in :class:`~state.delta.keyed.segments.Segments`.

The cache is valid for exactly one version of the table. A table of up to ``keys_max`` keys is loaded as Python values
and then updated by the state's own writes, so that a lookup, even of a new key, is a dict lookup. In a larger table,
keys are looked up among the rows; those that are looked up alone are cached, also that a key is missing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa
from pyroaring import BitMap64

from state.delta.keyed.segments import Marks, Segments
from state.delta.log.data_files import DataFile, DataFolder
from state.delta.log.ownership import WORLD_ERRORS
from state.delta.schema import RowFormat
from txtopo.api.data.fields import Fields
from txtopo.api.map_state import Key
from txtopo.api.values import StateValue
from txtopo.columnar import mapped
from txtopo.columnar.key_index import Positions
from txtopo.columnar.progress_probe import ProgressProbe, current_probe
from txtopo.errors import FailedException, StateFailure

__all__ = ["TableCache"]

_WAIT_SECS = 1.0
"""How often a look-up that waits for rows to be loaded shows that they are."""


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


class TableCache:
    """The values of a table, or of some of its keys; and all of its rows, in memory or in files that are mapped.

    Args:
        rows: the format of its rows.
        data: its data files.
        keys_max: the maximum number of keys kept as values.
        bytes_max: the maximum size of the rows in memory; by default ``mapped.BYTES_MAX``.
    """

    def __init__(self, rows: RowFormat, data: DataFolder, keys_max: int, bytes_max: int | None = None) -> None:
        self._rows = rows
        self._data = data
        self._schema = rows.schema()
        self._plain_keys = PlainKeys(rows.key)
        self._keys_max = keys_max
        self._cached = self._none(mapped.BYTES_MAX if bytes_max is None else bytes_max)
        self._cached_version: int | None = None
        """The version whose rows are held; None if they are not known to be of one."""
        self._loading: Loading | None = None
        self.forget_values()

    def _none(self, bytes_max: int) -> Segments:
        return Segments(self._schema, list(self._rows.key), bytes_max)

    def load_beside(self, source: Source, bytes_max: int) -> None:
        """Begin to load the rows of the source's version, in a thread, into so much memory.

        The next look-up waits for them. If they cannot be loaded, it loads them itself, and meets the error.
        """
        self.clear()
        self._cached = self._none(bytes_max)
        if source.rows:
            self._loading = Loading(self._none(bytes_max), source.version, dict(source.files), self._read)

    def clear(self) -> None:
        """Drop everything."""
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        self.forget_values()
        self._cached.clear()
        self._cached_version = None

    def forget_values(self) -> None:
        """Drop the values."""
        self._values: dict[Key, StateValue | None] = {}
        self._version: int | None = None
        self._is_complete = False

    def multi_get(self, source: Source, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value of each key in the source's version; None for missing keys."""
        if self._version != source.version:
            self._load(source)
        try:
            if self._is_complete:
                found = list(map(self._values.get, keys))
                # A key that is not found may have been given in another form than it is kept in.
                return found if all(found) else self._found_again(keys, found)
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

    def found_among(self, source: Source, keys: pa.Table) -> tuple[Positions, pa.Table]:
        """Return the rows of those of some keys that exist, and the position of each one's key among them.

        ``keys`` is a table of the key columns.
        """
        return self._hold(source).found_among(keys)

    def expired_rows(self, source: Source, time: str, until: int) -> pa.Table:
        """Return the rows whose time, in a column, is at or before a time in µs since 1970 UTC."""
        return self._hold(source).over(time, until)

    def marked(self, source: Source, rows: pa.Table, *, with_vectors: bool) -> Marks:
        """Return what a write of some rows makes of the source's version; see :meth:`Segments.marked`."""
        return self._hold(source).marked(rows, with_vectors=with_vectors)

    def kept(self, portions: Iterable[pa.Table]) -> pa.Table:
        """Return rows as they are to be held; see :meth:`Segments.kept`."""
        return self._cached.kept(portions)

    def rows_of(self, file: DataFile) -> pa.Table | None:
        """Return all rows of a file, also those that are dead; None if they are not held. In any thread."""
        return self._cached.rows_of(file.path)

    def dead(self, source: Source, file: DataFile) -> BitMap64:
        """Return the positions of the dead rows of a file of the source's version."""
        held = self._cached.dead(file.path) if self._cached_version == source.version else None
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
        self._shrink()

    def _take(self, version: int, hold: Callable[[Segments], None] | None) -> None:
        is_known, self._cached_version = hold is not None and self._cached_version == version - 1, None
        if hold is not None and is_known:
            # If there is no disk for a file, the write is made all the same; the next look-up meets that.
            with contextlib.suppress(StateFailure):
                with self._whole():
                    hold(self._cached)
                self._cached_version = version

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Hold no rows if not all of them can be held."""
        try:
            yield
        except BaseException:
            self._cached.clear()
            raise

    def _hold(self, source: Source) -> Segments:
        """Return the rows of the source's version, and read them if necessary."""
        loading, self._loading = self._loading, None
        if loading is not None and loading.ended():
            self._cached, self._cached_version = loading.segments, loading.version
        if self._cached_version != source.version:
            self._cached_version, version = None, source.version
            with self._whole():
                self._cached.hold(source.files, self._read)
            self._cached_version = version
        return self._cached

    def _read(self, file: DataFile) -> tuple[Iterator[pa.Table], BitMap64]:
        return self._data.portions(file, self._schema, with_dead=True), self._data.dead(file)

    def _load(self, source: Source) -> None:
        self.forget_values()
        held = self._hold(source)
        if source.rows <= self._keys_max:
            self._values.update(self._rows.read(held.rows))
            self._is_complete = True
        self._version = source.version

    def _found_again(self, keys: Sequence[Key], found: list[StateValue | None]) -> list[StateValue | None]:
        """Fit the keys that were not found, and look them up again."""
        missing = [position for position, value in enumerate(found) if value is None]
        fitted = self._rows.fit_keys([keys[position] for position in missing]).keys
        for position, key in zip(missing, fitted, strict=True):
            found[position] = self._values.get(key)
        return found

    def _searched(self, source: Source, keys: Sequence[Key]) -> list[StateValue | None]:
        own, rows = self.found_among(source, self._rows.fit_keys([*keys]).table)
        found: list[StateValue | None] = [None] * len(keys)
        for position, value in zip(own.tolist(), self._rows.read_values(rows), strict=True):
            found[position] = value
        return found

    def _looked_up(self, source: Source, key: Key) -> StateValue | None:
        """Return the value of one key, by a path that is fast for a single key."""
        if key in self._values:
            value = self._values[key] = self._values.pop(key)  # to the young end: 0.1 µs of an update's 3
            return value
        if self._plain_keys.takes(key):
            row = self._hold(source).find_one(key)
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


class Loading:
    """The rows of one version, which are loaded in a thread.

    Args:
        segments: to hold them; nobody uses it meanwhile.
        version: the version.
        files: its files.
        read: reads one; see :meth:`Segments.hold`.
    """

    def __init__(
        self,
        segments: Segments,
        version: int,
        files: Mapping[str, DataFile],
        read: Callable[[DataFile], tuple[Iterator[pa.Table], BitMap64]],
    ) -> None:
        self.segments = segments
        self.version = version
        self._files = files
        self._read = read
        self._probe = ProgressProbe()
        self._is_cancelled = threading.Event()
        self._thread = ThreadPoolExecutor(1, "txtopo-load")
        self._under_way = self._thread.submit(self._load)
        self._thread.shutdown(wait=False)

    def ended(self) -> bool:
        """Wait until they are loaded, with progress; return whether they are."""
        seen = -1
        while not wait([self._under_way], _WAIT_SECS).done:
            if self._probe.steps != seen:
                current_probe().step()
                seen = self._probe.steps
        try:
            self._under_way.result()
        except (FailedException, *WORLD_ERRORS):
            return False
        return True

    def cancel(self) -> None:
        """End it after the file that it reads, and wait for that."""
        self._is_cancelled.set()
        wait([self._under_way])

    def _load(self) -> None:
        with self._probe.current():
            self.segments.hold(self._files, self._portions_of)
            self.segments.prepare()

    def _portions_of(self, file: DataFile) -> tuple[Iterator[pa.Table], BitMap64]:
        portions, dead = self._read(file)
        return self._until_cancelled(portions), dead

    def _until_cancelled(self, portions: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for portion in portions:
            if self._is_cancelled.is_set():
                raise CancelledError
            yield portion


class PlainKeys:
    """Keys of strings and integers that fit their fields: they are kept and hashed unchanged.

    A single one is looked up in 13 µs, where one of any other form takes 600.
    """

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
