"""Rows ordered by a time column, so that what is taken by time costs what is taken, whatever else is there."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.columnar.selection import rows_at

BEFORE_ALL = -(1 << 63)
"""A time in µs since 1970 that is before all others."""

AFTER_ALL = (1 << 63) - 1
"""A time in µs since 1970 that is not before any other."""


def are_after(rows: pa.Table, column: str, time: int) -> pa.ChunkedArray:
    """Return for each row whether its time in a column is after a time in µs since 1970 UTC; not if it is null."""
    return pc.fill_null(pc.greater(rows[column].cast(pa.int64()), pa.scalar(time, pa.int64())), fill_value=False)


def are_over(rows: pa.Table, column: str, until: int) -> pa.ChunkedArray:
    """Return for each row whether it has expired: its time in a column is not after a time in µs since 1970 UTC.

    A row without a time never has. It is the one rule of all that expires, rows and keys: when they are read, folded,
    taken, written again and merged.
    """
    return pc.fill_null(pc.less_equal(rows[column].cast(pa.int64()), pa.scalar(until, pa.int64())), fill_value=False)


def not_over(rows: pa.Table, column: str, until: int) -> pa.Table:
    """Return the rows that have not expired; see :func:`are_over`."""
    is_over = are_over(rows, column, until)
    return rows.filter(pc.invert(is_over)) if pc.any(is_over).as_py() else rows  # not a copy of all


def times_of(rows: pa.Table, column: str) -> npt.NDArray[np.int64]:
    """Return the time of each row in µs since 1970 UTC; a null is after all others, and never comes."""
    times: npt.NDArray[np.int64] = rows[column].cast(pa.int64()).fill_null(AFTER_ALL).to_numpy()
    return times


@attrs.define(eq=False)
class Run:
    """Rows in the order of their times; made by :meth:`of`. An index of several lets them be slices of one table."""

    rows: pa.Table
    times: npt.NDArray[np.int64]
    """The time of each row, in µs since 1970 UTC."""

    @staticmethod
    def of(rows: pa.Table, column: str) -> Run:
        """Return rows as a run, ordered by a column of timestamps in µs; those of equal times keep their order."""
        run = Run.as_they_are(rows.combine_chunks(), column)
        times = run.times
        if bool((times[1:] >= times[:-1]).all()):
            return run
        order = np.argsort(times, kind="stable")
        return Run(rows_at(run.rows, order), times[order])

    @staticmethod
    def as_they_are(rows: pa.Table, column: str) -> Run:
        """Return rows whose order is known, or of no account."""
        times: Any = rows[column].cast(pa.int64()).to_numpy()
        return Run(rows, times)

    @property
    def last(self) -> int:
        """The time of the last row."""
        return int(self.times[-1]) if len(self.times) else BEFORE_ALL

    def count(self, after: int) -> int:
        """Return the number of rows after a time."""
        return len(self.times) - self.position(after)

    def between(self, after: int, until: int) -> pa.Table:
        """Return the rows after one time and up to another."""
        first = self.position(after)
        return self.rows.slice(first, max(0, self.position(until) - first))

    def without_dead(self, until: int) -> Run:
        """Return the rows after a time; as they are, if too few are gone for a copy to pay."""
        # A slice would keep the memory of all rows. So at most half of the memory is of rows that are gone, and each
        # row is copied as often as a row goes.
        rows_left = self.count(until)
        if rows_left * 2 > len(self.times):
            return self
        rows_gone = len(self.times) - rows_left
        return Run(rows_at(self.rows, np.arange(rows_gone, len(self.times))), self.times[rows_gone:].copy())

    def position(self, time: int) -> int:
        """Return the position of the first row after a time."""
        return int(self.times.searchsorted(time, side="right"))  # as a method: 5x faster than numpy's function
