"""``EventClock``: the watermark of some streams, moved by each transaction in txid order."""

from __future__ import annotations

import datetime as dt
import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from committers.event_time.sources import (
    ALL,
    EventTime,
    Place,
    is_of_source,
    is_place_of,
    partition_name,
    place_name,
    reached_by,
    source_of,
)
from committers.event_time.times import MICROS_MAX, micros_in, micros_of
from committers.inputs import field_mistakes
from state import DeltaState
from txtopo import BatchBolt, BatchOutputCollector, Fields, ICommitter, TopologyContext, TransactionAttempt, Tuple
from txtopo.api.abilities import BoundsSkew, Inputs
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.utc import MICROS_MIN, datetime_at, micros_at
from txtopo.api.reduction import Combiner
from txtopo.api.time_to_live import CLOCK_FIELD
from txtopo.errors import ConfigError, TopologyError


@attrs.frozen
class Watermark:
    """What a clock tells those below it, in microseconds since 1970.

    ``before`` is the watermark after the transaction before, ``after`` that after this transaction; rows whose time is
    after ``limit`` are too far ahead. None: there is no watermark yet. ``MICROS_MAX`` is after all times.
    """

    before: int | None
    after: int | None
    limit: int

    @staticmethod
    def of(tuple: Tuple) -> Watermark:
        """Return what a clock has emitted."""
        return Watermark(*tuple.values[1:])


@attrs.frozen
class FirstStep(Combiner):
    """Combines a batch where its rows are emitted, by a function of them and of when their transaction was planned."""

    key: Sequence[str]
    fields: Sequence[str]
    step: Callable[[pa.Table, dt.datetime], pa.Table]

    def combine(self, batch: pa.RecordBatch, planned_at: dt.datetime) -> pa.RecordBatch | None:
        """Return the combined rows of a batch; None if there is none left, which cannot be sent."""
        combined = self.step(pa.Table.from_batches([batch]), planned_at).combine_chunks().to_batches()
        return combined[0] if combined else None


