"""What bounds the coordinator: everything is bounded."""

from __future__ import annotations

import enum

import attrs

from txtopo.core.spout_policy import REPEATABLE, SpoutPolicy


class GiveUpPolicy(enum.Enum):
    """What follows when a transaction has failed as often as it may."""

    WAIT = "WAIT"
    """Commit what is before it, then stop and say so."""
    SKIP = "SKIP"
    """Write it to the dead-letter table and go on."""


@attrs.frozen
class Limits:
    """The bounds a coordinator keeps.

    Args:
        window: transactions that may have begun and not be committed.
        job_transactions_max: transactions in one job.
        jobs_max: jobs in flight.
        group_transactions_max: transactions in one commit group.
        timeout_ms: how long an attempt may make no progress.
        tries_max: tries of a transaction in one epoch; None: no bound.
        give_up_policy: what follows then.
        job_failures_max: lost jobs in a row before the run stops; with bounded tries, those that a transaction
            alone loses again are its own failures and do not count.
        retry_delay_ms: pause before a job is tried again, doubled at each loss in a row.
        source_poll_ms: pause before a source that waits is asked again.
        until: the last transaction to commit; None: as many as there are.
        job_target_ms: how long a job should take: jobs grow and shrink towards it; None: all jobs
            hold what they may.
        spout: what the kind of spout asks of the order of transactions.
    """

    window: int
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
