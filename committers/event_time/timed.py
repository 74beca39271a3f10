"""What the committers of event time have in common: rows with a time, a watermark, and rows that come too late."""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from committers.event_time.clock import FirstStep, Watermark, timed_input_mistakes
from committers.event_time.times import TIMESTAMP, event_times, in_known_years, lowered
from committers.spill import ReducingCommitter
from committers.waiting import WaitingTuples
from txtopo import BatchOutputCollector, Fields, TopologyContext, TransactionAttempt, Tuple
from txtopo.api.abilities import Inputs
from txtopo.api.data.utc import micros_at
from txtopo.api.reduction import Combiner
from txtopo.columnar.rows_by_time import are_after, are_over
from txtopo.columnar.rows_file import read_rows_file
from txtopo.errors import TopologyError

EXPIRES = "expires"
"""The column with the event time at which a row expires: its window ends, or its key is forgotten."""

AHEAD = ":ahead"
"""A column of rows of reduced form with the event time of those that are ahead of the time at which their transaction
was planned, null for all others: only the commit phase knows how far ahead is too far. No field's name has a colon."""

_NO_TIME = pa.scalar(None, TIMESTAMP)

LATE, UNTIMED = "late", "untimed"


def with_ahead(rows: pa.Table, time: str, planned_at: dt.datetime) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return rows of a stream with the column ``AHEAD``, and their event times, of years that Python knows."""
    raw = event_times(rows, time)
    times = in_known_years(raw)
    if not times.equals(raw):  # nobody can read the others in Python
        own = rows[time].type
        rows = rows.set_column(rows.column_names.index(time), time, pc.cast(times, own, safe=False))
    is_ahead = pc.greater(raw.cast(pa.int64()), micros_at(planned_at))
    return rows.append_column(AHEAD, pc.if_else(is_ahead, raw, _NO_TIME)), times


class ClockedCommitter(ReducingCommitter):
    """Splits rows by the watermark in the commit phase: into those in time, and those that are late or without a time.

    Rows of reduced form have a column ``expires``, which is null if they have no event time, and a column
    ``AHEAD``. They are merged only if all of them are late, too far ahead, or in time, whatever the watermark is.

    Args:
        state: the name of the state of rows that expire.
        clock: the component id of the clock.
        lateness: how far the watermark must be past the time at which a row expires, in microseconds.
    """

    def __init__(self, state: str, clock: str, lateness: int = 0) -> None:
        self._state_name = state
        self._lateness = lateness
        self._clock = clock

    @abstractmethod
    def _make_columns(self) -> None:
        """Take the tuples that wait to be converted to columns."""

    @abstractmethod
    def _merged(self, rows: pa.Table) -> pa.Table:
        """Return rows of reduced form as fewer ones that say the same."""

    @abstractmethod
    def add(self, rows: pa.Table) -> None:
        """Take rows that are in time."""

    @abstractmethod
    def refused(self, rows: pa.Table, stream: str) -> pa.Table:
        """Return what is emitted of rows that are late, too far ahead, or without a time."""

    @abstractmethod
    def expire(self, until: int) -> None:
        """Take what expires up to a time, after all rows of the transaction were added."""

    def changes_what_was_said(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return for each row, of reduced form and with a time, whether it is late though its own time is not over."""
        return np.zeros(rows.num_rows, dtype=bool)

    def taken_until(self) -> int | None:
        """Return the time up to which earlier transactions have taken what expires; None if nothing was taken."""
        return self._state.taken_until()

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no rows."""
        self._state = context.state(self._state_name)
        self._watermark: Watermark | None = None
        self._begin()

    def _reduce(self) -> None:
        if len(self._rows) > 1:  # what has come at once is reduced already
            super()._reduce()

    def finish_batch(self) -> None:
        """Add the batch; the last task then goes on to the watermark after this transaction."""
        self._make_columns()
        context = self.context
        if self._watermark is None:
            raise no_watermark(self._clock, context)
        rows = [*self._rows, *map(read_rows_file, self._files)]
        if rows:
            self._split(self._merged(pa.concat_tables(rows)), self._watermark)
        # All tasks write one state, one after another, so only the last one knows what the transaction has brought.
        if self._watermark.after is not None and is_last_task(context):
            self.expire(lowered(self._watermark.after, self._lateness))

    def _split(self, rows: pa.Table, watermark: Watermark) -> None:
        is_timed = rows[EXPIRES].is_valid()
        if rows[EXPIRES].null_count:
            self._refuse(rows.filter(pc.invert(is_timed)), UNTIMED)
            rows = rows.filter(is_timed)
        refused: list[npt.NDArray[np.bool_]] = []
        # With less lateness before the last restart, more was taken than follows from the watermark.
        untils = [self.taken_until(), None if watermark.before is None else lowered(watermark.before, self._lateness)]
        until = max((number for number in untils if number is not None), default=None)
        if until is not None:
            refused.append(are_over(rows, EXPIRES, until).to_numpy())
        if rows[AHEAD].null_count < rows.num_rows:
            refused.append(are_after(rows, AHEAD, watermark.limit).to_numpy())
        refused.append(self.changes_what_was_said(rows))
        if any(each.any() for each in refused):
            is_refused = np.logical_or.reduce(refused)
            self._refuse(rows.filter(pa.array(is_refused)), LATE)
            rows = rows.filter(pa.array(~is_refused))
        if rows.num_rows:
            self.add(rows)

    def _refuse(self, rows: pa.Table, stream: str) -> None:
        refused = self.refused(rows, stream)
        self.context.count(stream, refused.num_rows)
        self.emit(refused, stream)

    def emit(self, rows: pa.Table, stream: str) -> None:
        """Emit rows as columns."""
        for batch in rows.combine_chunks().to_batches():
            self.collector.emit_batch(batch, stream)

    def __getstate__(self) -> dict[str, Any]:
        """Reduce waiting rows before the object moves to the commit phase; spill many rows to a file."""
        if "_rows" in self.__dict__:
            self._make_columns()
            self._reduce_to_move(self.keys)
        return super().__getstate__()

    @property
    @abstractmethod
    def keys(self) -> Sequence[str]:
        """The key's columns in rows of reduced form."""


