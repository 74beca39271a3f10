"""The versions of a key: where a change belongs among them by its sequence, and what it does to the one before it."""

from __future__ import annotations

import bisect
import datetime as dt
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from txtopo import Fields

INTERVALS = Fields("valid_from: timestamp", "valid_to: timestamp", "from_txid: long", "to_txid: long")
"""When a version was valid: by the times of changes, and by the transactions after which it was the row of its key."""

sequence_of = operator.attrgetter("sequence")


@attrs.frozen
class Change:
    """One event of a key: its values, None if it deletes the row, and the value fields that it leaves as they are."""

    sequence: tuple[Any, ...]
    values: tuple[Any, ...] | None
    in_grave: tuple[Any, ...]
    """What is remembered of it if it deletes the row."""
    time: dt.datetime | None = None
    unchanged: Sequence[int] = ()

    @property
    def grave(self) -> Any:
        """What is remembered of it as the value of a state."""
        return self.in_grave if len(self.in_grave) > 1 else self.in_grave[0]

    def after(self, before: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """Return the values after the event, given those before it."""
        if self.values is None or not self.unchanged or before is None:
            return self.values
        values = list(self.values)
        for position in self.unchanged:
            values[position] = before[position]
        return tuple(values)


@attrs.frozen
class Version:
    """What is remembered of an applied change, so that others find their place beside it."""

    sequence: tuple[Any, ...]
    time: dt.datetime | None
    is_deleted: bool


@attrs.define(eq=False)
class Versions:
    """The latest versions of a key, deletes among them, in the order of their sequences.

    Args:
        latest: them.
        is_whole: whether these are all that the key has ever had.
        rows: the rows of versions in the history, by their sequences: the values, then :data:`INTERVALS`. Those that
            :meth:`needed` names must be there before a change is placed.
        changed: the sequences of rows that placed changes have changed.
        too_old: how many changes had no place, because versions about as old are forgotten.
    """

    latest: list[Version]
    is_whole: bool
    rows: dict[tuple[Any, ...], tuple[Any, ...] | None] = attrs.field(factory=dict)
    changed: set[tuple[Any, ...]] = attrs.field(factory=set)
    too_old: int = 0

    def needed(self, changes: Sequence[Change]) -> Iterator[tuple[Any, ...]]:
        """Yield the sequences of the versions that changes replace or come after."""
        for change in changes:
            start, end = self._place_of(change)
            if start < end:
                yield change.sequence
            if start:
                yield self.latest[start - 1].sequence

    def place(self, changes: Sequence[Change], txid: int) -> None:
        """Place the changes of a transaction; those of an equal sequence in the order in which they came."""
        for change in sorted(changes, key=sequence_of):  # which keeps the order of equal ones
            start, end = self._place_of(change)
            if end or self.is_whole:
                self._put(change, start, end, txid)
            else:
                self.too_old += 1

    def forget(self, versions_max: int) -> None:
        """Keep so many of the latest versions."""
        if len(self.latest) > versions_max:
            self.latest, self.is_whole = self.latest[-versions_max:], False

    def _place_of(self, change: Change) -> tuple[int, int]:
        """Return the positions between which a change belongs: what is there has its sequence."""
        start = bisect.bisect_left(self.latest, change.sequence, key=sequence_of)
        return start, bisect.bisect_right(self.latest, change.sequence, start, key=sequence_of)

    def _put(self, change: Change, start: int, end: int, txid: int) -> None:
        before = self.rows.get(self.latest[start - 1].sequence) if start else None
        own = self.rows.get(change.sequence) if start < end else None
        values = change.after(own if start < end else before)
        version = Version(change.sequence, change.time, values is None)
        if self.latest[start:end] == [version] and (own is None or own[: len(own) - len(INTERVALS)] == values):
            return  # it has come again
        self.latest[start:end] = [version]
        after = self.latest[start + 1] if start + 1 < len(self.latest) else None
        # A version that comes after a later one was never the row of its key.
        interval = change.time, after and after.time, txid, txid if after else None
        self._keep(change.sequence, None if values is None else values + interval)
        if before is not None:
            *others, _, from_txid, to_txid = before
            self._keep(self.latest[start - 1].sequence, (*others, change.time, from_txid, to_txid or txid))

    def _keep(self, sequence: tuple[Any, ...], row: tuple[Any, ...] | None) -> None:
        self.rows[sequence] = row
        self.changed.add(sequence)
