"""Numbers, times and sizes in words, as commands and the page show them. All moments are UTC."""

from __future__ import annotations

import datetime as dt

UNKNOWN = "\N{EN DASH}"
"""What stands for a number that nobody knows."""

NOTHING_CHANGED = "nothing was changed"
"""Ends the refusal of whatever brings coordinator state and tables elsewhere."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def cut_inside(text: str, most: int) -> str:
    """Return a text with at most so many characters: the middle goes first, for names often differ at their ends."""
    if len(text) <= most:
        return text
    tail = most // 2
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"


def number(value: float | None) -> str:
    """Return a whole number with its thousands; a dash for None."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def duration(secs: float | None) -> str:
    """Return a duration with two or three digits and its unit; a dash for None, and where a clock was set back."""
    if secs is None or secs < 0:
        return UNKNOWN
    if secs < 1:
        return f"{secs * 1000:.2g} ms" if secs < 0.01 else f"{secs * 1000:.0f} ms"  # noqa: PLR2004 - two digits
    if secs < _MINUTE:
        return f"{secs:.1f} s"
    if secs < _HOUR:
        return f"{secs // _MINUTE:.0f} min {secs % _MINUTE // 1:.0f} s"
    if secs < _DAY:
        return f"{secs // _HOUR:.0f} h {secs % _HOUR // _MINUTE:.0f} min"
    return f"{secs // _DAY:.0f} d {secs % _DAY // _HOUR:.0f} h"


def ago(at: float | None, now: float | None) -> str:
    """Return how long before now something was; nothing if either is unknown."""
    return "" if at is None or now is None else f"{duration(max(now - at, 0.0))} ago"


def moment(at: float | None) -> str:
    """Return a time with its milliseconds; a dash for None, and for what no calendar has."""
    if at is None:
        return UNKNOWN
    try:
        time = dt.datetime.fromtimestamp(at, dt.UTC)
    except (OverflowError, ValueError):
        return UNKNOWN
    return f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03}"


def size(byte_count: float | None) -> str:
    """Return a number of bytes in KiB, MiB and so on; a dash for None."""
    if byte_count is None:
        return UNKNOWN
    value, units = float(byte_count), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    for larger in units:
        if value < 1024:  # noqa: PLR2004 - the step of these units
            break
        value, unit = value / 1024, larger
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.3g} {unit}"


def count_of(number: float, noun: str) -> str:
    """Return a whole number with its noun, in the plural unless the number is 1."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def cut(text: str, characters_max: int) -> str:
    """Return a text in at most so many characters, with … for what is left out."""
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds."""
    minutes, remaining_secs = divmod(int(seconds), 60)
    return f"{minutes}:{remaining_secs:02}"
