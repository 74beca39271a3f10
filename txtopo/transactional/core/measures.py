"""What is measured of a commit group. The core passes it on and decides nothing by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from txtopo.api.reference import SeenVersion
from txtopo.transactional.core.readings import Readings


@attrs.frozen
class StateWrite:
    """A state's part in a group's write.

    Args:
        prepared: from when to when it was prepared: its data files were written.
        published: from when to when it was made visible; both in seconds of the run's clock.
        rows: how many rows or keys were put.
        removed: how many keys were removed.
        version: the version that it made of the table; None if tables have none.
    """

    prepared: tuple[float, float]
    published: tuple[float, float]
    rows: int
    removed: int
    version: int | None = None

    @property
    def secs(self) -> float:
        """How long it took to make it visible, in seconds."""
        return self.published[1] - self.published[0]


class TransactionInput(NamedTuple):  # made for each transaction, at half the cost of a class of attrs
    """What a transaction has read."""

    ranges: Mapping[str, Mapping[str, tuple[Any, Any]] | None]
    """(start, end) by spout and partition; None for a spout that does not report it."""
    references: tuple[SeenVersion, ...] = ()
    """The versions of the reference tables."""


@attrs.frozen
class Measures:
    """What a group has written and emitted, and how long its steps took.

    Args:
        writes: what was written, by state.
        inputs: what each transaction has read; empty without a journal.
        emitted: the tuples that each component emitted, in both phases.
        emitted_on: of those, the tuples on each stream but the default one, by component and stream.
        readings: what components have counted and measured.
        step_secs: the time of each step, in seconds; known once the group has ended.
    """

    writes: Mapping[str, StateWrite] = attrs.field(factory=dict)
    inputs: Sequence[TransactionInput] = ()
    emitted: Mapping[str, int] = attrs.field(factory=dict)
    emitted_on: Mapping[tuple[str, str], int] = attrs.field(factory=dict)
    readings: Readings = attrs.field(factory=Readings)
    step_secs: Mapping[str, float] = attrs.field(factory=dict)
