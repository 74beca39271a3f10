"""Layers: what some transactions have put into a state, before it is written. Pure.

A value may lie in a layer as what is kept of it, or *bare*, with its txid beside: then nothing is made for a key
until somebody asks for it, and that saves half of the commit phase where transactions touch thousands of keys.
For the same reason what is put as columns stays columns until a key is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

PUTS_KEYS_MAX = 1_000_000
"""Keys of bare values whose transactions are looked up only when they are asked for; memory is the bound."""

WAITING_MAX = 8
"""Columns of bare values that are looked through for a key, one by one, before they are put together."""


class Layer(Mapping[Any, Any]):
    """What is to be kept for each key; None for a key that is removed.

    Args:
        make_value: makes what is kept of a txid and a bare value.
        txid: the transaction that puts all bare values; None: several do.
    """

    __slots__ = ("_bare", "_make_value", "_puts", "_puts_keys", "_txid", "_txids", "_waiting", "kept")

    def __init__(self, make_value: Callable[[int, Any], Any], txid: int | None = None) -> None:
        self._make_value = make_value
        self._txid = txid
        self.kept: dict[Hashable, Any] = {}
        """Keys with what is kept, and those that are removed."""
        self._bare: dict[Hashable, Any] = {}
        self._waiting: list[tuple[Sequence[Hashable], Sequence[Any]]] = []
        """Columns of bare values that are put on top of ``_bare`` once a key is asked for."""
        self._puts: list[tuple[int, Sequence[Hashable]]] = []
        """Which keys each transaction has put bare, where several do, on top of ``_txids``."""
        self._puts_keys = 0
        self._txids: dict[Hashable, int] = {}

    @property
    def bare(self) -> dict[Hashable, Any]:
        """Keys with bare values; none that is in ``kept``. What is put here belongs to the layer's one transaction."""
        if self._waiting:
            for keys, values in self._waiting:
                self._bare.update(zip(keys, values, strict=True))
            self._waiting.clear()
        return self._bare

    def columns(self) -> tuple[Sequence[Hashable], Sequence[Any]]:
        """Return the keys and values that lie bare, in the same order."""
        if len(self._waiting) == 1 and not self._bare:
            return self._waiting[0]
        return list(self.bare), list(self.bare.values())

    def bare_txids(self) -> list[int]:
        """Return the transaction that has put each bare value, in their order."""
        bare = self.bare
        if self._txid is not None:
            return [self._txid] * len(bare)
        self._look_up_txids()
        return list(map(self._txids.__getitem__, bare))

    @property
    def removed(self) -> int:
        """How many keys are removed."""
        return sum(value is None for value in self.kept.values())

    @property
    def put_count(self) -> int:
        """How many keys are put."""
        return len(self) - self.removed

    def put(self, key: Hashable, value: Any) -> None:
        """Put what is kept for a key; None removes it."""
        self.bare.pop(key, None)
        self.kept[key] = value

    def put_bare(self, txid: int, keys: Sequence[Hashable], values: Sequence[Any]) -> None:
        """Put a transaction's bare values, for different keys. Both columns are the layer's from now on."""
        assert self._txid in {None, txid}, "a layer of one transaction holds no other's values"
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
        """Put what a layer of transaction ``txid`` holds on top of this one; it is over then."""
        for key, value in later.kept.items():
            self.put(key, value)
        if later._bare:
            self.put_bare(txid, *later.columns())
        for keys, values in later._waiting:
            self.put_bare(txid, keys, values)

    def clear(self) -> None:
        """Forget everything."""
        for held in (self.kept, self._bare, self._waiting, self._puts, self._txids):
            held.clear()
        self._puts_keys = 0

    def holds_none_of(self, keys: set[Hashable]) -> bool:
        """Whether none of these keys is in the layer."""
        bare = self.bare if len(self._waiting) > WAITING_MAX else self._bare
        return (
            self.kept.keys().isdisjoint(keys)
            and bare.keys().isdisjoint(keys)
            and all(keys.isdisjoint(waiting) for waiting, _ in self._waiting)
        )

    def _look_up_txids(self) -> None:
        """Note which transaction has put each bare value last: from the last one back if most were put again."""
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
