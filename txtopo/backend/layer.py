"""Layers: the pending writes of transactions to a state. Pure.

A layer holds a value either as a StateValue or *bare*, with the txid stored separately: then the StateValue is created
only when the key is read, which saves half the time of the commit phase if transactions touch thousands of keys. For
the same reason, values put as columns remain columns until a key is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

PUTS_KEYS_MAX = 1_000_000
"""Maximum number of keys of bare values before their txids are resolved, to bound the memory."""

WAITING_MAX = 8
"""Maximum number of column pairs that are searched for a key one by one before they are merged."""


class Layer(Mapping[Any, Any]):
    """The new StateValue of each key; None for a removed key.

    Args:
        make_value: creates a StateValue from a txid and a bare value.
        txid: the transaction that puts all bare values; None if several do.
    """

    __slots__ = ("_bare", "_make_value", "_puts", "_puts_keys", "_txid", "_txids", "_waiting", "kept")

    def __init__(self, make_value: Callable[[int, Any], Any], txid: int | None = None) -> None:
        self._make_value = make_value
        self._txid = txid
        self.kept: dict[Hashable, Any] = {}
        """Keys with StateValues, and removed keys."""
        self._bare: dict[Hashable, Any] = {}
        self._waiting: list[tuple[Sequence[Hashable], Sequence[Any]]] = []
        """Columns of keys and bare values that are merged into ``_bare`` when a key is read."""
        self._puts: list[tuple[int, Sequence[Hashable]]] = []
        """With several transactions, the keys that each has put bare and that are not in ``_txids`` yet."""
        self._puts_keys = 0
        self._txids: dict[Hashable, int] = {}

    @property
    def bare(self) -> dict[Hashable, Any]:
        """Keys with bare values, disjoint from ``kept``. Callers may write to it if the layer has one transaction."""
        if self._waiting:
            for keys, values in self._waiting:
                self._bare.update(zip(keys, values, strict=True))
            self._waiting.clear()
        return self._bare

    def columns(self) -> tuple[Sequence[Hashable], Sequence[Any]]:
        """Return the keys with bare values and these values, in the same order."""
        if len(self._waiting) == 1 and not self._bare:
            return self._waiting[0]
        return list(self.bare), list(self.bare.values())

    def bare_txids(self) -> list[int]:
        """Return the transaction that has put each bare value, in the order of :meth:`columns`."""
        bare = self.bare
        if self._txid is not None:
            return [self._txid] * len(bare)
        self._look_up_txids()
        return list(map(self._txids.__getitem__, bare))

    @property
    def removed(self) -> int:
        """The number of removed keys."""
        return sum(value is None for value in self.kept.values())

    @property
    def put_count(self) -> int:
        """The number of keys with values."""
        return len(self) - self.removed

    def put(self, key: Hashable, value: Any) -> None:
        """Put a StateValue for a key; None removes the key."""
        self.bare.pop(key, None)
        self.kept[key] = value

    def put_bare(self, txid: int, keys: Sequence[Hashable], values: Sequence[Any]) -> None:
        """Put a transaction's bare values for distinct keys. The layer takes ownership of both sequences."""
        assert self._txid in {None, txid}, "a layer of one transaction holds only its values"
        if self.kept:
            for key in self.kept.keys() & set(keys):
                del self.kept[key]
        self._waiting.append((keys, values))
        if self._txid is None:
            self._puts.append((txid, keys))
            self._puts_keys += len(keys)
            if self._puts_keys > PUTS_KEYS_MAX:
                self._look_up_txids()

    def merge(self, txid: int, later: Layer) -> None:
        """Move the values of a later layer, of transaction ``txid``, into this one. Do not use that layer again."""
        for key, value in later.kept.items():
            self.put(key, value)
        if later._bare:
            self.put_bare(txid, *later.columns())
        for keys, values in later._waiting:
            self.put_bare(txid, keys, values)

    def clear(self) -> None:
        """Remove all values."""
        for held in (self.kept, self._bare, self._waiting, self._puts, self._txids):
            held.clear()
        self._puts_keys = 0

    def holds_none_of(self, keys: set[Hashable]) -> bool:
        """Return whether none of these keys is in the layer."""
        bare = self.bare if len(self._waiting) > WAITING_MAX else self._bare
        return (
            self.kept.keys().isdisjoint(keys)
            and bare.keys().isdisjoint(keys)
            and all(keys.isdisjoint(waiting) for waiting, _ in self._waiting)
        )

    def _look_up_txids(self) -> None:
        """Resolve the last transaction of each bare value; go backwards if most keys were put several times."""
        if self._puts_keys < 2 * len(self.bare):
            for txid, keys in self._puts:
                self._txids.update(dict.fromkeys(keys, txid))
        else:
            remaining = set(self._bare)
            for txid, keys in reversed(self._puts):
                if not remaining:
                    break
                latest = remaining.intersection(keys)
                self._txids.update(dict.fromkeys(latest, txid))
                remaining -= latest
        self._puts.clear()
        self._puts_keys = 0

    def __contains__(self, key: object) -> bool:
        return key in self.bare or key in self.kept

    def __getitem__(self, key: Hashable) -> Any:
        bare = self.bare
        if key not in bare:
            return self.kept[key]
        if self._puts:
            self._look_up_txids()
        txid = self._txids[key] if self._txid is None else self._txid
        return self._make_value(txid, bare[key])

    def __iter__(self) -> Iterator[Hashable]:
        yield from self.kept
        yield from self.bare

    def __len__(self) -> int:
        return len(self.kept) + len(self.bare)

    def __bool__(self) -> bool:
        return bool(self.kept or self._bare or self._waiting)
