"""Facts: what has happened to the transactions of a run. Each is told once, and all that a run shows is made of them.

``Coordinator.facts`` tells what became of the events of the last call: answers that are late are no facts. The run loop
adds the actions that it carries out, at the moment when it does. The ``record`` keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import attrs

from txtopo.attempts import TransactionAttempt
from txtopo.transactional.core.actions import AssignedAttempt, Commit, DeadLetter, Process, SaveMetadata
from txtopo.transactional.core.measures import Measures
from txtopo.transactional.core.record.history import HistoryEvent


@attrs.frozen
class Fact:
    """Something that has happened to consecutive transactions, which share it, or to the run."""

    at_secs: float
    """When, on the run's clock."""
    what: HistoryEvent
    txids: tuple[int, ...]
    attempts: tuple[TransactionAttempt, ...] = ()
    """Of each of the transactions; empty if it concerns none."""
    job_id: int | None = None
    group_id: int | None = None
    tuples: tuple[int, ...] = ()
    """Of each attempt that was processed or committed, the tuples of the spout."""
    cpu_secs: float = 0.0
    """Of attempts that have answered, the CPU time of their tasks."""
    planned_ms: tuple[int, ...] = ()
    """When each of the transactions that begin was planned."""
    measures: Measures | None = None
    """What was measured of a commit group."""

    @property
    def attempt(self) -> TransactionAttempt:
        """The attempt, of a fact that concerns one."""
        (single,) = self.attempts
        return single

    def attempt_of(self, txid: int) -> TransactionAttempt | None:
        """Return the attempt of one of the transactions."""
        return self.attempts[txid - self.txids[0]] if self.attempts else None


@attrs.frozen
class Trouble(Fact):
    """The end of an attempt without a commit, of a transaction that is given up, or of the run."""

    component: str | None = None
    """The component that failed, if known."""
    reason: str = ""
    times: int = 0
    """Of a failure, the number of failed attempts of its transaction in this epoch, including this one.

    0 if it does not count: the dead letter could not be written, or an error stops the run.
    """
    is_logged: bool = False
    """Whether the failure and its reason were logged already."""


def of_attempts(  # noqa: PLR0913, PLR0917 - a fact's
    at_secs: float,
    event: HistoryEvent,
    attempts: Sequence[TransactionAttempt],
    job_id: int | None = None,
    group_id: int | None = None,
    tuples: tuple[int, ...] = (),
    cpu_secs: float = 0.0,
    measures: Measures | None = None,
) -> Fact:
    """Return a fact about attempts of consecutive transactions."""
    txids = tuple([attempt.txid for attempt in attempts])
    return Fact(at_secs, event, txids, tuple(attempts), job_id, group_id, tuples, cpu_secs, measures=measures)


def carried_out(at_secs: float, action: SaveMetadata | Process | Commit | DeadLetter) -> Fact:
    """Return the fact that an action is carried out."""
    match action:
        case SaveMetadata():
            return Fact(at_secs, HistoryEvent.METADATA_SAVED, tuple([begun.txid for begun in action.begun]))
        case Process():
            return of_attempts(at_secs, HistoryEvent.PROCESSING, _attempts(action.attempts), job_id=action.job_id)
        case Commit():
            return of_attempts(at_secs, HistoryEvent.COMMITTING, _attempts(action.group), group_id=action.group_id)
        case DeadLetter():
            letter = (action.given_up.attempt,)
            return of_attempts(at_secs, HistoryEvent.WRITING_DEAD_LETTER, letter, group_id=action.group_id)
        case _:
            assert_never(action)


def _attempts(assigned: Sequence[AssignedAttempt]) -> list[TransactionAttempt]:
    return [attempt.attempt for attempt in assigned]
