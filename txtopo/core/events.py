"""Events: what happened, as the run loop reports it. Past tense; frozen; an attempt names its cause."""

from __future__ import annotations

import enum
from typing import Any

import attrs

from txtopo.attempts import TransactionAttempt


@attrs.frozen
class TransactionMetadata:
    """A transaction and what is needed to emit its batch again."""

    txid: int
    metadata: Any


class SourceStatus(enum.Enum):
    """What the spout's coordinator says of its source."""

    READY = "ready"
    WAITING = "waiting"
    """Nothing to begin a transaction with just now."""
    EXHAUSTED = "exhausted"
    """There will never be another transaction."""


@attrs.frozen
class Recovered:
    """A coordinator has taken the lead and read what is durable.

    Args:
        epoch: the lead's epoch.
        committed: the last committed txid, 0 at first.
        committed_metadata: that transaction's metadata.
        begun: the transactions above it with durable metadata, in order and without a gap.
        now_ms: the clock.
        transaction_us: how much of a job's time a transaction took in the last run; None if that is not known.
    """

    epoch: int
    committed: int
    committed_metadata: Any
    begun: tuple[TransactionMetadata, ...]
    now_ms: int
    transaction_us: int | None = None


@attrs.frozen
class MetadataCreated:
    """The spout's coordinator has begun transactions, as many as it could of those asked for."""

    begun: tuple[TransactionMetadata, ...]
    source: SourceStatus


@attrs.frozen
class Progressed:
    """Work on these attempts gets on: their timeouts begin anew."""

    attempts: tuple[TransactionAttempt, ...]


@attrs.frozen
class Processed:
    """The processing phase of an attempt is done. ``metadata`` is an opaque spout's, which emits before it knows."""

    attempt: TransactionAttempt
    metadata: Any = None


@attrs.frozen
class Failed:
    """An attempt failed, in either phase. ``metadata`` is an opaque spout's, if it emitted the whole batch."""

    attempt: TransactionAttempt
    error: str
    metadata: Any = None
    is_logged: bool = attrs.field(default=False, kw_only=True)
    """Whether the log has this failure already, with its reason."""
    component: str | None = attrs.field(default=None, kw_only=True)
    """Where it failed, if that is known."""


@attrs.frozen
class JobEnded:
    """A job is over; its slot is free. ``elapsed_ms`` is how long it took, where that was measured."""

    job_id: int
    elapsed_ms: int | None = None


@attrs.frozen
class JobLost:
    """A job was lost, and with it every attempt in it that has not been answered for."""

    job_id: int
    error: str


@attrs.frozen
class Committed:
    """The writes of these attempts are durable, dead letters included."""

    attempts: tuple[TransactionAttempt, ...]


@attrs.frozen
class GroupEnded:
    """Nothing of a commit group runs any more."""

    group_id: int


@attrs.frozen
class Ticked:
    """Time has passed."""

    now_ms: int


@attrs.frozen
class StopRequested:
    """Someone asks for an orderly stop."""


@attrs.frozen
class RuleBroken:
    """A bug in the user's code, or input that can't be read: the run stops after what commits just now."""

    error: Exception


@attrs.frozen
class Fenced:
    """Another coordinator leads: nothing more may be written."""

    error: Exception


Event = (
    Recovered
    | MetadataCreated
    | Progressed
    | Processed
    | Failed
    | JobEnded
    | JobLost
    | Committed
    | GroupEnded
    | Ticked
    | StopRequested
    | RuleBroken
    | Fenced
)
