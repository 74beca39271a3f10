"""A table of rows that expire as of a past transaction, read-only: a replay is compared with it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa

from state.delta.log.location import Location
from state.delta.log.ownership import taken_until
from state.delta.rows.format import RowsFormat
from state.delta.rows.past import PastDeltaRows, PastWrites
from txtopo.api.reduction import Rows, RowsMode
from txtopo.api.state import ExpiresRows, Writes
from txtopo.api.table_history import StateComparison
from txtopo.columnar.rows_by_time import Run, held_in, rows_after, rows_of_keys
from txtopo.columnar.rows_file import in_memory

if TYPE_CHECKING:
    from state.delta.expiring.state import DeltaExpiringRows

__all__ = ["PastDeltaExpiringRows"]


class PastDeltaExpiringRows(PastDeltaRows, ExpiresRows):
    """A table of rows that expire, at the newest version whose txid is not above a wanted one."""

    def __init__(
        self, declared: DeltaExpiringRows, topology_id: str, location: Location, form: RowsFormat, txid: int
    ) -> None:
        super().__init__(declared, topology_id, location, form, txid)
        self._fit = declared.fit

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table:
        """Return rows with the table's fields, in memory; see :meth:`TakesRows.rows_to_write`."""
        return self._fit(self._form, rows, mode)

    def taken_until(self) -> int:
        """Return the time up to which rows are taken in this version."""
        return taken_until(self._table, self._application)

    def count(self, after: int) -> int:
        """Return the number of rows that expire after a time."""
        return self._run.count(after)

    def expired(self, after: int, until: int) -> pa.Table:
        """Return the rows that expire after one time and up to another."""
        return self._run.between(after, until).select(self._form.fields.names)

    def holds(self, keys: pa.Table, after: int) -> pa.BooleanArray:
        """Return for each key whether it has a row that expires after a time."""
        return pa.array(held_in([self._run], keys, after))

    def of_keys(self, keys: pa.Table, after: int) -> pa.Table:
        """Return the rows of some keys that expire after a time."""
        [found] = rows_of_keys([self._run], keys, after)
        return found.select(self._form.fields.names)

    @functools.cached_property
    def _run(self) -> Run:
        return Run.of(self._all, self.declared.expires, tuple(self.declared.key))

    def compare(self, txid: int, writes: Writes, last: int, *, may_be_removed: bool) -> StateComparison:
        """Compare this table's rows of a transaction with the rows that a replay has put; see :class:`PastDeltaRows`.

        Rows that the group has taken in the end are left out: the table never had them.
        """
        if isinstance(writes, PastWrites):
            parts = [part for part in writes.parts if part.mode is RowsMode.APPEND]
            left = [rows_after(in_memory(part.rows), self.declared.expires, self.taken_until()) for part in parts]
            writes = PastWrites([attrs.evolve(part, rows=rows) for part, rows in zip(parts, left, strict=True)])
        return super().compare(txid, writes, last, may_be_removed=may_be_removed)
