"""Durations and windows as texts."""

from __future__ import annotations

import datetime as dt

import pytest

from committers import Days, Hours, Sessions, Sliding, Tumbling
from committers.event_time.durations import duration, optional_duration, short, window_name, window_of
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


@pytest.mark.parametrize(
    ("window", "name"),
    [
        (Tumbling(90 * SECOND), "90s"),
        (Tumbling(3600 * SECOND), "1h"),
        (Sliding(3600 * SECOND, 300 * SECOND), "1h-every-5m"),
        (Sessions(1800 * SECOND), "sessions-30m"),
        (Days(), "days"),
        (Hours(), "hours"),
        (Tumbling(SECOND / 1000 * 1.5), "1500us"),
    ],
)  # fmt: skip
def test_names_of_windows(window, name):
    """They are read from the window alone, so that a name does not depend on how it was written."""
    assert window_name(window) == window_name(window_of(window)) == name


def test_windows():
    """A duration is the size of tumbling windows."""
    assert window_of("90s") == window_of(90 * SECOND) == Tumbling(90 * SECOND)
    assert optional_duration(None, "idle_after") is None
    assert short(dt.timedelta()) == "0d"
