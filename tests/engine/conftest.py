"""Metrics of a run with a clock."""

import pytest

from tests.engine.progress import Clock
from txtopo.engine.metrics import RunMetrics


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> RunMetrics:
    return RunMetrics("words", clock)
