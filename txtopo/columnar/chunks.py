"""Chunks: some tuples of one stream from one task, as rows or as Arrow columns, whichever is at hand.

A chunk is made in one form and converted to the other only where a bolt asks for it, and then once.
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

from txtopo.api.copying import Copying, copying_of_rows
from txtopo.api.fields import Fields
from txtopo.api.reduction import Combiner
from txtopo.api.tuples import TupleSource
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.column_bytes import ColumnBytes, to_bytes
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
    """Return how a stream's tuples are copied; None: nothing in them can be changed."""
    return copying_of_rows(fields)


@functools.lru_cache(maxsize=4096)
def source_of(component: str, stream: str, task: int, fields: Fields) -> TupleSource:
    """Return where tuples come from: the same for all attempts."""
    return TupleSource(component, stream, task, fields)


class Chunk:
    """Tuples of one stream that one task emitted.

    Args:
        source: where they come from.
        rows: the tuples' values, the attempt first; None if ``batch`` is given.
        batch: their columns without the attempt; None if ``rows`` is given.
        is_shared: whether values of theirs that can be changed are kept, or handed to others too.
    """

    __slots__ = ("_batch", "_columns", "_encoded", "_is_shared", "_rows", "source")

    def __init__(
        self,
        source: TupleSource,
        rows: list[Row] | None = None,
        batch: pa.RecordBatch | None = None,
        *,
        is_shared: bool = True,
    ) -> None:
        assert (rows is None) != (batch is None), "a chunk is made in one form"
        self.source = source
        self._rows = rows
        self._batch = batch
        self._is_shared = is_shared
        self._columns: list[list[Any]] | None = None
        self._encoded: dict[int, ColumnBytes | None] = {}

    def __len__(self) -> int:
        return len(self._rows) if self._rows is not None else self._batch.num_rows  # type: ignore[union-attr]

    @property
    def is_columnar(self) -> bool:
        """Whether the columns are at hand."""
        return self._batch is not None

    def rows(self, attempt: TransactionAttempt) -> list[Row]:
        """Return the tuples' values, the attempt first."""
        if self._rows is None:
            columns = [_to_values(column) for column in self._batch.columns]  # type: ignore[union-attr]
            self._rows = list(zip(itertools.repeat(attempt), *columns, strict=False)) if columns else []
        return self._rows

    def handed_rows(self, attempt: TransactionAttempt) -> list[Row]:
        """Return the tuples' values for one user, who may change them."""
        rows = self.rows(attempt)
        copying = row_copying(self.source.fields) if self._is_shared else None
        return rows if copying is None or copying.handed is None else list(map(copying.handed, rows))

    def part(self, rows: list[Row]) -> Chunk:
        """Return a chunk of some of these rows."""
        return Chunk(self.source, rows=rows, is_shared=self._is_shared)

    def columns(self) -> list[list[Any]]:
        """Return the values of each field but the attempt; the chunk must have been made of rows."""
        if self._columns is None:
            assert self._rows is not None, "a chunk that is not columnar has rows"
            rows, width = self._rows, len(self.source.fields)
            self._columns = [list(map(operator.itemgetter(position), rows)) for position in range(1, width)]
        return self._columns

    def column_as_bytes(self, position: int) -> ColumnBytes | None:
        """Return one of :meth:`columns` as bytes; None if not every process agrees on them."""
        if position not in self._encoded:
            self._encoded[position] = to_bytes(self.columns()[position])
        return self._encoded[position]

    def batch(self) -> pa.RecordBatch:
        """Return the columns without the attempt.

        Raises:
            FieldsError: a value does not fit its field's type.
        """
        if self._batch is None:
            self._batch = _to_batch(self.columns(), self.source)
        return self._batch

    def combinable(self, combiner: Combiner, attempt: TransactionAttempt) -> pa.RecordBatch | None:
        """Return the key and value fields as columns, for a bolt that combines rows with equal keys.

        Where their values are texts and whole numbers and nothing else, columns say the same as tuples, and nothing
        has to be done tuple by tuple. None if they would not say the same.

        Args:
            combiner: which fields are the key, and which the value.
            attempt: whose tuples they are.
        """
        fields, positions = combiner.fields, self.source.positions
        if len(set(fields)) < len(fields) or not set(fields) <= positions.keys():
            return None
        first = self.rows(attempt)[0]
        *keys, value = (type(first[positions[name]]) for name in fields)
        if value is not int or not {str, int}.issuperset(keys):  # seen before anything is made of all the others
            return None
        arrays = [self._to_array(positions[name] - 1) for name in fields]
        if any(array is None for array in arrays):
            return None
        return pa.RecordBatch.from_arrays(arrays, names=list(fields))

    def _to_array(self, position: int) -> pa.Array | None:
        """Return a column of texts, or of whole numbers of 64 bits; None if there is another value among them."""
        encoded, values = self.column_as_bytes(position), self.columns()[position]
        array = None if encoded is None else encoded.to_array(len(values))
        if array is not None or set(map(type, values)) != {int}:
            return array
        try:
            return pa.array(values, pa.int64())
        except (pa.ArrowException, OverflowError):  # more than 64 bits
            return None

    def encode(self) -> bytes:
        """Return the chunk's tuples as bytes: Arrow's stream format for columnar streams, else a pickle."""
        if self.source.fields.columnar:
            batch = self.batch()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            sink.write(b"A")  # behind, for Arrow's columns must lie at addresses that suit them
            encoded: bytes = sink.getvalue().to_pybytes()
            return encoded
        content = len(self), self.columns()
        try:
            return pickle.dumps(content, protocol=5) + b"P"
        except (pickle.PicklingError, AttributeError, TypeError):
            content_bytes: bytes = cloudpickle.dumps(content)
            return content_bytes + b"P"


def decode(encoded: bytes, source: TupleSource, attempt: TransactionAttempt) -> Chunk:
    """Return the chunk that :meth:`Chunk.encode` made bytes of."""
    if encoded[-1:] == b"A":
        with pa.ipc.open_stream(encoded) as reader:
            return Chunk(source, batch=reader.read_next_batch())
    count, columns = pickle.loads(encoded)  # noqa: S301 - our own bytes, from our own executors
    rows: list[Row] = list(zip(itertools.repeat(attempt, count), *columns, strict=True))
    return Chunk(source, rows=rows, is_shared=False)  # it goes to one task, and was made for it here


def _to_values(column: pa.Array) -> list[Any]:
    """Return a column's values as Python objects, by numpy where that is the same and faster; a map is a dict."""
    if column.type in _SAME_BY_NUMPY and not column.null_count:
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def _to_batch(columns: list[list[Any]], source: TupleSource) -> pa.RecordBatch:
    schema = bare_schema(source.fields)
    arrays = []
    for field, values in zip(schema, columns, strict=True):
        try:
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            bad = _first_misfit(values, field.type)
            raise FieldsError(
                f"field {field.name!r} of stream {source.stream!r} is {field.type}, but {bad!r} was emitted "
                f"({error}); emit a value of that type or declare another one",
                component=source.component,
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _first_misfit(values: Sequence[Any], kind: pa.DataType) -> Any:
    for value in values:
        try:
            pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return value
    return values
