"""How many tuples a second are committed: over the last seconds, and as it went."""

from __future__ import annotations

from collections import deque

from txtopo.monitor.report import Progress

WINDOW_SECS = 3.0
"""What the rate of this moment is taken over: commits come in bursts."""

SAMPLE_SECS = 0.5
"""One column of the history."""

SAMPLES_MAX = 40

_LEVELS = " ▁▂▃▄▅▆▇█"


class TupleRate:
    """Gathers tuples and times from snapshots of one run."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque([(0.0, 0)])
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._sampled_secs = 0.0

    def add(self, progress: Progress) -> None:
        """Take a snapshot in."""
        now, tuples = progress.elapsed_secs, progress.tuples
        self._points.append((now, tuples))
        while len(self._points) > 2 and self._points[1][0] <= now - WINDOW_SECS:  # noqa: PLR2004 - a line's ends
            self._points.popleft()
        if now - self._sampled_secs >= SAMPLE_SECS:
            self._samples.append(self.per_second)
            self._sampled_secs = now

    @property
    def per_second(self) -> float:
        """Tuples a second over the last seconds."""
        (start, before), (end, after) = self._points[0], self._points[-1]
        return (after - before) / (end - start) if end > start else 0.0

    @property
    def history(self) -> str:
        """The rate as it went: a character each sample, the highest one full."""
        highest = max(self._samples, default=0.0)
        if highest <= 0:
            return ""
        top = len(_LEVELS) - 1
        return "".join(_LEVELS[min(top, -int(-sample * top // highest))] for sample in self._samples)
