"""The statistics of a run."""

from __future__ import annotations

import threading
from typing import Self

from txtopo.assembly.statistics import Times

BLOCKED_SECS = 0.2


class Meanwhile(float):
    """A time that another thread adds one to while it is being added."""

    def __new__(cls, value: float, work: threading.Thread) -> Self:
        made = super().__new__(cls, value)
        made.work = work
        return made

    def __radd__(self, other: float) -> float:
        self.work.start()
        self.work.join(BLOCKED_SECS)  # it gets through now, or waits for us
        return other + float(self)


def test_times_are_added_up_from_several_threads() -> None:
    """The jobs in flight, and the commit thread, each add the time they took, and none is lost."""
    times = Times()
    other = threading.Thread(target=lambda: times.add(processing=1.0))
    times.add(processing=Meanwhile(2.0, other))
    other.join()
    assert times.processing_secs == 3.0
