"""``EventClock``: the watermark of a stream, moved by each transaction in txid order."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from committers.event_time.times import MICROS_MAX, TIMESTAMP, event_times, micros_in, micros_of
from committers.inputs import Inputs, field_mistakes
from state import DeltaState
from txtopo import BatchBolt, BatchOutputCollector, Fields, ICommitter, TopologyContext, TransactionAttempt, Tuple
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.utc import MICROS_MIN, datetime_at, micros_at
from txtopo.api.reduction import Combiner
from txtopo.api.time_to_live import CLOCK_FIELD, CLOCK_KEY
from txtopo.errors import TopologyError

_REACHED_MAX = MICROS_MAX - 1
"""The last watermark that event times can reach: that after all times is left to the end of a source."""

_ALL = CLOCK_KEY
"""The key of the row that holds the watermark, and of the only row if the stream names no partition."""


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


class EventClock(BatchBolt, ICommitter):
    """Moves the watermark: the event time below which nothing is waited for any more.

    The watermark after transaction N is the largest event time of the transactions up to N less ``delay``; it never
    falls. It is a value of a state of its own, so a replay moves it as the first attempt did, and what a window has
    said never changes. All that reads it subscribes to the clock by ``all_grouping``, which also lets the clock run
    before it.

    Its gauges are ``watermark``, of each partition too, and ``watermark_lag_seconds``: how far it is behind the time at
    which the transaction was planned.

    *You* give it one task and subscribe it to the stream with the event times by ``global_grouping``. What reaches it
    is only the largest time of each batch.

    Args:
        state: the name of the clock's state in ``builder.set_state``; declare it with :meth:`state`.
        time: the field with the event time, a ``timestamp``; rows without one do not move the clock.
        delay: how long after the largest event time an earlier one may still come.
        partition: the field that names the row's source partition; null is a name, too. Then the watermark is that of
            the slowest partition; without it, that of all rows.
        idle_after: how long a partition may bring nothing until the others do not wait for it. If all are silent for so
            long, the watermark goes on with the time at which transactions are planned, and the run begins
            transactions without input so that it does: then the last windows close. None: it stands still.
        ahead_max: how far an event time may be ahead of the time at which its transaction was planned. Those that are
            further ahead, such as times in another unit, do not move the clock. None: any up to the year 9999.
        close_at_end: whether the watermark moves past all event times at the end of a bounded source. It stays there:
            if the source grows and the topology runs again, all that it brings is late.

    Raises:
        ConfigError: a duration is not one, or negative.
    """

    output_fields = Fields("attempt", "before", "after", "limit")

    @checked_arguments
    def __init__(  # noqa: PLR0913 - each has a default, and is named
        self,
        state: str,
        *,
        time: str,
        delay: dt.timedelta,
        partition: str | None = None,
        idle_after: dt.timedelta | None = None,
        ahead_max: dt.timedelta | None = None,
        close_at_end: bool = False,
    ) -> None:
        self._state_name = state
        self._time = time
        self._partition = partition
        self._delay = micros_of(delay, "delay of an EventClock", may_be_zero=True)
        self._idle_after = None if idle_after is None else micros_of(idle_after, "idle_after of an EventClock")
        self._ahead_max = (
            None if ahead_max is None else micros_of(ahead_max, "ahead_max of an EventClock", may_be_zero=True)
        )
        self.quiet_after = idle_after
        self.at_end = close_at_end

    @staticmethod
    def state(path: str | os.PathLike[str]) -> DeltaState:
        """Return the clock's state: a table of the watermark, and of the times of each partition if there are any."""
        return DeltaState(
            path,
            key=Fields("partition: string"),
            value=Fields(
                "seen: timestamp", "active: timestamp", f"{CLOCK_FIELD}: timestamp", "partitions: array<string>"
            ),
        )

    def input_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return the fields that a stream lacks."""
        return field_mistakes([self._time] if self._partition is None else [self._time, self._partition], inputs)

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
        self._seen: dict[str, int] = {}
        self._last = self._limit(context.planned_at)
        """The last event time that moves the clock."""

    def combiner(self) -> Combiner:
        """Return how a batch becomes its largest time, of each partition."""
        keys = [] if self._partition is None else [self._partition]
        return FirstStep(keys, [*keys, self._time], self.latest)

    def execute(self, tuple: Tuple) -> None:
        """See one event time."""
        time = tuple[self._time]
        if time is not None:
            self._see(_ALL if self._partition is None else _name(tuple[self._partition]), micros_at(time))

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """See the event times of a batch."""
        latest = self.latest(pa.Table.from_batches([batch]), self.context.planned_at)
        names = [_ALL] * len(latest) if self._partition is None else map(_name, latest[self._partition].to_pylist())
        for name, time in zip(names, micros_in(latest[self._time]).tolist(), strict=True):
            self._see(name, time)

    def latest(self, rows: pa.Table, planned_at: dt.datetime) -> pa.Table:
        """Return the largest event time of some rows, or that of each partition; no row if there is none."""
        keys = [] if self._partition is None else [self._partition]
        timed = rows.select(keys).append_column(self._time, event_times(rows, self._time))
        limit = pa.scalar(self._limit(planned_at), pa.int64()).cast(TIMESTAMP)
        if pc.greater(pc.max(timed[self._time]), limit).as_py():
            timed = timed.filter(pc.less_equal(timed[self._time], limit))
        latest = timed.group_by(keys).aggregate([(self._time, "max")])
        latest = latest.select([*keys, f"{self._time}_max"]).rename_columns([*keys, self._time])
        return latest.filter(pc.is_valid(latest[self._time]))

    def finish_batch(self) -> None:
        """Move the watermark, and tell those below."""
        now = micros_at(self.context.planned_at)
        stored: Any = self._state.get(_ALL)
        row: tuple[Any, ...] = (None,) * 4 if stored is None else stored.value
        seen, active, watermark, partitions = row
        if self._partition is None:
            known = {} if seen is None else {_ALL: (micros_at(seen), micros_at(active))}
        else:
            names = list(partitions or ())
            found: list[Any] = self._state.multi_get(names) if names else []
            times = [(micros_at(each.value[0]), micros_at(each.value[1])) for each in found]
            known = dict(zip(names, times, strict=True))
        for name, time in self._seen.items():
            known[name] = (max(time, known[name][0]) if name in known else time, now)
        before = None if watermark is None else micros_at(watermark)
        reached = MICROS_MAX if self.context.is_at_end and self.at_end else self._reached(known.values(), now)
        after = before if reached is None else max(reached, MICROS_MIN if before is None else before)
        # With partitions instead of none, or the other way round, the times begin anew, and the others are forgotten.
        begins_anew = stored is not None and (partitions is None) is not (self._partition is None)
        # A transaction that changes nothing writes nothing: there is no new version of the table for it.
        if self._seen or after != before or begins_anew:
            self._put(known, after)
        self.collector.emit((self.attempt, before, after, self._last))
        self._measure(known, after, now)

    def _measure(self, known: Mapping[str, tuple[int, int]], watermark: int | None, now: int) -> None:
        if watermark is not None:
            self.context.gauge("watermark", datetime_at(watermark))
            # After the end of a bounded source it is ahead.
            self.context.gauge("watermark_lag_seconds", max(0, now - watermark) / 1_000_000)
        for name, (seen, _) in known.items():
            if name != _ALL:
                self.context.gauge("watermark", datetime_at(max(seen - self._delay, MICROS_MIN)), of=name)

    def _see(self, partition: str, micros: int) -> None:
        if MICROS_MIN <= micros <= self._last:
            self._seen[partition] = max(micros, self._seen.get(partition, micros))

    def _limit(self, planned_at: dt.datetime) -> int:
        return MICROS_MAX if self._ahead_max is None else min(micros_at(planned_at) + self._ahead_max, MICROS_MAX)

    def _reached(self, partitions: Collection[tuple[int, int]], now: int) -> int | None:
        """Return the watermark, given each partition's largest event time, and when its last event came."""
        idle_after = self._idle_after
        waited_for = [seen for seen, active in partitions if idle_after is None or now - active < idle_after]
        if waited_for:
            return min(min(waited_for) - self._delay, _REACHED_MAX)
        # All are silent: event time goes on as fast as the clock on the wall, from where each of them has stopped.
        reached = [seen + now - active - (idle_after or 0) - self._delay for seen, active in partitions]
        return min(max(reached), _REACHED_MAX) if reached else None

    def _put(self, known: Mapping[str, tuple[int, int]], watermark: int | None) -> None:
        reached = None if watermark is None else datetime_at(watermark)
        rows: dict[Any, Any] = {
            name: (datetime_at(seen), datetime_at(active), None, None)
            for name, (seen, active) in known.items()
            if name in self._seen
        }
        own = known.get(_ALL, (None, None)) if self._partition is None else (None, None)
        seen, active = (None if each is None else datetime_at(each) for each in own)
        rows[_ALL] = (seen, active, reached, None if self._partition is None else sorted(known))
        self._state.multi_put(rows)


def _name(partition: Any) -> str:
    """Return a partition's name as the key of its row, which is neither that of the watermark nor that of another.

    The row of null is called None, so texts that could be taken for it, or for no text, stand in quotes.
    """
    is_quoted = isinstance(partition, str) and (partition in {"", "None"} or partition.startswith("'"))
    return f"'{partition}'" if is_quoted else f"{partition}"


def timed_input_mistakes(clock: str, names: Iterable[str], inputs: Inputs) -> Iterator[str]:
    """Yield what a committer misses that reads fields of each stream but a clock's, given the clock that it names."""
    rows = {each: fields for each, fields in inputs.items() if fields != EventClock.output_fields}
    clocks = [source for source, stream in inputs if (source, stream) not in rows]
    if clocks and clock not in clocks:
        yield f"has the clock {clock!r}, but subscribes to {clocks[0]!r}; write clock={clocks[0]!r}"
    elif not clocks:
        yield f"has the clock {clock!r}; give an EventClock that id, and subscribe to it by .all_grouping({clock!r})"
    yield from field_mistakes(names, rows)
