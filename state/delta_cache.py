"""The driver's cache of a table's values.

A table of up to ``keys_max`` keys is loaded once and then kept current by the state's own writes, so that a
key costs a look into a dict, a new key too. Of a larger table the keys used last are kept, and that a key
is not there is kept as well. What is cached is true of exactly one version of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from deltalake import DeltaTable

from state.delta_reading import read_rows, row_count, rows_of
from state.delta_rows import RowFormat
from state.values import KeptValue
from txtopo.contracts.state import Key

__all__ = ["ValueCache"]


class ValueCache:
    """The values of a table, or of the keys used last.

    Args:
        rows: the format of the table's rows.
        keys_max: the most keys to keep.
    """

    def __init__(self, rows: RowFormat, keys_max: int) -> None:
        self._rows = rows
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

    def written(self, before: int, after: int, values: Mapping[Key, KeptValue | None]) -> None:
        """Take in a write of our own.

        Args:
            before: the version it was made on.
            after: the version it made; another one than the next means that somebody else wrote too.
            values: what was written; None for what was removed.
        """
        if self._version != before or after != before + 1:
            self.clear()
            return
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
            self._values.update(self._rows.read(read_rows(table, self._schema)))
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
            looked_up.update(self._rows.read(rows_of(table, self._schema, wanted)))
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
