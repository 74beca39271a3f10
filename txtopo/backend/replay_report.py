"""The result of a replay: a committed transaction compared with its replay."""

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
    """The tuples that a component emitted at the commit and in the replay."""

    component: str
    tuples_then: int
    tuples_now: int
    comparison: Comparison
    is_same: bool


@attrs.frozen
class StateComparison:
    """The rows written to a state at the commit and in the replay."""

    state: str
    rows: int
    """The number of compared rows: those that the transaction put and no later one of its group replaced."""
    difference: str | None
    """The first row that differs, in words; None if none does."""
    is_compared: bool = True
    """Whether each row names its transaction, so that rows could be compared."""


@attrs.frozen
class Difference:
    """The first difference."""

    text: str
    component: str | None = None
    """The component at fault; None if unknown."""


@attrs.frozen
class ReplayReport:
    """The comparison of one transaction with its replay."""

    txid: int
    attempt: int
    epoch: int
    first: int
    last: int
    """Its commit group holds ``first`` to ``last``; the replay also runs the group's earlier transactions."""
    components: tuple[ComponentComparison, ...]
    states: tuple[StateComparison, ...]
    difference: Difference | None
