"""Pending roots: in which order, and when exactly, they time out."""

from __future__ import annotations

from txtopo.plain.trees.pending import PendingRoot, PendingRoots


def pending_roots(timeout_secs: float | None, emitted_at: dict[int, float]) -> PendingRoots:
    pending = PendingRoots(timeout_secs)
    for root, at in emitted_at.items():
        pending.roots[root] = PendingRoot(f"message {root}", "default", at)
    return pending


def expired(pending: PendingRoots, now: float) -> list[int]:
    return [root for root, _ in pending.expire(now)]


def test_order_and_time_of_timeouts():
    """A root expires when its timeout has passed, not before; the oldest first, each once."""
    pending = pending_roots(10, {3: 0.0, 1: 1.0, 2: 1.0, 4: 5.0})
    assert [expired(pending, now) for now in (9.999, 10.0, 10.0, 11.5, 14.9, 15.0)] == [[], [3], [], [1, 2], [], [4]]
    assert len(pending) == 0


def test_what_expires_says_what_it_was():
    """The message id and the time of its emission come with it."""
    ((root, was),) = pending_roots(10, {1: 2.0}).expire(100)
    assert (root, was.message_id, was.stream, was.emitted_at) == (1, "message 1", "default", 2.0)


def test_reset():
    """A root that is reset has all its timeout before it, and was still emitted when it was; others keep theirs."""
    pending = pending_roots(10, {1: 0.0, 2: 1.0})
    pending.reset(1, 9.0)
    assert [expired(pending, now) for now in (10.0, 11.0, 18.9)] == [[], [2], []]
    ((root, was),) = pending.expire(19.0)
    assert (root, was.emitted_at) == (1, 0.0)


def test_what_is_not_pending():
    """A root that was settled, or never there, is neither reset nor settled again."""
    pending = pending_roots(10, {1: 0.0})
    was = pending.settle(1)
    assert was is not None
    assert was.message_id == "message 1"
    pending.reset(1, 5.0)
    assert (pending.settle(1), 1 in pending, len(pending)) == (None, False, 0)


def test_without_timeout():
    """With timeouts disabled nothing ever expires."""
    assert expired(pending_roots(None, {1: 0.0}), 1e12) == []
