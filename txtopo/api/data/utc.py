"""Points in time as numbers: microseconds since 1970, UTC, as tables store them."""

from __future__ import annotations

import datetime as dt
from typing import Any

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

MICROSECOND = dt.timedelta(microseconds=1)

MICROS_MIN = -62_135_596_800_000_000
"""The first microsecond of the year 1: Python knows no earlier time."""


def micros_at(time: dt.datetime) -> int:
    """Return a time in microseconds since 1970; one without a zone is UTC."""
    aware = time.replace(tzinfo=dt.UTC) if time.tzinfo is None else time
    return (aware - EPOCH) // MICROSECOND


def in_utc(value: Any) -> Any:
    """Return a value of a field for moments in UTC, in which equal moments are equal and others are not.

    Python compares two times of one zone by the clock on the wall: in the hour that comes twice, when clocks go back,
    half past two is one time for it.
    """
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return value
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:  # before the year 1 or after 9999, which the field refuses
        return value


def words_at(secs: float) -> str:
    """Return seconds since 1970 as a time in UTC, to the second; whatever Python can't say, in words."""
    try:
        return f"{EPOCH + dt.timedelta(seconds=secs):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError):  # a float near the last microsecond of 9999 is 10000
        return "after 9999" if secs > 0 else "before the year 1" if secs < 0 else "no time"


def datetime_at(micros: int) -> dt.datetime:
    """Return microseconds since 1970 as a time in UTC."""
    return EPOCH + micros * MICROSECOND
