"""Rows ordered by a time column, so that what is taken by time costs what is taken, whatever else is there."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.columnar.key_index import HashedKeys, Positions, RowIndex, are_equal
from txtopo.columnar.selection import rows_at

__all__ = [
    "AFTER_ALL",
    "BEFORE_ALL",
    "RowsByTime",
    "Run",
    "are_after",
    "are_over",
    "keys_in",
    "not_over",
    "rows_of_keys",
    "times_of",
]

BEFORE_ALL = -(1 << 63)
"""A time in µs since 1970 that is before all others."""

AFTER_ALL = (1 << 63) - 1
"""A time in µs since 1970 that is not before any other."""

_AT = ":at"
"""A column with the positions of keys; no field's name has a colon."""

Mask = npt.NDArray[np.bool_]


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
    return rows.filter(pc.invert(are_over(rows, column, until)))


def times_of(rows: pa.Table, column: str) -> npt.NDArray[np.int64]:
    """Return the time of each row in µs since 1970 UTC; a null is after all others, and never comes."""
    times: npt.NDArray[np.int64] = rows[column].cast(pa.int64()).fill_null(AFTER_ALL).to_numpy()
    return times


@attrs.frozen(eq=False)
class Run:
    """Rows in the order of their times; made by :meth:`of`."""

    rows: pa.Table
    times: npt.NDArray[np.int64]
    """The time of each row, in µs since 1970 UTC."""
    key: Sequence[str] = ()
    """The columns by which rows are looked up."""

    @staticmethod
    def of(rows: pa.Table, column: str, key: Sequence[str] = ()) -> Run:
        """Return rows as a run, ordered by a column of timestamps in µs; those of equal times keep their order."""
        rows = rows.combine_chunks()
        times: Any = rows[column].cast(pa.int64()).to_numpy()
        if bool((times[1:] >= times[:-1]).all()):
            return Run(rows, times, key)
        order = np.argsort(times, kind="stable")
        return Run(rows_at(rows, order), times[order], key)

    @property
    def last(self) -> int:
        """The time of the last row."""
        return int(self.times[-1]) if len(self.times) else BEFORE_ALL

    def count(self, after: int) -> int:
        """Return the number of rows after a time."""
        return len(self.times) - self._position(after)

    def between(self, after: int, until: int) -> pa.Table:
        """Return the rows after one time and up to another."""
        first = self._position(after)
        return self.rows.slice(first, max(0, self._position(until) - first))

    def without_dead(self, until: int) -> Run:
        """Return the rows after a time; as they are, if too few are gone for a copy to pay."""
        # A slice would keep the memory of all rows. So at most half of the memory is of rows that are gone, and each
        # row is copied as often as a row goes.
        left = self.count(until)
        if left * 2 > len(self.times):
            return self
        gone = len(self.times) - left
        return Run(rows_at(self.rows, np.arange(gone, len(self.times))), self.times[gone:].copy(), self.key)

    def prepare(self) -> None:
        """Make the index of the keys, so that the first look-up need not."""
        _ = self._index

    def holds(self, keys: HashedKeys, after: int) -> Mask:
        """Return for each key, of several that differ, whether it has a row after a time."""
        first, held = self._position(after), np.zeros(keys.keys.num_rows, dtype=bool)
        if first < len(self.times):
            at, own = self._index.found(keys)
            held[own[at >= first]] = True
        return held

    def at_hashes(self, keys: HashedKeys, after: int) -> tuple[pa.Table, Positions]:
        """Return the rows after a time whose keys have the hashes of some, which differ, and each one's key."""
        at, own = self._index.at_hashes(keys)
        if len(at):
            order = np.argsort(at)
            order = order[at[order] >= self._position(after)]
            at, own = at[order], own[order]
        return rows_at(self.rows, at) if len(at) else self.rows.slice(0, 0), own

    @functools.cached_property
    def _index(self) -> RowIndex:
        return RowIndex(self.rows.select(list(self.key)))

    def _position(self, time: int) -> int:
        """Return the position of the first row after a time."""
        return int(self.times.searchsorted(time, side="right"))  # as a method: 5x faster than numpy's function


class RowsByTime:
    """Rows to which others are added; ordered by ``column`` once somebody asks for some by time."""

    def __init__(self, column: str, key: Sequence[str] = ()) -> None:
        self._column = column
        self._key = key
        self._added: list[pa.Table] = []
        self._runs: list[Run] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        self._added.append(rows)

    @property
    def runs(self) -> list[Run]:
        """All rows, in a few runs."""
        if self._added:
            self._runs.append(Run.of(pa.concat_tables(self._added), self._column, self._key))
            self._added = []
            # Runs double in length from the last to the first: there are few, and each row is copied few times.
            while len(self._runs) > 1 and len(self._runs[-1].times) >= len(self._runs[-2].times):
                last = self._runs.pop()
                self._runs[-1] = Run.of(pa.concat_tables([self._runs[-1].rows, last.rows]), self._column, self._key)
        return self._runs

    def count(self, after: int) -> int:
        """Return the number of rows after a time."""
        return sum(run.count(after) for run in self.runs)

    def between(self, after: int, until: int) -> list[pa.Table]:
        """Return the rows after one time and up to another, in parts."""
        return [run.between(after, until) for run in self.runs]

    def holds(self, keys: pa.Table, after: int) -> Mask:
        """Return for each key, a row of the key columns, whether it has a row after a time."""
        return keys_in(self.runs, keys, after)

    def of_keys(self, keys: pa.Table, after: int) -> list[pa.Table]:
        """Return the rows of some keys after a time, in parts."""
        return rows_of_keys(self.runs, keys, after)

    def drop(self, until: int) -> None:
        """Forget the rows up to a time, or most of them."""
        self._runs = [run.without_dead(until) for run in self.runs if run.last > until]


def keys_in(runs: Sequence[Run], keys: pa.Table, after: int) -> Mask:
    """Return for each key, a row of the key columns, whether one of some runs has a row of it after a time."""
    if not (runs and keys.num_rows):
        return np.zeros(keys.num_rows, dtype=bool)
    # Of 1,000 keys, threads would take 1.5 ms of CPU and one alone takes 0.05 ms.
    distinct = keys.append_column(_AT, pa.array(np.arange(keys.num_rows))).group_by(
        keys.column_names, use_threads=False
    )
    distinct = distinct.aggregate([(_AT, "list")])
    held, hashed = np.zeros(distinct.num_rows, dtype=bool), HashedKeys.of(distinct.select(keys.column_names))
    for run in runs:
        held |= run.holds(hashed, after)
    at: Any = distinct[f"{_AT}_list"].combine_chunks()
    found = np.empty(keys.num_rows, dtype=bool)
    found[at.flatten().to_numpy()] = np.repeat(held, at.value_lengths().to_numpy())
    return found


def rows_of_keys(runs: Sequence[Run], keys: pa.Table, after: int) -> list[pa.Table]:
    """Return the rows of some keys, a table of the key columns, after a time, in parts."""
    if not runs:
        return []
    hashed = HashedKeys.of(keys.group_by(keys.column_names, use_threads=False).aggregate([]))
    parts, owns = zip(*(run.at_hashes(hashed, after) for run in runs), strict=True)
    rows, own = pa.concat_tables(parts), np.concatenate(owns)
    # Of all runs at once: in each of ten, the keys of a few rows took as long as those of all.
    is_same = are_equal(hashed.keys.take(own), rows.select(hashed.keys.column_names))
    return [rows if is_same.all() else rows.filter(pa.array(is_same))]
