"""``LookupJoin``: joins a stream with a table by key, each row with the version that its transaction sees."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers.inputs import field_mistakes
from txtopo import ArrowBatchBolt, BatchOutputCollector, Fields, OutputFieldsDeclarer, TopologyContext
from txtopo.api.abilities import ChecksTables, Inputs
from txtopo.api.arguments import checked_arguments
from txtopo.api.state import State
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.conversion import cast_rows
from txtopo.columnar.folding import places
from txtopo.columnar.key_index import as_numbers
from txtopo.errors import ConfigError

HOW = ("inner", "left")

PORTION_ROWS = 65_536
"""How many rows are joined with a state at a time, in at most a third of a second: each portion counts as progress, so
that a batch of any size does not stall the commit phase."""


class LookupJoin(ArrowBatchBolt, ChecksTables):
    """Joins each row of a stream with the row of its key in a reference table, or in a keyed state of the topology.

    With a reference it is a bolt of the processing phase, on the executors, and sees the version of the table that the
    transaction was planned with. With a state it is a committer, and sees the state as of the transaction before,
    whatever the transaction itself puts into it and in which order. So a replay finds the same rows either way.

    A row with a null in its key matches nothing. An inner join leaves out rows that match nothing; a left join passes
    them on, with nulls.

    A key of a state whose only value is null counts as not there.

    *You* subscribe it by any grouping; with a state, add it by ``set_committer_bolt``, and all bolts below it run in
    the commit phase. The stream's fields need types.

    Args:
        key: the stream's field or fields to look up, in the order of the table's key.
        reference: the name of the reference in ``builder.set_reference``.
        state: the name of the state in ``builder.set_state``, a keyed one. Give one of the two.
        fields: the stream's fields to pass on, each with a type.
        values: the columns to add, or the state's value fields, each with a type.
        rename: other names in the output for some of ``values``.
        how: ``"inner"`` or ``"left"``.

    Raises:
        ConfigError: there is not one of ``reference`` and ``state``, or another ``how``.
        FieldsError: a field has no type, is there twice, or is not one of ``values`` and renamed.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - what to join, by what, and what comes of it
        self,
        key: str | Sequence[str],
        *,
        fields: Fields,
        values: Fields,
        reference: str | None = None,
        state: str | None = None,
        rename: Mapping[str, str] | None = None,
        how: str = "inner",
    ) -> None:
        if (reference is None) == (state is None):
            raise ConfigError("a LookupJoin joins with one table: give either reference= or state=")
        if how not in HOW:
            raise ConfigError(f"how of a LookupJoin is {how!r}; it is 'inner' or 'left'")
        self._key = (key,) if isinstance(key, str) else tuple(key)
        self._reference, self._state = reference, state
        self._fields, self._values = fields, values
        self._is_left = how == "left"
        self._added = values.arrow_schema()
        self._output = fields + values.renamed(rename or {})
        self._passed = fields.arrow_schema()

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the stream's fields and those that are added."""
        declarer.declare(self._output.with_attempt())

    def input_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return the fields that a stream lacks."""
        return field_mistakes((*self._key, *self._fields), inputs)

    def table_mistakes(self, inputs: Inputs, states: Mapping[str, State]) -> Iterator[str]:
        """Return what the state lacks."""
        state = states.get(self._state or "")
        if state is None:
            return
        for name in self._values:
            if name not in state.value:
                yield f"looks up {name!r} in state {self._state!r}, which has {state.value}"
        if len(state.key) != len(self._key):
            yield f"looks up {', '.join(self._key)} in state {self._state!r}, whose key is {state.key}"

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Take the table."""
        self._batches: list[pa.RecordBatch] = []
        self._table: Any = (
            context.reference(self._reference) if self._reference is not None else context.state(self._state or "")
        )

    def execute(self, batch: pa.RecordBatch) -> None:
        """Join a batch with the reference, or keep it for the commit phase."""
        if self._reference is None:
            self._batches.append(batch)
            return
        numbers = self._table.find(pa.Table.from_batches([batch.select(list(self._key))]))
        if numbers.null_count and not self._is_left:
            batch, numbers = batch.filter(numbers.is_valid()), numbers.drop_null()
        if batch.num_rows:
            self._emit(batch, self._table.take(numbers, self._values.names))

    def finish_batch(self) -> None:
        """Join the batches with the state."""
        batches, self._batches = self._batches, []
        for batch in batches:
            for start in range(0, batch.num_rows, PORTION_ROWS):
                self._join_state(batch.slice(start, PORTION_ROWS))

    def _join_state(self, batch: pa.RecordBatch) -> None:
        columns = [
            batch.column(name) if kind is None else as_numbers(batch.column(name), kind)
            for name, kind in zip(self._key, self._table.key.types or [None] * len(self._key), strict=True)
        ]
        keys = pa.Table.from_arrays(columns, names=list(self._key))
        numbers = np.arange(batch.num_rows)
        if any(column.null_count for column in keys.columns):
            is_complete = functools.reduce(pc.and_, (column.is_valid() for column in keys.columns))
            numbers, keys = np.flatnonzero(is_complete), keys.filter(is_complete)
        positions, rows = self._table.rows_before(keys, self._values)
        partners = places(numbers[positions], batch.num_rows)
        if partners.null_count and not self._is_left:
            batch, partners = batch.filter(partners.is_valid()), partners.drop_null()
        if batch.num_rows:
            self._emit(batch, rows.take(partners))

    def _emit(self, batch: pa.RecordBatch, rows: pa.Table) -> None:
        left = cast_rows(batch.select(self._fields.names), self._passed, "a row to join")
        right = cast_rows(rows, self._added, "a row that is joined").combine_chunks()
        columns = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in right.columns]
        self.collector.emit_batch(
            pa.RecordBatch.from_arrays([*left.columns, *columns], schema=self._output.arrow_schema())
        )
