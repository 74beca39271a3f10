"""The coordinator's records of transactions: the pending ones and those that were rolled back."""

from __future__ import annotations

from typing import Any

import attrs

from txtopo.api.components.planned import Planned
from txtopo.attempts import TransactionAttempt, attempt_number
from txtopo.transactional.core.transitions import LIVE, Status, Trigger, after


@attrs.define(eq=False)
class Tries:
    """How often a transaction was tried in this epoch. Survives a rollback of the transaction.

    ``attempts`` counts all attempts; ``failures`` counts only those that the transaction itself is to blame for, not
    those that failed because a job was lost that had others in it or beside it.
    """

    attempts: int = 0
    failures: int = 0
    outages: int = 0
    """How often it failed because a source did not answer: never a reason to skip it, but one to stop."""
    is_suspect: bool = False
    """A job of it was lost: from then on it runs with nothing beside it, to find the transaction at fault."""
    is_unproven: bool = False
    """It was lost as a suspect, and nothing was processed since: it waits for that, if another one can be tried."""
    is_charged: bool = False
    """Whether that loss counts as its failure then: just before it, too, something had been processed."""
    not_before_ms: int = 0
    error: str = ""
    failed_attempts: int = 0
    """The number of failed attempts, whatever the cause."""


@attrs.define(eq=False)
class Transaction:
    """A begun transaction: its metadata, its status and its live attempt."""

    txid: int
    metadata: Any
    planned: Planned
    tries: Tries
    status: Status = Status.READY
    attempt: TransactionAttempt | None = None
    job_id: int | None = None
    deadline_ms: int = 0
    begun: Any = attrs.field(default=attrs.Factory(lambda self: self.metadata, takes_self=True))
    """The metadata that it has begun with; an opaque spout's part of :attr:`metadata` changes when it is emitted."""
    tuples: int = 0
    """Of its last attempt that was processed, the tuples of the spout; for displays."""

    def move(self, trigger: Trigger) -> None:
        """Change the status by the transition table; clear the live attempt if the new status has none."""
        self.status = after(self.status, trigger)
        if self.status not in LIVE:
            self.attempt = None
            self.job_id = None

    def roll_back(self) -> None:
        """Let it wait for another attempt, with the metadata that it has begun with."""
        if self.status is not Status.READY:
            self.move(Trigger.ROLL_BACK)
        self.metadata = self.begun

    def begin_attempt(self, epoch: int, trigger: Trigger) -> TransactionAttempt:
        """Create the next attempt and make it the live one."""
        self.move(trigger)
        attempt = TransactionAttempt(self.txid, attempt_number(epoch, self.tries.attempts))
        self.tries.attempts += 1
        self.attempt = attempt
        return attempt

    def is_live(self, attempt: TransactionAttempt) -> bool:
        """Return whether answers of ``attempt`` count."""
        return self.attempt == attempt
