"""``TimerCommitter``: own steps that keep a value for each key, and are called when the watermark passes a time."""

from __future__ import annotations

import datetime as dt
import heapq
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from committers.event_time.clock import Watermark, timed_input_mistakes
from committers.event_time.timed import EXPIRES, is_last_task, no_watermark
from committers.event_time.times import MICROS_MAX
from state import DeltaExpiringRows
from txtopo import BatchBolt, BatchOutputCollector, Fields, ICommitter, TopologyContext, TransactionAttempt, Tuple
from txtopo.api.abilities import Inputs, KeepsByKey
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.utc import datetime_at, in_utc, micros_at
from txtopo.errors import FieldsError


class TimerCommitter(BatchBolt, ICommitter, KeepsByKey):
    """A committer that keeps a value for each key, and sets timers that fire when the watermark passes them.

    It counts timers that have ``fired``; the gauge ``timers`` is the number of those that wait.

    *You* subclass it; subscribe it to the stream by ``fields_grouping`` on the key, and to an :class:`EventClock` by
    ``all_grouping``; and give both states to ``builder.set_state``: one of values, any keyed state, and one of timers,
    from :meth:`timers_state`. What it emits goes to bolts of the commit phase.
    *txtopo* guarantees that the methods are called in the commit phase, in txid order: first :meth:`on_rows` for each
    key of the transaction, then :meth:`on_timer` for each timer that the watermark after it has passed, by time and
    then by key. Each timer fires once, however often transactions are replayed.

    Args:
        values: the name of the state of values in ``builder.set_state``.
        timers: the name of the state of timers.
        clock: the component id of the clock.
        key: the key fields, each with a type.
    """

    @checked_arguments
    def __init__(self, values: str, timers: str, *, clock: str, key: Fields) -> None:
        if EXPIRES in key:
            raise FieldsError(f"a TimerCommitter has a column {EXPIRES!r} of its own; give your key another name")
        self._values_name, self.timers_name, self._clock, self._key = values, timers, clock, key

    @property
    def grouped_by(self) -> Fields:
        """The fields of the key: one task must have all rows of a key."""
        return self._key

    def timers_state(self, path: str | os.PathLike[str], **options: Any) -> DeltaExpiringRows:
        """Return the state of timers; ``options`` are the table's."""
        return DeltaExpiringRows(path, self._key + Fields(f"{EXPIRES}: timestamp"), EXPIRES, **options)

    @abstractmethod
    def on_rows(self, key: Any, rows: Sequence[Tuple], old: Any) -> Any:
        """Return the new value of a key, given the tuples that a transaction brings for it; None removes it.

        ``key`` is the bare value of one key field, or a tuple of several, times in UTC; ``old`` is None if there is no
        value.
        """

    @abstractmethod
    def on_timer(self, key: Any, time: dt.datetime, old: Any) -> Any:
        """Return the new value of a key, one of whose timers has fired; None removes it."""

    @property
    def watermark(self) -> dt.datetime | None:
        """The watermark after the transaction before, None at first: what a row says of an earlier time is late."""
        before = None if self._watermark is None else self._watermark.before
        return None if before is None else datetime_at(before)

    def set_timer(self, key: Any, time: dt.datetime) -> None:
        """Let :meth:`on_timer` be called when the watermark has reached ``time``, perhaps in this very transaction.

        The end of a bounded source lets all timers fire, but none that is set then.
        """
        self._set.append((*map(in_utc, key if len(self._key) > 1 else (key,)), time))

    def input_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return the key fields that a stream lacks, and what is wrong with the clock."""
        return timed_input_mistakes(self._clock, self._key, inputs)

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no rows; a subclass that overrides it calls this one."""
        self._values = context.state(self._values_name)
        self._timers = context.state(self.timers_name)
        self._watermark: Watermark | None = None
        self._rows: dict[Any, list[Tuple]] = {}
        self._set: list[tuple[Any, ...]] = []

    def execute(self, tuple: Tuple) -> None:
        """Take a row of the stream, or the watermark."""
        if tuple.source_component == self._clock:
            self._watermark = Watermark.of(tuple)
            return
        key = [in_utc(tuple[name]) for name in self._key]
        self._rows.setdefault(key[0] if len(key) == 1 else (*key,), []).append(tuple)

    def finish_batch(self) -> None:
        """Call the methods; the last task calls those of timers."""
        context = self.context
        if self._watermark is None:
            raise no_watermark(self._clock, context)
        rows = self._rows
        if rows:
            self._values_after(list(rows), lambda key, old: self.on_rows(key, rows[key], old))
        # The last task takes the timers of all; each one fires those that it sets for a time that has passed already.
        self._fire(self._watermark.after if is_last_task(context) else None)

    def _values_after(self, keys: Sequence[Any], function: Any) -> None:
        """Replace the value of each key; a method is called once for each, however often the state asks."""
        olds = [None if value is None else value.value for value in self._values.multi_get(keys)]
        news = {key: function(key, old) for key, old in zip(keys, olds, strict=True)}
        values = {key: new for key, new in news.items() if new is not None}
        removed = [key for (key, new), old in zip(news.items(), olds, strict=True) if new is None and old is not None]
        if values:
            self._values.multi_put(values)
        if removed:
            self._values.multi_remove(removed)

    def _fire(self, watermark: int | None) -> None:
        # The state refuses a row that has expired already, so such a timer fires without having been there.
        due, waiting = self._passed(self._timers.taken_until())
        if waiting:
            self._timers.append(waiting)
        if watermark is not None:
            due.update(_rows(self._timers.take_expired(watermark), [EXPIRES, *self._key]))
        until, fired = self._timers.taken_until(), 0
        waiting = []
        queue = [(_order(timer), timer) for timer in due]
        heapq.heapify(queue)
        while queue:
            _, timer = heapq.heappop(queue)
            due.remove(timer)
            time, *parts = timer
            key = parts[0] if len(parts) == 1 else tuple(parts)
            self._values_after([key], lambda key, old, time=time: self.on_timer(key, time, old))
            fired += 1
            if until == MICROS_MAX:
                self._set = []  # a timer that always sets the next one would never let the run end
            # One that has passed, too, has its place among the others, as if the watermark had come by in small steps.
            passed, later = self._passed(until)
            waiting += later
            for other in passed - due:
                due.add(other)
                heapq.heappush(queue, (_order(other), other))
        if waiting:
            self._timers.append(waiting)
        if watermark is not None:
            self.context.gauge("timers", self._timers.rows_held())
        self.context.count("fired", fired)

    def _passed(self, until: int | None) -> tuple[set[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Take the timers that were set: those for a time up to ``until``, time first, and rows of the others."""
        rows, self._set = self._set, []
        passed = [row for row in rows if until is not None and micros_at(row[-1]) <= until]
        waiting = [row for row in rows if until is None or micros_at(row[-1]) > until]
        return {(datetime_at(micros_at(time)), *key) for *key, time in passed}, waiting


def _order(timer: tuple[Any, ...]) -> tuple[Any, ...]:
    time, *parts = timer
    return (time, *((part is None, 0 if part is None else part) for part in parts))


def _rows(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the distinct rows of some columns."""
    distinct = table.select(names).group_by(names).aggregate([])
    return list(zip(*(column.to_pylist() for column in distinct.columns), strict=True))
