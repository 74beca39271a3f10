"""What must hold of a coordinator after every event. Tests and the simulator call it; it costs a walk."""

from __future__ import annotations

from txtopo.core.coordinator import Coordinator
from txtopo.core.transitions import LIVE, Status


def validate(coordinator: Coordinator) -> None:
    """Check the window, the live attempts, the packs and the commit group of a coordinator.

    Raises:
        AssertionError: an invariant does not hold.
    """
    window, limits = coordinator.window, coordinator.limits
    first = coordinator.committed + 1
    assert sorted(window) == list(range(first, first + len(window))), "the window has no gap"
    recovered_more = len(window) > limits.window
    assert not recovered_more or all(t.status is not Status.COMMITTED for t in window.values())
    jobs_max = 1 if limits.opaque else limits.jobs_max
    assert len(coordinator.packs) <= jobs_max, "no more jobs in flight than allowed"
    for pack in coordinator.packs.values():
        assert len(pack) <= limits.pack_transactions_max, "a pack is bounded"
        assert list(pack) == list(range(pack[0], pack[0] + len(pack))), "a pack is consecutive"
    for txid, transaction in window.items():
        assert transaction.txid == txid, "a transaction stands at its txid"
        assert (transaction.attempt is not None) == (transaction.status in LIVE), "live statuses have an attempt"
        assert transaction.attempt is None or transaction.attempt.txid == txid, "an attempt is of its transaction"
        if transaction.status is Status.PROCESSING:
            assert transaction.pack_id in coordinator.packs, "what is being processed is in a pack in flight"
    committing = [txid for txid, t in window.items() if t.status in {Status.COMMITTING, Status.BURYING}]
    assert not committing or coordinator.is_committing, "what commits is in the group in flight"
    assert committing == list(range(first, first + len(committing))), "a group begins at the lowest uncommitted one"
