"""The collector of one task in one attempt: checks emitted tuples and forwards them in chunks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pyarrow as pa

from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.data.copying import UNCHANGEABLE, Copying
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM, TupleSource
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.chunks import Chunk, Row, bare_schema, row_copying, source_of
from txtopo.columnar.conversion import cast_rows
from txtopo.errors import FieldsError, UserCodeError
from txtopo.topology.plans.plan import ComponentKind, PlannedComponent
from txtopo.transactional.tasks.factory import COLLECTOR
from txtopo.transactional.tasks.objects import Local
from txtopo.transactional.tasks.state_handle import RecordLate

CHUNK_TUPLES_MAX = 8192
"""The number of tuples that a task collects on a stream before it forwards them."""

HandOn = Callable[[Chunk, int | None], None]
"""Takes a chunk and the task index given to ``emit_direct``, or None."""


@attrs.define(eq=False)
class _Output:
    """An output stream and the tuples that were not forwarded yet."""

    source: TupleSource
    width: int
    columnar_schema: pa.Schema | None
    copying: Copying | None
    rows: list[Row] = attrs.field(factory=list)
    is_changeable: bool = False
    """Whether a mutable value was emitted on it and therefore copied."""

    def own(self, values: Sequence[Any]) -> Row:
        """Return a copy of the values that later changes by the user do not affect."""
        row = tuple(values)  # the user may change a list and emit it again
        if self.copying is None:
            return row
        copied: Row = self.copying.copied_in(row)
        if copied is not row:
            self.is_changeable = True
        return copied


class TaskCollector(BatchOutputCollector, Local):
    """Collects what one task emits for one attempt.

    A bolt's own threads may emit too: their tuples wait until the task's thread forwards them. ``hand_on`` is called
    only in the thread that created the collector, and ``record_late`` in any that emits after the batch is over.
    :func:`task_collector` makes it.
    """

    def __init__(
        self,
        component: PlannedComponent,
        task: int,
        attempt: TransactionAttempt,
        hand_on: HandOn,
        record_late: RecordLate | None = None,
    ) -> None:
        self._record_late = record_late
        self.local_reference = COLLECTOR
        self._component = component
        self._attempt = attempt
        self._hand_on = hand_on
        self._thread = threading.get_ident()
        self._from_threads: deque[tuple[Chunk, int | None]] = deque()
        self._is_over = False
        self._outputs = {stream: _output(component.id, task, stream, f) for stream, f in component.streams.items()}

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple, the attempt first."""
        output = self._outputs.get(stream)
        if output is None or self._is_over or len(values) != output.width or values[0] is not self._attempt:
            output = self._check(values, stream)
        output.rows.append(output.own(values))
        if len(output.rows) >= CHUNK_TUPLES_MAX:
            self._flush(output)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to one task of each bolt that subscribes by ``direct_grouping``."""
        output = self._check(values, stream)
        rows = [output.own(values)]
        self._hand_on_or_wait(Chunk(output.source, rows=rows, is_shared=output.is_changeable), task)

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit the rows of a record batch on a columnar stream."""
        self._check_running()
        output = self._outputs.get(stream) or self._refuse_stream(stream)
        schema = output.columnar_schema
        if schema is None:
            raise self._misfit(f"stream {stream!r} has fields without types; use emit() for each tuple")
        names = batch.schema.names
        if names and names[0] == output.source.fields.names[0] and len(names) == output.width:
            batch = batch.select(names[1:])
        if batch.schema.names != schema.names:
            expected = ", ".join(schema.names)
            raise self._misfit(f"a batch with columns {names} was emitted on stream {stream!r}, which needs {expected}")
        if not batch.schema.equals(schema):
            batch = self._cast(batch, schema, stream)
        # Tuples that were emitted before the batch go before it.
        self._flush(output)
        if batch.num_rows:
            self._hand_on_or_wait(Chunk(output.source, batch=batch), None)

    def __len__(self) -> int:
        return sum(len(output.rows) for output in self._outputs.values())

    def __bool__(self) -> bool:
        return True

    def flush(self) -> None:
        """Forward all waiting tuples; call this in the task's thread."""
        for output in self._outputs.values():
            self._flush(output)
        while self._from_threads:
            self._hand_on(*self._from_threads.popleft())

    def refuse_rest(self) -> None:
        """Raise a UserCodeError if a thread emitted after the last flush: its tuples can't be forwarded any more."""
        if len(self) or self._from_threads:
            raise self._late()

    def close(self) -> None:
        """Refuse tuples from now on."""
        if self._is_over and len(self):  # another thread was emitting during the first close()
            self._late()
        self._is_over = True

    def _flush(self, output: _Output) -> None:
        """Forward the waiting tuples of a stream; do nothing in a bolt's own thread, since others may be emitting."""
        count = len(output.rows)
        if count and threading.get_ident() == self._thread:
            rows = output.rows[:count]
            del output.rows[:count]  # not clear(): another thread may have emitted since
            self._hand_on(Chunk(output.source, rows=rows, is_shared=output.is_changeable), None)

    def _hand_on_or_wait(self, chunk: Chunk, task: int | None) -> None:
        if threading.get_ident() == self._thread:
            self._hand_on(chunk, task)
        else:
            self._from_threads.append((chunk, task))

    def _check_running(self) -> None:
        if self._is_over:
            raise self._late()

    def _late(self) -> UserCodeError:
        """Return the error for a late tuple, and record it because the thread that emitted it may swallow it."""
        error = UserCodeError(
            "a tuple was emitted after its batch was over; emit before emit_batch() or finish_batch() returns, "
            "and wait there for your own threads",
            component=self._component.id,
            txid=self._attempt.txid,
            attempt=self._attempt.attempt,
        )
        if self._record_late is not None:
            self._record_late(error)
        return error

    def _check(self, values: Sequence[Any], stream: str) -> _Output:
        self._check_running()
        output = self._outputs.get(stream) or self._refuse_stream(stream)
        if not isinstance(values, (tuple, list)):
            raise self._misfit(f"{values!r} was emitted; emit a tuple of values, the attempt first")
        is_attempt_there = bool(values) and isinstance(values[0], TransactionAttempt)
        if len(values) == output.width - 1 and not is_attempt_there:
            raise self._misfit(f"{tuple(values)!r} was emitted without the attempt; {self._how_to_emit()}")
        if len(values) != output.width:
            fields = ", ".join(output.source.fields)
            raise self._misfit(f"{len(values)} values were emitted on stream {stream!r}, whose fields are {fields}")
        if values[0] != self._attempt:
            mistake = "which is another attempt" if is_attempt_there else "which is not the attempt"
            raise self._misfit(f"a tuple was emitted with {values[0]!r} first, {mistake}; {self._how_to_emit()}")
        return output

    def _how_to_emit(self) -> str:
        match self._component.kind:
            case ComponentKind.SPOUT:
                example = "collector.emit((attempt, …))"
            case ComponentKind.BASIC_BOLT:
                example = "collector.emit((tuple[0], …))"
            case _:
                example = "self.collector.emit((self.attempt, …))"
        return f"put the attempt first: {example}"

    def _refuse_stream(self, stream: str) -> _Output:
        if not isinstance(stream, str):
            raise self._misfit("the stream is the second argument: emit(values, stream)")
        streams_text = ", ".join(map(repr, self._outputs)) or "none; set output_fields to declare the default stream"
        raise self._misfit(f"stream {stream!r} is not declared; declared streams: {streams_text}")

    def _cast(self, batch: pa.RecordBatch, schema: pa.Schema, stream: str) -> pa.RecordBatch:
        try:
            return cast_rows(batch, schema, f"a batch emitted on stream {stream!r}")
        except FieldsError as error:
            raise self._misfit(str(error)) from error

    def _misfit(self, message: str) -> FieldsError:
        return FieldsError(
            message, component=self._component.id, txid=self._attempt.txid, attempt=self._attempt.attempt
        )


