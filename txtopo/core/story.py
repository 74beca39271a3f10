"""Stories: what has happened to a transaction, moment by moment, for errors and for whoever asks.

The hot path writes no story. A transaction that commits at its first try leaves a few times in fields that it has
anyway, and the story is put together from them when somebody asks. Only what is out of the ordinary (a failure, a
return from a group, a rollback) is logged at once, in a log of bounded length.
"""

from __future__ import annotations

import enum

import attrs

from txtopo.attempts import TransactionAttempt, epoch_and_try

ENTRIES_MAX = 32
"""Entries that the log of one transaction holds at most."""

ENTRIES_KEPT_FIRST = 8
"""Of a log that is full the first entries stay, for they tell how it began; those right behind them go."""

REASON_CHARACTERS_MAX = 1_000
"""How much of a reason is kept."""

LINES_MAX = 7
"""Entries that a story as text shows."""

ABRIDGED_FIRST = 3
"""Entries from the beginning of an abridged story."""

ABRIDGED_LAST = 7
"""Entries from its end."""

ABRIDGED_CHARACTERS_MAX = 300
"""Characters of each reason in it."""

_LINE_CHARACTERS_MAX = 160


class Happening(enum.Enum):
    """What can happen to a transaction. The values are words for people, behind *attempt 1* or *it*."""

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
    COMMITTED = "committed"


@attrs.frozen
class StoryEntry:
    """One moment of a transaction.

    Args:
        at_ms: when, on the coordinator's clock.
        what: what happened.
        attempt: to which attempt; None: to none.
        job_id: in which job, where it is one.
        group_id: in which commit group, where it is one.
        component: in which component, of a failure whose place is known.
        reason: why, of what went wrong; cut off after ``REASON_CHARACTERS_MAX``.
    """

    at_ms: int
    what: Happening
    attempt: TransactionAttempt | None = None
    job_id: int | None = None
    group_id: int | None = None
    component: str | None = None
    reason: str = ""

    @property
    def own_reason(self) -> str:
        """The reason without the origin in front of it, which the entry has itself."""
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
class Story:
    """What has happened to a transaction, oldest first.

    Args:
        txid: the transaction.
        entries: its moments; empty if it has not begun, or committed too long ago.
        left_out: entries that the log had no room for; they belong behind its first ``ENTRIES_KEPT_FIRST``.
    """

    txid: int
    entries: tuple[StoryEntry, ...] = ()
    left_out: int = 0

    @property
    def has_trouble(self) -> bool:
        """Whether it has more to tell than a first attempt that goes on."""
        return any(entry.what in _TROUBLE for entry in self.entries)

    @property
    def last_failure(self) -> StoryEntry | None:
        """Its last failed attempt; None if none has."""
        return next((entry for entry in reversed(self.entries) if entry.what is Happening.FAILED), None)

    def abridged(self) -> Story:
        """Return how it began and how it ended, with short reasons: as much as a bounded file has room for."""
        entries = self.entries
        if len(entries) > ABRIDGED_FIRST + ABRIDGED_LAST:
            entries = (*entries[:ABRIDGED_FIRST], *entries[-ABRIDGED_LAST:])
        left_out = self.left_out + len(self.entries) - len(entries)
        short = (attrs.evolve(each, reason=shortened(each.reason, ABRIDGED_CHARACTERS_MAX)) for each in entries)
        return Story(self.txid, tuple(short), left_out)

    def __str__(self) -> str:
        """Return it as text of a headline and at most ``LINES_MAX`` lines; the newest entries win."""
        lines = [f"  at {entry.at_ms / 1000:.3f} s: {entry}" for entry in self.entries]
        left_out = self.left_out
        if len(lines) > LINES_MAX:
            left_out += len(lines) - (LINES_MAX - 1)
            lines = lines[-(LINES_MAX - 1) :]
        if left_out:
            lines.insert(0, f"  … {left_out} earlier entries")
        return "\n".join([f"what happened to transaction {self.txid} in this run:", *lines])


_TROUBLE = {Happening.FAILED, Happening.ROLLED_BACK, Happening.GIVEN_UP}


@attrs.define(eq=False)
class StoryLog:
    """What is out of the ordinary in the story of one transaction, and what led to it. Bounded."""

    entries: list[StoryEntry] = attrs.field(factory=list)
    left_out: int = 0

    def add(self, *entries: StoryEntry) -> None:
        """Append entries; those in the middle go where there is no room."""
        self.entries += entries
        excess = len(self.entries) - ENTRIES_MAX
        if excess > 0:
            del self.entries[ENTRIES_KEPT_FIRST : ENTRIES_KEPT_FIRST + excess]
            self.left_out += excess


def shortened(reason: str, characters_max: int = REASON_CHARACTERS_MAX) -> str:
    """Return as much of a reason as a log keeps, or as there is room for."""
    return reason if len(reason) <= characters_max else f"{reason[: characters_max - 1]}…"


def first_line(reason: str) -> str:
    """Return the first line of a reason, cut to what a line of text has room for."""
    return shortened(reason.strip().partition("\n")[0], _LINE_CHARACTERS_MAX)
