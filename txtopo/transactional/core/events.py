"""Events: what happened, as the run loop reports it. Past tense; frozen; an attempt names its cause."""

from __future__ import annotations

import enum
from typing import Any

import attrs

from txtopo.api.components.planned import Planned
from txtopo.attempts import TransactionAttempt
from txtopo.transactional.core.measures import Measures


@attrs.frozen
class TransactionMetadata:
    """A transaction, its metadata, and when it was planned."""

    txid: int
    metadata: Any
    planned: Planned


class SourceStatus(enum.Enum):
    """The state of a spout's source, as its coordinator reports it."""

    READY = "ready"
    WAITING = "waiting"
    """There is no input for a transaction at the moment."""
    EXHAUSTED = "exhausted"
    """There will never be another transaction."""


@attrs.frozen
class Recovered:
    """A coordinator has taken the lead and read its durable state."""

    epoch: int
    committed: TransactionMetadata
    """The last committed one; of txid 0 at first."""
    begun: tuple[TransactionMetadata, ...]
    """The transactions above it with durable metadata, in txid order and without a gap."""
    now_ms: int
    transaction_us: int | None = None
    """A transaction's share of a job's time in the last run, in microseconds; None if unknown."""


@attrs.frozen
class MetadataCreated:
    """The spout's coordinator has begun transactions: up to as many as it was asked for."""

    begun: tuple[TransactionMetadata, ...]
    source: SourceStatus


@attrs.frozen
class Progressed:
    """Work on these attempts makes progress: their timeouts start again."""

    attempts: tuple[TransactionAttempt, ...]


@attrs.frozen
class Processed:
    """The processing phase of an attempt is done; ``metadata`` is an opaque spout's, known after emitting only."""

    attempt: TransactionAttempt
    metadata: Any = None
    tuples: int = attrs.field(default=0, kw_only=True, eq=False, repr=False)
    """The tuples of the spout, for observers: the core decides nothing by them."""
    cpu_secs: float = attrs.field(default=0.0, kw_only=True, eq=False, repr=False)
    """The CPU time of its tasks, for observers as well."""


@attrs.frozen
class Failed:
    """An attempt failed, in either phase; ``metadata`` is that of an opaque spout that emitted the whole batch."""

    attempt: TransactionAttempt
    error: str
    metadata: Any = None
    is_logged: bool = attrs.field(default=False, kw_only=True)
    """Whether the failure and its reason were logged already."""
    component: str | None = attrs.field(default=None, kw_only=True)
    """The component that failed, if known."""
    is_outage: bool = attrs.field(default=False, kw_only=True)
    """Whether something outside did not answer: that says nothing of the transaction, so it is no reason to skip it."""
    cpu_secs: float = attrs.field(default=0.0, kw_only=True, eq=False, repr=False)
    """The CPU time of its tasks, for observers: the core decides nothing by it."""


@attrs.frozen
class JobEnded:
    """A job is over. ``elapsed_ms`` is how long it took; None if that was not measured."""

    job_id: int
    elapsed_ms: int | None = None


@attrs.frozen
class JobLost:
    """A job was lost, and with it every attempt in it that has no answer yet."""

    job_id: int
    error: str


@attrs.frozen
class AttemptLost:
    """The worker of an attempt died in it, or fell silent. Its job goes on without it."""

    attempt: TransactionAttempt
    error: str


@attrs.frozen
class Committed:
    """The writes of these attempts are durable, dead letters included."""

    attempts: tuple[TransactionAttempt, ...]
    measures: Measures = attrs.field(factory=Measures, kw_only=True, eq=False, repr=False)


@attrs.frozen
class GroupEnded:
    """A commit group is over: none of its work is running any more."""

    group_id: int
    gather_ms: int = 0
    """For how long transactions should be gathered before the next group, since a group costs much by itself."""
    measures: Measures = attrs.field(factory=Measures, kw_only=True, eq=False, repr=False)


@attrs.frozen
class Ticked:
    """Time has passed."""

    now_ms: int


@attrs.frozen
class Deactivated:
    """No transaction may begin; those that have begun go on, recovered ones among them."""


@attrs.frozen
class Activated:
    """Transactions may begin again; also at the start of every run."""


@attrs.frozen
class StopRequested:
    """The user asks for an orderly stop."""


@attrs.frozen
class RuleBroken:
    """The user's code has a bug, or input can't be read: the run stops after the group in flight."""

    error: Exception
    attempt: TransactionAttempt | None = None
    """The attempt in which it happened; None if in none."""


@attrs.frozen
class Fenced:
    """Another coordinator has the lead: this one must not write any more."""

    error: Exception


Event = (
    Recovered
    | MetadataCreated
    | Progressed
    | Processed
    | Failed
    | JobEnded
    | JobLost
    | AttemptLost
    | Committed
    | GroupEnded
    | Ticked
    | Deactivated
    | Activated
    | StopRequested
    | RuleBroken
    | Fenced
)
