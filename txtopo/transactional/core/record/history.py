"""Histories: what happened to a transaction in a run, for errors and displays. The record of the run tells them."""

from __future__ import annotations

import enum

import attrs

from txtopo.attempts import TransactionAttempt, epoch_and_try

REASON_CHARACTERS_MAX = 1_000
"""Bounds the memory of a history; the error log has all of a message."""

LINES_MAX = 7
"""Maximum number of entries in a history printed as text."""

ABRIDGED_FIRST = 3
"""Number of entries that an abridged history keeps from the beginning."""

ABRIDGED_LAST = 7
"""Number of entries that an abridged history keeps from the end."""

ABRIDGED_CHARACTERS_MAX = 300
"""Maximum length of a reason in an abridged history."""

_LINE_CHARACTERS_MAX = 160


class HistoryEvent(enum.Enum):
    """What can happen to a transaction. The values are shown to users, after *attempt 1* or *it*."""

    __hash__ = object.__hash__  # 3x faster than Enum's own; each fact is looked up

    RECOVERED = "found in the coordinator state"
    BEGUN = "begun"
    METADATA_SAVED = "metadata saved"
    PROCESSING = "processing"
    PROCESSED = "processed"
    COMMITTING = "committing"
    RETURNED = "returned: its group ended without it"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"
    GIVEN_UP = "given up"
    WRITING_DEAD_LETTER = "writing its dead letter"
    DEAD_LETTER_WRITTEN = "its dead letter written"
    COMMITTED = "committed"
    JOB_ENDED = "job ended"
    """Of the run and none of its transactions, as those below."""
    JOB_LOST = "job lost"
    GROUP_ENDED = "commit group ended"
    STOPPED = "stopped by an error"


@attrs.frozen
class HistoryEntry:
    """One event in the history of a transaction."""

    at_ms: int
    """The time on the coordinator's clock."""
    what: HistoryEvent
    attempt: TransactionAttempt | None = None
    """None if the event concerns no attempt."""
    job_id: int | None = None
    group_id: int | None = None
    component: str | None = None
    """The component that failed, if known."""
    reason: str = ""
    """The reason of a failure, at most ``REASON_CHARACTERS_MAX`` long."""

    @property
    def own_reason(self) -> str:
        """The reason without its leading origin, which ``component`` repeats."""
        has_origin = self.component is not None and self.reason.startswith("[component ")
        return self.reason.partition("] ")[2] if has_origin else self.reason

    def __str__(self) -> str:
        words = self.what.value
        if self.job_id is not None:
            words += f" in job {self.job_id}"
        if self.group_id is not None:
            words += f" in group {self.group_id}"
        if self.attempt is not None:
            words = f"attempt {epoch_and_try(self.attempt.attempt)[1]} {words}"
        if self.component is not None:
            words += f" in {self.component!r}"
        reason = first_line(self.own_reason)
        return f"{words}: {reason}" if reason else words


@attrs.frozen
class History:
    """The history of a transaction, oldest entry first."""

    txid: int
    entries: tuple[HistoryEntry, ...] = ()
    """Empty if the transaction has not begun, or committed too long ago."""
    left_out: int = 0
    """The number of entries that are missing, since there were too many."""

    def has_trouble_besides(self, reason: str) -> bool:
        """Return whether it contains a failure, a rollback or giving up for another reason than ``reason``."""
        return any(entry.what in _TROUBLE and entry.reason != shortened(reason) for entry in self.entries)

    @property
    def last_failure(self) -> HistoryEntry | None:
        """The entry of the last failed attempt; None if no attempt failed."""
        return next((entry for entry in reversed(self.entries) if entry.what is HistoryEvent.FAILED), None)

    def abridged(self) -> History:
        """Return a short history for a file of bounded size: the first and last entries, with short reasons."""
        entries = self.entries
        if len(entries) > ABRIDGED_FIRST + ABRIDGED_LAST:
            entries = (*entries[:ABRIDGED_FIRST], *entries[-ABRIDGED_LAST:])
        left_out = self.left_out + len(self.entries) - len(entries)
        return History(self.txid, tuple(map(_abridged, entries)), left_out)

    def __str__(self) -> str:
        lines = [f"  at {entry.at_ms / 1000:.3f} s: {entry}" for entry in self.entries]
        left_out = self.left_out
        if len(lines) > LINES_MAX:
            left_out += len(lines) - (LINES_MAX - 1)
            lines = lines[-(LINES_MAX - 1) :]
        if left_out:
            lines.insert(0, f"  … {left_out} earlier entries")
        return "\n".join([f"what happened to transaction {self.txid} in this run:", *lines])


_TROUBLE = {HistoryEvent.FAILED, HistoryEvent.ROLLED_BACK, HistoryEvent.GIVEN_UP}


def _abridged(entry: HistoryEntry) -> HistoryEntry:
    if len(entry.reason) <= ABRIDGED_CHARACTERS_MAX:
        return entry
    return attrs.evolve(entry, reason=shortened(entry.reason, ABRIDGED_CHARACTERS_MAX))


def shortened(reason: str, characters_max: int = REASON_CHARACTERS_MAX) -> str:
    """Return a reason cut to ``characters_max``."""
    return reason if len(reason) <= characters_max else f"{reason[: characters_max - 1]}…"


def first_line(reason: str) -> str:
    """Return the first line of a reason, cut to fit a line of text."""
    return shortened(reason.strip().partition("\n")[0], _LINE_CHARACTERS_MAX)
