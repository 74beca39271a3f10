"""Chunks: tuples of one stream from one task, as rows or as Arrow columns.

A chunk is created in one form, and converted to the other at most once, when a bolt needs it.
"""

from __future__ import annotations

import functools
import itertools
import operator
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle
import pyarrow as pa

from txtopo.api.data.copying import Copying, copying_of_rows
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import TupleSource
from txtopo.api.data.types import ddl_name, python_values
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.column_bytes import ColumnBytes, to_bytes
from txtopo.columnar.conversion import cast_array, fit_array, misfit_of
from txtopo.columnar.reducing import ReductionCombiner
from txtopo.errors import FieldsError

Row = Sequence[Any]
"""The values of a tuple, the attempt first."""

_SAME_BY_NUMPY = frozenset({pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()})


@functools.lru_cache(maxsize=256)
def bare_schema(fields: Fields) -> pa.Schema:
    """Return the Arrow schema of a stream without the attempt."""
    return fields.without_attempt().arrow_schema()


@functools.lru_cache(maxsize=256)
def row_copying(fields: Fields) -> Copying | None:
    """Return how to copy a stream's tuples; None if they are immutable."""
    return copying_of_rows(fields)


@functools.lru_cache(maxsize=4096)
def source_of(component: str, stream: str, task: int, fields: Fields) -> TupleSource:
    """Return the origin of tuples: one object for all attempts."""
    return TupleSource(component, stream, task, fields)


