"""Points: the transactions that a topology can be brought back to, and which of them stay as time goes by.

At a *point* all tables with history, the coordinator state, the journal and the record of the input can be brought back
together. It is the end of a commit group: the last one before a slot of five minutes, so what stands for longer than
that is a point, whatever comes after it. While nothing is committed, that one is moved from slot to slot: it is as old
as what has replaced it, and a topology always has it. Of the points, time leaves

- each one for an hour,
- the first of each hour for a day,
- the first of each day for ``topology.rewind.hours``.

The first of a day is the first of its hour, too: what stays in the end has stayed all along.

The journal goes back to the oldest point. While a topology is younger than points become, it goes back to the beginning
instead: transaction 0, where all tables are empty, is as good as a point.
"""

from __future__ import annotations

from itertools import pairwise

import attrs

_SECOND_MS = 1000
_HOUR_MS = 3600 * _SECOND_MS
_DAY_MS = 24 * _HOUR_MS

SLOT_MS = 300 * _SECOND_MS
"""How long the slot is that begins with a point."""

_LADDER = ((SLOT_MS, _HOUR_MS), (_HOUR_MS, _DAY_MS), (_DAY_MS, None))
"""The slots of which the first point stays, each with the age up to which it does; None: as long as any."""


def thinned_ms(now_ms: int, rewind_hours: int) -> int:
    """Return the time before which there is at most one point, which is the oldest one, in milliseconds since 1970."""
    rewind_ms = rewind_hours * _HOUR_MS
    back_ms = younger_ms = 0
    for slot_ms, age_ms in _LADDER:
        # Not among the points of shorter slots, which may be all but one: so it is with a way back of 25 hours.
        back_ms = max(rewind_ms - slot_ms, younger_ms)
        if age_ms is None or rewind_ms <= age_ms:
            break
        younger_ms = age_ms
    return now_ms - back_ms


@attrs.frozen
class KeptPoint:
    """A point: the last transaction of its group, and when that was last found the newest one, in ms since 1970."""

    txid: int
    at_ms: int


@attrs.frozen
class KeptPoints:
    """The points of a topology, oldest first."""

    points: tuple[KeptPoint, ...] = ()

    @property
    def begins_hour(self) -> bool:
        """Whether the last point is the first of its hour, which may be the oldest one that is left some day."""
        return any(before.at_ms // _HOUR_MS != last.at_ms // _HOUR_MS for before, last in pairwise(self.points[-2:]))

    def standing(self, txid: int, now_ms: int) -> KeptPoints:
        """Return the points where a transaction is found to be the last committed one; 0: nothing is committed yet."""
        # Not by the order of the slots: where the clock was wrong and is put back, points go on at once.
        if not txid or (self.points and self.points[-1].at_ms // SLOT_MS == now_ms // SLOT_MS):
            return self
        before = (point for point in self.points if point.txid != txid)
        return KeptPoints((*before, KeptPoint(txid, now_ms)))

    def until(self, txid: int) -> KeptPoints:
        """Return the points up to a transaction: where the topology goes back to it, the later ones never were."""
        return KeptPoints(tuple(point for point in self.points if point.txid <= txid))

    def at(self, now_ms: int, rewind_hours: int) -> KeptPoints:
        """Return the points that stay at a time, in ms since 1970, back to ``rewind_hours`` before; see the module."""
        stay: set[KeptPoint] = set()
        for slot_ms, age_ms in _LADDER:
            until_ms = rewind_hours * _HOUR_MS if age_ms is None else min(age_ms, rewind_hours * _HOUR_MS)
            slot: int | None = None
            for point in self.points:
                if point.at_ms // slot_ms != slot and now_ms - point.at_ms <= until_ms:
                    stay.add(point)
                slot = point.at_ms // slot_ms
        return KeptPoints(tuple(point for point in self.points if point in stay))
