"""A table of rows that expire as of a past transaction, read-only: a replay is compared with it."""

from __future__ import annotations

import functools

import attrs

from state.delta.expiring.runs import Expiry, ReadsRuns
from state.delta.log.location import Location
from state.delta.rows.format import RowsFormat
from state.delta.rows.past import PastDeltaRows, PastWrites
from txtopo.api.reduction import RowsMode
from txtopo.api.state import State, Writes
from txtopo.api.table_history import StateComparison
from txtopo.columnar.rows_by_time import Run, not_over
from txtopo.columnar.rows_file import in_memory

__all__ = ["PastDeltaExpiringRows"]


class PastDeltaExpiringRows(ReadsRuns, PastDeltaRows):
    """A table of rows that expire, at the newest version whose txid is not above a wanted one."""

    def __init__(  # noqa: PLR0913, PLR0917 - those of a table of rows, and how they expire
        self, declared: State, topology_id: str, location: Location, form: RowsFormat, txid: int, expiry: Expiry
    ) -> None:
        PastDeltaRows.__init__(self, declared, topology_id, location, form, txid)
        ReadsRuns.__init__(self, form, expiry)

    def taken_until(self) -> int:
        """Return the time up to which rows are taken in this version."""
        return self._taken_until()

    def _runs_held(self) -> list[Run]:
        return self._all_runs

    @functools.cached_property
    def _all_runs(self) -> list[Run]:
        return [self._run(self._all)]

    def compare(self, txid: int, writes: Writes, last: int, *, may_be_removed: bool) -> StateComparison:
        """Compare this table's rows of a transaction with the rows that a replay has put; see :class:`PastDeltaRows`.

        Rows that the group has taken in the end are left out: the table never had them.
        """
        if isinstance(writes, PastWrites):
            parts = [part for part in writes.parts if part.mode is RowsMode.APPEND]
            left = [not_over(in_memory(part.rows), self._expires, self.taken_until()) for part in parts]
            writes = PastWrites([attrs.evolve(part, rows=rows) for part, rows in zip(parts, left, strict=True)])
        return super().compare(txid, writes, last, may_be_removed=may_be_removed)
