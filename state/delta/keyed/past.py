"""A keyed table as of a past transaction, read-only: a replay runs on it and is compared with it."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from state.delta.keyed.cache import TableCache
from state.delta.log.data_files import DataFile, DataFolder, files_of, fitted
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS
from state.delta.read.history import PastDeltaTable
from state.delta.schema import TXID_FIELD, RowFormat
from txtopo.api.map_state import Key
from txtopo.api.state import ExpiresKeys, KeyedWrites, State, Writes, by_key
from txtopo.api.table_history import StateComparison
from txtopo.api.time_to_live import Expiry
from txtopo.api.values import NonTransactionalValue, StateKind, StateValue

__all__ = ["PastDeltaState"]

CACHED_KEYS_MAX = 1_000_000
"""The maximum number of keys in memory; of a larger table, those used last."""


@attrs.frozen(eq=False)
class _Pinned:
    """A version that stays as it is; see :class:`~state.delta.keyed.cache.Source`."""

    location: Location
    table: DeltaTable

    @property
    def version(self) -> int:
        return int(self.table.version())

    @property
    def rows(self) -> int:
        return sum(file.live for file in self.files.values())

    @property
    def files(self) -> Mapping[str, DataFile]:
        return files_of(self.location, self.table)


class PastDeltaState(PastDeltaTable, ExpiresKeys):
    """A keyed table at the newest version whose txid is not above a wanted one; see :class:`PastDeltaTable`."""

    def __init__(self, declared: State, topology_id: str, location: Location, rows: RowFormat, txid: int) -> None:
        super().__init__(declared, topology_id, location, rows.state, txid)
        self._rows = rows
        self._cache = TableCache(rows, DataFolder(location), CACHED_KEYS_MAX)

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value that each key had then, None for keys that were missing."""
        return list(self._multi_get(keys))

    def check(self, values: KeyedWrites, new_keys: Sequence[Key] | None = None) -> None:
        """Raise a ``FieldsError`` if a key or value does not fit."""
        self._rows.check(values, new_keys)

    def compare(self, txid: int, writes: Writes, last: int, *, may_be_removed: bool) -> StateComparison:
        """Compare this table's values of a transaction with the values that a replay has put.

        ``writes`` are those of the replay of its group, up to this transaction. ``last`` is the last transaction of the
        group, as of which this table is. Keys that this transaction put may be missing if ``may_be_removed``.
        """
        name = self._rows.state
        if self._rows.kind is StateKind.NON_TRANSACTIONAL and txid != last:
            return StateComparison(name, 0, None, is_compared=False)
        then, writes = self._put_by(txid), by_key(writes)
        now = self._values_at(last, txid, {key: value for key, value in writes.items() if self._is_of(value, txid)})
        expiry = self._expiry()
        if expiry is not None:  # nobody sees them again, and upkeep may have dropped them
            then = {key: value for key, value in then.items() if not expiry.has(value.value)}
            now = {key: value for key, value in now.items() if value is None or not expiry.has(value.value)}
        removed = [key for key, value in writes.items() if value is None]
        difference = self._first_difference(txid, then, now, removed, may_be_removed=may_be_removed and txid < last)
        return StateComparison(name, len(then), difference)

    def _first_difference(
        self,
        txid: int,
        then: dict[Key, StateValue],
        now: dict[Key, StateValue | None],
        removed: Sequence[Key],
        *,
        may_be_removed: bool,
    ) -> str | None:
        for key, value in then.items():
            if key not in now:
                return f"key {key!r} was {_shown(value)}, but is not put now"
            # By repr(): NaN then equals itself, and 1 differs from 1.0.
            if repr(now[key]) != repr(value):
                return f"key {key!r} was {_shown(value)}, but is {_shown(now[key])} now"
        others = [key for key in now if key not in then]
        for key, held in zip(others, self._multi_get(others), strict=True):
            is_later = may_be_removed if held is None else getattr(held, "txid", 0) > txid
            if not is_later:
                return f"key {key!r} is {_shown(now[key])} now, but was not put then"
        for key, held in zip(removed, self._multi_get(removed), strict=True):
            if held is not None and getattr(held, "txid", 0) <= txid:
                return f"key {key!r} is removed now, but was {_shown(held)} then"
        return None

    def expired_until(self, watermark: dt.datetime | None = None) -> int:  # noqa: ARG002 - it was recorded
        """Return the time up to which keys have expired in this version; see :class:`ExpiresKeys`."""
        return self._taken_until()

    def _expiry(self) -> Expiry | None:
        ttl = self.declared.time_to_live
        return None if ttl is None else ttl.expiry(self.expired_until(), self.declared.value)

    def _put_by(self, txid: int) -> dict[Key, StateValue]:
        return self._rows.read(self._all.filter(pc.equal(self._all[TXID_FIELD], txid)))

    @functools.cached_property
    def _all(self) -> pa.Table:
        return self._read(self._rows.schema())

    def _values_at(self, last: int, txid: int, values: dict[Key, StateValue | None]) -> dict[Key, StateValue | None]:
        """Return values as they are read back, with nulls in fields that the table did not have at ``last``."""
        found, known = self._rows.fit(txid, values), self._columns_at(last)
        hidden = [name for name in found.table.column_names if name not in known]
        if not hidden:
            return found.values
        return {**self._rows.read(fitted(found.table.drop_columns(hidden), self._rows.schema()))}

    @staticmethod
    def _is_of(value: Any, txid: int) -> bool:
        return isinstance(value, NonTransactionalValue) or (value is not None and value.txid == txid)

    def _multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        if self._is_before:
            return [None] * len(keys)
        try:
            return self._cache.multi_get(_Pinned(self._location, self._table), keys)
        except WORLD_ERRORS as error:
            raise self._gone(self._txid) from error


def _shown(value: StateValue | None) -> str:
    return "gone" if value is None else repr(value.value)
