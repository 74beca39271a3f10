"""Kinds of windows: how rows are divided by their event times."""

from __future__ import annotations

import datetime as dt
import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers.event_time.durations import Duration, duration, short
from committers.event_time.times import MICROS_MAX, Micros, micros_in, micros_of, timestamps
from txtopo.api.arguments import checked_arguments, checked_class
from txtopo.api.data.utc import MICROS_MIN, MICROSECOND, datetime_at, micros_at
from txtopo.columnar.key_index import key_ids
from txtopo.errors import ConfigError

START, END = "window_start", "window_end"

_MINUTE = 60_000_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR

_RULED_FROM = 24_837
"""The day 2038-01-01: since then clocks are changed by rule in Python's zones; Arrow knows no summer time any more."""

_CYCLE_DAYS = 146_097
"""The days of 400 years, after which weekdays and leap years come again, and so does what follows a rule."""


class Window(ABC):
    """Divides rows into windows, each from its start up to, but without, its end."""

    merges: ClassVar[bool] = False
    """Whether rows of a key that touch each other make one window, so that windows grow."""

    gap: int = 0
    """How long after its last row such a window ends."""

    @abstractmethod
    def panes(self, times: Micros) -> tuple[Micros, Micros]:
        """Return the pane of each event time, as starts and ends: the largest part that windows do not divide.

        Times are in the years 1 to 9999; starts and ends may be beyond.
        """

    def widened(self, panes: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return rows of panes as rows of windows, once for each window of a pane, without merging any.

        ``panes`` has the columns of ``keys``, then those of start and end, which may be null for rows without a time.
        """
        del keys
        return panes


@attrs.frozen(init=False)
class Sliding(Window):
    """Windows of a fixed size, one of which begins every ``slide``: at 1970-01-01 00:00 UTC, and so on.

    Args:
        size: the size of a window: a timedelta, or a text such as ``"10m"``.
        slide: how long after a window the next one begins; at most ``size``.

    Raises:
        ConfigError: a duration is not more than zero, or ``slide`` is more than ``size``.
    """

    size: int
    slide: int

    @checked_arguments
    def __init__(self, size: Duration, slide: Duration) -> None:
        sizes = _micros(size, "the size of a window"), _micros(slide, "the slide of a window")
        if sizes[1] > sizes[0]:
            raise ConfigError(
                f"windows of {size} that begin every {slide} leave out rows; slide must be at most the size"
            )
        self.__attrs_init__(*sizes)

    @property
    def _pane(self) -> int:
        return math.gcd(self.size, self.slide)

    def panes(self, times: Micros) -> tuple[Micros, Micros]:
        """Return the pane of each event time."""
        starts = times - times % self._pane  # numpy's remainder is never negative, also before 1970
        return starts, starts + self._pane

    def widened(self, panes: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return rows of panes as rows of windows."""
        del keys
        if self._pane == self.size:
            return panes
        timed = panes.filter(pc.is_valid(panes[START]))
        pane_starts = micros_in(timed[START])
        last = pane_starts - pane_starts % self.slide
        # The last window that holds a pane begins at or before it, and the others each a slide earlier.
        counts = (last + self.size - (pane_starts + self._pane)) // self.slide + 1
        at = np.repeat(np.arange(len(counts)), counts)
        starts = last[at] - self.slide * (np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts))
        return pa.concat_tables(
            [with_windows(timed.take(at), starts, starts + self.size), panes.filter(pc.is_null(panes[START]))]
        )


class Tumbling(Sliding):
    """Windows of a fixed size, one after another.

    Args:
        size: the size of a window.

    Raises:
        ConfigError: the size is not more than zero.
    """

    @checked_arguments
    def __init__(self, size: Duration) -> None:
        super().__init__(size, size)


