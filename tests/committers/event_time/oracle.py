"""What the committers of event time must say, in plain Python, row by row."""

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import attrs

from tests.committers.event_time.scripted import START

Row = tuple[dt.datetime | None, str | None, int | None]
"""Event time, key, value."""

Spans = Callable[[dt.datetime], list[tuple[dt.datetime, dt.datetime]]]
"""The windows of an event time."""


@attrs.define
class Clock:
    """The watermark of one source."""

    delay: dt.timedelta
    watermark: dt.datetime | None = None
    seen: dt.datetime | None = None

    def move(self, rows: Sequence[Row]) -> tuple[dt.datetime | None, dt.datetime | None]:
        """Take a transaction's rows; return the watermark before it and after it."""
        before = self.watermark
        times = [time for time, *_ in rows if time is not None]
        if times:
            self.seen = max([*times, *([self.seen] if self.seen else [])])
            self.watermark = max([self.seen - self.delay, *([before] if before else [])])
        return before, self.watermark


@attrs.define
class Said:
    """What is said of windows: (key, start, end) → [count, sum], each with the transaction that said it."""

    closed: dict[Hashable, Any] = attrs.field(factory=dict)
    late: dict[Hashable, Any] = attrs.field(factory=dict)
    untimed: dict[Hashable, Any] = attrs.field(factory=dict)


def _count(into: dict[Hashable, Any], key: Hashable, value: int | None) -> None:
    count, total = into.get(key, (0, None))
    into[key] = count + 1, total if value is None else (total or 0) + value


def windows(
    transactions: Sequence[Sequence[Row]],
    spans: Spans,
    delay: dt.timedelta,
    lateness: dt.timedelta,
    marks: Sequence[tuple[dt.datetime | None, dt.datetime | None]] = (),
) -> Said:
    """Return what is said of windows that do not merge, until the source ends.

    ``marks`` are the watermarks before and after each transaction, unless the source has one partition.
    """
    clock, said = Clock(delay), Said()
    is_open: dict[Hashable, Any] = {}
    for txid, rows in enumerate(transactions, 1):
        before, after = marks[txid - 1] if marks else clock.move(rows)
        for time, key, value in rows:
            if time is None:
                _count(said.untimed, (txid, key), value)
                continue
            for start, end in spans(time):
                is_late = before is not None and end + lateness <= before
                _count(
                    said.late if is_late else is_open, (txid, key, start, end) if is_late else (key, start, end), value
                )
        for key, start, end in [each for each in is_open if after is not None and each[2] + lateness <= after]:
            assert (key, start, end) not in said.closed, "a window is said once"
            said.closed[key, start, end] = (txid, *is_open.pop((key, start, end)))
    end_txid = len(transactions) + 1
    said.closed |= {each: (end_txid, *found) for each, found in is_open.items()}
    return said


def sessions(transactions: Sequence[Sequence[Row]], gap: dt.timedelta, delay: dt.timedelta) -> Said:
    """Return what is said of sessions, until the source ends: none touches another one of its key."""
    clock, said = Clock(delay), Said()
    is_open: dict[str | None, list[list[Any]]] = defaultdict(list)
    for txid, rows in enumerate(transactions, 1):
        before, after = clock.move(rows)
        for time, key, value in rows:
            if time is None:
                _count(said.untimed, (txid, key), value)
            elif (before is not None and time + gap < before) or any(
                of == key and start <= time + gap and time <= end for of, start, end in said.closed
            ):
                _count(said.late, (txid, key, time, time + gap), value)
            else:
                is_open[key].append([time, time + gap, 1, value])
        for key in list(is_open):
            merged = _merged(is_open[key])
            closed = [each for each in merged if after is not None and each[1] < after]
            said.closed |= {(key, each[0], each[1]): (txid, each[2], each[3]) for each in closed}
            is_open[key] = [each for each in merged if each not in closed]
    said.closed |= {
        (key, each[0], each[1]): (len(transactions) + 1, each[2], each[3]) for key in is_open for each in is_open[key]
    }
    return said


def _merged(spans: list[list[Any]]) -> list[list[Any]]:
    made: list[list[Any]] = []
    for start, end, count, total in sorted(spans, key=lambda each: each[:2]):
        if made and start <= made[-1][1]:
            last = made[-1]
            totals = [each for each in (last[3], total) if each is not None]
            made[-1] = [last[0], max(last[1], end), last[2] + count, sum(totals) if totals else None]
        else:
            made.append([start, end, count, total])
    return made


def first_rows(
    transactions: Sequence[Sequence[Row]], within: dt.timedelta, delay: dt.timedelta
) -> tuple[list[Any], list[Any]]:
    """Return the rows that a deduplication passes on, and those that are late, each with its transaction."""
    clock = Clock(delay)
    remembered: dict[str | None, dt.datetime] = {}
    passed, late = [], []
    for txid, rows in enumerate(transactions, 1):
        before, after = clock.move(rows)
        passed_ones = set()
        for time, key, value in sorted((row for row in rows if row[0] is not None), key=_with_nulls_last):
            assert time is not None
            if before is not None and time + within <= before:
                late.append((txid, time, key, value))
            elif key not in passed_ones:
                passed_ones.add(key)
                if key not in remembered:
                    remembered[key] = time + within
                    passed.append((txid, time, key, value))
        remembered = {key: expires for key, expires in remembered.items() if after is None or expires > after}
    return passed, late


def _with_nulls_last(row: Row) -> tuple[Any, ...]:
    return tuple((each is None, each if each is not None else 0) for each in (row[0], row[2]))


