"""The invariants of a coordinator after every event, for tests and the simulator. O(pending transactions) per call."""

from __future__ import annotations

from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.transitions import LIVE, Status


def validate(coordinator: Coordinator) -> None:
    """Raise an AssertionError if pending transactions, attempts, jobs or the commit group break an invariant."""
    pending, jobs, limits = coordinator.pending, coordinator.jobs, coordinator.limits
    first = coordinator.committed + 1
    assert sorted(pending) == list(range(first, first + len(pending))), "pending transactions have no gap"
    assert len(jobs) <= limits.spout.jobs_max(limits.jobs_max), "no more jobs in flight than allowed"
    for job in jobs.values():
        assert len(job) <= limits.job_transactions_max, "a job is bounded"
        assert list(job) == list(range(job[0], job[0] + len(job))), "a job is consecutive"
    committing = []
    for txid, transaction in pending.items():
        status, attempt = transaction.status, transaction.attempt
        assert transaction.txid == txid, "each txid is mapped to its transaction"
        if status not in LIVE:
            assert status is not Status.COMMITTED, "a committed transaction is not pending"
            assert attempt is None, "only the live statuses have an attempt"
            continue
        assert attempt is not None, "the live statuses have an attempt"
        assert attempt.txid == txid, "an attempt has its transaction's txid"
        assert txid < first + limits.pending_max, "no transaction beyond the bound has a live attempt"
        if status is Status.PROCESSING:
            assert transaction.job_id in jobs, "a processing transaction is in a job in flight"
        elif status is Status.COMMITTING or status is Status.WRITING_DEAD_LETTER:
            committing.append(txid)
    if committing:
        low = committing[0]
        assert coordinator.is_committing or coordinator.has_stopped, "a committing transaction is in a group in flight"
        assert low in {first, first + 1}, "a group starts at the lowest uncommitted one, or after that one failed"
        assert committing == list(range(low, low + len(committing))), "a group is consecutive"
