"""Durations as texts."""

import datetime as dt

import pytest

from committers.event_time.durations import duration, optional_duration, short
from txtopo.errors import ConfigError

SECOND = dt.timedelta(seconds=1)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("30s", 30 * SECOND), ("5m", 300 * SECOND), ("1h", 3600 * SECOND), ("2d", 2 * 86400 * SECOND), (" 7 ms ", SECOND * 7 / 1000), (SECOND, SECOND), ("-5m", -300 * SECOND)],
)  # fmt: skip
def test_durations(given, wanted):
    """A number and a unit, or a timedelta."""
    assert duration(given, "delay") == optional_duration(given, "delay") == wanted


@pytest.mark.parametrize("given", ["", "s", "1", "1.5s", "--1s", "1 week", "9999999999d", "1s1s"])
def test_no_durations(given):
    """All else is refused, and it says which one it is."""
    with pytest.raises(ConfigError, match="delay is"):
        duration(given, "delay")


def test_written_and_read():
    """A duration as a part of a name is the shortest whole number of a unit."""
    assert optional_duration(None, "idle_after") is None
    assert short(dt.timedelta()) == "0d"
