"""What the coordinator keeps for each transaction in its window, and for those it may begin anew."""

from __future__ import annotations

from typing import Any

import attrs

from txtopo.attempts import TransactionAttempt, attempt_number
from txtopo.core.transitions import LIVE, Status, Trigger, after


@attrs.define(eq=False)
class Tries:
    """How often a transaction was tried in this epoch. Outlives the transaction's being rolled back.

    ``attempts`` numbers them; ``failures`` counts only those that are the transaction's own fault, not
    those in which a whole job was lost.
    """

    attempts: int = 0
    failures: int = 0
    alone: bool = False
    """A job was lost with it: the next one holds it alone, to find the one at fault."""
    not_before_ms: int = 0
    error: str = ""
    """The last failure."""
    failed_attempts: int = 0
    """Attempts that failed, whoever was to blame."""


@attrs.frozen
class FailedAttempt:
    """An attempt that has failed, for logs and displays."""

    attempt: TransactionAttempt
    error: str
    times: int
    """How many attempts of its transaction have failed in this epoch, this one included."""
    is_logged: bool = False
    """Whether the log has this failure already, with its reason."""


@attrs.define(eq=False)
class Transaction:
    """A begun transaction: its metadata, where it stands, and its live attempt."""

    txid: int
    metadata: Any
    tries: Tries
    status: Status = Status.READY
    attempt: TransactionAttempt | None = None
    job_id: int | None = None
    deadline_ms: int = 0

    def move(self, trigger: Trigger) -> None:
        """Go where the table says; without a live attempt in a status that has none."""
        self.status = after(self.status, trigger)
        if self.status not in LIVE:
            self.attempt = None
            self.job_id = None

    def begin_attempt(self, epoch: int, trigger: Trigger) -> TransactionAttempt:
        """Make the next attempt the live one."""
        self.move(trigger)
        attempt = TransactionAttempt(self.txid, attempt_number(epoch, self.tries.attempts))
        self.tries.attempts += 1
        self.attempt = attempt
        return attempt

    def is_live(self, attempt: TransactionAttempt) -> bool:
        """Whether answers of ``attempt`` count."""
        return self.attempt == attempt
