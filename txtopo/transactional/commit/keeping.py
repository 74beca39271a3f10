"""Keeps the points of a running topology: makes them as groups are committed, and tells its states which there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from txtopo.api.state import History, KeepsHistory, OpenedState
from txtopo.transactional.recovery.coordinator_state import CoordinatorState

__all__ = ["Keeping"]


class Keeping:
    """The points of one run, begun with those on record.

    Args:
        coordinator_state: has them on record.
        committed: the last committed transaction; later points are of a time that was undone.
        wall_secs: returns the seconds since 1970.
        recent_secs: for how long every version is kept; None: for ever.
        rewind_hours: for how long points are.
    """

    def __init__(
        self,
        coordinator_state: CoordinatorState,
        committed: int,
        wall_secs: Callable[[], float],
        *,
        recent_secs: int | None,
        rewind_hours: int,
    ) -> None:
        self._coordinator_state = coordinator_state
        self._wall_secs = wall_secs
        self.is_recent_kept = recent_secs is not None
        """Whether only recent versions and those of points are kept, so that time alone makes others removable."""
        self._recent_secs = recent_secs
        self._rewind_hours = rewind_hours
        self._points = coordinator_state.points().until(committed)

    def note_committed(self, txid: int) -> None:
        """Take note that a group that ends with a transaction is committed: it may end with a point.

        The write of the coordinator state that makes the group committed has the point, too. A crash before it leaves
        a group that the next leader finishes, and no point: nobody was told of one.
        """
        now_ms = int(self._wall_secs() * 1000)
        points = self._points.after(txid, now_ms)
        if points is not self._points:
            self._points = points.at(now_ms, self._rewind_hours)
            self._coordinator_state.note_points(self._points)

    def tell(self, states: Iterable[OpenedState]) -> None:
        """Tell the states that keep a history what to keep from now on."""
        now_secs = self._wall_secs()
        self._points = self._points.at(int(now_secs * 1000), self._rewind_hours)
        txids = tuple(point.txid for point in self._points.points)
        history = History(txids, self._recent_secs, self._rewind_hours, now_secs)
        for state in states:
            if isinstance(state, KeepsHistory):
                state.keep_history(history)
