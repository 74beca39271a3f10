"""Appends a stream to a table of rows: each transaction's rows are in it once."""

from __future__ import annotations

from committers.rows import RowsCommitter
from txtopo.api.reduction import Rows
from txtopo.api.state import MapState


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
