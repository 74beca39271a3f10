"""One transaction: its story, its attempts and writes, and what the journal has of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.planned import NEVER
from txtopo.files.records import in_camel_case
from txtopo.inspect.past.story import Known, story_of
from txtopo.inspect.past.wording import StoryLine
from txtopo.inspect.timeline.attempts import Attempt, Write
from txtopo.inspect.timeline.timeline import TimelineReader, outcome_of
from txtopo.journal.entries import JournalEntry, JournalTransaction


@attrs.frozen
class Attempts:
    """The attempts at a transaction with their errors, and the writes of the last one."""

    attempts: Sequence[Attempt]
    writes: Sequence[Write]

    @classmethod
    def of(cls, timeline: TimelineReader, txid: int, undone_to: int | None = None) -> Attempts:
        """Return what a timeline has; transactions after ``undone_to`` were undone."""
        errors = {(error.epoch, error.attempt): error.text for error in timeline.errors() if error.txid == txid}
        attempts = [
            attrs.evolve(attempt, error=errors.get((attempt.epoch, attempt.try_), attempt.error))
            for attempt in timeline.attempts(txid, undone_to)
        ]
        group = attempts[-1].group if attempts else None
        return cls(attempts, [] if group is None else timeline.writes(attempts[-1].epoch, group))


@attrs.frozen(field_transformer=in_camel_case)
class Reference:
    """The version of a reference table that a transaction has seen; ``instead_of`` is the first that was planned."""

    table: str
    version: int
    instead_of: int | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Entered:
    """What the journal has of a transaction."""

    group: Sequence[int] = ()
    metadata: Any = None
    planned_at: float | None = None
    references: Mapping[str, Reference] = attrs.field(factory=dict)
    waited: Sequence[str] = ()
    ranges: Mapping[str, Sequence[Any]] = attrs.field(factory=dict)
    skipped: Mapping[str, Sequence[Sequence[Any]]] = attrs.field(factory=dict)
    tuples: Mapping[str, int] = attrs.field(factory=dict)
    is_dead_letter: bool = False


@attrs.frozen(field_transformer=in_camel_case)
class CanCheck:
    """What may be asked for of a transaction."""

    audit: bool = False
    replay: bool = False


@attrs.frozen(field_transformer=in_camel_case)
class Transaction:
    """All that is known of a transaction; ``previous`` and ``next`` are those beside it, if there are any."""

    txid: int
    now: float = 0.0
    headline: str = ""
    story: Sequence[StoryLine] = ()
    attempts: Sequence[Attempt] = ()
    writes: Sequence[Write] = ()
    journal: Entered | None = None
    can: CanCheck = CanCheck()
    previous: int | None = None
    next: int | None = None


def transaction_of(known: Known, txid: int, attempts: Attempts, now: float, can: CanCheck) -> Transaction:
    """Return all about a transaction of the last run; ``can`` says what may be asked for once it is committed.

    Raises:
        ConfigError: it has not begun.
        DivergenceError: the journal is damaged.
    """
    story, entered = story_of(known, txid), known.journal.find(txid)
    writes = attempts.writes
    if not writes and entered is not None:
        writes = [Write(state, *counts) for state, counts in entered.entry.states.items()]
    last_begun = known.committed if known.snapshot is None else known.snapshot.last_begun
    return Transaction(
        txid,
        now=now,
        headline=story.headline,
        story=story.lines,
        attempts=attempts.attempts,
        writes=writes,
        journal=None if entered is None else _entered(entered.entry, entered.transaction(txid)),
        can=CanCheck(can.audit, can.replay and txid <= known.committed),
        previous=txid - 1 if txid > 1 else None,
        next=txid + 1 if txid < last_begun else None,
    )


def transaction_by_timeline(
    timeline: TimelineReader, txid: int, attempts: Attempts, now: float, why: str
) -> Transaction:
    """Return what a run did for a transaction without the journal, which may be damaged: that is ``why``.

    The journal can't tell it of an earlier run: since then, the transaction may have been undone and run anew.
    """
    status = outcome_of(attempts.attempts)
    is_over = status in {"committed", "dead letter"}
    return Transaction(
        txid,
        now=now,
        headline=f"transaction {txid}: {status if is_over else 'not committed'} in this run",
        story=[StoryLine("journal", why)] if why else [],
        attempts=attempts.attempts,
        writes=attempts.writes,
        previous=txid - 1 if timeline.attempts(txid - 1) else None,
        next=txid + 1 if timeline.attempts(txid + 1) else None,
    )


def _entered(entry: JournalEntry, transaction: JournalTransaction) -> Entered:
    planned = transaction.planned
    return Entered(
        group=[entry.first, entry.last],
        metadata=transaction.metadata,
        planned_at=None if planned == NEVER else planned.at_ms / 1000,
        references={seen.name: Reference(seen.identity, seen.version, seen.instead_of) for seen in planned.references},
        waited=planned.ahead,
        ranges={name: list(span) for name, span in transaction.input.items()},
        skipped={name: [list(span) for span in spans] for name, spans in transaction.gaps.items()},
        tuples={name: number for name, (number, _) in transaction.fingerprints.items()},
        is_dead_letter=transaction.is_dead_letter,
    )
