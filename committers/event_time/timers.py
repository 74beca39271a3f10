"""``TimerCommitter``: own steps that keep a value for each key, and are called when the watermark passes a time."""

from __future__ import annotations

import datetime as dt
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from committers.event_time.clock import Watermark
from committers.event_time.timed import EXPIRES, no_watermark
from committers.event_time.times import MICROS_MAX, datetime_at, micros_at, micros_in
from state import DeltaExpiringRows
from txtopo import BatchBolt, BatchOutputCollector, Fields, ICommitter, TopologyContext, TransactionAttempt, Tuple
from txtopo.errors import FieldsError

TIME = "time"
"""The column with the time of a timer; it may have been set after the watermark had reached it."""


class TimerCommitter(BatchBolt, ICommitter):
    """A committer that keeps a value for each key, and sets timers that fire when the watermark passes them.

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

    def __init__(self, values: str, timers: str, *, clock: str, key: Fields) -> None:
        taken = next((name for name in (TIME, EXPIRES) if name in key), None)
        if taken is not None:
            raise FieldsError(f"a TimerCommitter has a column {taken!r} of its own; give your key another name")
        self._values_name, self._timers_name, self._clock, self._key = values, timers, clock, key

    def timers_state(self, path: str | os.PathLike[str], **options: Any) -> DeltaExpiringRows:
        """Return the state of timers; ``options`` are the table's."""
        times = Fields(f"{TIME}: timestamp", f"{EXPIRES}: timestamp")
        return DeltaExpiringRows(path, self._key + times, EXPIRES, **options)

    @abstractmethod
    def on_rows(self, key: Any, rows: Sequence[Tuple], old: Any) -> Any:
        """Return the new value of a key, given the tuples that a transaction brings for it; None removes it.

        ``key`` is the bare value of one key field, or a tuple of several; ``old`` is None if there is no value.
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
        """Let :meth:`on_timer` be called when the watermark has reached ``time``.

        If it has already, the timer fires when the watermark moves next; or at once if :meth:`on_timer` sets it. The
        end of a bounded source lets all timers fire, and no others that are set then.
        """
        self._set.append((micros_at(time), *(key if len(self._key) > 1 else (key,))))

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no rows; a subclass that overrides it calls this one."""
        self._values = context.state(self._values_name)
        self._timers = context.state(self._timers_name)
        self._watermark: Watermark | None = None
        self._rows: dict[Any, list[Tuple]] = {}
        self._set: list[tuple[Any, ...]] = []

    def execute(self, tuple: Tuple) -> None:
        """Take a row of the stream, or the watermark."""
        if tuple.source_component == self._clock:
            self._watermark = Watermark.of(tuple)
            return
        key = [tuple[name] for name in self._key]
        self._rows.setdefault(key[0] if len(key) == 1 else (*key,), []).append(tuple)

    def finish_batch(self) -> None:
        """Call the methods; the last task calls those of timers."""
        context = self.context
        if self._watermark is None:
            raise no_watermark(self._clock, context)
        rows = self._rows
        if rows:
            self._values_after(list(rows), lambda key, old: self.on_rows(key, rows[key], old))
        before, after = self._watermark.before, self._watermark.after
        self._append(self._taken_set(), before)
        last_task = context.component_tasks(context.this_component_id)[-1]
        # A timer is to fire in the transaction that has moved the watermark past it, after the rows of all tasks.
        if after is not None and context.this_task_index == last_task:
            self._fire(after)

    def _values_after(self, keys: Sequence[Any], function: Any) -> None:
        """Replace the value of each key; a method is called once for each, however often the state asks."""
        olds = [None if each is None else each.value for each in self._values.multi_get(keys)]
        news = {key: function(key, old) for key, old in zip(keys, olds, strict=True)}
        put = {key: new for key, new in news.items() if new is not None}
        removed = [key for (key, new), old in zip(news.items(), olds, strict=True) if new is None and old is not None]
        if put:
            self._values.multi_put(put)
        if removed:
            self._values.multi_remove(removed)

    def _taken_set(self) -> list[tuple[Any, ...]]:
        rows, self._set = self._set, []
        return rows

    def _append(self, timers: Sequence[tuple[Any, ...]], reached: int | None) -> None:
        """Keep timers; those that the watermark has reached already fire when it moves on."""
        next_time = None if reached is None else reached + 1
        if timers and (next_time is None or next_time <= MICROS_MAX):
            self._timers.append(
                [
                    (*key, datetime_at(time), datetime_at(time if next_time is None else max(time, next_time)))
                    for time, *key in timers
                ]
            )

    def _fire(self, watermark: int) -> None:
        names = [TIME, *self._key]
        taken = self._timers.take_expired(watermark).select(names)
        due = list(zip(micros_in(taken[TIME]).tolist(), *(taken[name].to_pylist() for name in self._key), strict=True))
        while due:
            for time, *parts in sorted(set(due), key=_order):
                key = parts[0] if len(parts) == 1 else tuple(parts)
                self._values_after([key], lambda key, old, time=time: self.on_timer(key, datetime_at(time), old))
            if watermark == MICROS_MAX:
                self._set = []
            timers = self._taken_set()
            due = [each for each in timers if each[0] <= watermark]
            self._append([each for each in timers if each[0] > watermark], watermark)


def _order(timer: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what timers are sorted by: time, then key, in which null comes last."""
    time, *parts = timer
    return (time, *((part is None, 0 if part is None else part) for part in parts))
