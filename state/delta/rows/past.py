"""A table of rows as of a past transaction, read-only: a replay puts its rows into it and is compared with it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.log.location import Location
from state.delta.read.history import PastDeltaTable
from state.delta.read.multiset import missing_from
from state.delta.read.reading import key_mask
from state.delta.rows.files import distinct
from state.delta.rows.format import KeylessRows, RowsFormat
from state.delta.rows.group import rows_left
from state.delta.schema import TXID_FIELD
from txtopo.api.reduction import PreparedWrites, TransactionRows
from txtopo.api.state import State, Writes
from txtopo.api.table_history import StateComparison
from txtopo.columnar.conversion import python_rows

__all__ = ["PastDeltaRows"]


@attrs.frozen(eq=False)
class PastWrites(PreparedWrites):
    """The rows that a replay has put, in memory only."""

    parts: Sequence[TransactionRows]

    @property
    def rows_put(self) -> int:
        """The number of rows that it would put."""
        return sum(part.count for part in self.parts)


class PastDeltaRows(KeylessRows, PastDeltaTable):
    """A table of rows at the newest version whose txid is not above a wanted one; see :class:`PastDeltaTable`."""

    def __init__(self, declared: State, topology_id: str, location: Location, form: RowsFormat, txid: int) -> None:
        PastDeltaTable.__init__(self, declared, topology_id, location, form.state, txid)
        KeylessRows.__init__(self, form)

    def write_rows(self, parts: Sequence[TransactionRows]) -> PastWrites:
        """Keep the rows of some transactions in memory; nothing is written."""
        return PastWrites(parts)

    def compare(self, txid: int, writes: Writes, last: int, *, may_be_removed: bool) -> StateComparison:  # noqa: ARG002
        """Compare this table's rows of a transaction with the rows that a replay has put.

        Partitions that a later transaction of the group has replaced are left out. ``writes`` are the rows that the
        replay of the group has put, up to this transaction.
        """
        held = self._all
        then = held.filter(pc.equal(held[TXID_FIELD], txid))
        match writes:
            case PastWrites():
                parts = [part for part in writes.parts if part.txid == txid]
            case PreparedWrites() | Mapping():
                assert not writes, "a replay puts rows into memory"
                parts = []
            case _:
                assert_never(writes)
        now, replaced = rows_left(parts, self._form)
        now = self._without_replaced_later(now, held, then, txid)
        # The table had no column for what is put into a new field now.
        known = self._columns_at(last)
        then, now = (rows.select([name for name in rows.column_names if name in known]) for rows in (then, now))
        return StateComparison(self._state, then.num_rows, self._first_difference(then, now, held, replaced, txid))

    @functools.cached_property
    def _all(self) -> pa.Table:
        return self._read(self._form.schema())

    def _without_replaced_later(self, now: pa.Table, held: pa.Table, then: pa.Table, txid: int) -> pa.Table:
        names = list(self._form.partition_by)
        if not names or not now.num_rows:
            return now
        later = distinct(held.filter(pc.greater(held[TXID_FIELD], txid)).select(names))
        is_later = key_mask(now, later)
        stayed = key_mask(now, distinct(then.select(names)))
        return now.filter(pc.invert(pc.and_(is_later, pc.invert(stayed))))

    def _first_difference(
        self, then: pa.Table, now: pa.Table, held: pa.Table, replaced: pa.Table | None, txid: int
    ) -> str | None:
        lost, found = missing_from(now, then), missing_from(then, now)
        if lost.num_rows:
            return f"row {_shown(lost)} was put then, but is not put now ({_counts(then, now)})"
        if found.num_rows:
            return f"row {_shown(found)} is put now, but was not put then ({_counts(then, now)})"
        if replaced is None:
            return None
        older = held.filter(pc.less(held[TXID_FIELD], txid))
        kept = older.filter(key_mask(older, replaced))
        if kept.num_rows:
            return f"row {_shown(kept)} is replaced now, but was kept then"
        return None


def _shown(rows: pa.Table) -> dict[str, Any]:
    return python_rows(rows.slice(0, 1))[0]


def _counts(then: pa.Table, now: pa.Table) -> str:
    return f"{then.num_rows} rows then, {now.num_rows} now"
