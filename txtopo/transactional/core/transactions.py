"""The coordinator's records of transactions: the pending ones and those that were rolled back."""

from __future__ import annotations

import enum
from typing import Any

import attrs

from txtopo.api.planned import Planned
from txtopo.attempts import TransactionAttempt, attempt_number
from txtopo.transactional.core.history import HistoryEntry, HistoryEvent, HistoryLog
from txtopo.transactional.core.transitions import LIVE, Status, Trigger, after


@attrs.define(eq=False)
class Tries:
    """How often a transaction was tried in this epoch. Survives a rollback of the transaction.

    ``attempts`` counts all attempts; ``failures`` counts only those that the transaction itself is to blame for, not
    those that failed because a job was lost that had others in it or beside it.
    """

    attempts: int = 0
    failures: int = 0
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
    log: HistoryLog | None = None
    """The log of unusual events; None if there were none."""

    def note(self, entries: list[HistoryEntry]) -> None:
        """Append entries to the log."""
        if self.log is None:
            self.log = HistoryLog()
        self.log.add(*entries)


@attrs.frozen
class FailedAttempt:
    """A failed attempt, for logs and displays."""

    attempt: TransactionAttempt
    error: str
    times: int
    """The number of failed attempts of its transaction in this epoch, including this one."""
    is_logged: bool = False
    """Whether the failure and its reason were logged already."""
    component: str | None = attrs.field(default=None, kw_only=True)
    """The component that failed, if known."""


@attrs.frozen
class GroupMoment:
    """A commit group and its start time."""

    group_id: int
    began_ms: int


class _Logged(enum.Enum):
    """How far the log covers a transaction's history; the rest follows from the transaction's own fields."""

    NOTHING = "nothing"
    BEGIN = "begin"
    PROCESSED = "processed"
    """The log covers the live attempt up to the end of its processing phase."""


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
    begun_ms: int = 0
    started_ms: int = 0
    """When the processing phase of its last attempt started."""
    processed_ms: int = 0
    """When the last successful processing phase ended; that of the live attempt if this is processed."""
    _logged: _Logged = _Logged.NOTHING

    def move(self, trigger: Trigger) -> None:
        """Change the status by the transition table; clear the live attempt if the new status has none."""
        self.status = after(self.status, trigger)
        if self.status not in LIVE:
            self.attempt = None
            self.job_id = None

    def begin_attempt(self, epoch: int, trigger: Trigger) -> TransactionAttempt:
        """Create the next attempt and make it the live one."""
        self.move(trigger)
        attempt = TransactionAttempt(self.txid, attempt_number(epoch, self.tries.attempts))
        self.tries.attempts += 1
        self.attempt = attempt
        return attempt

    def moments(
        self,
        *,
        reached: Status,
        attempt: TransactionAttempt | None,
        job_id: int | None,
        group: GroupMoment,
        saves_metadata: bool,
    ) -> list[HistoryEntry]:
        """Return the entries of its history that the log does not have, oldest first.

        They end at the status ``reached``, which ``attempt`` had in the job ``job_id``; ``group`` counts only if that
        status belongs to the commit phase.
        """
        found: list[HistoryEntry] = []
        if self._logged is _Logged.NOTHING:
            found.append(HistoryEntry(self.begun_ms, HistoryEvent.BEGUN))
        if attempt is None:
            return found
        if found and saves_metadata:
            found.append(HistoryEntry(self.begun_ms, HistoryEvent.METADATA_SAVED))
        if reached is Status.WRITING_DEAD_LETTER:
            return [*found, HistoryEntry(group.began_ms, HistoryEvent.WRITING_DEAD_LETTER, group_id=group.group_id)]
        if self._logged is not _Logged.PROCESSED:
            found.append(HistoryEntry(self.started_ms, HistoryEvent.PROCESSING, attempt, job_id))
            if reached is not Status.PROCESSING:
                found.append(HistoryEntry(self.processed_ms, HistoryEvent.PROCESSED, attempt))
        if reached is Status.COMMITTING:
            found.append(HistoryEntry(group.began_ms, HistoryEvent.COMMITTING, attempt, group_id=group.group_id))
        return found

    def log(self, entry: HistoryEntry) -> None:
        """Log how the transaction became pending other than by being begun."""
        self.tries.note([entry])
        self._logged = _Logged.BEGIN

    def log_attempt(self, entry: HistoryEntry, group: GroupMoment, *, saves_metadata: bool) -> None:
        """Log an event and the entries that led to it; call this before the transaction's status changes."""
        before = self.moments(
            reached=self.status,
            attempt=self.attempt,
            job_id=self.job_id,
            group=group,
            saves_metadata=saves_metadata,
        )
        self.tries.note([*before, entry])
        # A returned attempt will commit in a later group: its processing phase is in the log and is not repeated.
        is_still_live = entry.what is HistoryEvent.RETURNED
        self._logged = _Logged.PROCESSED if is_still_live else _Logged.BEGIN

    def is_live(self, attempt: TransactionAttempt) -> bool:
        """Return whether answers of ``attempt`` count."""
        return self.attempt == attempt
