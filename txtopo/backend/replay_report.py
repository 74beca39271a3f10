"""What a replay came to: one committed transaction, compared with what it was when it was committed."""

from __future__ import annotations

import enum

import attrs


class Comparison(enum.Enum):
    """How the tuples of a component were compared."""

    CHECKSUM = "the checksum in the journal"
    TWO_RUNS = "their number in the journal, and the checksums of two replays"
    COUNT = "their number in the journal"


@attrs.frozen
class ComponentComparison:
    """What a component emitted then and now."""

    component: str
    tuples_then: int
    tuples_now: int
    comparison: Comparison
    is_same: bool


@attrs.frozen
class StateComparison:
    """What was written to a state then and now."""

    state: str
    rows: int
    """Rows that were compared: those that the transaction put, and no later one of its group has replaced."""
    difference: str | None
    """In words the first row that differs; None if none does."""
    is_compared: bool = True
    """Whether each row says which transaction of the group put it."""


@attrs.frozen
class Difference:
    """The first thing that differs."""

    text: str
    component: str | None = None
    """What is to blame; None if nobody knows."""


@attrs.frozen
class ReplayReport:
    """One transaction, then and now."""

    txid: int
    attempt: int
    epoch: int
    first: int
    last: int
    """It was committed with all transactions from ``first`` to ``last``, and replayed after those before it."""
    components: tuple[ComponentComparison, ...]
    states: tuple[StateComparison, ...]
    difference: Difference | None
