"""Keeps the points of a running topology: makes them as time goes by, and tells its states which there are.

The journal is cut to what the oldest point needs: what was committed by then, and all transactions since. What a
backfill beside the run needs stays as well, see :mod:`txtopo.journal.holds`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from txtopo.api.state import History, KeepsHistory, OpenedState
from txtopo.journal.holds import Hold
from txtopo.journal.writer import KeptJournal
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.points import SLOT_MS, thinned_ms

logger = logging.getLogger("txtopo")

_POLL_SECS = 10
"""How often to look for holds, beside each time that the journal may be cut."""


class PointKeeper:
    """The points of one run, begun with those on record.

    Args:
        coordinator_state: has them on record.
        committed: the last committed transaction; later points are of a time that was undone.
        wall_secs: returns the seconds since 1970.
        recent_secs: for how long every version is kept; None: for ever.
        rewind_hours: for how long points are.
        journal: the topology's; None: it has none, or all of it stays.
        holds: returns what backfills hold of the past at a time, in milliseconds since 1970; None: there are none.
    """

    def __init__(  # noqa: PLR0913 - what is kept, and by which settings
        self,
        coordinator_state: CoordinatorState,
        committed: int,
        wall_secs: Callable[[], float],
        *,
        recent_secs: int | None,
        rewind_hours: int,
        journal: KeptJournal | None = None,
        holds: Callable[[int], Sequence[Hold]] | None = None,
    ) -> None:
        self._coordinator_state = coordinator_state
        self._wall_secs = wall_secs
        self.is_recent_kept = recent_secs is not None
        """Whether only recent versions and those of points are kept, so that time alone makes others removable."""
        self._recent_secs = recent_secs
        self._rewind_hours = rewind_hours
        self._committed = committed
        self._points = coordinator_state.points().until(committed)
        self._journal = journal if self.is_recent_kept else None
        self._holds_at = holds
        self._holds: Sequence[Hold] = ()
        self._polled_secs: float | None = None
        """When it looked for holds last."""
        self._cut_to: tuple[int, int] | None = None
        """What the journal was cut to last: the oldest that is needed, and the slot of its time."""

    def record_standing(self) -> None:
        """Take note that the last committed group stands until now, which may make it a point; the next one may begin.

        The write of the coordinator state that decides the next group has the point, too. A crash before it leaves that
        one the last, and the next leader finds it so.
        """
        now_ms = int(self._wall_secs() * 1000)
        points = self._points.standing(self._committed, now_ms)
        if points is not self._points:
            self._points = points.at(now_ms, self._rewind_hours)
            self._coordinator_state.record_points(self._points)
            if self._journal is not None and points.begins_hour:
                self._journal.end_part()

    def record_committed(self, txid: int) -> None:
        """Take note that a group that ends with a transaction is committed."""
        self._committed = txid

    def tell(self, states: Iterable[OpenedState]) -> None:
        """Tell the states that keep a history what to keep from now on."""
        self.record_standing()
        now_secs = self._wall_secs()
        self._points = self._points.at(int(now_secs * 1000), self._rewind_hours)
        self._read_holds(now_secs)
        txids = tuple(point.txid for point in self._points.points)
        of_copies = {hold.point for hold in self._holds if hold.point is not None}
        points = tuple(sorted({*txids, *of_copies}))
        history = History(points, self._recent_secs, self._rewind_hours, now_secs, self._committed)
        for state in states:
            if isinstance(state, KeepsHistory):
                state.keep_history(history)
        if self._journal is not None and txids:
            self._cut(self._journal, txids[0], now_secs)

    def _read_holds(self, now_secs: float, *, is_needed: bool = False) -> None:
        is_due = is_needed or self._polled_secs is None or abs(now_secs - self._polled_secs) >= _POLL_SECS
        if self._holds_at is not None and is_due:
            self._polled_secs, self._holds = now_secs, self._holds_at(int(now_secs * 1000))

    def _oldest_needed(self, oldest: int) -> int:
        return min([oldest, *(hold.after for hold in self._holds)])

    def _cut(self, journal: KeptJournal, point: int, now_secs: float) -> None:
        """Cut the journal to the oldest point and what holds need, as points are thinned out: :func:`thinned_ms`.

        Before anything goes, the points on record are those that stay: nobody takes one that the journal lacks. That
        write needs the lead, so a coordinator that has lost it removes nothing. One that loses it meanwhile removes
        what its successor would: the points up to where that one goes on are the same, and age alike.
        """
        before_ms = thinned_ms(int(now_secs * 1000), self._rewind_hours)
        if self._cut_to == (self._oldest_needed(point), before_ms // SLOT_MS):
            return
        self._read_holds(now_secs, is_needed=True)  # one that was said since the last look counts
        oldest = self._oldest_needed(point)
        self._cut_to = oldest, before_ms // SLOT_MS

        def record() -> None:
            self._coordinator_state.record_points(self._points)
            self._coordinator_state.flush()

        try:
            journal.keep_after(oldest, before_ms, record)
        except OSError as error:
            logger.warning("old files of the journal can't be removed; it is tried again later: %s", error)
