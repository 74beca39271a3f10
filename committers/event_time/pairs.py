"""Pairs of rows with equal keys whose times are near each other, found in sorted arrays."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Literal

import attrs
import numpy as np
import numpy.typing as npt

from committers.event_time.times import Micros

Positions = npt.NDArray[np.int64]
"""Positions of rows, from 0."""

PAIRS_MAX = 1 << 20
"""The number of pairs that are found at a time."""


@attrs.frozen(eq=False)
class Timed:
    """Rows of one side: for each a number of its key, the same for equal keys on both sides, and its time."""

    keys: Positions
    times: Micros

    def first(self, count: int) -> Timed:
        """Return the first of the rows."""
        return Timed(self.keys[:count], self.times[:count])

    def after(self, count: int) -> Timed:
        """Return the rows but the first ones."""
        return Timed(self.keys[count:], self.times[count:])

    @functools.cached_property
    def moments(self) -> Micros:
        """The times that there are, each once, in order."""
        return np.unique(self.times)

    @functools.cached_property
    def places(self) -> tuple[Positions, Positions]:
        """The rows in the order of key and time, and for each a number that rises with these."""
        places = self.place(self.times)
        order = np.argsort(places, kind="stable")
        return order, places[order]

    def place(self, times: Micros, keys: Positions | None = None, side: Literal["left", "right"] = "left") -> Positions:
        """Return the numbers of keys, by default the rows' own, and times, before or after the rows with that time."""
        key_numbers = self.keys if keys is None else keys
        places: Positions = key_numbers * (len(self.moments) + 1) + self.moments.searchsorted(times, side=side)
        return places


def pairs(
    left: Timed, right: Timed, lower: int, upper: int, pairs_max: int = PAIRS_MAX
) -> Iterator[tuple[Positions, Positions]]:
    """Yield the positions of left and right rows with equal keys whose right time is near the left one, in portions.

    Args:
        left: the left rows.
        right: the right rows.
        lower: how far after the left time the right one is at least, in microseconds; negative: before it.
        upper: how far after the left time the right one is at most.
        pairs_max: the number of pairs in a portion, unless one row alone has more.
    """
    if not (len(left.times) and len(right.times)):
        return
    order, places = right.places
    # Both bounds as numbers of the right rows' times: so key and time together are one number to look for.
    first = places.searchsorted(right.place(left.times + lower, left.keys))
    end = places.searchsorted(right.place(left.times + upper, left.keys, "right"))
    counts = end - first
    for portion in _portions(counts, pairs_max):
        lefts = np.repeat(portion, counts[portion])
        begins = np.repeat(first[portion] - (np.cumsum(counts[portion]) - counts[portion]), counts[portion])
        yield lefts, order[begins + np.arange(len(lefts))]


def _portions(counts: Positions, sum_max: int) -> Iterator[Positions]:
    """Yield the positions of the numbers that are not 0, those together whose sum is at most ``sum_max``."""
    left = np.flatnonzero(counts)
    while len(left):
        end = max(1, int(np.cumsum(counts[left]).searchsorted(sum_max, side="right")))
        yield left[:end]
        left = left[end:]
