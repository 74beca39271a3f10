"""Compare what a replay puts into a table of rows with what the transaction has put."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.read.multiset import missing_from
from state.delta.read.past import Change, Compares
from state.delta.read.reading import key_mask
from state.delta.rows.files import distinct
from state.delta.rows.format import RowsFormat
from state.delta.rows.group import rows_left
from state.delta.schema import TXID_FIELD
from txtopo.api.reduction import PreparedWrites, TransactionRows
from txtopo.api.state import Writes
from txtopo.columnar.conversion import python_rows

__all__ = ["ComparesRows", "PastWrites"]


@attrs.frozen(eq=False)
class PastWrites(PreparedWrites):
    """The rows that a replay has put, in memory only."""

    parts: Sequence[TransactionRows]

    @property
    def rows_put(self) -> int:
        """The number of rows that it would put."""
        return sum(part.count for part in self.parts)


@attrs.frozen
class ComparesRows(Compares):
    """Compares rows, several of which may be equal, and the partitions that are replaced."""

    form: RowsFormat

    def is_comparable(self, txid: int, last: int) -> bool:  # noqa: ARG002 - each row has its transaction
        """Return True."""
        return True

    def put_now(self, txid: int, writes: Writes, then: pa.Table, table: pa.Table) -> pa.Table:
        """Return the rows without partitions that a later transaction of the group has replaced."""
        now, _ = self._left(txid, writes)
        names = list(self.form.partition_by)
        if not names or not now.num_rows:
            return now
        later = distinct(table.filter(pc.greater(table[TXID_FIELD], txid)).select(names))
        stayed = key_mask(now, distinct(then.select(names)))
        return now.filter(pc.invert(pc.and_(key_mask(now, later), pc.invert(stayed))))

    def difference(self, change: Change) -> str | None:
        """Describe the first row that differs, or that is replaced and was not; None if none does."""
        then, now = change.then, change.now
        lost, found = missing_from(now, then), missing_from(then, now)
        counts = f"{then.num_rows} rows then, {now.num_rows} now"
        if lost.num_rows:
            return f"row {_first(lost)} was put then, but is not put now ({counts})"
        if found.num_rows:
            return f"row {_first(found)} is put now, but was not put then ({counts})"
        _, replaced = self._left(change.txid, change.writes)
        if replaced is None:
            return None
        older = change.table.all.filter(pc.less(change.table.all[TXID_FIELD], change.txid))
        kept = older.filter(key_mask(older, replaced))
        return f"row {_first(kept)} is replaced now, but was kept then" if kept.num_rows else None

    def _left(self, txid: int, writes: Writes) -> tuple[pa.Table, pa.Table | None]:
        """Return the rows that a replay has put for a transaction, and the partitions that it has replaced."""
        assert isinstance(writes, PastWrites) or not writes, "a replay puts rows into memory"
        parts = writes.parts if isinstance(writes, PastWrites) else ()
        return rows_left([part for part in parts if part.txid == txid], self.form)


def _first(rows: pa.Table) -> dict[str, object]:
    return python_rows(rows.slice(0, 1))[0]
