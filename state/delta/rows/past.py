"""A table of rows as of a past transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.log.location import Location
from state.delta.read.multiset import missing_from
from state.delta.read.past import PastDeltaTable
from state.delta.read.reading import key_mask
from state.delta.rows.files import distinct
from state.delta.rows.format import KeylessRows, RowsFormat
from state.delta.rows.group import rows_left
from state.delta.schema import TXID_FIELD
from txtopo.api.reduction import PreparedWrites, TransactionRows
from txtopo.api.state import State, Writes
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
    """A table of rows as of the past."""

    def __init__(self, declared: State, topology_id: str, location: Location, form: RowsFormat, txid: int) -> None:
        PastDeltaTable.__init__(self, declared, topology_id, location, form.state, form.schema(), txid)
        KeylessRows.__init__(self, form)

    def write_rows(self, parts: Sequence[TransactionRows]) -> PastWrites:
        """Keep the rows of some transactions in memory; nothing is written."""
        return PastWrites(parts)

    def _left(self, txid: int, writes: Writes) -> tuple[pa.Table, pa.Table | None]:
        """Return the rows that a replay has put for a transaction, and the partitions that it has replaced."""
        assert isinstance(writes, PastWrites) or not writes, "a replay puts rows into memory"
        parts = writes.parts if isinstance(writes, PastWrites) else ()
        return rows_left([part for part in parts if part.txid == txid], self._form)

    def _put_now(self, txid: int, writes: Writes, then: pa.Table) -> pa.Table:
        """Return the rows without partitions that a later transaction of the group has replaced."""
        now, _ = self._left(txid, writes)
        names = list(self._form.partition_by)
        if not names or not now.num_rows:
            return now
        later = distinct(self._all.filter(pc.greater(self._all[TXID_FIELD], txid)).select(names))
        stayed = key_mask(now, distinct(then.select(names)))
        return now.filter(pc.invert(pc.and_(key_mask(now, later), pc.invert(stayed))))

    def _first_difference(
        self, txid: int, then: pa.Table, now: pa.Table, writes: Writes, *, may_be_removed: bool
    ) -> str | None:
        del may_be_removed  # a row has no key
        lost, found = missing_from(now, then), missing_from(then, now)
        counts = f"{then.num_rows} rows then, {now.num_rows} now"
        if lost.num_rows:
            return f"row {_row(lost)} was put then, but is not put now ({counts})"
        if found.num_rows:
            return f"row {_row(found)} is put now, but was not put then ({counts})"
        _, replaced = self._left(txid, writes)
        if replaced is None:
            return None
        older = self._all.filter(pc.less(self._all[TXID_FIELD], txid))
        kept = older.filter(key_mask(older, replaced))
        return f"row {_row(kept)} is replaced now, but was kept then" if kept.num_rows else None


def _row(rows: pa.Table) -> dict[str, Any]:
    return python_rows(rows.slice(0, 1))[0]
