"""The job sizer: sets the size of the next job from the durations of earlier ones.

A Spark job has a fixed cost, however small it is. So jobs of small transactions grow up to the configured maximum, and
grow faster the less time they take. A job of large transactions soon takes seconds: its first transaction waits for
its last, a failure loses all of its work, and its results wait in memory. So such jobs shrink. Jobs that start before
the first one has ended are *cold*: they include the start of the executors, which says nothing about their
transactions.

The coordinator keeps the time per transaction for the topology's next run, whose first job then holds as many
transactions as fit half of the target time. The first job of a new topology holds 1/8 of the waiting transactions, at
least 2 and at most 8, and jobs that start beside it hold up to 4 times as many. So a backlog of small transactions
starts at once; with large ones, of 10 s each, the first commit comes soon in proportion to the backlog, and no job of
unknown transactions holds more than 16.
"""

from __future__ import annotations

import attrs

from txtopo.transactional.core.limits import Limits

FIRST_JOB_TRANSACTIONS = 2
"""Minimum size of the first job if the time per transaction is unknown."""

FIRST_JOB_TRANSACTIONS_MAX = 8
"""Maximum size of the first job if the time per transaction is unknown."""

BACKLOG_SHARE = 8
"""The first job holds 1/8 of the waiting transactions."""

UNKNOWN_JOB_TRANSACTIONS_MAX = 16
"""Maximum size of a job that starts beside the first one, if the time per transaction is unknown."""

COLD_START_MS = 10_000
"""The part of a cold job's time that may be the start of the executors; the rest is due to its transactions."""

COLD_GROWTH = 4
"""Growth factor from the first job to jobs that start before it has ended, and to the job after it."""

GROWTH_MAX = 8
"""Maximum growth factor from one job to the next, for jobs that take almost no time."""


@attrs.frozen
class JobSizer:
    """The maximum size of the next job, and what it was derived from."""

    transactions_max: int
    is_warm: bool = False
    """Whether a job has ended in this run."""
    transaction_us: int | None = None
    """A transaction's share of a job's time, in microseconds; None if unknown."""
    learnt_from: int = 0
    """The size of the job that ``transaction_us`` was measured on."""

    @classmethod
    def at_start(cls, limits: Limits, transaction_us: int | None = None) -> JobSizer:
        """Return the job size at the start of a run."""
        if limits.job_target_ms is None:
            return cls(limits.job_transactions_max)
        first = FIRST_JOB_TRANSACTIONS
        if transaction_us is not None:  # what fits half of the target time
            first = max(1, limits.job_target_ms * 500 // max(1, transaction_us))
        return cls(min(limits.job_transactions_max, first), transaction_us=transaction_us)

    def with_backlog(self, waiting: int, limits: Limits) -> JobSizer:
        """Return the job size of the first job, for ``waiting`` ready transactions."""
        if self._knows(limits):
            return self
        first = min(max(FIRST_JOB_TRANSACTIONS, waiting // BACKLOG_SHARE), FIRST_JOB_TRANSACTIONS_MAX)
        return self.holding(min(limits.job_transactions_max, first))

    def behind_the_first(self, limits: Limits) -> JobSizer:
        """Return the job size of jobs that start while the first one runs."""
        if self._knows(limits):
            return self
        larger = min(self.transactions_max * COLD_GROWTH, UNKNOWN_JOB_TRANSACTIONS_MAX)
        return self.holding(min(limits.job_transactions_max, larger))

    def after(self, transactions: int, elapsed_ms: int, limits: Limits, *, is_cold: bool = False) -> JobSizer:
        """Return the job size after a job has ended; ``is_cold``: it started before the first one had ended."""
        target_ms = limits.job_target_ms
        if target_ms is None:
            return self
        # A job that did not use the whole size says nothing about a larger one.
        is_full = transactions >= self.transactions_max
        # The start of the executors may explain the duration of a cold job, unless it is far longer than that.
        if is_cold or not self.is_warm:
            own_ms = elapsed_ms - COLD_START_MS
            if own_ms > 2 * target_ms:
                fitting = self._fitting(transactions, own_ms, target_ms)
                return self.holding(fitting, is_warm=True)
            growth = COLD_GROWTH if elapsed_ms < 2 * target_ms else 2
            larger = min(limits.job_transactions_max, transactions * growth) if is_full else self.transactions_max
            return self.holding(larger, is_warm=True)
        sizer = self._having_learnt(transactions, elapsed_ms)
        if is_full and elapsed_ms < target_ms:
            factor = min(max(2, target_ms // max(1, 2 * elapsed_ms)), GROWTH_MAX)
            larger = min(limits.job_transactions_max, self.transactions_max * factor)
            return sizer.holding(larger)
        if elapsed_ms > 2 * target_ms:
            return sizer.holding(self._fitting(transactions, elapsed_ms, target_ms))
        return sizer

    def holding(self, transactions_max: int, *, is_warm: bool = False) -> JobSizer:
        """Return a copy with another maximum size."""
        return JobSizer(transactions_max, self.is_warm or is_warm, self.transaction_us, self.learnt_from)

    def _knows(self, limits: Limits) -> bool:
        return limits.job_target_ms is None or self.is_warm or self.transaction_us is not None

    def _fitting(self, transactions: int, elapsed_ms: int, target_ms: int) -> int:
        """Return the number of transactions that would take the target time, given a job that took longer."""
        return min(self.transactions_max, max(1, (transactions * target_ms + elapsed_ms // 2) // elapsed_ms))

    def _having_learnt(self, transactions: int, elapsed_ms: int) -> JobSizer:
        """Return a sizer with a new time per transaction; as it is if the job was small, of mostly fixed cost."""
        if 2 * transactions < self.learnt_from:
            return self
        transaction_us = max(1, elapsed_ms * 1000 // transactions)
        return JobSizer(self.transactions_max, self.is_warm, transaction_us, transactions)
