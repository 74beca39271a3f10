"""Layers: what some transactions have put into a state, before it is written. Pure.

A value may lie in a layer as what is kept of it, or *bare*, with its txid beside: then nothing is made for a key
until somebody asks for it, and that saves half of the commit phase where transactions touch thousands of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any


class Layer(Mapping[Any, Any]):
    """What is to be kept for each key; None for a key that is removed.

    Args:
        make_value: makes what is kept of a txid and a bare value.
        txid: the transaction that puts all bare values; None: several do.
        bare: bare values of that transaction; the layer's own from now on.
    """

    __slots__ = ("_make_value", "_txid", "bare", "kept", "txids")

    def __init__(
        self,
        make_value: Callable[[int, Any], Any],
        txid: int | None = None,
        bare: dict[Hashable, Any] | None = None,
    ) -> None:
        self._make_value = make_value
        self._txid = txid
        self.kept: dict[Hashable, Any] = {}
        """Keys with what is kept, and those that are removed."""
        self.bare: dict[Hashable, Any] = {} if bare is None else bare
        """Keys with bare values; none that is in ``kept``."""
        self.txids: dict[Hashable, int] = {}
        """The transaction that has put each bare value, where several do: the keys of ``bare`` in the same order."""

    def put(self, key: Hashable, value: Any) -> None:
        """Put what is kept for a key; None removes it."""
        if key in self.bare:
            del self.bare[key]
            self.txids.pop(key, None)
        self.kept[key] = value

    def put_bare(self, txid: int, values: Mapping[Hashable, Any]) -> None:
        """Put a transaction's bare values."""
        if self.kept:
            for key in self.kept.keys() & values.keys():
                del self.kept[key]
        self.bare.update(values)
        if self._txid is None:
            self.txids.update(dict.fromkeys(values, txid))
        assert self._txid in {None, txid}, "a layer of one transaction holds no other's values"

    def merge(self, txid: int, later: Layer) -> None:
        """Put what a layer of transaction ``txid`` holds on top of this one."""
        for key, value in later.kept.items():
            self.put(key, value)
        if later.bare:
            self.put_bare(txid, later.bare)

    def clear(self) -> None:
        """Forget everything."""
        self.kept.clear()
        self.bare.clear()
        self.txids.clear()

    def __contains__(self, key: object) -> bool:
        return key in self.bare or key in self.kept

    def __getitem__(self, key: Hashable) -> Any:
        if key in self.bare:
            txid = self.txids[key] if self._txid is None else self._txid
            return self._make_value(txid, self.bare[key])
        return self.kept[key]

    def __iter__(self) -> Iterator[Hashable]:
        yield from self.kept
        yield from self.bare

    def __len__(self) -> int:
        return len(self.kept) + len(self.bare)
