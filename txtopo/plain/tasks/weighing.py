"""Estimates cheaply how many bytes tuples take in memory, from samples of tuples and of their values."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain, islice
from sys import getsizeof
from typing import Any

SAMPLES_MAX = 16
"""The largest sample: one tuple, and one more for each 64."""

OBJECTS_MAX = 200
"""The most objects within a tuple that are weighed."""

_CHILDREN_MAX = 20
"""The most elements of a collection that are weighed; the others count as much."""

TUPLE_BYTES = 250
"""What a tuple with one root takes besides its values, as measured."""

_FLAT = frozenset({str, int, float, bool, bytes, type(None)})


def tuples_bytes(values: Sequence[Sequence[Any]]) -> float:
    """Return about how many bytes tuples take, given the values of each."""
    return len(values) * mean_bytes(values[:: stride(len(values))]) if values else 0.0


def stride(count: int) -> int:
    """Return the step between the samples of ``count`` tuples, at least one."""
    return -(-count // min(SAMPLES_MAX, 1 + count // 64))


def mean_bytes(sample: Sequence[Sequence[Any]]) -> float:
    """Return about how many bytes a tuple of a sample takes on average, given the values of each."""
    if _FLAT.issuperset(map(type, chain.from_iterable(sample))):  # most are: this runs in each pass
        return TUPLE_BYTES + sum(map(getsizeof, chain.from_iterable(sample))) / len(sample)
    weight = 0.0
    weighed: set[int] = set()
    for each in sample:
        with suppress(Exception):  # a user's class may raise when it is asked for its size
            weight += _Scale(weighed).weigh_all(each)
    return TUPLE_BYTES + weight / len(sample)


class _Scale:
    """Weighs the values of one tuple, except shared objects that were weighed before, whose ``id()`` is in ``seen``."""

    def __init__(self, weighed: set[int]) -> None:
        self._seen = weighed
        self._left = OBJECTS_MAX

    def weigh_all(self, values: Iterable[Any]) -> float:
        return sum(map(self._weigh, values))

    def _weigh(self, value: Any) -> float:
        if type(value) in _FLAT:
            return getsizeof(value)
        if self._left <= 0 or id(value) in self._seen:
            return 0.0
        self._left -= 1
        self._seen.add(id(value))
        size = _own_bytes(value)
        if isinstance(value, dict):
            return size + self._weigh_some(value.keys(), len(value)) + self._weigh_some(value.values(), len(value))
        if isinstance(value, (list, tuple, set, frozenset, deque)):
            return size + self._weigh_some(value, len(value))
        attributes = getattr(value, "__dict__", None)
        return size + (self._weigh(attributes) if isinstance(attributes, dict) else 0.0)

    def _weigh_some(self, children: Iterable[Any], count: int) -> float:
        looked_at = min(count, _CHILDREN_MAX)
        return self.weigh_all(islice(children, looked_at)) * count / looked_at if count else 0.0


def _own_bytes(value: Any) -> int:
    """Return the size of an object without those that it refers to."""
    # getsizeof() may leave out what an array or a table holds; nbytes has it.
    size, data = getsizeof(value, 0), getattr(value, "nbytes", 0)
    return max(size, data) if isinstance(data, int) else size
