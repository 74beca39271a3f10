"""Chunks: some tuples of one stream from one task, as rows or as Arrow columns, whichever is at hand.

A chunk is made in one form and converted to the other only where a bolt asks for it, and then once.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle
import pyarrow as pa

from txtopo.contracts.tuples import TupleSource
from txtopo.core.attempts import TransactionAttempt
from txtopo.errors import FieldsError

Row = Sequence[Any]
"""The values of a tuple, the attempt first."""


class Chunk:
    """Tuples of one stream that one task emitted.

    Args:
        source: where they come from.
        rows: the tuples' values, the attempt first; None if ``batch`` is given.
        batch: their columns without the attempt; None if ``rows`` is given.
    """

    __slots__ = ("_batch", "_rows", "source")

    def __init__(self, source: TupleSource, rows: list[Row] | None = None, batch: pa.RecordBatch | None = None) -> None:
        assert (rows is None) != (batch is None), "a chunk is made in one form"
        self.source = source
        self._rows = rows
        self._batch = batch

    def __len__(self) -> int:
        return len(self._rows) if self._rows is not None else self._batch.num_rows  # type: ignore[union-attr]

    @property
    def is_columnar(self) -> bool:
        """Whether the columns are at hand."""
        return self._batch is not None

    def rows(self, attempt: TransactionAttempt) -> list[Row]:
        """Return the tuples' values, the attempt first."""
        if self._rows is None:
            columns = [column.to_pylist() for column in self._batch.columns]  # type: ignore[union-attr]
            self._rows = list(zip(itertools.repeat(attempt), *columns, strict=False)) if columns else []
        return self._rows

    def bare_rows(self) -> list[Row]:
        """Return the rows as they are at hand, which they must be."""
        assert self._rows is not None, "a chunk that is not columnar has rows"
        return self._rows

    def batch(self) -> pa.RecordBatch:
        """Return the columns without the attempt.

        Raises:
            FieldsError: a value does not fit its field's type.
        """
        if self._batch is None:
            self._batch = _to_columns(self._rows or [], self.source)
        return self._batch

    def encode(self) -> bytes:
        """Return the chunk's tuples as bytes: Arrow's stream format for columnar streams, else a pickle."""
        if self.source.fields.columnar:
            batch = self.batch()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            encoded: bytes = b"A" + sink.getvalue().to_pybytes()
            return encoded
        bare = [tuple(row[1:]) for row in self._rows or []]
        try:
            return b"P" + pickle.dumps(bare, protocol=5)
        except (pickle.PicklingError, AttributeError, TypeError):
            bare_bytes: bytes = cloudpickle.dumps(bare)
            return b"P" + bare_bytes


def decode(encoded: bytes, source: TupleSource, attempt: TransactionAttempt) -> Chunk:
    """Return the chunk that :meth:`Chunk.encode` made bytes of."""
    if encoded[:1] == b"A":
        with pa.ipc.open_stream(memoryview(encoded)[1:]) as reader:
            return Chunk(source, batch=reader.read_next_batch())
    bare = pickle.loads(memoryview(encoded)[1:])  # noqa: S301 - our own bytes, from our own executors
    return Chunk(source, rows=[(attempt, *values) for values in bare])


def _to_columns(rows: list[Row], source: TupleSource) -> pa.RecordBatch:
    schema = source.fields.without_attempt().arrow_schema()
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True))[1:] if rows else [() for _ in schema]
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
