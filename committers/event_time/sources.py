"""The sources of a clock: where their event times are, how long they are waited for, and how far each has come."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from committers.event_time.times import MICROS_MAX, TIMESTAMP, event_times, micros_of
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.utc import datetime_at, micros_at
from txtopo.api.time_to_live import CLOCK_KEY

_REACHED_MAX = MICROS_MAX - 1
"""The last watermark that event times can reach: that after all times is left to the end of a source."""

ALL = CLOCK_KEY
"""The key of the row that holds the watermark, and of the only row if the stream names no partition."""


class EventTime:
    """The event time of one source of an :class:`EventClock`.

    Args:
        time: the field with the event time, a ``timestamp``; rows without one do not move the clock.
        delay: how long after the source's largest event time an earlier one may still come.
        partition: the field that names the row's source partition; null is a name, too. Then the source is where its
            slowest partition is.
        idle_after: how long the source, or a partition, may bring nothing until the others do not wait for it. None:
            for ever.

    Raises:
        ConfigError: a duration is not one, or negative.
    """

    @checked_arguments
    def __init__(
        self, time: str, *, delay: dt.timedelta, partition: str | None = None, idle_after: dt.timedelta | None = None
    ) -> None:
        self.time = time
        self.partition = partition
        self.delay = micros_of(delay, "delay of an EventClock", may_be_zero=True)
        self.quiet_after = idle_after
        self.idle_after = None if idle_after is None else micros_of(idle_after, "idle_after of an EventClock")

    @property
    def keys(self) -> Sequence[str]:
        """The field of the partition, if there is one."""
        return [] if self.partition is None else [self.partition]

    @property
    def fields(self) -> Sequence[str]:
        """The fields that the clock reads."""
        return [*self.keys, self.time]

    def latest(self, rows: pa.Table, limit: int) -> pa.Table:
        """Return the largest event time of some rows up to a limit, or that of each partition; no row for none."""
        timed = rows.select(self.keys).append_column(self.time, event_times(rows, self.time))
        last = pa.scalar(limit, pa.int64()).cast(TIMESTAMP)
        if pc.greater(pc.max(timed[self.time]), last).as_py():
            timed = timed.filter(pc.less_equal(timed[self.time], last))
        latest = timed.group_by(self.keys).aggregate([(self.time, "max")])
        latest = latest.select([*self.keys, f"{self.time}_max"]).rename_columns(list(self.fields))
        return latest.filter(pc.is_valid(latest[self.time]))

    def is_waited_for(self, active: int, now: int) -> bool:
        """Return whether others wait for a source, or a partition, whose last event came at a time."""
        return self.idle_after is None or now - active < self.idle_after

    def reached(self, latest: int, silent: int = 0) -> int:
        """Return the watermark of a source, or a partition, given its largest event time.

        Args:
            latest: the largest event time.
            silent: for how long it has been silent, if event time goes on meanwhile.
        """
        return latest + max(0, silent - (self.idle_after or 0)) - self.delay


@attrs.frozen
class Place:
    """Where a source or a partition is: its largest event time, if it has brought one, and when its last event came."""

    time: EventTime
    seen: int | None
    active: int

    @staticmethod
    def of(time: EventTime, row: Sequence[dt.datetime | None]) -> Place:
        """Return a place of a row of the state, which begins with the two times."""
        latest, active = (None if each is None else micros_at(each) for each in row[:2])
        assert active is not None, "a row of a source or a partition has it"
        return Place(time, latest, active)

    @property
    def row(self) -> tuple[dt.datetime | None, dt.datetime]:
        """The two times as the state has them."""
        return None if self.seen is None else datetime_at(self.seen), datetime_at(self.active)


def reached_by(known: Mapping[str, Place], now: int) -> int | None:
    """Return the watermark of all sources and partitions; None if one that is waited for has brought nothing yet."""
    waited_for = [place for place in known.values() if place.time.is_waited_for(place.active, now)]
    if any(place.seen is None for place in waited_for):
        return None
    if waited_for:
        reached = [place.time.reached(place.seen) for place in waited_for if place.seen is not None]
        return min(*reached, _REACHED_MAX)
    # All are silent: event time goes on as fast as the clock on the wall, from where each of them has stopped.
    reached = [place.time.reached(place.seen, now - place.active) for place in known.values() if place.seen is not None]
    return min(max(reached), _REACHED_MAX) if reached else None


def place_name(source: str, partition: str | None, sources: Collection[str]) -> str:
    """Return the key of the row of a source or a partition; only several sources are named."""
    if len(sources) == 1:
        return ALL if partition is None else partition
    name = f"'{quote(source, safe='')}'"
    return name if partition is None else f"{name}/{partition}"


def is_place_of(name: str, source_name: str) -> bool:
    """Return whether the key of a row is that of a source with a name, or of one of its partitions."""
    return name == source_name or name.startswith(f"{source_name}/")


def is_of_source(name: str) -> bool:
    """Return whether the key of a row names one of several sources; those of partitions in quotes begin with two."""
    return name.startswith("'") and not name.startswith("''") and name != "'None'"


def source_of(name: str, sources: Mapping[str, EventTime]) -> EventTime | None:
    """Return the event time of a row's source; None if it is of none of these, or from before there were several."""
    if len(sources) == 1:
        return None if is_of_source(name) else next(iter(sources.values()))
    own, _, partition = name.partition("/")
    event_time = next((each for source, each in sources.items() if place_name(source, None, sources) == own), None)
    return None if event_time is not None and event_time.partition is None and partition else event_time


def partition_name(partition: Any) -> str:
    """Return a partition's name as the key of its row, which is neither that of the watermark nor that of another.

    The row of null is called None, so texts that could be taken for it, or for no text, stand in quotes.
    """
    is_quoted = isinstance(partition, str) and (partition in {"", "None"} or partition.startswith("'"))
    return f"'{partition}'" if is_quoted else f"{partition}"
