"""The rate of committed tuples per second: average, recent, and its history."""

from __future__ import annotations

from collections import deque

from txtopo.assembly.report import Progress

WINDOW_SECS = 10.0
"""The period of the recent rate; several seconds, because commits come in bursts."""

SAMPLE_SECS = 0.5
"""The time that one column of the history covers."""

SAMPLES_MAX = 40

_LEVELS = " ▁▂▃▄▅▆▇█"


class RecentRate:
    """How fast a count has risen over the last ``WINDOW_SECS``."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque([(0.0, 0)])

    def add(self, at_secs: float, count: int) -> None:
        """Take the count at a moment."""
        self._points.append((at_secs, count))
        while len(self._points) > 2 and self._points[1][0] <= at_secs - WINDOW_SECS:  # noqa: PLR2004 - a line's ends
            self._points.popleft()

    @property
    def per_sec(self) -> float:
        """The rise per second."""
        (start, before), (end, after) = self._points[0], self._points[-1]
        return max(0, after - before) / (end - start) if end > start else 0.0


class TupleRate:
    """Collects tuple counts and times from snapshots of one run."""

    def __init__(self) -> None:
        self._recent = RecentRate()
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._sampled_secs = 0.0
        self._progress: Progress | None = None

    def add(self, progress: Progress) -> None:
        """Add a snapshot."""
        now = progress.elapsed_secs
        self._progress = progress
        self._recent.add(now, progress.tuples)
        if now - self._sampled_secs >= SAMPLE_SECS:
            self._samples.append(self.recent)
            self._sampled_secs = now

    @property
    def average(self) -> float:
        """Tuples per second since the run began."""
        progress = self._progress
        return progress.tuples / progress.elapsed_secs if progress is not None and progress.elapsed_secs > 0 else 0.0

    @property
    def secs_left(self) -> float | None:
        """The estimated time for the rest at the average rate; None if unknown."""
        progress = self._progress
        done_count = 0 if progress is None else progress.transactions + progress.dead_letters
        if progress is None or progress.total is None or not done_count:
            return None
        return max(0, progress.total - progress.committed_txid) * progress.elapsed_secs / done_count

    @property
    def recent(self) -> float:
        """Tuples per second over the last ``WINDOW_SECS``."""
        return self._recent.per_sec

    @property
    def history(self) -> str:
        """The history of the rate: one character per sample, a full block for the highest."""
        highest = max(self._samples, default=0.0)
        if highest <= 0:
            return ""
        top = len(_LEVELS) - 1
        return "".join(_LEVELS[min(top, -int(-sample * top // highest))] for sample in self._samples)