class Chunk:
    """Tuples of one stream that one task emitted.

    Args:
        source: the origin of the tuples.
        rows: the tuples' values, the attempt first; None if ``batch`` is given.
        batch: their columns without the attempt; None if ``rows`` is given.
        is_shared: whether mutable values in them are kept elsewhere too, or passed to several tasks.
        is_combined: whether the bolt's combiner has made ``batch``, whose columns need not be the stream's.
    """

    __slots__ = ("_batch", "_columns", "_encoded", "_rows", "is_combined", "is_shared", "source")

    def __init__(
        self,
        source: TupleSource,
        rows: list[Row] | None = None,
        batch: pa.RecordBatch | None = None,
        *,
        is_shared: bool = True,
        is_combined: bool = False,
    ) -> None:
        assert (rows is None) != (batch is None), "a chunk is created in one form"
        self.source = source
        self._rows = rows
        self._batch = batch
        self.is_shared = is_shared
        self.is_combined = is_combined
        self._columns: list[list[Any]] | None = None
        self._encoded: dict[int, ColumnBytes | None] = {}

    def __len__(self) -> int:
        return len(self._rows) if self._rows is not None else self._batch.num_rows  # type: ignore[union-attr]

    @property
    def is_columnar(self) -> bool:
        """Whether :meth:`batch` needs no conversion."""
        return self._batch is not None

    def rows(self, attempt: TransactionAttempt) -> list[Row]:
        """Return the tuples' values, the attempt first."""
        if self._rows is None:
            columns = [_to_values(column) for column in self._batch.columns]  # type: ignore[union-attr]
            self._rows = list(zip(itertools.repeat(attempt), *columns, strict=False)) if columns else []
        return self._rows

    def handed_rows(self, attempt: TransactionAttempt) -> list[Row]:
        """Return the tuples' values for one bolt, which may change them."""
        rows = self.rows(attempt)
        copying = row_copying(self.source.fields) if self.is_shared else None
        return rows if copying is None or copying.copied_out is None else list(map(copying.copied_out, rows))

    def part(self, rows: list[Row]) -> Chunk:
        """Return a chunk of some of this one's rows."""
        return Chunk(self.source, rows=rows, is_shared=self.is_shared)

    def part_of_batch(self, batch: pa.RecordBatch) -> Chunk:
        """Return a chunk of some rows of this one's batch."""
        return Chunk(self.source, batch=batch, is_combined=self.is_combined)

    def columns(self) -> list[list[Any]]:
        """Return the values of each field but the attempt; the chunk must have been created from rows."""
        if self._columns is None:
            assert self._rows is not None, "a chunk that is not columnar has rows"
            rows, width = self._rows, len(self.source.fields)
            self._columns = [list(map(operator.itemgetter(position), rows)) for position in range(1, width)]
        return self._columns

    def column_as_bytes(self, position: int) -> ColumnBytes | None:
        """Return one of :meth:`columns` as bytes; None if the bytes would depend on the process."""
        if position not in self._encoded:
            self._encoded[position] = to_bytes(self.columns()[position])
        return self._encoded[position]

    def batch(self) -> pa.RecordBatch:
        """Return the columns without the attempt; raise FieldsError if a value does not fit its field's type."""
        if self._batch is None:
            schema = bare_schema(self.source.fields)
            arrays = [self._to_typed(position, field) for position, field in enumerate(schema)]
            self._batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return self._batch

    def combinable(self, combiner: ReductionCombiner, attempt: TransactionAttempt) -> pa.RecordBatch | None:
        """Return the combiner's key and value fields as columns, for a bolt with ``execute_batch``.

        Columns represent strings and 64-bit integers exactly, and need no work tuple by tuple. None for other values.
        """
        fields, positions = combiner.fields, self.source.positions
        if len(set(fields)) < len(fields) or not set(fields) <= positions.keys():
            return None
        first = self.rows(attempt)[0]
        *keys, value = (type(first[positions[name]]) for name in fields)
        if value is not int or not {str, int}.issuperset(keys):  # a cheap check before any column is built
            return None
        arrays = [self._to_array(positions[name] - 1) for name in fields]
        if any(array is None for array in arrays):
            return None
        return pa.RecordBatch.from_arrays(arrays, names=list(fields))

    def _to_array(self, position: int) -> pa.Array | None:
        """Return a column of strings or of 64-bit integers; None if it contains any other value."""
        encoded, values = self.column_as_bytes(position), self.columns()[position]
        array = None if encoded is None else encoded.to_array(len(values))
        if array is not None or set(map(type, values)) != {int}:
            return array
        try:
            return pa.array(values, pa.int64())
        except (pa.ArrowException, OverflowError):  # more than 64 bits
            return None

    def _to_typed(self, position: int, field: pa.Field) -> pa.Array:
        values, source, array = self.columns()[position], self.source, None
        encoded = self._encoded.get(position)  # a checksum may have needed the bytes already
        if encoded is not None:
            array = encoded.to_array(len(values))
            if array is not None and array.type == pa.int64() and pa.types.is_integer(field.type):
                array = cast_array(array, field.type)
        if array is None or array.type != field.type:
            array = fit_array(values, field.type)
        if array is None:
            raise FieldsError(
                f"field '{field.name}: {ddl_name(field.type)}' of stream {source.stream!r}: "
                f"{misfit_of(values, field.type).why}",
                component=source.component,
            )
        return array

    def encode(self) -> bytes:
        """Return the chunk's tuples as bytes: Arrow's stream format for columnar streams, else a pickle."""
        if self.source.fields.columnar:
            batch = self.batch()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            # At the end: in front, it would break the alignment of Arrow's buffers.
            sink.write(b"C" if self.is_combined else b"A")
            encoded: bytes = sink.getvalue().to_pybytes()
            return encoded
        content = len(self), self.columns()
        try:  # pickle first: cloudpickle, which also takes what it can't import by name, is slower
            return pickle.dumps(content, protocol=5) + b"P"
        except (pickle.PicklingError, AttributeError, TypeError):
            content_bytes: bytes = cloudpickle.dumps(content)
            return content_bytes + b"P"


def decode(encoded: bytes, source: TupleSource, attempt: TransactionAttempt) -> Chunk:
    """Return the chunk that :meth:`Chunk.encode` encoded."""
    if encoded[-1:] in {b"A", b"C"}:
        with pa.ipc.open_stream(encoded) as reader:
            return Chunk(source, batch=reader.read_next_batch(), is_combined=encoded[-1:] == b"C")
    count, columns = pickle.loads(encoded)  # noqa: S301 - our bytes, from our executors
    rows: list[Row] = list(zip(itertools.repeat(attempt, count), *columns, strict=True))
    return Chunk(source, rows=rows, is_shared=False)  # these objects are new and go to one task


def _to_values(column: pa.Array) -> list[Any]:
    """Return a column's values as Python objects, maps as dicts; through numpy where that gives the same objects."""
    if column.type in _SAME_BY_NUMPY and not column.null_count:
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    return python_values(column)
