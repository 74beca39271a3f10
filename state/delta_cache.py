"""The driver's caches of a table: its values by key, and its rows as Arrow columns.

What is cached is true of exactly one version of the table.

*Values*: a table of up to ``keys_max`` keys is loaded once and then kept current by the state's own writes, so that a
key costs a look into a dict, a new key too. Of a larger table the keys used last are kept, and that a key
is not there is kept as well.

*Rows*: all rows of a table, a tenth of the memory that the same values take as Python objects, for those who
work on all of them: who folds columns into it, and who writes it anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from state.delta_reading import key_mask, read_rows, row_count, rows_of
from state.delta_rows import RowFormat
from state.values import KeptValue
from txtopo.contracts.reduction import RowWrites
from txtopo.contracts.state import Key

__all__ = ["RowCache", "ValueCache"]

ROWS_PER_KEY = 16
"""Rows that are kept as Arrow columns for each key that may be kept as a Python value."""


class RowCache:
    """All rows of a table, if they are not too many.

    Args:
        schema: the table's columns.
        rows_max: the most rows to keep.
    """

    def __init__(self, schema: pa.Schema, rows_max: int) -> None:
        self._schema = schema
        self._rows_max = rows_max
        self._rows: pa.Table | None = None
        self._version: int | None = None

    def clear(self) -> None:
        """Forget everything."""
        self._rows = None
        self._version = None

    def at_hand(self, table: DeltaTable) -> pa.Table | None:
        """Return the rows of the handle's version if they are cached."""
        return self._rows if self._version == table.version() else None

    def rows(self, table: DeltaTable) -> pa.Table | None:
        """Return the rows of the handle's version, read if need be; None if they are too many."""
        if self._version != table.version():
            self.clear()
            if row_count(table) > self._rows_max:
                return None
            self._keep(read_rows(table, self._schema), table.version())
        return self._rows

    def rows_of(self, table: DeltaTable, keys: pa.Table) -> pa.Table:
        """Return the rows of the handle's version whose keys are in ``keys``, a table of the key columns."""
        rows = self.rows(table)
        return rows_of(table, self._schema, keys) if rows is None else rows.filter(key_mask(rows, keys))

    def written(self, after: int, rows: pa.Table | None) -> None:
        """Take in a write of our own.

        Args:
            after: the version it made.
            rows: all rows of that version, if they are at hand.
        """
        self.clear()
        if rows is not None and rows.num_rows <= self._rows_max:
            self._keep(rows, after)

    def _keep(self, rows: pa.Table, version: int) -> None:
        self._rows, self._version = rows.combine_chunks(), version


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

    @property
    def is_used(self) -> bool:
        """Whether values were read since the cache was last cleared."""
        return self._version is not None

    def clear(self) -> None:
        """Forget everything."""
        self._values = {}
        self._version = None
        self._is_complete = False

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
            return self._looked_up(table, keys)
        except TypeError as error:
            refusal = self._rows.unhashable(keys)
            if refusal is None:
                raise
            raise refusal from error

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
        self._version = table.version()

    def _found_again(self, keys: Sequence[Key], found: list[KeptValue | None]) -> list[KeptValue | None]:
        """Look at keys that were not found: do they fit, and are they there once they are fitted?"""
        missing = [position for position, value in enumerate(found) if value is None]
        fitted = self._rows.fit_keys([keys[position] for position in missing]).keys
        for position, key in zip(missing, fitted, strict=True):
            found[position] = self._values.get(key)
        return found

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
