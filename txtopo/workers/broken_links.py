"""Channels between workers that have broken: which of the two ends is ended, if both live; a part of the supervisor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import attrs

LINK_SECS = 1.0
"""After a channel between two workers has broken, one of the two ends is ended if neither has died after so long."""


class End(Protocol):
    """A worker at an end of a channel."""

    number: int
    generation: int
    cut_off_from: int | None
    """The last worker whose channel it was ended for."""


E = TypeVar("E", bound=End)


@attrs.frozen
class Verdict(Generic[E]):
    """The end of a broken channel that is ended, the one that goes on, and why it broke."""

    ended: E
    survivor: E
    why: str


class BrokenLinks(Generic[E]):
    """The channels that have broken, and have not cost one of their ends its life yet."""

    def __init__(self) -> None:
        self._broken: dict[tuple[int, int], tuple[float, str]] = {}
        """By the two generations, the lower first: when, and why."""

    def add(self, end: int, other_end: int, now: float, why: str) -> None:
        """Take note that the channel between two generations has broken; the first that is heard of it counts."""
        self._broken.setdefault((min(end, other_end), max(end, other_end)), (now, why))

    def judge(self, living: Iterable[E], now: float) -> Verdict[E] | None:
        """Return which worker is to be ended; None if none is. Those whose ends do not both live are forgotten."""
        by_generation = {each.generation: each for each in living}
        self._broken = {ends: each for ends, each in self._broken.items() if by_generation.keys() >= {*ends}}
        due = [ends for ends, (at, _) in self._broken.items() if now - at >= LINK_SECS]
        if not due:
            return None
        # One end that is in many of them is more probably the cause than each of the others.
        breaks = Counter(end for ends in self._broken for end in ends)
        most = max(breaks[end] for ends in due for end in ends)
        ends = next(ends for ends in due if any(breaks[end] == most for end in ends))
        older, younger = (by_generation[end] for end in ends)
        if breaks[older.generation] != breaks[younger.generation]:
            is_older = breaks[older.generation] > breaks[younger.generation]
        else:  # the younger has less to lose; if its last start has not helped, the cause is in the other
            is_older = younger.cut_off_from == older.number and older.cut_off_from != younger.number
        ended, survivor = (older, younger) if is_older else (younger, older)
        return Verdict(ended, survivor, self._broken[ends][1])
