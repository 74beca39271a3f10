"""What is read of a table of rows that expire, now or as of a past transaction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import attrs
import pyarrow as pa

from state.delta.rows.format import KeylessRows, RowsFormat
from txtopo.api.reduction import Rows, RowsMode
from txtopo.api.state import ExpiresRows
from txtopo.columnar.rows_by_time import Run, held_in, rows_of_keys

__all__ = ["Expiry", "ReadsRuns"]


@attrs.frozen
class Expiry:
    """How the rows of a state expire.

    Args:
        expires: the field with the time.
        key: the fields by which rows are looked up.
        fit: returns rows with the table's fields, in memory.
    """

    expires: str
    key: tuple[str, ...]
    fit: Callable[[RowsFormat, Rows, RowsMode], pa.Table]


class ReadsRuns(KeylessRows, ExpiresRows):
    """Reads the runs of rows that its subclasses hold; see :class:`ExpiresRows`."""

    def __init__(self, form: RowsFormat, expiry: Expiry) -> None:
        KeylessRows.__init__(self, form)
        self._fit = expiry.fit
        self._expires = expiry.expires
        self._key = expiry.key

    @abstractmethod
    def _runs_held(self) -> Sequence[Run]:
        """Return all rows that are not taken, and maybe some that are."""

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table:
        """Return rows with the table's fields, in memory; see :meth:`TakesRows.rows_to_write`."""
        return self._fit(self._form, rows, mode)

    def count(self, after: int) -> int:
        """Return the number of rows that expire after a time."""
        return sum(run.count(after) for run in self._runs_held())

    def expired(self, after: int, until: int) -> pa.Table:
        """Return the rows that expire after one time and up to another."""
        return self._shown([run.between(after, until) for run in self._runs_held()])

    def holds(self, keys: pa.Table, after: int) -> pa.BooleanArray:
        """Return for each key whether it has a row that expires after a time."""
        return pa.array(held_in(self._runs_held(), keys, after))

    def of_keys(self, keys: pa.Table, after: int) -> pa.Table:
        """Return the rows of some keys that expire after a time."""
        return self._shown(rows_of_keys(self._runs_held(), keys, after))

    def _run(self, rows: pa.Table) -> Run:
        return Run.of(rows, self._expires, self._key)

    def _shown(self, parts: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables([self._form.schema().empty_table(), *parts]).select(self._form.fields.names)
