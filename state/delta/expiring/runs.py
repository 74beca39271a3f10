"""What is read of a table of rows that expire, now or as of a past transaction."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from state.delta.log.location import Location
from state.delta.rows.format import KeylessRows, RowsFormat, arranged, fitted_rows
from state.delta.rows.past import PastDeltaRows
from txtopo.api.reduction import Rows, RowsMode
from txtopo.api.state import ExpiresRows, State
from txtopo.columnar.rows_by_time import Run, keys_in, rows_of_keys
from txtopo.columnar.rows_file import in_memory
from txtopo.errors import FieldsError

__all__ = ["PastDeltaExpiringRows", "ReadsRuns", "fitted_with_times"]


def fitted_with_times(form: RowsFormat, expires: str, rows: Rows, mode: RowsMode) -> pa.Table:
    """Return rows with the table's fields, in memory, each with a time in ``expires``; see :func:`fitted_rows`."""
    found = arranged(in_memory(fitted_rows(form, rows, mode)), form.fields.names)
    assert found is not None, "rows of other columns were refused"
    if found[expires].null_count:  # a key may be null: nulls are equal to one another, as in windows
        raise FieldsError(
            f"state {form.state!r}, field {expires!r}: a row has no value, but a row is taken by it; give it one, or "
            "leave the row out; nothing was written"
        )
    return found


class ReadsRuns(KeylessRows, ExpiresRows):
    """Reads the runs of rows that its subclasses hold; see :class:`ExpiresRows`."""

    def __init__(self, form: RowsFormat, declared: State) -> None:
        KeylessRows.__init__(self, form)
        self._expires = declared.expires
        self._key = tuple(declared.key)

    @property
    @abstractmethod
    def _runs_there(self) -> Sequence[Run]:
        """Return all rows that are not taken, and maybe some that are."""

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table:
        """Return rows with the table's fields, in memory; see :meth:`TakesRows.rows_to_write`."""
        return fitted_with_times(self._form, self._expires, rows, mode)

    def count(self, after: int) -> int:
        """Return the number of rows that expire after a time."""
        return sum(run.count(after) for run in self._runs_there)

    def expired(self, after: int, until: int) -> pa.Table:
        """Return the rows that expire after one time and up to another."""
        return self._shown([run.between(after, until) for run in self._runs_there])

    def holds(self, keys: pa.Table, after: int) -> pa.BooleanArray:
        """Return for each key whether it has a row that expires after a time."""
        return pa.array(keys_in(self._runs_there, keys, after))

    def of_keys(self, keys: pa.Table, after: int) -> pa.Table:
        """Return the rows of some keys that expire after a time."""
        return self._shown(rows_of_keys(self._runs_there, keys, after))

    def _run(self, rows: pa.Table) -> Run:
        return Run.of(rows, self._expires, self._key)

    def _shown(self, parts: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables([self._form.schema().empty_table(), *parts]).select(self._form.fields.names)


class PastDeltaExpiringRows(ReadsRuns, PastDeltaRows):
    """A table of rows that expire as of the past."""

    def __init__(self, declared: State, topology_id: str, location: Location, form: RowsFormat, txid: int) -> None:
        PastDeltaRows.__init__(self, declared, topology_id, location, form, txid)
        ReadsRuns.__init__(self, form, declared)

    def taken_until(self) -> int:
        """Return the time up to which rows are taken in this version."""
        return self._taken_until()

    @functools.cached_property
    def _runs_there(self) -> list[Run]:
        return [self._run(self._all)]