class TimedCommitter(ClockedCommitter):
    """Reduces the rows of a batch of one stream, and splits what is left by the watermark in the commit phase.

    Args:
        state: the name of the state of rows that expire.
        clock: the component id of the clock.
        time: the field with the event time.
        inputs: the fields to read, each with a type.
        lateness: how far the watermark must be past the time at which a row expires, in microseconds.
    """

    def __init__(self, state: str, clock: str, time: str, inputs: Fields, lateness: int = 0) -> None:
        super().__init__(state, clock, lateness)
        self._time = time
        self._inputs = inputs if time in inputs else inputs + Fields(f"{time}: timestamp")

    @abstractmethod
    def reduced(self, rows: pa.Table, times: pa.ChunkedArray) -> pa.Table:
        """Return input rows, which have a column ``AHEAD``, too, and whose event times are given, in reduced form."""

    def input_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return the fields that a stream lacks, and what is wrong with the clock."""
        return timed_input_mistakes(self._clock, self._inputs, inputs)

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no rows."""
        super().prepare(config, context, collector, attempt)
        self._tuples = WaitingTuples(self._inputs, context.this_component_id, self._time)

    def execute(self, tuple: Tuple) -> None:
        """Take a row of the stream, or the watermark."""
        if tuple.source_component == self._clock:
            self._watermark = Watermark.of(tuple)
        elif self._tuples.add(tuple):
            self._make_columns()

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """Take rows of the stream as columns."""
        self._wait_for(self._reduced(pa.Table.from_batches([batch]), self.context.planned_at))

    def combiner(self) -> Combiner | None:
        """Return how a batch becomes rows of reduced form."""
        return FirstStep(self.keys, self._inputs.names, self._reduced)

    def _reduced(self, rows: pa.Table, planned_at: dt.datetime) -> pa.Table:
        return self.reduced(*with_ahead(rows, self._time, planned_at))

    def execute_combined(self, batch: pa.RecordBatch) -> None:
        """Take rows of reduced form."""
        self._wait_for(pa.Table.from_batches([batch]).select(batch.schema.names[1:]))

    def _make_columns(self) -> None:
        rows = self._tuples.take()
        if rows is not None:
            self._wait_for(self._reduced(rows, self.context.planned_at))


def is_last_task(context: TopologyContext) -> bool:
    """Return whether a task is the last of its component, which finishes a batch after all others."""
    return context.this_task_index == context.component_tasks(context.this_component_id)[-1]


def no_watermark(clock: str, context: TopologyContext) -> TopologyError:
    """Return the error of a committer that its clock does not reach."""
    return TopologyError(
        f"no watermark came from {clock!r}; give that component an EventClock, and subscribe to it by "
        f"all_grouping({clock!r})",
        component=context.this_component_id,
    )