class EventClock(BatchBolt, ICommitter, BoundsSkew):
    """Moves the watermark: the event time below which nothing is waited for any more.

    The watermark after transaction N is the largest event time of the transactions up to N less the delay; it never
    falls. Over several sources it is the smallest of theirs, whatever is idle left out; a source that has brought
    nothing yet holds it back. It is a value of a separate state, so a replay moves it as the first attempt did, and
    what a window has said never changes. All that reads it subscribes to the clock by ``all_grouping``, which also lets
    the clock run before it.

    Its gauges are ``watermark``, of each source and partition too, and ``watermark_lag_seconds``: how far it is behind
    the time at which the transaction was planned.

    *You* give it one task and subscribe it to each component with event times by ``global_grouping``. What reaches it
    is only the largest time of each batch. The streams of one component are one source.

    A source that is added holds the watermark back until it has brought something; one that is left out does not.

    Args:
        state: the name of the clock's state in ``builder.set_state``; declare it with :meth:`state`.
        time: the field with the event time, a ``timestamp``, of every source.
        delay: how long after the largest event time an earlier one may still come.
        partition: the field that names the row's source partition; null is a name, too. Then the watermark is that of
            the slowest partition; without it, that of all rows.
        idle_after: how long a source, or a partition, may bring nothing until the others do not wait for it. If all are
            silent for so long, the watermark goes on with the time at which transactions are planned, and the run
            begins transactions without input so that it does: then the last windows close. None: it stands still.
        sources: an :class:`EventTime` for each component, if their fields, delays or idle times differ: instead of the
            four arguments before.
        ahead_max: how far an event time may be ahead of the time at which its transaction was planned. Those that are
            further ahead, such as times in another unit, do not move the clock. None: any up to the year 9999.
        skew_max: how far the largest event time of a source may be ahead of that of another one. A source that is
            further ahead waits while the other has input: its spout is left out of the transactions that are planned.
            Those that are pending already are not, so it may be ahead by what they hold, too. None: none waits.
        close_at_end: whether the watermark moves past all event times at the end of a bounded source. It stays there:
            if the source grows and the topology runs again, all that it brings is late.

    Raises:
        ConfigError: a duration is not one, or negative; or there are both ``time`` and ``sources``, or neither.
    """

    output_fields = Fields("attempt", "before", "after", "limit")

    @checked_arguments
    def __init__(  # noqa: PLR0913 - each has a default, and is named
        self,
        state: str,
        *,
        time: str | None = None,
        delay: dt.timedelta | None = None,
        partition: str | None = None,
        idle_after: dt.timedelta | None = None,
        sources: Mapping[str, EventTime] | None = None,
        ahead_max: dt.timedelta | None = None,
        skew_max: dt.timedelta | None = None,
        close_at_end: bool = False,
    ) -> None:
        self._state_name = self.skew_state = state
        self._every: EventTime | None = None
        """The event time of all sources; None: each has its own."""
        if time is not None and delay is not None and sources is None:
            self._every = EventTime(time, delay=delay, partition=partition, idle_after=idle_after)
        elif not sources or any(each is not None for each in (time, delay, partition, idle_after)):
            raise ConfigError(
                "an EventClock has either time= and delay=, which hold for all that it subscribes to, or "
                "sources={'orders': EventTime('at', delay=…), …}"
            )
        self._own = dict(sources or {})
        self._ahead_max = (
            None if ahead_max is None else micros_of(ahead_max, "ahead_max of an EventClock", may_be_zero=True)
        )
        if skew_max is not None:
            micros_of(skew_max, "skew_max of an EventClock")
        self.skew_max = skew_max
        quiet = [each.quiet_after for each in self._own.values() if each.quiet_after is not None]
        self.quiet_after = min(quiet, default=None) if self._every is None else idle_after
        self.at_end = close_at_end

    @staticmethod
    def state(path: str | os.PathLike[str]) -> DeltaState:
        """Return the clock's state: a table of the watermark, and of the times of sources and partitions."""
        return DeltaState(
            path,
            key=Fields("partition: string"),
            value=Fields(
                "seen: timestamp", "active: timestamp", f"{CLOCK_FIELD}: timestamp", "partitions: array<string>"
            ),
        )

    def input_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return the fields that a stream lacks, the components without an event time, and what is no source."""
        for (source, stream), fields in inputs.items():
            if self._every is None and source not in self._own:
                yield f"has no event time of {source!r}; write sources={{{source!r}: EventTime('at', delay=…), …}}"
            else:
                yield from field_mistakes(self._of(source).fields, {(source, stream): fields})
        for source in self._own.keys() - {source for source, _ in inputs}:
            yield f"has the source {source!r}, but does not subscribe to it; add .global_grouping({source!r})"

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no event; raise TopologyError if another task would move the same watermark."""
        tasks = len(context.component_tasks(context.this_component_id))
        if tasks > 1:
            raise TopologyError(
                f"an EventClock has one task, not {tasks}; declare it with parallelism 1, by global_grouping",
                component=context.this_component_id,
            )
        self._state = context.state(self._state_name)
        self._seen: dict[tuple[str, str | None], int] = {}
        """The largest event time of each source and partition in this transaction."""
        self._last = self._limit(context.planned_at)
        """The last event time that moves the clock."""

    def combiner_of(self, source: str) -> Combiner:
        """Return how a batch becomes its largest time, of each partition."""
        event_time = self._of(source)
        return FirstStep(event_time.keys, event_time.fields, functools.partial(self._latest, event_time))

    def execute(self, tuple: Tuple) -> None:
        """See one event time."""
        event_time = self._of(tuple.source_component)
        time = tuple[event_time.time]
        if time is not None:
            name = None if event_time.partition is None else partition_name(tuple[event_time.partition])
            self._see(tuple.source_component, name, micros_at(time))

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """See the event times of a batch."""
        source = self.context.source.component
        event_time = self._of(source)
        latest = event_time.latest(pa.Table.from_batches([batch]), self._last)
        names: Iterable[str | None] = [None] * len(latest)
        if event_time.partition is not None:
            names = map(partition_name, latest[event_time.partition].to_pylist())
        for name, time in zip(names, micros_in(latest[event_time.time]).tolist(), strict=True):
            self._see(source, name, time)

    def _of(self, source: str) -> EventTime:
        return self._own[source] if self._every is None else self._every

    def _latest(self, event_time: EventTime, rows: pa.Table, planned_at: dt.datetime) -> pa.Table:
        return event_time.latest(rows, self._limit(planned_at))

    def finish_batch(self) -> None:
        """Move the watermark, and tell those below."""
        now = micros_at(self.context.planned_at)
        sources = {source: self._of(source) for source, _ in self.context.this_sources}
        stored: Any = self._state.get(ALL)
        row: tuple[Any, ...] = (None,) * 4 if stored is None else stored.value
        *_, watermark, names = row
        has_names = len(sources) > 1 or any(source.partition is not None for source in sources.values())
        places = self._stored_places(self._state.multi_get, sources, row) if (names is not None) is has_names else {}
        moved = self._moved(sources, places, now)
        before = None if watermark is None else micros_at(watermark)
        floor = MICROS_MIN if before is None else before
        moved = self._waiting(sources, places, floor, now) | moved
        places |= moved
        reached = MICROS_MAX if self.context.is_at_end and self.at_end else reached_by(places, now)
        after = before if reached is None else max(reached, floor)
        # With names instead of none, or the other way round, the times begin anew, and the others are forgotten.
        begins_anew = stored is not None and (names is not None) is not has_names
        # A transaction that changes nothing writes nothing: there is no new version of the table for it.
        if moved or after != before or begins_anew:
            self._put(places, moved, after, has_names=has_names)
        self.collector.emit((self.attempt, before, after, self._last))
        self._measure(places, after, now)

    def event_times(
        self, multi_get: Callable[[Sequence[Any]], Sequence[Any]], components: Collection[str]
    ) -> Mapping[str, int]:
        """Return the largest event time of each component, in microseconds since 1970."""
        (stored,) = multi_get([ALL])
        sources = {name: self._of(name) for name in components}
        if stored is None or len(sources) == 1 or stored.value[-1] is None:
            return {}
        latest: dict[str, int] = {}
        for name, place in self._stored_places(multi_get, sources, stored.value).items():
            if place.seen is not None:
                component = next(source for source in sources if is_place_of(name, place_name(source, None, sources)))
                latest[component] = max(place.seen, latest.get(component, place.seen))
        return latest

    def _stored_places(
        self, multi_get: Callable[[Sequence[Any]], Sequence[Any]], sources: Mapping[str, EventTime], row: Sequence[Any]
    ) -> dict[str, Place]:
        """Return the place of each source or partition that is in the state, given its row of the watermark."""
        *times_of_all, _, names = row
        if names is None:
            (time,) = sources.values()
            return {} if times_of_all[0] is None else {ALL: Place.of(time, times_of_all)}
        times = {name: each for name in names if (each := source_of(name, sources)) is not None}
        stored: Sequence[Any] = multi_get(list(times)) if times else []
        return {name: Place.of(each, row.value) for (name, each), row in zip(times.items(), stored, strict=True)}

    def _moved(self, sources: Mapping[str, EventTime], known_places: dict[str, Place], now: int) -> dict[str, Place]:
        """Return the places that have changed; of several sources, one that is new is waited for from now on."""
        moved = {}
        for (source, partition), time in self._seen.items():
            name = place_name(source, partition, sources)
            old = known_places.get(name)
            moved[name] = Place(sources[source], time if old is None or old.seen is None else max(time, old.seen), now)
        if len(sources) > 1:
            for source, event_time in sources.items():
                name, places = place_name(source, None, sources), {*known_places, *moved}
                if any(place != name and is_place_of(place, name) for place in places):
                    known_places.pop(name, None)  # its partitions are known
                elif name not in places:
                    moved[name] = Place(event_time, None, now)
        return moved

    def _waiting(
        self, sources: Mapping[str, EventTime], places: Mapping[str, Place], watermark: int, now: int
    ) -> dict[str, Place]:
        """Return the places of sources that wait for another one, as active now: they are not silent.

        If one counted as idle, the watermark would pass it as soon as the other one does, and what it has would be
        late. One that was idle before, and that the watermark has passed, stays so.
        """
        ahead = [place_name(source, None, sources) for source in self.context.sources_ahead]
        return {
            name: attrs.evolve(place, active=now)
            for name, place in places.items()
            if place.time.idle_after is not None
            and any(is_place_of(name, each) for each in ahead)
            and place.seen is not None
            and (place.time.is_waited_for(place.active, now) or place.time.reached(place.seen) >= watermark)
        }

    def _measure(self, places: Mapping[str, Place], watermark: int | None, now: int) -> None:
        if watermark is not None:
            self.context.gauge("watermark", datetime_at(watermark))
            # After the end of a bounded source it is ahead.
            self.context.gauge("watermark_lag_seconds", max(0, now - watermark) / 1_000_000)
        for name, place in places.items():
            if name != ALL and place.seen is not None:
                of = name.removeprefix("'").replace("'", "", 1) if is_of_source(name) else name
                self.context.gauge("watermark", datetime_at(max(place.time.reached(place.seen), MICROS_MIN)), of=of)

    def _see(self, source: str, partition: str | None, micros: int) -> None:
        if MICROS_MIN <= micros <= self._last:
            self._seen[source, partition] = max(micros, self._seen.get((source, partition), micros))

    def _limit(self, planned_at: dt.datetime) -> int:
        return MICROS_MAX if self._ahead_max is None else min(micros_at(planned_at) + self._ahead_max, MICROS_MAX)

    def _put(
        self, places: Mapping[str, Place], moved: Mapping[str, Place], watermark: int | None, *, has_names: bool
    ) -> None:
        rows: dict[Any, Any] = {name: (*place.row, None, None) for name, place in moved.items()}
        times_of_all = (None, None) if has_names or ALL not in places else places[ALL].row
        reached = None if watermark is None else datetime_at(watermark)
        rows[ALL] = (*times_of_all, reached, sorted(places) if has_names else None)
        self._state.multi_put(rows)


def clock_mistakes(clock: str, inputs: Inputs) -> Iterator[str]:
    """Yield what is wrong with the clock of a committer that names it."""
    clocks = [source for (source, _), fields in inputs.items() if fields == EventClock.output_fields]
    if clocks and clock not in clocks:
        yield f"has the clock {clock!r}, but subscribes to {clocks[0]!r}; write clock={clocks[0]!r}"
    elif not clocks:
        yield f"has the clock {clock!r}; give an EventClock that id, and subscribe to it by .all_grouping({clock!r})"


def timed_input_mistakes(clock: str, names: Iterable[str], inputs: Inputs) -> Iterator[str]:
    """Yield what a committer misses that reads fields of each stream but a clock's, given the clock that it names."""
    yield from clock_mistakes(clock, inputs)
    yield from field_mistakes(names, {each: own for each, own in inputs.items() if own != EventClock.output_fields})
