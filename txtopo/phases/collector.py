"""The collector of one task in one attempt: checks what is emitted, and hands it on in chunks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pyarrow as pa

from txtopo.contracts.collector import OutputCollector
from txtopo.contracts.fields import Fields
from txtopo.contracts.tuples import DEFAULT_STREAM, TupleSource
from txtopo.core.attempts import TransactionAttempt
from txtopo.errors import FieldsError, UserCodeError
from txtopo.phases.chunks import Chunk, Row
from txtopo.phases.objects import Placed
from txtopo.phases.places import COLLECTOR
from txtopo.topology.plan import PlannedComponent

CHUNK_TUPLES_MAX = 8192
"""Tuples that a task gathers on a stream before it hands them on."""

HandOn = Callable[[Chunk, int | None], None]
"""Takes a chunk, and the task that ``emit_direct`` named or None."""


@attrs.define(eq=False)
class _Output:
    """A stream that can be emitted on, and what waits there."""

    source: TupleSource
    width: int
    columnar_schema: pa.Schema | None
    rows: list[Row]


class TaskCollector(OutputCollector, Placed):
    """Collects what one task emits for one attempt.

    A bolt's own threads may emit, too: what they emit waits until the task's thread hands it on.

    Args:
        component: the spout or bolt.
        task: its task index.
        attempt: the attempt it emits for.
        hand_on: takes each chunk, in the thread that makes the collector.
    """

    def __init__(self, component: PlannedComponent, task: int, attempt: TransactionAttempt, hand_on: HandOn) -> None:
        self.place_reference = COLLECTOR
        self._component = component
        self._attempt = attempt
        self._hand_on = hand_on
        self._thread = threading.get_ident()
        self._from_threads: deque[tuple[Chunk, int | None]] = deque()
        self._is_over = False
        self._outputs = {stream: _output(component.id, task, stream, f) for stream, f in component.streams.items()}
        if DEFAULT_STREAM in self._outputs:
            self.emit, self._end_emit = self._make_emit(self._outputs[DEFAULT_STREAM])  # type: ignore[method-assign]

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple, the attempt first."""
        output = self._outputs.get(stream)
        if output is None or self._is_over or len(values) != output.width or values[0] is not self._attempt:
            output = self._check(values, stream)
        output.rows.append(tuple(values))
        if len(output.rows) >= CHUNK_TUPLES_MAX:
            self._flush(output)

    def _make_emit(self, output: _Output) -> tuple[Callable[..., None], Callable[[], None]]:
        """Return ``emit`` for the default stream with all it needs at hand, for every tuple calls it; and its end."""
        width, rows, append, flush = output.width, output.rows, output.rows.append, self._flush
        attempt: Any = self._attempt
        emit_checked = self.emit

        def emit(values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
            if stream is not DEFAULT_STREAM or len(values) != width or values[0] is not attempt:
                emit_checked(values, stream)
                return
            append(tuple(values))  # for a list may be changed later on, and emitted again
            if len(rows) >= CHUNK_TUPLES_MAX:
                flush(output)

        def end() -> None:
            nonlocal attempt
            attempt = object()

        return emit, end

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to one task of each bolt that is joined by ``direct_grouping``."""
        output = self._check(values, stream)
        self._hand_on_or_wait(Chunk(output.source, rows=[tuple(values)]), task)

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit the rows of a record batch on a columnar stream."""
        self._check_running()
        output = self._outputs.get(stream) or self._refuse_stream(stream)
        schema = output.columnar_schema
        if schema is None:
            raise self._misfit(f"stream {stream!r} has fields without types; emit() single tuples on it")
        names = batch.schema.names
        if names and names[0] == output.source.fields.names[0] and len(names) == output.width:
            batch = batch.select(names[1:])
        if batch.schema.names != schema.names:
            expected = ", ".join(schema.names)
            raise self._misfit(f"a batch with columns {names} was emitted on stream {stream!r}, which has {expected}")
        if not batch.schema.equals(schema):
            batch = self._cast(batch, schema, stream)
        self._flush(output)
        if batch.num_rows:
            self._hand_on_or_wait(Chunk(output.source, batch=batch), None)

    def __len__(self) -> int:
        return sum(len(output.rows) for output in self._outputs.values())

    def __bool__(self) -> bool:
        return True

    def flush(self) -> None:
        """Hand on all that waits; for the task's thread."""
        for output in self._outputs.values():
            self._flush(output)
        while self._from_threads:
            self._hand_on(*self._from_threads.popleft())

    def close(self) -> None:
        """Refuse what is emitted from now on, and forget the fast way to emit, which holds this very collector."""
        self._is_over = True
        if self.__dict__.pop("emit", None) is not None:
            self.__dict__.pop("_end_emit")()

    def _flush(self, output: _Output) -> None:
        """Hand on what waits on a stream; in a bolt's own thread nothing, for others may be emitting."""
        count = len(output.rows)
        if count and threading.get_ident() == self._thread:
            rows = output.rows[:count]
            del output.rows[:count]  # and nothing that another thread has emitted meanwhile
            self._hand_on(Chunk(output.source, rows=rows), None)

    def _hand_on_or_wait(self, chunk: Chunk, task: int | None) -> None:
        if threading.get_ident() == self._thread:
            self._hand_on(chunk, task)
        else:
            self._from_threads.append((chunk, task))

    def _check_running(self) -> None:
        if self._is_over:
            raise UserCodeError(
                "a tuple was emitted when its batch was over; emit before emit_batch() or finish_batch() returns, "
                "and wait there for threads of your own",
                component=self._component.id,
                txid=self._attempt.txid,
                attempt=self._attempt.attempt,
            )

    def _check(self, values: Sequence[Any], stream: str) -> _Output:
        self._check_running()
        output = self._outputs.get(stream) or self._refuse_stream(stream)
        if not isinstance(values, (tuple, list)):
            raise self._misfit(f"{values!r} was emitted; emit a tuple of values, the attempt first")
        if len(values) != output.width:
            fields = ", ".join(output.source.fields)
            raise self._misfit(f"{len(values)} values were emitted on stream {stream!r}, whose fields are {fields}")
        if values[0] != self._attempt:
            raise self._misfit(
                f"a tuple was emitted with {values[0]!r} first; the attempt {self._attempt} belongs there"
            )
        return output

    def _refuse_stream(self, stream: str) -> _Output:
        if not isinstance(stream, str):
            raise self._misfit("emit takes the values first and then the stream: emit(values, stream)")
        known = ", ".join(map(repr, self._outputs)) or "none; set output_fields to declare the default stream"
        raise self._misfit(f"stream {stream!r} is not declared; streams declared: {known}")

    def _cast(self, batch: pa.RecordBatch, schema: pa.Schema, stream: str) -> pa.RecordBatch:
        try:
            return batch.cast(schema)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise self._misfit(f"a batch emitted on stream {stream!r} does not fit its fields: {error}") from error

    def _misfit(self, message: str) -> FieldsError:
        return FieldsError(
            message, component=self._component.id, txid=self._attempt.txid, attempt=self._attempt.attempt
        )


def _output(component: str, task: int, stream: str, fields: Fields) -> _Output:
    schema = fields.without_attempt().arrow_schema() if fields.columnar else None
    return _Output(TupleSource(component, stream, task, fields), len(fields), schema, [])
