"""The job sizer: how many transactions the next job may hold, learnt from how long the last ones took.

A Spark job has a fixed cost, however little is in it. So jobs of small transactions grow until they hold all they may;
the less time they take, the faster they grow. A job of large transactions soon takes seconds. Its first transaction
then waits for its last, its failure costs all of it, and its results wait in memory. So such jobs shrink. Jobs that
begin before the first one has ended are cold: they pay for the start of the executors, which says nothing about their
transactions.

The time that a transaction took is kept for the topology's next run. Its first job then holds as many transactions as
half of a job's target time is enough for. A topology that never ran begins with an eighth of the waiting transactions,
eight at most, and the jobs behind that one hold some more. So a backlog of small transactions is under way at once. Of
large ones, ten seconds each, the first commit comes soon in proportion to the backlog, and no job whose transactions
are unknown holds more than sixteen.
"""

from __future__ import annotations

import attrs

from txtopo.core.limits import Limits

FIRST_PACK_TRANSACTIONS = 2
"""Transactions in the first job at least, if nothing is known of them and so many wait."""

FIRST_PACK_TRANSACTIONS_MAX = 8
"""Transactions in the first job at most, if nothing is known of them."""

BACKLOG_SHARE = 8
"""Which part of what waits goes into the first job: one in so many."""

UNKNOWN_PACK_TRANSACTIONS_MAX = 16
"""Transactions in a job that begins beside the first one at most, if nothing is known of them."""

COLD_START_MS = 10_000
"""So much of a cold job's time may be the start of the executors; what is beyond is its transactions' own."""

COLD_GROWTH = 4
"""By how much jobs grow from the first to those that begin before it has ended, or that follow it."""

GROWTH_MAX = 8
"""By how much jobs grow at most from one to the next, where their jobs take next to no time."""


@attrs.frozen
class JobSizer:
    """How many transactions the next job may hold.

    Args:
        transactions_max: as many.
        is_warm: whether a job has ended before.
        transaction_us: how many microseconds of a job's time a transaction took; None: not known.
        learnt_from: how many transactions were in the job that says so.
    """

    transactions_max: int
    is_warm: bool = False
    transaction_us: int | None = None
    learnt_from: int = 0

    @classmethod
    def at_start(cls, limits: Limits, transaction_us: int | None = None) -> JobSizer:
        """Return the job size of a run that has seen no job yet.

        Args:
            limits: the bounds.
            transaction_us: what the last run has learnt.
        """
        if limits.job_target_ms is None:
            return cls(limits.job_transactions_max)
        first = FIRST_PACK_TRANSACTIONS
        if transaction_us is not None:
            first = max(1, limits.job_target_ms * 500 // max(1, transaction_us))
        return cls(min(limits.job_transactions_max, first), transaction_us=transaction_us)

    def with_backlog(self, waiting: int, limits: Limits) -> JobSizer:
        """Return the job size of the first job, when so many transactions wait for it."""
        if self._knows(limits):
            return self
        first = min(max(FIRST_PACK_TRANSACTIONS, waiting // BACKLOG_SHARE), FIRST_PACK_TRANSACTIONS_MAX)
        return self.holding(min(limits.job_transactions_max, first))

    def behind_the_first(self, limits: Limits) -> JobSizer:
        """Return the job size of jobs that begin while the first one runs."""
        if self._knows(limits):
            return self
        larger = min(self.transactions_max * COLD_GROWTH, UNKNOWN_PACK_TRANSACTIONS_MAX)
        return self.holding(min(limits.job_transactions_max, larger))

    def after(self, transactions: int, elapsed_ms: int, limits: Limits, *, is_cold: bool = False) -> JobSizer:
        """Return the job size once a job has ended.

        Args:
            transactions: how many it held.
            elapsed_ms: how long its job took.
            limits: the bounds; ``job_target_ms`` is how long a job should take.
            is_cold: whether it began before the first one had ended.
        """
        target_ms = limits.job_target_ms
        if target_ms is None:
            return self
        is_full = transactions >= self.transactions_max
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
        """Return the same job size with another size of jobs."""
        return JobSizer(transactions_max, self.is_warm or is_warm, self.transaction_us, self.learnt_from)

    def _knows(self, limits: Limits) -> bool:
        """Whether the next job's size does not have to be guessed."""
        return limits.job_target_ms is None or self.is_warm or self.transaction_us is not None

    def _fitting(self, transactions: int, elapsed_ms: int, target_ms: int) -> int:
        """Return how many take about as long as a job should, if these took so much longer."""
        return min(self.transactions_max, max(1, (transactions * target_ms + elapsed_ms // 2) // elapsed_ms))

    def _having_learnt(self, transactions: int, elapsed_ms: int) -> JobSizer:
        """Return a sizer that knows the time of a transaction; a small job says little, for its time is its own."""
        if 2 * transactions < self.learnt_from:
            return self
        transaction_us = max(1, elapsed_ms * 1000 // transactions)
        return JobSizer(self.transactions_max, self.is_warm, transaction_us, transactions)
