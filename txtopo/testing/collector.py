"""A collector for tests that records every emitted tuple."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa

from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.data.copying import copied
from txtopo.api.data.fields import ATTEMPT_FIELD, ATTEMPT_FIELD_NAMES, Fields
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.attempts import TransactionAttempt
from txtopo.errors import FieldsError


@attrs.frozen
class Emitted:
    """One recorded tuple: its values, the attempt first, its stream, and the task of a direct emit, else None."""

    values: tuple[Any, ...]
    stream: str = DEFAULT_STREAM
    task: int | None = None


class RecordingCollector(BatchOutputCollector):
    """Records tuples, and the rows of record batches as tuples, in order of emission.

    Args:
        attempt: the first value of rows whose batch has no attempt column; None: every batch must have the column.
        fields: the default stream's fields, the attempt first, to check the lengths of tuples and the columns of
            batches against; None: no check.
    """

    def __init__(self, attempt: TransactionAttempt | None = None, fields: Fields | None = None) -> None:
        self.attempt = attempt
        self.fields = fields
        self.emitted: list[Emitted] = []
        self.batches: list[pa.RecordBatch] = []

    @property
    def tuples(self) -> list[tuple[Any, ...]]:
        """The values of all tuples on the default stream."""
        return self.on(DEFAULT_STREAM)

    def on(self, stream: str) -> list[tuple[Any, ...]]:
        """Return the values of all tuples on a stream."""
        return [emitted.values for emitted in self.emitted if emitted.stream == stream]

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Record one tuple."""
        self._record(values, stream, None)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Record one tuple that is sent directly to a task."""
        self._record(values, stream, task)

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Record the batch, and each of its rows as a tuple."""
        self.batches.append(batch)
        names = list(batch.schema.names)
        columns = [column.to_pylist() for column in batch.columns]
        if names and names[0] in ATTEMPT_FIELD_NAMES and pa.types.is_struct(batch.schema.types[0]):
            columns[0] = [TransactionAttempt(row["txid"], row["attempt"]) for row in columns[0]]
        elif self.attempt is not None:
            columns.insert(0, [self.attempt] * batch.num_rows)
            names.insert(0, ATTEMPT_FIELD)
        else:
            raise FieldsError(f"the batch has no attempt column ({', '.join(names)}), and the collector has no attempt")
        if self.fields is not None and stream == DEFAULT_STREAM and names[1:] != list(self.fields.names[1:]):
            raise FieldsError(f"the batch's columns are {names[1:]}, but the stream's fields are {self.fields}")
        for values in zip(*columns, strict=True):
            self._record(values, stream, None)

    def _record(self, values: Sequence[Any], stream: str, task: int | None) -> None:
        if self.fields is not None and stream == DEFAULT_STREAM and len(values) != len(self.fields):
            raise FieldsError(
                f"tuple {tuple(values)!r} has {len(values)} values, but the stream's fields are {self.fields}"
            )
        # Copies: the bolt may go on to change a list or dict that it has emitted.
        self.emitted.append(Emitted(tuple(map(copied, values)), stream, task))
