"""What tasks count: tuples, and the complete latency of each root, from its emission to its ack."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

_STEPS = 16
"""Buckets for each doubling: a quantile is exact to 4.5 %."""

_LEAST_SECS = 1e-6
"""The end of the first bucket: shorter times are not told apart."""


@attrs.frozen
class Counts:
    """The counts of a task since its start, or sums over tasks.

    Args:
        emitted: calls of emit, by stream.
        transferred: tuples sent; a tuple that was emitted to three tasks counts as three.
        executed: tuples that a bolt executed, or messages for an acker: inits, acks, failures and resets.
        acked: tuples that a bolt acked, or roots of a spout that were acked.
        failed: tuples that a bolt failed, or roots of a spout that failed or timed out.
    """

    emitted: Mapping[str, int] = attrs.field(factory=dict)
    transferred: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return the sums."""
        return Counts(
            dict(Counter(self.emitted) + Counter(other.emitted)),
            self.transferred + other.transferred,
            self.executed + other.executed,
            self.acked + other.acked,
            self.failed + other.failed,
        )


def by_component(counts: Iterable[tuple[str, Counts]]) -> dict[str, Counts]:
    """Return the sums by component, given the component and counts of each task."""
    sums: dict[str, Counts] = {}
    for component, count in counts:
        sums[component] = sums.get(component, Counts()) + count
    return sums


class LatencyHistogram:
    """Counts durations in buckets that grow by a sixteenth of a doubling each."""

    def __init__(self) -> None:
        self.buckets: Counter[int] = Counter()

    def add(self, durations: Iterable[float]) -> None:
        """Count durations, in seconds."""
        log2 = math.log2
        self.buckets.update([int(log2(secs / _LEAST_SECS) * _STEPS) if secs > _LEAST_SECS else 0 for secs in durations])

    def quantile(self, share: float) -> float | None:
        """Return the duration, in seconds, below which a share of all durations are; None if there are none."""
        rank = share * self.buckets.total()
        count = 0
        for bucket in sorted(self.buckets):
            count += self.buckets[bucket]
            if count >= rank:
                return _LEAST_SECS * math.exp2((bucket + 1) / _STEPS)
        return None

    def doublings(self, first: int, last: int) -> list[tuple[float, int]]:
        """Return bounds in seconds, each with the number of durations up to it.

        The bounds are the powers of 2 from ``first`` to ``last``, in microseconds.
        """
        points: list[tuple[float, int]] = []
        buckets, count, place = sorted(self.buckets.items()), 0, 0
        for power in range(first, last + 1):
            while place < len(buckets) and buckets[place][0] < power * _STEPS:
                count += buckets[place][1]
                place += 1
            points.append((_LEAST_SECS * 2.0**power, count))
        return points

    @property
    def total_secs(self) -> float:
        """The sum of all durations, to within 2.2 %."""
        return sum(count * _LEAST_SECS * math.exp2((bucket + 0.5) / _STEPS) for bucket, count in self.buckets.items())

    @classmethod
    def sum(cls, histograms: Iterable[LatencyHistogram]) -> LatencyHistogram:
        """Return a histogram of all the durations of several."""
        summed = cls()
        for histogram in histograms:
            summed.buckets.update(histogram.buckets)
        return summed
