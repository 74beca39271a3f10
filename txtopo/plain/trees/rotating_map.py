"""A map whose entries expire by rotation, as Storm's ``RotatingMap``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RotatingMap(Generic[K, V]):
    """Keeps each entry for a number of rotations after it was last put.

    Entries are in buckets, the newest first; a rotation drops the oldest bucket. That costs nothing for an entry that
    stays and needs no time for each.

    Args:
        buckets: how many; an entry survives ``buckets - 1`` rotations and expires at the next one.
        on_expired: is called with each entry that expires, after the rotation is done: what it puts is new.

    Raises:
        ValueError: there are fewer than two buckets, so that a new entry could expire at once.
    """

    def __init__(self, buckets: int = 3, on_expired: Callable[[K, V], None] | None = None) -> None:
        if buckets < 2:  # noqa: PLR2004 - see the docstring
            raise ValueError(f"a rotating map needs at least 2 buckets, not {buckets}")
        self._buckets: deque[dict[K, V]] = deque(({} for _ in range(buckets)), maxlen=buckets)
        self._on_expired = on_expired

    def put(self, key: K, value: V) -> None:
        """Add an entry, or replace and refresh it."""
        self.remove(key)
        self._buckets[0][key] = value

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if there is none."""
        return next((bucket[key] for bucket in self._buckets if key in bucket), None)

    def remove(self, key: K) -> V | None:
        """Remove a key and return its value; None if there is none."""
        return next((bucket.pop(key) for bucket in self._buckets if key in bucket), None)

    def rotate(self) -> dict[K, V]:
        """Drop the entries of the oldest bucket and return them."""
        expired = self._buckets.pop()
        self._buckets.appendleft({})
        if self._on_expired is not None:
            for key, value in expired.items():
                self._on_expired(key, value)
        return expired

    def values(self) -> Iterator[V]:
        """Yield the values, those that were put last first."""
        for bucket in self._buckets:
            yield from bucket.values()

    def __contains__(self, key: object) -> bool:
        return any(key in bucket for bucket in self._buckets)

    def __len__(self) -> int:
        return sum(map(len, self._buckets))