class _QuickCollector(TaskCollector):
    """A collector whose ``emit`` checks all of a usual tuple of the default stream in one condition.

    The classes below differ only in how they look for mutable values, which must be copied: not at all, if the types of
    the stream rule them out; with one or two values by name, 160 ns a tuple; with more by a loop, 290 ns.
    """

    def __init__(
        self,
        component: PlannedComponent,
        task: int,
        attempt: TransactionAttempt,
        hand_on: HandOn,
        record_late: RecordLate | None = None,
    ) -> None:
        super().__init__(component, task, attempt, hand_on, record_late)
        self._default = self._outputs[DEFAULT_STREAM]
        self._rows = self._default.rows
        self._width = self._default.width
        self._first: object = attempt
        """What a tuple begins with; once the batch is over, an object that no tuple begins with."""

    def close(self) -> None:
        """Refuse tuples from now on, also those of a user who kept ``emit``."""
        super().close()
        self._first = object()


class _UnchangeableCollector(_QuickCollector):
    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        if stream is not DEFAULT_STREAM or len(values) != self._width or values[0] is not self._first:
            super().emit(values, stream)
            return
        rows = self._rows
        rows.append(tuple(values))  # as in own()
        if len(rows) >= CHUNK_TUPLES_MAX:
            self._flush(self._default)


