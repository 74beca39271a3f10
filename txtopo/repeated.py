"""The same message over and over: which of them to show."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

_KINDS_MAX = 1_000


class Repeated:
    """Shows a message when it comes first, and while it repeats, only so many times in each period.

    Args:
        period_secs: the period; it begins with a message that is shown.
        shown_max: how many of a kind are shown in a period.
        clock: tells the time, in seconds.
    """

    def __init__(self, period_secs: float, shown_max: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._period_secs = period_secs
        self._shown_max = shown_max
        self._clock = clock
        self._seen: dict[Hashable, tuple[float, int]] = {}
        """By kind: when its period began, and how many have come in it. The oldest kinds are forgotten."""

    def due(self, kind: Hashable) -> int | None:
        """Return how many of a kind were left out before this one; None if this one is to be left out, too."""
        now = self._clock()
        began, count = self._seen.get(kind, (now, 0))
        left_out = 0
        if now - began >= self._period_secs:
            left_out = max(0, count - self._shown_max)
            began, count = now, 0
        elif kind not in self._seen and len(self._seen) >= _KINDS_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[kind] = (began, count + 1)
        return left_out if count < self._shown_max else None

    def shown(self, text: str) -> str | None:
        """Return a text with how often it was left out; None to leave it out. Numbers in it make no other kind."""
        left_out = self.due("".join(character for character in text if not character.isdigit()))
        if left_out is None:
            return None
        return f"{text} (and {left_out} times before, which was not logged)" if left_out else text

    def over(self, kind: Hashable) -> None:
        """Forget a kind: it is shown at once when it comes again."""
        self._seen.pop(kind, None)
