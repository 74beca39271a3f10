"""The rows of an expiring table during one commit group: on top of the durable ones those of the group's transactions.

There is one layer for the group and one for the running transaction. Each has the rows that were appended to it, and
the time up to which rows are taken. No row is ever removed from the layer below: what is not after that time is gone.
So a transaction that fails takes its layer with it, and leaves nothing.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.api.data.utc import MICROS_MIN, datetime_at
from txtopo.api.state import ExpiresRows, State
from txtopo.columnar.keyed_runs import RowsByTime
from txtopo.columnar.rows_by_time import AFTER_ALL, BEFORE_ALL
from txtopo.errors import FieldsError, StateAccessError


class PendingRows(ExpiresRows):
    """A layer of rows on top of ``below``: the durable rows or the layer of the group."""

    def __init__(self, declared: State, below: ExpiresRows) -> None:
        self._declared = declared
        self._below = below
        self._own = RowsByTime(declared.expires, tuple(declared.key))
        self._taken = below.taken_until()

    def taken_until(self) -> int:
        """Return the time up to which rows are taken, in µs since 1970 UTC."""
        return self._taken

    def count(self, after: int) -> int:
        """Return the number of rows of this layer and those below it that expire after a time."""
        return self._below.count(after) + self._own.count(after)

    def expired(self, after: int, until: int) -> pa.Table:
        """Return the rows of this layer and those below it that expire after one time and up to another."""
        return pa.concat_tables([self._below.expired(after, until), *self._own.between(after, until)])

    def holds(self, keys: pa.Table, after: int) -> pa.BooleanArray:
        """Return for each key whether it has a row, of this layer or those below it, that expires after a time."""
        return pc.or_(self._below.holds(keys, after), pa.array(self._own.holds(keys, after)))

    def of_keys(self, keys: pa.Table, after: int) -> pa.Table:
        """Return the rows of some keys, of this layer and those below it, that expire after a time."""
        return pa.concat_tables([self._below.of_keys(keys, after), *self._own.of_keys(keys, after)])

    def append(self, rows: pa.Table) -> None:
        """Add rows; raise StateAccessError if one of them expires at a time up to which all rows are taken."""
        if not rows.num_rows:
            return
        first = pc.min(rows[self._declared.expires].cast(pa.int64())).as_py()
        # Nobody would ever take it; and if it were kept until the next time, what is taken would depend on the groups.
        if first <= self._taken:
            raise StateAccessError(
                f"a row with {self._declared.expires} = {_shown(first)} was appended, but all rows up to "
                f"{_shown(self._taken)} are taken already; leave out rows that come too late"
            )
        self._own.add(rows)

    def take(self, until: int) -> pa.Table:
        """Take out all rows up to a time, and return them; none if they are taken already."""
        expired = self.expired(self._taken, until)
        self._taken = max(self._taken, until)
        return expired

    def holds_now(self, keys: pa.Table) -> pa.BooleanArray:
        """Return for each key whether it has a row that is not taken; see :meth:`MapState.holds`."""
        return self.holds(self._fitted(keys), self._taken)

    def rows_now(self, keys: pa.Table) -> pa.Table:
        """Return the rows of some keys that are not taken; see :meth:`MapState.rows_of`."""
        return self.of_keys(self._fitted(keys), self._taken)

    def _fitted(self, keys: pa.Table) -> pa.Table:
        state, key = self._declared, self._declared.key
        if not len(key):
            raise StateAccessError(f"{state} was declared without a key to look rows up by; write key=('name', …)")
        if keys.num_columns != len(key):
            raise FieldsError(f"the keys have the columns {', '.join(keys.column_names)}, but the key is {key}")
        names = keys.column_names if set(keys.column_names) != set(key) else list(key)
        try:
            return keys.select(names).rename_columns(list(key)).cast(key.arrow_schema())
        except (pa.ArrowException, ValueError) as error:
            raise FieldsError(f"the keys do not fit {key}", cause=str(error)) from error

    def adopt(self, finished: PendingRows) -> None:
        """Take over the layer above, of a transaction that has finished."""
        self._taken = finished.taken_until()
        for rows in finished._own.between(self._taken, AFTER_ALL):
            self._own.add(rows)
        self._own.drop(self._taken)


def _shown(time: int) -> str:
    if time == BEFORE_ALL:
        return "any time"
    return datetime_at(max(time, MICROS_MIN)).isoformat()
