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
    """

    __slots__ = ("_make_value", "bare", "kept", "txids")

    def __init__(self, make_value: Callable[[int, Any], Any]) -> None:
        self._make_value = make_value
        self.kept: dict[Hashable, Any] = {}
        """Keys with what is kept, and those that are removed."""
        self.bare: dict[Hashable, Any] = {}
        """Keys with bare values; none that is in ``kept``."""
        self.txids: dict[Hashable, int] = {}
        """The transaction that has put each bare value: the keys of ``bare`` in the same order."""

    def put(self, key: Hashable, value: Any) -> None:
        """Put what is kept for a key; None removes it."""
        if key in self.bare:
            del self.bare[key], self.txids[key]
        self.kept[key] = value

    def put_bare(self, txid: int, values: Mapping[Hashable, Any]) -> None:
        """Put a transaction's bare values."""
        if self.kept:
            for key in self.kept.keys() & values.keys():
                del self.kept[key]
        self.bare.update(values)
        self.txids.update(dict.fromkeys(values, txid))

    def merge(self, later: Layer) -> None:
        """Put what a later layer holds on top of this one."""
        for key, value in later.kept.items():
            self.put(key, value)
        if later.bare:
            if self.kept:
                for key in self.kept.keys() & later.bare.keys():
                    del self.kept[key]
            self.bare.update(later.bare)
            self.txids.update(later.txids)

    def clear(self) -> None:
        """Forget everything."""
        self.kept.clear()
        self.bare.clear()
        self.txids.clear()

    def __contains__(self, key: object) -> bool:
        return key in self.bare or key in self.kept

    def __getitem__(self, key: Hashable) -> Any:
        if key in self.bare:
            return self._make_value(self.txids[key], self.bare[key])
        return self.kept[key]

    def __iter__(self) -> Iterator[Hashable]:
        yield from self.kept
        yield from self.bare

    def __len__(self) -> int:
        return len(self.kept) + len(self.bare)
