"""What tasks count, added up; and the histogram of latencies: small, and exact to a twentieth."""

import random

import pytest

from txtopo.plain.tasks.metrics import LatencyHistogram


def histogram(*secs: float) -> LatencyHistogram:
    made = LatencyHistogram()
    made.add(secs)
    return made


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 1.0])
def test_quantiles(share):
    """A quantile is at most 4.5 % above the exact one, and never below it."""
    rng = random.Random(3)
    durations = sorted(rng.lognormvariate(-6, 2) for _ in range(5000))
    exact = durations[max(0, -(-int(share * 5000 * 100) // 100) - 1)]
    found = histogram(*durations).quantile(share)
    assert found is not None
    assert exact * 0.999 <= found <= exact * 1.045


def test_doublings():
    """Bounds are powers of 2, in microseconds, and what is counted below each is exact; the sum is so to 2.2 %."""
    rng = random.Random(5)
    durations = [rng.lognormvariate(-5, 3) for _ in range(5000)]
    made = histogram(*durations)
    for secs, count in made.doublings(-1, 30):
        assert count == sum(max(duration, 1e-6) < secs for duration in durations)
    assert [secs for secs, _ in made.doublings(10, 12)] == pytest.approx([0.001024, 0.002048, 0.004096])
    assert made.total_secs == pytest.approx(sum(durations), rel=0.022)
    assert histogram().doublings(0, 1) == [(1e-6, 0), (2e-6, 0)]
