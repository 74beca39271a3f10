"""The jobs that were cancelled and have not ended: a run that waits for one says for which.

A cancelled job keeps its place until it has ended, because it may still write what it stages, and a transaction that
must run alone waits for that. A call of user code that can't be interrupted may keep it for as long as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from txtopo.attempts import TransactionAttempt, transactions_words

FIRST_SECS = 10.0
"""A job is told of this long after its cancel, and then at twice the time each."""


@attrs.define(eq=False)
class _Job:
    attempts: Sequence[TransactionAttempt]
    cancelled_at: float | None = None
    told_secs: float = 0.0


class CancelledJobs:
    """Knows which jobs are at work, and which of them were cancelled. :meth:`ended` may be called on any thread."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Job] = {}

    def began(self, job_id: int, attempts: Sequence[TransactionAttempt]) -> None:
        """Record that a job begins."""
        self._jobs[job_id] = _Job(attempts)

    def cancelled(self, job_id: int, now: float) -> None:
        """Record that a job is cancelled."""
        job = self._jobs.get(job_id)
        if job is not None and job.cancelled_at is None:
            job.cancelled_at = now

    def ended(self, job_id: int) -> None:
        """Record that a job has ended."""
        self._jobs.pop(job_id, None)

    def overdue(self, now: float, at_work: Mapping[TransactionAttempt, str]) -> list[str]:
        """Return what is to be said of the jobs that the run waits for, each at growing intervals.

        ``at_work`` says which component an attempt is in, as far as that is known.
        """
        warnings = []
        for job_id, job in list(self._jobs.items()):
            if job.cancelled_at is None:
                continue
            secs = now - job.cancelled_at
            if secs >= max(FIRST_SECS, 2 * job.told_secs):
                job.told_secs = secs
                components = sorted({at_work[attempt] for attempt in job.attempts if attempt in at_work})
                txids = [attempt.txid for attempt in job.attempts]
                transactions = transactions_words(min(txids), max(txids))
                where = f", in {', '.join(map(repr, components))}" if components else ""
                warnings.append(
                    f"job {job_id} with {transactions} was cancelled {secs:.0f} s ago and has not ended{where};"
                    " the run waits for it"
                )
        return warnings
