"""A keyed table as of a past transaction."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping, Sequence

import pyarrow as pa

from state.delta.keyed.cache import TableCache
from state.delta.log.data_files import DataFile, DataFolder, files_of
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS
from state.delta.read.past import PastDeltaTable
from state.delta.schema import RowFormat
from txtopo.api.map_state import Key
from txtopo.api.state import ExpiresKeys, KeyedWrites, State, Writes, by_key
from txtopo.api.table_history import StateComparison
from txtopo.api.values import StateKind, StateValue

__all__ = ["PastDeltaState"]

CACHED_KEYS_MAX = 1_000_000
"""The maximum number of keys in memory; of a larger table, those used last."""


class PastDeltaState(PastDeltaTable, ExpiresKeys):
    """A keyed table as of the past."""

    def __init__(self, declared: State, topology_id: str, location: Location, rows: RowFormat, txid: int) -> None:
        super().__init__(declared, topology_id, location, rows.state, rows.schema(), txid)
        self._format = rows
        self._cache = TableCache(rows, DataFolder(location), CACHED_KEYS_MAX)

    @property
    def rows(self) -> int:
        """The number of its rows; see :class:`~state.delta.keyed.cache.CachedTable`."""
        return sum(file.live for file in self.files.values())

    @functools.cached_property
    def files(self) -> Mapping[str, DataFile]:
        """Its data files, by path."""
        return files_of(self._location, self._table)

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value that each key had then, None for keys that were missing."""
        if self._is_before:
            return [None] * len(keys)
        try:
            return self._cache.multi_get(self, keys)
        except WORLD_ERRORS as error:
            raise self._gone(self._txid) from error

    def check(self, values: KeyedWrites) -> None:
        """Raise a ``FieldsError`` if a key or value does not fit."""
        self._format.check(values)

    def expired_until(self, watermark: dt.datetime | None = None) -> int:  # noqa: ARG002 - it was recorded
        """Return the time up to which keys have expired in this version; see :class:`ExpiresKeys`."""
        return self._taken_until()

    def expired_rows(self, until: int) -> pa.Table:
        """Return the rows of keys whose time is at or before another one; see :class:`ExpiresKeys`."""
        if self._is_before:
            return self._format.schema().empty_table()
        try:
            return self._cache.expired_rows(self, self.declared.expires, until)
        except WORLD_ERRORS as error:
            raise self._gone(self._txid) from error

    def compare(self, txid: int, writes: Writes, last: int, *, may_be_removed: bool) -> StateComparison:
        """Compare as other tables do, unless values do not say whether a later transaction has put them anew."""
        if self._format.kind is StateKind.NON_TRANSACTIONAL and txid != last:
            return StateComparison(self._state, 0, None, is_compared=False)
        return super().compare(txid, writes, last, may_be_removed=may_be_removed)

    def _put_now(self, txid: int, writes: Writes, then: pa.Table) -> pa.Table:  # noqa: ARG002 - a key has one row
        own = KeyedWrites.of(self._format.kind, txid, by_key(writes))
        values = {key: own[key] for key, put_by in zip(own.keys_put, own.txids, strict=True) if put_by == txid}
        return self._format.fit(txid, values).table

    def _first_difference(
        self, txid: int, then: pa.Table, now: pa.Table, writes: Writes, *, may_be_removed: bool
    ) -> str | None:
        values_then, values_now = self._format.read(then), self._format.read(now)
        for key, value in values_then.items():
            if key not in values_now:
                return f"key {key!r} was {_value(value)}, but is not put now"
            # By repr(): NaN then equals itself, and 1 differs from 1.0.
            if repr(values_now[key]) != repr(value):
                return f"key {key!r} was {_value(value)}, but is {_value(values_now[key])} now"
        others = [key for key in values_now if key not in values_then]
        for key, held in zip(others, self.multi_get(others), strict=True):
            is_later = may_be_removed if held is None else getattr(held, "txid", 0) > txid
            if not is_later:
                return f"key {key!r} is {_value(values_now[key])} now, but was not put then"
        removed = [key for key, value in by_key(writes).items() if value is None]
        for key, held in zip(removed, self.multi_get(removed), strict=True):
            if held is not None and getattr(held, "txid", 0) <= txid:
                return f"key {key!r} is removed now, but was {_value(held)} then"
        return None


def _value(value: StateValue | None) -> str:
    return "gone" if value is None else repr(value.value)
