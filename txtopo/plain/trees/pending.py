"""The roots that a spout task waits for, and their timeouts.

Storm rotates two buckets, so a root fails between one and two timeouts after its emission. Here a dictionary keeps the
roots in the order in which their timeouts began. All timeouts are equal, so the expired roots are always in front, and
looking for them does not touch the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class PendingRoot:
    """A root that is neither acked nor failed."""

    __slots__ = ("emitted_at", "message_id", "since", "stream")

    def __init__(self, message_id: Any, stream: str, emitted_at: float) -> None:
        self.message_id = message_id
        self.stream = stream
        self.emitted_at = emitted_at
        self.since = emitted_at
        """When its timeout began: at its emission or its last reset."""


class PendingRoots:
    """The pending roots of one spout task. If ``timeout_secs`` is None, roots never expire."""

    def __init__(self, timeout_secs: float | None) -> None:
        self.roots: dict[int, PendingRoot] = {}
        """By root id, in the order in which their timeouts began."""
        self._timeout_secs = timeout_secs

    def __len__(self) -> int:
        return len(self.roots)

    def __contains__(self, root: object) -> bool:
        return root in self.roots

    def settle(self, root: int) -> PendingRoot | None:
        """Remove and return a root; None if it is no longer pending."""
        return self.roots.pop(root, None)

    def reset(self, root: int, now: float) -> None:
        """Begin the timeout of a pending root again."""
        pending = self.roots.pop(root, None)  # and put back at the end, to keep the order
        if pending is not None:
            pending.since = now
            self.roots[root] = pending

    def expire(self, now: float) -> list[tuple[int, PendingRoot]]:
        """Remove and return the roots whose timeout has passed, oldest first."""
        expired = list(self._expired(now))
        for root, _ in expired:
            del self.roots[root]
        return expired

    def _expired(self, now: float) -> Iterator[tuple[int, PendingRoot]]:
        if self._timeout_secs is None:
            return
        for root, pending in self.roots.items():
            if pending.since + self._timeout_secs > now:
                return
            yield root, pending
