"""What the coordinator keeps for each transaction in its window, and for those it may begin anew."""

from __future__ import annotations

import enum
from typing import Any

import attrs

from txtopo.attempts import TransactionAttempt, attempt_number
from txtopo.core.story import Happening, StoryEntry, StoryLog
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
    log: StoryLog | None = None
    """What went out of the ordinary; None: nothing yet."""

    def note(self, entries: list[StoryEntry]) -> None:
        """Log what has happened."""
        if self.log is None:
            self.log = StoryLog()
        self.log.add(*entries)


@attrs.frozen
class FailedAttempt:
    """An attempt that has failed, for logs and displays."""

    attempt: TransactionAttempt
    error: str
    times: int
    """How many attempts of its transaction have failed in this epoch, this one included."""
    is_logged: bool = False
    """Whether the log has this failure already, with its reason."""


@attrs.frozen
class GroupMoment:
    """Which commit group a transaction is in, and since when."""

    group_id: int
    began_ms: int


class _Logged(enum.Enum):
    """How much of a transaction's present story its log has; the rest is in the transaction's own fields."""

    NOTHING = "nothing"
    BEGIN = "begin"
    PROCESSED = "processed"
    """Its live attempt up to its being processed, too."""


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
    begun_ms: int = 0
    started_ms: int = 0
    """When its last attempt began to be processed."""
    processed_ms: int = 0
    """When an attempt of it was processed last; it is the live one's if that is processed."""
    _logged: _Logged = _Logged.NOTHING

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

    def moments(
        self,
        *,
        reached: Status,
        attempt: TransactionAttempt | None,
        job_id: int | None,
        group: GroupMoment,
        saves_metadata: bool,
    ) -> list[StoryEntry]:
        """Return those moments of its story that its log does not have, oldest first.

        Args:
            reached: the status it has, or had before what is told next.
            attempt: the live attempt then.
            job_id: the job of that attempt.
            group: the commit group that it is in, where ``reached`` is of the commit phase.
            saves_metadata: whether its metadata was made durable before its first attempt.
        """
        found: list[StoryEntry] = []
        if self._logged is _Logged.NOTHING:
            found.append(StoryEntry(self.begun_ms, Happening.BEGUN))
        if attempt is None:
            return found
        if found and saves_metadata:
            found.append(StoryEntry(self.begun_ms, Happening.METADATA_SAVED))
        if reached is Status.WRITING_DEAD_LETTER:
            return [*found, StoryEntry(group.began_ms, Happening.WRITING_DEAD_LETTER, group_id=group.group_id)]
        if self._logged is not _Logged.PROCESSED:
            found.append(StoryEntry(self.started_ms, Happening.PROCESSING, attempt, job_id))
            if reached is not Status.PROCESSING:
                found.append(StoryEntry(self.processed_ms, Happening.PROCESSED, attempt))
        if reached is Status.COMMITTING:
            found.append(StoryEntry(group.began_ms, Happening.COMMITTING, attempt, group_id=group.group_id))
        return found

    def log(self, entry: StoryEntry) -> None:
        """Log how the transaction came into the window, where that is not by being begun."""
        self.tries.note([entry])
        self._logged = _Logged.BEGIN

    def log_attempt(self, entry: StoryEntry, group: GroupMoment, *, saves_metadata: bool) -> None:
        """Log what happens to the transaction just now, before it moves, and what has led to it.

        Args:
            entry: what happens.
            group: the commit group in flight.
            saves_metadata: as for :meth:`moments`.
        """
        before = self.moments(
            reached=self.status,
            attempt=self.attempt,
            job_id=self.job_id,
            group=group,
            saves_metadata=saves_metadata,
        )
        self.tries.note([*before, entry])
        lives_on = entry.what is Happening.RETURNED
        self._logged = _Logged.PROCESSED if lives_on else _Logged.BEGIN

    def is_live(self, attempt: TransactionAttempt) -> bool:
        """Whether answers of ``attempt`` count."""
        return self.attempt == attempt
