"""Committers of rows: they gather a batch as Arrow columns, and append it to a table, or replace partitions of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from committers.spill import SpillingCommitter
from txtopo import BatchOutputCollector, Fields, TopologyContext, TransactionAttempt, Tuple
from txtopo.api.reduction import Rows
from txtopo.api.state import MapState

TUPLES_WAITING_MAX = 10_000
"""Tuples that wait to be made columns of."""


class RowsCommitter(SpillingCommitter):
    """Gathers the rows of a batch for a table of rows.

    Args:
        state: the name of the state, a table of rows set by ``builder.set_state``.
        fields: the stream's fields to take, in the order of the table's; None: all but the attempt, by their names
            if those are the table's, else in their order.
    """

    def __init__(self, state: str, fields: Sequence[str] | None = None) -> None:
        self._state_name = state
        self._fields = None if fields is None else tuple(fields)

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Begin with no rows."""
        self._state = context.state(self._state_name)
        self._stream_fields: Fields | None = None
        self._positions: list[int] = []
        self._tuples: list[list[Any]] = []
        self._rows = []
        self._files = []

    def execute(self, tuple: Tuple) -> None:
        """Take one tuple."""
        if tuple.fields is not self._stream_fields:
            self._stream_fields = tuple.fields
            self._positions = self._positions_in(tuple.fields)
        values = tuple.values
        self._tuples.append([values[position] for position in self._positions])
        if len(self._tuples) >= TUPLES_WAITING_MAX:
            self._make_columns()

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch."""
        rows = pa.Table.from_batches([batch])
        names = rows.column_names[1:]
        if self._fields is None:
            rows = rows.select(names)
        else:  # by position, whatever their names
            order = [f" {position}" for position in range(len(self._fields))]  # no field is named so
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
        """Put some rows of the batch into the table."""

    def __getstate__(self) -> dict[str, Any]:
        """Make columns of what waits before it travels to the commit phase; what is large stays behind, in a file."""
        if "_rows" in self.__dict__:
            self._make_columns()
            self._spill(self._state.partition_by)
        return super().__getstate__()

    def _positions_in(self, fields: Fields) -> list[int]:
        """Return where a stream's tuples have the values to take."""
        names = self._fields
        if names is None:
            own = fields.names[1:]
            names = self._state.fields.names if set(own) == set(self._state.fields.names) else own
        return [fields.index(name) for name in names]

    def _make_columns(self) -> None:
        """Make columns of the tuples that wait; a value that does not fit is told of here."""
        if self._tuples:
            tuples, self._tuples = self._tuples, []
            self._rows.append(self._state.as_rows(tuples))


class AppendCommitter(RowsCommitter):
    """Appends every tuple of a stream to a table of rows, with the txid of its transaction.

    *You* set the state to a ``DeltaRows``, and give a stream with its fields; any grouping will do. A stream
    whose fields have types stays in Arrow columns the whole way into the table.
    *txtopo* guarantees that the rows of each transaction are in the table once, in one version of it, and those of
    one that fails not at all.

    Args:
        state: the name of the state, set by ``builder.set_state``.
        fields: the stream's fields to take, in the order of the table's; None: all but the attempt, by their names
            if those are the table's, else in their order.
    """

    def put(self, state: MapState, rows: Rows) -> None:
        """Append some rows of the batch."""
        state.append(rows)


class ReplaceCommitter(RowsCommitter):
    """Replaces, as a whole, each partition that occurs among a transaction's tuples by just those tuples.

    *You* set the state to a ``DeltaRows`` with ``partition_by``, and give a stream with its fields; any grouping
    will do, for the tuples of all tasks count together. The last transaction that has a partition wins, so let one
    transaction hold the whole of a partition, and let the spout be repeatable: an opaque one may cut the same input
    otherwise when it is replayed.
    *txtopo* guarantees that no version of the table has rows of two transactions in a partition that both have
    replaced, and that partitions which do not occur stay as they are.

    Args:
        state: the name of the state, set by ``builder.set_state``.
        fields: the stream's fields to take, in the order of the table's; None: all but the attempt, by their names
            if those are the table's, else in their order.
    """

    def put(self, state: MapState, rows: Rows) -> None:
        """Replace the partitions of some rows of the batch."""
        state.replace_partitions(rows)
