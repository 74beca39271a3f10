"""Durations as users write them: ``"30s"``, ``"1d"``."""

from __future__ import annotations

import datetime as dt
import re

from txtopo.errors import ConfigError

Duration = dt.timedelta | str

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

_WRITTEN = re.compile(r"\s*(-?\d+)\s*([a-z]+)\s*")

_IN_WORDS = re.compile(r"\s*(\d+)\s*(milli|s|min|h|d)[a-z]*\s*", re.IGNORECASE)
"""As other systems write them: 10 minutes."""


def duration(value: Duration, what: str) -> dt.timedelta:
    """Return a duration.

    Args:
        value: a timedelta, or a whole number with one of ``ms``, ``s``, ``m``, ``h``, ``d``.
        what: what it is, for errors.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(value, dt.timedelta):
        return value
    parsed = _WRITTEN.fullmatch(value)
    if parsed is None or parsed[2] not in _UNITS:
        words = _IN_WORDS.fullmatch(value)
        unit = words and {"milli": "ms", "min": "m"}.get(words[2].lower(), words[2].lower())
        meant = f"; did you mean '{words[1]}{unit}'?" if words else ""
        raise ConfigError(
            f"{what} is {value!r}; write a timedelta, or a number with {', '.join(_UNITS)}, such as '30s'{meant}"
        )
    try:
        return dt.timedelta(**{_UNITS[parsed[2]]: int(parsed[1])})
    except OverflowError as error:
        raise ConfigError(f"{what} is {value!r}, which is longer than a timedelta can be") from error


def optional_duration(value: Duration | None, what: str) -> dt.timedelta | None:
    """Return a duration, or None for none."""
    return None if value is None else duration(value, what)


def short(value: dt.timedelta) -> str:
    """Return a duration as a part of a name, such as ``90s``."""
    micros = value // dt.timedelta(microseconds=1)
    for unit, name in reversed(_UNITS.items()):
        size = dt.timedelta(**{name: 1}) // dt.timedelta(microseconds=1)
        if micros % size == 0:
            return f"{micros // size}{unit}"
    return f"{micros}us"
