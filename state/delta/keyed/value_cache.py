"""The driver's cache of a table's values by key; what is cached is true of exactly one version of the table.

A table of up to ``keys_max`` keys is loaded once and then kept current by the state's own writes, so that a
key costs a look into a dict, a new key too. Of a larger table the keys used last are kept, and that a key
is not there is kept as well; but not where many keys at once are found among its rows, for that costs less than
to keep them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable

from state.delta.keyed.index import PlainKeys
from state.delta.keyed.row_cache import RowCache
from state.delta.log.data_files import FileWrites
from state.delta.read.reading import read_rows, row_count
from state.delta.schema import RowFormat
from state.values import KeptValue
from txtopo.api.reduction import RowWrites
from txtopo.api.state import Key

__all__ = ["ValueCache"]

COLUMNS_KEYS_MIN = 100
"""Keys that are looked for among all rows at once, and not kept as values."""


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
        self._plain_keys = PlainKeys(rows.key)
        self._keys_max = keys_max
        self._values: dict[Key, KeptValue | None] = {}
        self._version: int | None = None
        self._is_complete = False
        self._finds_rows = False
        """Whether all rows are at hand to look for keys in."""

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

    def written(self, before: int, after: int, writes: RowWrites | FileWrites | None) -> None:
        """Take in a write of our own.

        Args:
            before: the version it was made on.
            after: the version it made; another one than the next means that somebody else wrote too.
            writes: what was written; None: no rows.
        """
        is_unread = isinstance(writes, RowWrites) and not writes.is_read
        if self._version != before or after != before + 1 or is_unread:
            self.clear()
            return
        values: Mapping[Key, Any] = {} if writes is None else writes.mapping()
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
        row = self._all_rows.row_of(table, key) if self._plain_keys.takes(key) else None
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