@attrs.define
class PartitionedClock:
    """The watermark of a source with partitions, some of which fall silent; its settings may change at any time."""

    watermark: dt.datetime | None = None
    last: dict[Any, tuple[dt.datetime, dt.datetime]] = attrs.field(factory=dict)
    """The largest event time of each partition, and when its last event came."""
    partition: str | None = None

    def move(
        self,
        rows: Sequence[tuple[dt.datetime | None, Any]],
        now: dt.datetime,
        *,
        delay: dt.timedelta,
        partition: str | None,
        idle_after: dt.timedelta | None,
        ahead_max: dt.timedelta | None,
        close_at_end: bool,
    ) -> tuple[dt.datetime | None, dt.datetime | None]:
        """Take a transaction's rows; return the watermark before it and after it."""
        del close_at_end
        if partition != self.partition:
            self.partition, self.last = partition, {}
        for time, name in rows:
            if time is not None and (ahead_max is None or time <= now + ahead_max):
                key = name if partition else "all"
                self.last[key] = max(time, self.last.get(key, (time,))[0]), now
        awake = [seen for seen, active in self.last.values() if not idle_after or now < active + idle_after]
        reached = [min(awake)] if awake else [seen + (now - active - idle_after) for seen, active in self.last.values()]
        before = self.watermark
        if reached and (before is None or max(reached) - delay > before):
            self.watermark = max(reached) - delay
        return before, self.watermark


@attrs.define
class ClockOfSources:
    """The watermark over several sources, each with its own settings, which may change, come and go at any time."""

    watermark: dt.datetime | None = None
    places: dict[tuple[str, Any], tuple[dt.datetime | None, dt.datetime]] = attrs.field(factory=dict)
    """The largest event time of each source and partition, and when its last event came; none of a source that is new."""

    def move(
        self,
        rows: Sequence[tuple[dt.datetime | None, str, Any]],
        now: dt.datetime,
        sources: dict[str, dict[str, Any]],
    ) -> tuple[dt.datetime | None, dt.datetime | None]:
        """Take a transaction's rows of time, source and partition; return the watermark before it and after it."""
        self.places = {
            (source, partition): found
            for (source, partition), found in self.places.items()
            if source in sources and (partition is None or sources[source]["partition"])
        }
        for time, source, name in rows:
            if time is not None and source in sources:
                place = source, (f"{name}" if sources[source]["partition"] else None)
                old = self.places.get(place, (None, now))[0]
                self.places[place] = max(time, old or time), now
        for source in sources:
            if any(each == source and partition is not None for each, partition in self.places):
                self.places.pop((source, None), None)
            elif (source, None) not in self.places:
                self.places[source, None] = None, now
        awake, asleep = [], []
        for (source, _), (seen, active) in self.places.items():
            own = sources[source]
            silent = now - active
            if own["idle_after"] is None or silent < own["idle_after"]:
                awake.append(seen and seen - own["delay"])
            elif seen is not None:
                asleep.append(seen + silent - own["idle_after"] - own["delay"])
        before = self.watermark
        reached = None if None in awake else min(awake) if awake else max(asleep, default=None)
        if reached is not None and (before is None or reached > before):
            self.watermark = reached
        return before, self.watermark


Timed = tuple[str, dt.datetime | None, str | None, int]
"""A row of a join: its side, event time, key and value."""


@attrs.define
class Joined:
    """What a join says, each with its transaction."""

    pairs: list[tuple[Any, ...]] = attrs.field(factory=list)
    """Txid, key, the values of both rows, None for no partner."""
    late: dict[str, list[tuple[Any, ...]]] = attrs.field(factory=lambda: {"left": [], "right": []})
    untimed: dict[str, list[tuple[Any, ...]]] = attrs.field(factory=lambda: {"left": [], "right": []})


def joined(
    transactions: Sequence[Sequence[Timed]],
    lower: dt.timedelta,
    upper: dt.timedelta,
    how: str,
    sources: dict[str, dict[str, Any]],
) -> Joined:
    """Return what an interval join says of rows, of which those of both sides end."""
    clock, said = ClockOfSources(), Joined()
    taken: list[tuple[int, Timed]] = []
    marks = []
    for txid, rows in enumerate(transactions, 1):
        before, after = clock.move([(time, side, None) for side, time, *_ in rows], START, sources)
        marks.append((txid, after))
        for side, time, key, value in rows:
            if time is None:
                said.untimed[side].append((txid, key, value))
            elif before is not None and time < before:
                said.late[side].append((txid, time, key, value))
            else:
                taken.append((txid, (side, time, key, value)))
    matched = set()
    for one, (txid, (side, time, key, value)) in enumerate(taken):
        for other, (its_txid, (its_side, its_time, its_key, its_value)) in enumerate(taken):
            assert time is not None
            assert its_time is not None
            is_pair = side == "left" and its_side == "right" and key == its_key and key is not None
            if is_pair and time + lower <= its_time <= time + upper:
                said.pairs.append((max(txid, its_txid), key, value, its_value))
                matched |= {one, other}
    for number, (txid, (side, time, key, value)) in enumerate(taken):
        if number not in matched and (how == "full" or (how == "left" and side == "left")):
            assert time is not None
            until = time + upper if side == "left" else time - lower
            passed = [at for at, after in marks if at >= txid and after is not None and until < after]
            end = passed[0] if passed else len(transactions) + 1
            said.pairs.append((end, key, value, None) if side == "left" else (end, key, None, value))
    return said
