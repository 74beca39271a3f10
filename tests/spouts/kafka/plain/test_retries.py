"""How long failed messages wait: Storm's cases, and delays that saturate."""

import pytest

from spouts.kafka.plain.retries import ExponentialBackoff
from txtopo.errors import ConfigError


def test_exponential():
    """The delay doubles with each failure after the first, to the millisecond; the longest delay bounds the first, too."""
    policy = ExponentialBackoff(0, 4_000, delay_max_ms=10**9)
    assert [policy.delay_ms(fails) for fails in (1, 2, 3, 4)] == [0, 8_000, 16_000, 32_000]
    assert ExponentialBackoff(500_000, 0, delay_max_ms=2_000).delay_ms(1) == 2_000


def test_retries_max():
    """After as many retries as allowed a message is given up."""
    policy = ExponentialBackoff(0, 0, retries_max=3, delay_max_ms=0)
    assert [policy.delay_ms(fails) for fails in (3, 4)] == [0, None]


def test_delays_saturate():
    """However often a message fails, it never waits less than before, and never longer than allowed. (W5)"""
    policy = ExponentialBackoff()
    delays = [policy.delay_ms(fails) for fails in [*range(1, 200), 2**31 - 1]]
    assert delays == sorted(delays)
    assert delays[:4] == [0, 4, 8, 16]
    assert set(delays[13:]) == {10_000}
    assert policy.delay_ms(2**31) is None


def test_negative_delays_are_refused():
    """(W10)"""
    with pytest.raises(ConfigError, match="0 or more"):
        ExponentialBackoff(-1)
