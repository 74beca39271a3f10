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
    """The bounds of a coordinator."""

    pending_max: int
    job_transactions_max: int
    jobs_max: int
    """Jobs in flight."""
    group_transactions_max: int
    timeout_ms: int
    """How long an attempt may make no progress."""
    tries_max: int | None = None
    """Failures of a transaction in one epoch before it is given up; None for no bound."""
    give_up_policy: GiveUpPolicy = GiveUpPolicy.WAIT
    job_failures_max: int = 4
    """Jobs in a row that may be lost; one more stops the run. With bounded tries, a repeated loss of a job that holds
    one transaction counts as that transaction's failure instead."""
    retry_delay_ms: int = 500
    """The pause before a lost job is tried again, doubled at each loss in a row."""
    until: int | None = None
    """The last transaction to commit; None for all."""
    job_target_ms: int | None = None
    """The duration towards which jobs grow and shrink; None for jobs of ``job_transactions_max``."""
    spout: SpoutPolicy = REPEATABLE
