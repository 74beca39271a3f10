"""A state's table as it was after some transaction, for reading only: what a replay runs on and is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow.compute as pc

from state.delta.keyed.row_cache import RowCache
from state.delta.keyed.value_cache import ValueCache
from state.delta.log.fence import WORLD_ERRORS
from state.delta.log.location import Location
from state.delta.read.past_table import PastDeltaTable
from state.delta.schema import TXID_FIELD, RowFormat
from state.values import KeptValue, NonTransactionalValue, bulk_rules, first_value
from txtopo.api.copying import Copying, copying_of_value
from txtopo.api.reduction import Reducible
from txtopo.api.state import BulkRules, Key, KeyedWrites, StateKind, StateValue, Writes, by_key, pairs_of
from txtopo.backend.replay_report import StateComparison
from txtopo.columnar.rows_file import in_memory

__all__ = ["PastDeltaState"]

CACHED_KEYS_MAX = 1_000_000
"""Keys that are held in memory; of a larger table those used last."""


class PastDeltaState(PastDeltaTable):
    """A table at the newest version whose txid is not above a wanted one. It refuses to be written.

    Args:
        topology_id: the topology that the table belongs to.
        location: where it lies.
        rows: the format of its rows, which names the state.
        txid: the last transaction to see.

    Raises:
        ConfigError: there is no table.
        StateAccessError: what it held then is no longer kept.
    """

    def __init__(self, topology_id: str, location: Location, rows: RowFormat, txid: int) -> None:
        super().__init__(topology_id, location, rows.state, rows.kind, txid)
        self._rows = rows
        self._copying = copying_of_value(rows.value)
        self._cache = ValueCache(rows, CACHED_KEYS_MAX, RowCache(rows.schema(), list(rows.key), CACHED_KEYS_MAX))

    def make_value(self, txid: int, value: object) -> KeptValue:
        """Return what is kept when transaction ``txid`` is the first to put ``value`` for a key."""
        return first_value(self._rows.kind, txid, value)

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value that each key had then, None where there was none."""
        return list(self._multi_get(keys))

    @property
    def copying(self) -> Copying | None:
        """How its values are kept apart from those that bolts hold; None: they can't be changed."""
        return self._copying

    @property
    def bulk(self) -> BulkRules | None:
        """The rules of its kind for many keys at once, where there are some."""
        return bulk_rules(self._rows.kind)

    def pairs(self, rows: Reducible) -> Iterable[tuple[Key, Any]]:
        """Return key and value of each of the rows to reduce."""
        return pairs_of(in_memory(rows), len(self._rows.key))

    def check(self, txid: int, values: KeyedWrites, new_keys: Sequence[Key] | None = None) -> None:  # noqa: ARG002
        """Refuse a key or value that does not fit."""
        self._rows.check(values, new_keys)

    def compare(self, txid: int, writes: Writes, last: int, *, may_be_removed: bool) -> StateComparison:
        """Compare what this table holds of a transaction with what a replay of it has put.

        Args:
            txid: the transaction.
            writes: what the replay of its group has put and removed, up to it.
            last: the last transaction of its group, which this table is as of.
            may_be_removed: whether a later transaction of the group may have removed what this one put.
        """
        name = self._rows.state
        if self._rows.kind is StateKind.NON_TRANSACTIONAL and txid != last:
            return StateComparison(name, 0, None, is_compared=False)
        then, writes = self._put_by(txid), by_key(writes)
        now = self._rows.fit(txid, {key: value for key, value in writes.items() if self._is_of(value, txid)}).values
        removed = [key for key, value in writes.items() if value is None]
        difference = self._first_difference(txid, then, now, removed, may_be_removed=may_be_removed and txid < last)
        return StateComparison(name, len(then), difference)

    def _first_difference(
        self,
        txid: int,
        then: dict[Key, KeptValue],
        now: dict[Key, KeptValue | None],
        removed: Sequence[Key],
        *,
        may_be_removed: bool,
    ) -> str | None:
        for key, value in then.items():
            if key not in now:
                return f"key {key!r} was {_shown(value)}, and is not put now"
            if repr(now[key]) != repr(value):
                return f"key {key!r} was {_shown(value)}, and is {_shown(now[key])} now"
        others = [key for key in now if key not in then]
        for key, held in zip(others, self._multi_get(others), strict=True):
            is_later = may_be_removed if held is None else getattr(held, "txid", 0) > txid
            if not is_later:
                return f"key {key!r} is {_shown(now[key])} now, and was not put then"
        for key, held in zip(removed, self._multi_get(removed), strict=True):
            if held is not None and getattr(held, "txid", 0) <= txid:
                return f"key {key!r} is removed now, and was {_shown(held)} then"
        return None

    def _put_by(self, txid: int) -> dict[Key, KeptValue]:
        rows = self._read(self._rows.schema())
        return self._rows.read(rows.filter(pc.equal(rows[TXID_FIELD], txid)))

    @staticmethod
    def _is_of(value: Any, txid: int) -> bool:
        return isinstance(value, NonTransactionalValue) or (value is not None and value.txid == txid)

    def _multi_get(self, keys: Sequence[Key]) -> list[KeptValue | None]:
        try:
            return self._cache.multi_get(self._table, keys)
        except WORLD_ERRORS as error:
            raise self._gone(self._txid) from error


def _shown(value: KeptValue | None) -> str:
    return "gone" if value is None else repr(value.value)
