"""Read the keys of a table: those of the head, by its coordinator, or those of a past version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from state.delta.keyed.cache import CachedTable, TableCache
from state.delta.schema import RowFormat
from txtopo.api.map_state import Key
from txtopo.api.state import ExpiresKeys, KeyedWrites, OpenedState
from txtopo.api.values import StateValue

__all__ = ["ReadsKeys"]

R = TypeVar("R")


class Reading(Protocol):
    """Does what reads a table, and says what it means if that fails."""

    def __call__(self, read: Callable[[], R], /) -> R:
        """Return the result of ``read``."""


class ReadsKeys(OpenedState, ExpiresKeys):
    """An opened keyed table.

    Args:
        rows: the format of its rows.
        cache: of what it has.
        source: which version that is.
        reading: does what reads it.
    """

    def __init__(self, rows: RowFormat, cache: TableCache, source: CachedTable, reading: Reading) -> None:
        self._rows = rows
        self._cache = cache
        self._source = source
        self._reading = reading

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value of each key; see :meth:`OpenedState.multi_get`."""
        return self._reading(lambda: self._cache.multi_get(self._source, keys))

    def check(self, values: KeyedWrites) -> None:
        """Raise a ``FieldsError`` if a key or value does not fit."""
        self._rows.check(values)

    def expired_rows(self, until: int) -> pa.Table:
        """Return the rows of keys whose time is at or before another one; see :class:`ExpiresKeys`."""
        return self._reading(lambda: self._cache.expired_rows(self._source, self.declared.expires, until))
