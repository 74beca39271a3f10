"""Which messages to show when the same one repeats."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

LOGGED_SECS = 60.0
LOGGED_MAX = 20
"""A fault that lasts is told again about as often as somebody looks at a log while he mends it."""

_KINDS_MAX = 1_000
"""How many kinds are remembered; the oldest goes first, for a text may be another each time."""


class Repeated:
    """Shows at most ``shown_max`` messages of a kind in a period, which begins with a message that is shown."""

    def __init__(self, period_secs: float, shown_max: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._period_secs = period_secs
        self._shown_max = shown_max
        self._clock = clock
        self._seen: dict[Hashable, tuple[float, int]] = {}
        """By kind: when its period began, and how many messages came in it. The oldest kinds are forgotten."""

    def due(self, kind: Hashable) -> int | None:
        """Return how many messages of a kind were left out before this one; None to leave this one out, too."""
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
        """Return a text with how often it was left out; None to leave it out. Texts of a kind differ only in digits."""
        left_out = self.due("".join(character for character in text if not character.isdigit()))
        if left_out is None:
            return None
        return f"{text} (and {left_out} times before, which was not logged)" if left_out else text

    def clear(self, kind: Hashable) -> None:
        """Forget a kind, so that its next message is shown."""
        self._seen.pop(kind, None)
