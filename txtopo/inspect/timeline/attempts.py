"""Attempts and writes, as the timeline of a run has them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from txtopo.files.records import in_camel_case


@attrs.frozen(field_transformer=in_camel_case)
class TransactionLine:
    """A transaction in a list."""

    txid: int
    status: str = ""
    attempts: int = 0
    epoch: int = 0
    group: int | None = None
    tuples: int = 0
    began_at: float | None = None
    ended_at: float | None = None
    secs: float | None = None
    component: str | None = None
    error: str | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Transactions:
    """Transactions, newest first; ``is_cut`` if there are more."""

    transactions: Sequence[TransactionLine] = ()
    is_cut: bool = False


@attrs.frozen(field_transformer=in_camel_case)
class Attempt:
    """An attempt at a transaction, and the moments that it has reached."""

    try_: int
    epoch: int = 0
    outcome: str = "open"
    job: int | None = None
    group: int | None = None
    tuples: int = 0
    component: str | None = None
    error: str | None = None
    available_at: float | None = None
    begun_at: float | None = None
    metadata_at: float | None = None
    started_at: float | None = None
    processed_at: float | None = None
    grouped_at: float | None = None
    phases_at: float | None = None
    ended_at: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Write:
    """The write of a commit group to a state."""

    state: str = ""
    rows: int = 0
    removed: int = 0
    prepared_at: float | None = None
    decided_at: float | None = None
    from_at: float | None = None
    to_at: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class TimelineRun:
    """A run that has begun within a timeline; ``at`` is in ms after its base."""

    epoch: int
    pid: int
    at: float


@attrs.frozen(field_transformer=in_camel_case)
class TimelineAttempts:
    """Attempts in columns; moments are in ms after the base, 0 if they were not reached."""

    txid: list[int]
    try_: list[int]
    epoch: list[int]
    outcome: list[int]
    job: list[int]
    group: list[int]
    tuples: list[int]
    component: list[int]
    text: list[int]
    available: list[float]
    begun: list[float]
    metadata: list[float]
    started: list[float]
    processed: list[float]
    grouped: list[float]
    phases: list[float]
    ended: list[float]


@attrs.frozen(field_transformer=in_camel_case)
class TimelineWrites:
    """Writes in columns, as :class:`TimelineAttempts`."""

    epoch: list[int]
    group: list[int]
    state: list[int]
    prepared: list[float]
    decided: list[float]
    from_: list[float]
    to: list[float]
    rows: list[int]
    removed: list[int]


@attrs.frozen(field_transformer=in_camel_case)
class Timeline:
    """A timeline after a record, in columns: ``head`` is its last record, ``base`` in ms since 1970."""

    head: int
    lost: bool
    base: float
    epoch: int
    runs: list[TimelineRun]
    attempts: TimelineAttempts
    writes: TimelineWrites
    texts: dict[str, str]
    now: float
