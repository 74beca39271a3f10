"""Actions: instructions to the run loop. Imperative; frozen; carried out in list order."""

from __future__ import annotations

import enum
from typing import Any

import attrs

from txtopo.api.components.planned import Planned
from txtopo.attempts import TransactionAttempt
from txtopo.transactional.core.events import TransactionMetadata


@attrs.frozen
class CreateMetadata:
    """Ask the spout's coordinator for up to ``count`` transactions from ``first_txid`` on."""

    first_txid: int
    count: int
    previous_metadata: Any
    previous_planned: Planned


@attrs.frozen
class SaveMetadata:
    """Make metadata durable before any later action starts."""

    begun: tuple[TransactionMetadata, ...]


@attrs.frozen
class AssignedAttempt:
    """An attempt with the metadata to emit it from, and when its transaction was planned."""

    attempt: TransactionAttempt
    metadata: Any
    planned: Planned
    failure: str = attrs.field(default="", eq=False)
    """In a commit, why the attempt before it failed in this run, for people; empty if none did."""


@attrs.frozen
class Process:
    """Run the processing phases of consecutive transactions in one job.

    ``previous_metadata`` is that of the transaction before the first one; an opaque spout continues from it.
    """

    job_id: int
    attempts: tuple[AssignedAttempt, ...]
    previous_metadata: Any


@attrs.frozen
class CancelJob:
    """Stop a job: no attempt in it is live."""

    job_id: int


@attrs.frozen
class Commit:
    """Run the commit phases of a group one after another, then make their writes together."""

    group_id: int
    group: tuple[AssignedAttempt, ...]


@attrs.frozen
class DeadLetter:
    """Write a given-up transaction to the dead-letter table, at its place in the commit order."""

    group_id: int
    given_up: AssignedAttempt
    tries: int
    error: str


@attrs.frozen
class AbandonCommit:
    """Stop the run if commit phases of this group are still running; they made no progress within the timeout."""

    group_id: int


@attrs.frozen
class CleanUp:
    """Release what is kept for transactions up to ``txid``; they are never needed again."""

    txid: int


class StopReason(enum.Enum):
    """Why a run stops."""

    EXHAUSTED = "the spout is exhausted"
    UNTIL = "the requested transaction is committed"
    REQUESTED = "a stop was requested"
    FAILED = "an error"


@attrs.frozen
class Stop:
    """End the run, and raise ``error`` from it unless that is None."""

    reason: StopReason
    error: Exception | None = None


Action = CreateMetadata | SaveMetadata | Process | CancelJob | Commit | DeadLetter | AbandonCommit | CleanUp | Stop
