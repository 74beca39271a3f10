"""The versions of a key: where a change belongs among them by its sequence, and what it does to the one before it."""

from __future__ import annotations

import bisect
import datetime as dt
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from txtopo import Fields

REPEAT = Fields("repeat: long")
"""How many versions of an equal sequence came before a version."""

INTERVALS = Fields("valid_from: timestamp", "valid_to: timestamp", "from_txid: long", "to_txid: long")
"""When a version was valid: by the times of changes, and by the transactions after which it was the row of its key."""

VersionId = tuple[tuple[Any, ...], int]
"""The sequence of a version, and how many of an equal one came before; versions of a key are in this order."""

sequence_of = operator.attrgetter("sequence")


@attrs.frozen
class Change:
    """One event of a key: its values, None if it deletes the row, and the value fields that it leaves as they are."""

    sequence: tuple[Any, ...]
    values: tuple[Any, ...] | None
    time: dt.datetime | None = None
    unchanged: Sequence[int] = ()

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
    repeat: int
    txid: int
    time: dt.datetime | None
    is_deleted: bool

    @property
    def id(self) -> VersionId:
        """What the history knows it by."""
        return self.sequence, self.repeat


@attrs.define(eq=False)
class Versions:
    """The latest versions of a key, deletes among them, in the order of their sequences.

    Of an equal sequence each transaction may have brought a version. One takes the place of the other, or the history
    would not say what the table had in between.

    Args:
        latest: them.
        is_whole: whether these are all that the key has ever had.
        rows: the rows of versions in the history: the values, then :data:`INTERVALS`. Those that :meth:`needed` names
            must be there before a change is placed.
        changed: the versions whose rows placed changes have changed.
        too_old: how many changes had no place, because versions about as old are forgotten.
    """

    latest: list[Version]
    is_whole: bool
    rows: dict[VersionId, tuple[Any, ...] | None] = attrs.field(factory=dict)
    changed: set[VersionId] = attrs.field(factory=set)
    too_old: int = 0

    def needed(self, changes: Sequence[Change]) -> Iterator[VersionId]:
        """Yield the versions that changes come after."""
        for change in changes:
            place = self._place_of(change)
            if place:
                yield self.latest[place - 1].id

    def repeated(self, found: VersionId) -> Iterator[VersionId]:
        """Yield the version after one whose row was found, if the latest one was known by its row alone.

        What was remembered of the key is forgotten then, but not its row: that is the version that has not ended.
        """
        (sequence, repeat), row = found, self.rows[found]
        known = self.latest[-1]
        if known.txid or known.time is not None or known.id != found or row is None:
            return
        *_, time, _, txid, ended = row
        if ended is None:
            self.latest[-1] = Version(sequence, repeat, txid, time, is_deleted=False)
        else:
            self.latest[-1] = attrs.evolve(known, repeat=repeat + 1)
            yield self.latest[-1].id

    def place(self, changes: Sequence[Change], txid: int) -> None:
        """Place the changes of a transaction; those of an equal sequence in the order in which they came."""
        for change in sorted(changes, key=sequence_of):  # which keeps the order of equal ones
            place = self._place_of(change)
            if place or self.is_whole:
                self._put(change, place, txid)
            else:
                self.too_old += 1

    def forget(self, versions_max: int) -> None:
        """Keep so many of the latest versions."""
        if len(self.latest) > versions_max:
            self.latest, self.is_whole = self.latest[-versions_max:], False

    def _place_of(self, change: Change) -> int:
        """Return the position at which a change belongs, after those that have its sequence."""
        return bisect.bisect_right(self.latest, change.sequence, key=sequence_of)

    def _put(self, change: Change, place: int, txid: int) -> None:
        before = self.latest[place - 1] if place else None
        row = self.rows.get(before.id) if before is not None else None
        left = None if row is None else row[: len(row) - len(INTERVALS)]
        values = change.after(left)
        repeat = 0
        if before is not None and before.sequence == change.sequence:
            if left == values and before.is_deleted == (values is None) and before.time in {None, change.time}:
                return  # it has come again
            repeat = before.repeat + (before.txid != txid)
            if before.txid == txid:  # of those of one transaction the last counts, so no table ever had this one
                place -= 1
                self.latest.pop(place)
                before = self.latest[place - 1] if place else None
        version = Version(change.sequence, repeat, txid, change.time, values is None)
        self.latest.insert(place, version)
        after = self.latest[place + 1] if place + 1 < len(self.latest) else None
        # A version that comes after a later one was never the row of its key.
        interval = change.time, after and after.time, txid, txid if after else None
        self._keep(version, None if values is None else values + interval)
        row = self.rows.get(before.id) if before is not None else None
        if before is not None and row is not None:
            *others, _, from_txid, to_txid = row
            self._keep(before, (*others, change.time, from_txid, to_txid or txid))

    def _keep(self, version: Version, row: tuple[Any, ...] | None) -> None:
        self.rows[version.id] = row
        self.changed.add(version.id)
