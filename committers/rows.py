"""Committers of rows: collect a batch as Arrow columns, and append it to a table or replace partitions with it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from committers.inputs import field_mistakes, stream_name
from committers.spill import SpillingCommitter
from committers.waiting import converted
from txtopo import BatchOutputCollector, Fields, TopologyContext, TransactionAttempt, Tuple
from txtopo.api.abilities import ChecksTables, Inputs
from txtopo.api.arguments import checked_arguments
from txtopo.api.map_state import MapState
from txtopo.api.state import State
from txtopo.api.values import StateKind
from txtopo.api.writes import Rows


class RowsCommitter(SpillingCommitter, ChecksTables):
    """Collects the rows of a batch for a table of rows.

    Args:
        state: the name of the state, a table of rows, in ``builder.set_state``.
        fields: the stream's fields to take, in the order of the table's fields. None: all except the attempt, matched
            by name if the names are the table's, otherwise by position.
    """

    @checked_arguments
    def __init__(self, state: str, fields: Sequence[str] | None = None) -> None:
        self._state_name = state
        self._fields = None if fields is None else tuple(fields)

    @property
    def _has_no_overrides(self) -> bool:
        """Whether no subclass overrides the taking of rows."""
        return all(getattr(type(self), name) is getattr(RowsCommitter, name) for name in ("execute", "execute_batch"))

    def input_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return the fields that a stream lacks, unless a subclass reads others."""
        return field_mistakes(self._fields or (), inputs if self._has_no_overrides else {})

    def table_mistakes(self, inputs: Inputs, states: Mapping[str, State]) -> Iterator[str]:
        """Return the streams whose fields are not the columns of the table, unless a subclass makes the rows."""
        table = states.get(self._state_name)
        if table is None or table.kind is not StateKind.ROWS or not self._has_no_overrides:
            return
        for (source, stream), fields in inputs.items():
            names, columns = self._fields or fields.names[1:], table.value.names
            if self._fields is None and set(names) == set(columns):
                names = columns
            kinds = [fields.types[fields.index(name)] for name in names]
            if len(names) != len(columns) or any(map(_are_unlike, kinds, table.value.types)):
                yield (
                    f"puts {', '.join(names)} of {stream_name(source, stream)}, {fields.without_attempt()}, into state "
                    f"{self._state_name!r}, whose table has {table.value}; declare the table with the fields of the "
                    "stream, or name those to take by fields="
                )

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no rows."""
        self._state = context.state(self._state_name)
        self._stream_fields: Fields | None = None
        self._positions: list[int] = []
        self._tuples: list[list[Any]] = []
        self._rows = []
        self._files = []

    def execute(self, tuple: Tuple) -> None:
        """Collect one tuple."""
        if tuple.fields is not self._stream_fields:
            self._stream_fields = tuple.fields
            self._positions = self._positions_in(tuple.fields)
        values = tuple.values
        self._tuples.append([values[position] for position in self._positions])
        if len(self._tuples) >= self.spill_limits.tuples_waiting:
            self._make_columns()

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """Collect the rows of a record batch."""
        rows = pa.Table.from_batches([batch])
        names = rows.column_names[1:]
        if self._fields is None:
            rows = rows.select(names)
        else:  # by position, whatever their names
            order = [f" {position}" for position in range(len(self._fields))]  # no field has such a name
            # With names, as_rows would match a field that has another column's name by that name.
            rows = rows.select(list(self._fields)).rename_columns(order)
        self._rows.append(self._state.as_rows(rows))

    def finish_batch(self) -> None:
        """Put the rows into the table."""
        self._make_columns()
        if self._rows:
            self.put(self._state, pa.concat_tables(self._rows))
        for file in self._files:
            self.put(self._state, file)

    @abstractmethod
    def put(self, state: MapState, rows: Rows) -> None:
        """Put some of the batch's rows into the table."""

    def __getstate__(self) -> dict[str, Any]:
        """Convert waiting tuples to columns before the object moves to the commit phase; spill large ones to a file."""
        if "_rows" in self.__dict__:
            self._make_columns()
            self._spill(self._state.partition_by)
        return super().__getstate__()

    def _positions_in(self, fields: Fields) -> list[int]:
        """Return the positions of the values to take in a stream's tuples."""
        names = self._fields
        if names is None:
            emitted = fields.names[1:]
            names = self._state.fields.names if set(emitted) == set(self._state.fields.names) else emitted
        return [fields.index(name) for name in names]

    def _make_columns(self) -> None:
        """Convert the waiting tuples to columns; raise FieldsError if a value does not fit its field."""
        if self._tuples:
            assert self._stream_fields is not None, "tuples wait"
            names = list(self._stream_fields)
            self._rows.append(converted([names[at] for at in self._positions], self._tuples, self._state.as_rows))


_UNLIKE = (pa.types.is_nested, pa.types.is_temporal, pa.types.is_string, pa.types.is_binary)
"""Kinds of types; a value of one never fits a field of another, or a number or boolean."""


def _are_unlike(left: pa.DataType | None, right: pa.DataType | None) -> bool:
    return left is not None and right is not None and any(is_kind(left) != is_kind(right) for is_kind in _UNLIKE)


class AppendCommitter(RowsCommitter):
    """Appends every tuple of a stream to a table of rows, with the txid of its transaction.

    *You* must set the state to a ``DeltaRows`` and subscribe to a stream with its fields, with any grouping. If the
    stream's fields have types, the rows stay in Arrow columns all the way into the table.
    *txtopo* guarantees that the rows of each transaction are in the table exactly once, in one version of it, and that
    the rows of a failed transaction are not in it.

    Args:
        state: the name of the state in ``builder.set_state``.
        fields: the stream's fields to take, in the order of the table's fields. None: all except the attempt, matched
            by name if the names are the table's, otherwise by position.
    """

    def put(self, state: MapState, rows: Rows) -> None:
        """Append some of the batch's rows."""
        state.append(rows)


class ReplaceCommitter(RowsCommitter):
    """Replaces every partition that occurs in a transaction's tuples with exactly those tuples.

    *You* must set the state to a ``DeltaRows`` with ``partition_by`` and subscribe to a stream with its fields, with
    any grouping, because the tuples of all tasks are combined. The last transaction that has a partition wins, so one
    transaction must hold a whole partition. The spout must be repeatable, because an opaque one may divide the same
    input differently when it is replayed.
    *txtopo* guarantees that no version of the table has rows of two transactions in a partition that both have
    replaced, and that partitions which do not occur are unchanged.

    Args:
        state: the name of the state in ``builder.set_state``.
        fields: the stream's fields to take, in the order of the table's fields. None: all except the attempt, matched
            by name if the names are the table's, otherwise by position.
    """

    def put(self, state: MapState, rows: Rows) -> None:
        """Replace the partitions of some of the batch's rows."""
        state.replace_partitions(rows)
