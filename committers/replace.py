"""Replaces partitions of a table of rows by what a stream has for them."""

from __future__ import annotations

from committers.rows import RowsCommitter
from txtopo.api.reduction import Rows
from txtopo.api.state import MapState


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