@checked_class
@attrs.frozen
class _Calendar(Window):
    """Windows of the calendar of a time zone.

    Args:
        zone: the time zone.

    Raises:
        ConfigError: there is no such zone.
    """

    zone: str = "UTC"

    def __attrs_post_init__(self) -> None:
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ConfigError(f"there is no time zone {self.zone!r}; give one such as 'Europe/Berlin'") from error

    def _local(self, times: Micros) -> Micros:
        local = micros_in(pc.local_timestamp(timestamps(times).cast(pa.timestamp("us", tz=self.zone))))
        is_ruled = times >= _RULED_FROM * _DAY
        if is_ruled.any():
            zone, local = ZoneInfo(self.zone), local.copy()
            minutes, minute = _distinct(times[is_ruled] // _MINUTE)
            deltas = [datetime_at(_as_ruled(each * _MINUTE)).astimezone(zone).utcoffset() for each in minutes.tolist()]
            offsets = [(each or dt.timedelta()) // MICROSECOND for each in deltas]
            local[is_ruled] = times[is_ruled] + np.array(offsets, np.int64)[minute]
        return local


def _as_ruled(time: int) -> int:
    """Return the time of the years 2038 to 2437 at which clocks show what they show at another time since then."""
    return _RULED_FROM * _DAY + (time - _RULED_FROM * _DAY) % (_CYCLE_DAYS * _DAY)


class Days(_Calendar):
    """The days of a time zone, from midnight to midnight: 24 hours, or 23 or 25 where clocks are changed."""

    def panes(self, times: Micros) -> tuple[Micros, Micros]:
        """Return the day of each event time."""
        shown = self._local(times) // _DAY
        starts, ends = self._days(shown)
        # Clocks that go back after midnight show the day before once more, when the next one has begun.
        moves = (times >= ends).astype(np.int64) - (times < starts)
        return self._days(shown + moves) if moves.any() else (starts, ends)

    def _days(self, days: Micros) -> tuple[Micros, Micros]:
        numbers, day = _distinct(days)
        # By Python's rules, because a midnight that clocks skip or show twice is an error in Arrow.
        bounds = [(self._midnight(each), self._midnight(each + 1)) for each in numbers.tolist()]
        starts, ends = np.array(bounds, dtype=np.int64).reshape(-1, 2).T
        return starts[day], ends[day]

    def _midnight(self, day: int) -> int:
        # Python knows no years before 1 and after 9999, which a day of the first or the last one may touch.
        shown = day * _DAY if MICROS_MIN <= day * _DAY <= MICROS_MAX else _as_ruled(day * _DAY)
        midnights = (datetime_at(shown).replace(tzinfo=ZoneInfo(self.zone), fold=fold) for fold in (0, 1))
        midnight, after = map(micros_at, midnights)
        if after < midnight:  # clocks skip it, perhaps from before it on: then the day begins where they do
            skipping = range(after, midnight)
            midnight = skipping[0] + bisect_left(skipping, shown, key=lambda time: self._local(np.array([time]))[0])
        return midnight + day * _DAY - shown


class Hours(_Calendar):
    """The hours of a time zone, which differ from those of UTC in zones that are apart by a part of an hour.

    Where clocks are changed by a part of an hour, one hour ends at the change, and another begins there.
    """

    def panes(self, times: Micros) -> tuple[Micros, Micros]:
        """Return the hour of each event time."""
        starts, hour = _distinct(times - self._local(times) % _HOUR)
        ends = starts + _HOUR
        first, last = (self._starts_of_hours(each) != starts % _HOUR for each in (starts, ends - 1))
        for at in np.flatnonzero(first | last).tolist():
            change = self._change(int(starts[at]), int(ends[at]) - 1)
            (starts if first[at] else ends)[at] = change
        return starts[hour], ends[hour]

    def _starts_of_hours(self, times: Micros) -> Micros:
        """Return how far the hours at some times begin after those of UTC."""
        return (times - self._local(times)) % _HOUR

    def _change(self, before: int, after: int) -> int:
        """Return the first moment between two from which on hours begin as at the second."""
        start = self._starts_of_hours(np.array([after]))[0]
        while after - before > 1:
            middle = (before + after) // 2
            if self._starts_of_hours(np.array([middle]))[0] == start:
                after = middle
            else:
                before = middle
        return after


@attrs.frozen(init=False)
class Sessions(Window):
    """Windows of activity of a key: a session ends where nothing came for ``gap``.

    A session begins with its first event and ends ``gap`` after its last one; an event at that very moment still
    belongs to it.

    Args:
        gap: how long a key must be silent.

    Raises:
        ConfigError: the gap is not more than zero.
    """

    merges = True
    gap: int = attrs.field()

    @checked_arguments
    def __init__(self, gap: Duration) -> None:
        self.__attrs_init__(_micros(gap, "the gap of sessions"))

    def panes(self, times: Micros) -> tuple[Micros, Micros]:
        """Return the session of each event if it were the only one."""
        return times, times + self.gap

    def widened(self, panes: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return the rows of each session with its start and its end."""
        timed = panes.filter(pc.is_valid(panes[START]))
        merged = with_windows(timed, *sessions(timed, keys))
        return pa.concat_tables([merged, panes.filter(pc.is_null(panes[START]))])


def _micros(value: Duration, what: str) -> int:
    return micros_of(duration(value, what), what)


def window_of(value: Window | Duration) -> Window:
    """Return a window: one of the kinds, or a tumbling one of a duration."""
    return value if isinstance(value, Window) else Tumbling(duration(value, "the size of a window"))


def window_name(window: Window) -> str:
    """Return a kind of windows as a part of a name, such as ``5m``, ``1h-every-5m``, ``sessions-30m``, ``days``."""
    if window.merges:
        return f"sessions-{short(dt.timedelta(microseconds=window.gap))}"
    size, slide = getattr(window, "size", None), getattr(window, "slide", None)
    if size is None or slide is None:
        return type(window).__name__.lower()
    name = short(dt.timedelta(microseconds=size))
    return name if slide == size else f"{name}-every-{short(dt.timedelta(microseconds=slide))}"


def _distinct(numbers: Micros) -> tuple[Micros, Micros]:
    """Return the distinct ones of some numbers, and the position of each number among them."""
    encoded = pa.array(numbers).dictionary_encode()
    return encoded.dictionary.to_numpy(zero_copy_only=False).copy(), encoded.indices.to_numpy(zero_copy_only=False)


def sessions(rows: pa.Table, keys: Sequence[str]) -> tuple[Micros, Micros]:
    """Return the start and the end of each row's session: that of all rows of its key that touch one another."""
    starts, ends, ids = micros_in(rows[START]), micros_in(rows[END]), key_ids(rows, keys)
    count = len(starts)
    if not count:
        return starts, ends
    order = np.lexsort((starts, ids))
    own_keys, own_starts, own_ends = ids[order], starts[order], ends[order]
    # The largest end so far of each key, in one sweep: as ranks, which leave room for the key above them.
    by_end = np.sort(own_ends)
    ranks = np.searchsorted(by_end, own_ends)
    reached = by_end[np.maximum.accumulate(own_keys * count + ranks) % count]
    begins = np.ones(count, dtype=bool)
    begins[1:] = (own_keys[1:] != own_keys[:-1]) | (own_starts[1:] > reached[:-1])
    session = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], count) - 1
    found_starts, found_ends = np.empty_like(starts), np.empty_like(ends)
    found_starts[order], found_ends[order] = own_starts[first][session], reached[last][session]
    return found_starts, found_ends


def with_windows(rows: pa.Table, starts: Micros, ends: Micros) -> pa.Table:
    """Return rows with other windows."""
    for name, times in ((START, starts), (END, ends)):
        rows = rows.set_column(rows.schema.get_field_index(name), name, timestamps(times))
    return rows