class _OneValueCollector(_QuickCollector):
    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        if (
            stream is not DEFAULT_STREAM
            or len(values) != 2  # noqa: PLR2004 - the attempt and one value
            or values[0] is not self._first
            or type(values[1]) not in UNCHANGEABLE
        ):
            super().emit(values, stream)
            return
        rows = self._rows
        rows.append(tuple(values))
        if len(rows) >= CHUNK_TUPLES_MAX:
            self._flush(self._default)


class _TwoValuesCollector(_QuickCollector):
    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        if (
            stream is not DEFAULT_STREAM
            or len(values) != 3  # noqa: PLR2004 - the attempt and two values
            or values[0] is not self._first
            or type(values[1]) not in UNCHANGEABLE
            or type(values[2]) not in UNCHANGEABLE
        ):
            super().emit(values, stream)
            return
        rows = self._rows
        rows.append(tuple(values))
        if len(rows) >= CHUNK_TUPLES_MAX:
            self._flush(self._default)


class _ManyValuesCollector(_QuickCollector):
    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        if (
            stream is not DEFAULT_STREAM
            or len(values) != self._width
            or values[0] is not self._first
            or not UNCHANGEABLE.issuperset(map(type, values))
        ):
            super().emit(values, stream)
            return
        rows = self._rows
        rows.append(tuple(values))
        if len(rows) >= CHUNK_TUPLES_MAX:
            self._flush(self._default)


def task_collector(
    component: PlannedComponent,
    task: int,
    attempt: TransactionAttempt,
    hand_on: HandOn,
    record_late: RecordLate | None = None,
) -> TaskCollector:
    """Return the collector for what a task emits: the quickest for its default stream."""
    kind: type[TaskCollector] = TaskCollector
    fields = component.streams.get(DEFAULT_STREAM)
    if fields is not None:
        kind = _UnchangeableCollector
        if row_copying(fields) is not None:
            kind = {2: _OneValueCollector, 3: _TwoValuesCollector}.get(len(fields), _ManyValuesCollector)
    return kind(component, task, attempt, hand_on, record_late)


def _output(component: str, task: int, stream: str, fields: Fields) -> _Output:
    schema = bare_schema(fields) if fields.columnar else None
    return _Output(source_of(component, stream, task, fields), len(fields), schema, row_copying(fields))
