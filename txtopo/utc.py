"""Points in time as numbers: microseconds since 1970, UTC, as tables store them."""

from __future__ import annotations

import datetime as dt

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

MICROSECOND = dt.timedelta(microseconds=1)

MICROS_MIN = -62_135_596_800_000_000
"""The first microsecond of the year 1: Python knows no earlier time."""


def micros_at(time: dt.datetime) -> int:
    """Return a time in microseconds since 1970; one without a zone is UTC."""
    aware = time.replace(tzinfo=dt.UTC) if time.tzinfo is None else time
    return (aware - EPOCH) // MICROSECOND


def datetime_at(micros: int) -> dt.datetime:
    """Return microseconds since 1970 as a time in UTC."""
    return EPOCH + micros * MICROSECOND
