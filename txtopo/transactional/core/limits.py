"""The coordinator's bounds. Everything is bounded."""

from __future__ import annotations

import enum

import attrs

from txtopo.transactional.core.spout_policy import REPEATABLE, SpoutPolicy


class GiveUpPolicy(enum.Enum):
    """What to do with a transaction that has failed ``tries_max`` times."""

    WAIT = "WAIT"
    """Commit the transactions before it, then stop with an error."""
    SKIP = "SKIP"
    """Write it to the dead-letter table and continue."""


@attrs.frozen
class Limits:
    """The bounds of a coordinator.

    Args:
        pending_max: maximum number of transactions that are begun and not committed.
        job_transactions_max: transactions in one job.
        jobs_max: jobs in flight.
        group_transactions_max: transactions in one commit group.
        timeout_ms: how long an attempt may make no progress.
        tries_max: tries of a transaction in one epoch; None for no bound.
        give_up_policy: what to do after ``tries_max`` failures.
        job_failures_max: lost jobs in a row before the run stops. With bounded tries, a repeated loss of a job that
            holds one transaction counts as that transaction's failure instead.
        retry_delay_ms: pause before a lost job is tried again, doubled at each loss in a row.
        source_poll_ms: pause before a waiting source is asked again.
        until: the last transaction to commit; None for all.
        job_target_ms: the target duration of a job, towards which jobs grow and shrink; None for jobs of
            ``job_transactions_max``.
        spout: the order of transactions that the kind of spout requires.
    """

    pending_max: int
    job_transactions_max: int
    jobs_max: int
    group_transactions_max: int
    timeout_ms: int
    tries_max: int | None = None
    give_up_policy: GiveUpPolicy = GiveUpPolicy.WAIT
    job_failures_max: int = 4
    retry_delay_ms: int = 500
    source_poll_ms: int = 50
    until: int | None = None
    job_target_ms: int | None = None
    spout: SpoutPolicy = REPEATABLE
