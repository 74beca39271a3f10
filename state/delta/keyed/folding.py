"""Fold the rows of a whole commit group into a table's rows, column by column.

A stored value is one more value to fold, so one aggregation over the table's rows and the group's rows gives the
table's next rows, and the last txid of each key is the largest one. This is only valid if the function does not
depend on the order (integers, see :class:`~txtopo.api.reduction.Reduction`), no sum exceeds 64 bits, and no stored
value already includes a transaction of the group. Otherwise the group is folded key by key. With a reduction for
each value field, values may also be decimals, floating numbers or, but for sums, whatever has an order, and null.

If keys expire, the table's rows that have expired for the group's first transaction take no part. A row that expires
later in the group, a stored one or one of the group's own, may be over for one of its transactions and not for another:
the rows of such keys are folded transaction by transaction, see :func:`reduced_in_turn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.columns import fit_column
from state.delta.read.reading import key_mask
from state.delta.schema import TXID_FIELD, RowFormat, reaches
from txtopo.api.reduction import ColumnReduction, Folding, Reducible, Reduction, RowsFile, TransactionRows
from txtopo.api.state import Key, StateKind
from txtopo.columnar.key_index import Mask
from txtopo.columnar.reducing import is_reducible, reduced
from txtopo.columnar.rows_by_time import BEFORE_ALL, are_up_to
from txtopo.columnar.rows_file import in_memory

__all__ = ["Reducer", "TooManyKeys", "reduced_in_turn"]


class TooManyKeys(Exception):
    """A group has too many keys for one process."""


def reduced_in_turn(
    stored: pa.Table,
    new: Sequence[tuple[int, pa.Table]],
    time: str,
    keys: Sequence[str],
    reductions: Mapping[str, ColumnReduction],
) -> pa.Table | None:
    """Return rows reduced to one row per key, whose keys expire; None if a sum is too large.

    Args:
        stored: the table's rows; those that have expired for the group's first transaction are left out.
        new: the rows of each transaction of the group, in order, and the time up to which keys have expired for it.
        time: the column with the time of a row.
        keys: the key columns.
        reductions: how the other columns are reduced.
    """
    stored = stored.filter(pc.invert(are_up_to(stored, time, new[0][0])))
    parts = [stored, *(rows for _, rows in new)]
    over = _expiring(parts, time, new[-1][0], keys)
    if not over.num_rows:
        return reduced(pa.concat_tables(parts), keys, reductions)
    rest, *others = [part.filter(key_mask(part, over)) for part in parts]
    made = reduced(rest, keys, reductions)
    for (until, _), own in zip(new, others, strict=True):
        if made is None:
            return None
        if own.num_rows:
            # Not of a key that this transaction leaves alone: its row must still replace the stored one, which may have
            # no time, and would live on.
            is_over = pc.and_(are_up_to(made, time, until), pc.less(made[TXID_FIELD], pc.min(own[TXID_FIELD])))
            is_over = pc.and_(is_over, key_mask(made, own.select(list(keys))))
            made = reduced(pa.concat_tables([made.filter(pc.invert(is_over)), own]), keys, reductions)
    unaffected = [part.filter(pc.invert(key_mask(part, over))) for part in parts]
    whole = reduced(pa.concat_tables(unaffected), keys, reductions)
    return None if whole is None or made is None else pa.concat_tables([whole, made])


def _expiring(parts: Sequence[pa.Table], time: str, until: int, keys: Sequence[str]) -> pa.Table:
    """Return the keys of rows whose time is up to a time."""
    return pa.concat_tables(part.filter(are_up_to(part, time, until)).select(list(keys)) for part in parts)


@attrs.frozen
class Reducer:
    """Folds rows of one state; ``time`` is the column by which its keys expire, empty if they do not."""

    rows: RowFormat
    time: str = ""
    _schema: pa.Schema = attrs.field(init=False, repr=False, eq=False)
    """The key and value fields; each transaction of a group needs it several times."""

    @_schema.default
    def _make_schema(self) -> pa.Schema:
        return pa.schema(list(self.rows.schema())[:-1])

    def reducible(self, values: Reducible, reduction: Folding) -> pa.Table | None:
        """Return ``values`` as rows of key fields and value fields; None if they must go key by key."""
        fields = self.rows
        if fields.kind is not StateKind.TRANSACTIONAL:
            return None
        assert not isinstance(values, RowsFile), "rows in a file are folded unchanged"
        table = self._of_mapping(values) if isinstance(values, Mapping) else self._of_table(values)
        return table if table is not None and self._is_reducible(table, reduction) else None

    def _is_reducible(self, table: pa.Table, reduction: Folding) -> bool:
        if isinstance(reduction, Reduction):
            return is_reducible(table, list(self.rows.value))
        return not any(table[name].null_count for name in self.rows.key)

    def takes(self, columns: pa.Schema, reduction: Folding) -> bool:
        """Whether rows with these columns are reducible, provided that there is no null that a reduction minds."""
        is_integer = all(pa.types.is_integer(kind) for kind in self.rows.value.types)
        has_types = is_integer or not isinstance(reduction, Reduction)
        return self.rows.kind is StateKind.TRANSACTIONAL and has_types and self._is_alike(columns)

    def _is_alike(self, columns: pa.Schema) -> bool:
        """Whether columns, whatever their names, have the types of the key and value fields, or can be cast to them."""
        ours = self._schema
        return len(columns) == len(ours) and all(
            _is_alike(own.type, other.type) for own, other in zip(ours, columns, strict=True)
        )

    def contributions(
        self, parts: Sequence[TransactionRows], reduction: Folding, rows_max: int | None = None
    ) -> pa.Table | None:
        """Return a group's rows reduced to one row per key, with its last txid; None if a sum is too large.

        A group has many rows of a key, so they are reduced in portions of at most ``rows_max`` rows: only the rows of
        one portion need memory twice. Without ``rows_max``, there is a single portion.

        Raises:
            TooManyKeys: there are several portions, and there are more keys than half a portion's rows, or some rows
                are in files, whose keys are already distinct.
        """
        count = sum(part.count for part in parts)
        portion_max = count if rows_max is None else rows_max
        if count > portion_max and any(isinstance(part.rows, RowsFile) for part in parts):
            raise TooManyKeys
        made: pa.Table | None = self._schema.append(_TXID).empty_table()
        for portion in _portions(parts, portion_max):
            try:
                made = self._reduced(pa.concat_tables([made, *map(self._with_txid, portion)]), reduction)
            except pa.ArrowInvalid:  # rows of a file that do not fit
                return None
            if made is None:
                return None
            if count > portion_max and made.num_rows > portion_max // 2:
                raise TooManyKeys
        return made

    def _with_txid(self, part: TransactionRows) -> pa.Table:
        schema, rows = self._schema, in_memory(part.rows)
        txids = pa.array(np.full(rows.num_rows, part.txid, dtype=np.int64))
        return rows.rename_columns(schema.names).cast(schema).append_column(_TXID, txids)

    def fold(
        self,
        is_there: Mask,
        stored: pa.Table,
        new: pa.Table,
        parts: Sequence[TransactionRows],
        reduction: Folding,
    ) -> pa.Table | None:
        """Return the next rows of a group's keys; None if they cannot be folded in columns.

        Args:
            is_there: for each row of ``new`` whether the table has its key.
            stored: the table's rows of those keys, in the same order.
            new: what :meth:`contributions` made of ``parts``.
            parts: the rows of each transaction.
            reduction: the function to fold with.
        """
        if reaches(stored, parts[0].txid):
            return None
        by_column = reduction.by_column(list(self.rows.value))
        if not self.time:
            return self._folded_at(is_there, stored, new, by_column)
        untils = [BEFORE_ALL if part.until is None else part.until for part in parts]
        is_over = are_up_to(stored, self.time, untils[0])
        if pc.any(is_over).as_py():
            is_alive = pc.invert(is_over)
            stored = stored.filter(is_alive)
            is_there = is_there.copy()
            is_there[is_there] = is_alive.to_numpy()
        at, last = self._schema.get_field_index(self.time), untils[-1]
        times = [stored[self.time], *(in_memory(part.rows).column(at) for part in parts)]
        if any(_min(each, last + 1) <= last for each in times):
            rows = list(zip(untils, map(self._with_txid, parts), strict=True))
            return reduced_in_turn(stored, rows, self.time, list(self.rows.key), self._by_column(reduction))
        return self._folded_at(is_there, stored, new, by_column)

    def _folded_at(
        self, is_there: Mask, stored: pa.Table, new: pa.Table, by_column: Mapping[str, ColumnReduction]
    ) -> pa.Table | None:
        """Fold the stored values into ``new``; no key is looked for."""
        # The place of each row of ``new`` in ``stored``, which has only the keys that are there; null for a new key.
        places = pa.array(np.cumsum(is_there) - 1, mask=~is_there)
        simple = {
            name: how
            for name, how in by_column.items()
            if isinstance(how, Reduction)
            and pa.types.is_integer(new.schema.field(name).type)
            and not (new[name].null_count or stored[name].null_count)
        }
        made = {}
        try:
            for name, how in simple.items():
                made[name] = _ELEMENT_WISE[how](new[name], stored[name].take(places))
        except pa.ArrowInvalid:  # a sum that does not fit
            return None
        if len(simple) < len(by_column):
            others = self._row_by_row(is_there, stored, new, by_column)
            if others is None:
                return None
            made.update((name, others[name]) for name in by_column if name not in simple)
        for name, column in made.items():
            position = new.schema.get_field_index(name)
            new = new.set_column(position, new.schema.field(position), column)
        return new

    @staticmethod
    def _row_by_row(
        is_there: Mask, stored: pa.Table, new: pa.Table, by_column: Mapping[str, ColumnReduction]
    ) -> pa.Table | None:
        """Return the reduced value columns of ``new`` and ``stored``, for :meth:`_folded_at`: by row numbers."""
        numbers = np.arange(new.num_rows)
        rows = pa.concat_tables(
            table.select(list(by_column)).append_column(TXID_FIELD, pa.array(own))
            for table, own in ((new, numbers), (stored, numbers[is_there]))
        )
        made = reduced(rows, [TXID_FIELD], by_column)  # any name that no value field has
        return None if made is None else made.sort_by(TXID_FIELD)

    def _reduced(self, rows: pa.Table, reduction: Folding) -> pa.Table | None:
        return reduced(rows, list(self.rows.key), self._by_column(reduction))

    def _by_column(self, reduction: Folding) -> Mapping[str, ColumnReduction]:
        return {**reduction.by_column(list(self.rows.value)), TXID_FIELD: Reduction.MAX}

    def _of_mapping(self, values: Mapping[Key, Any]) -> pa.Table | None:
        columns: list[Any] = []
        for fields, given in ((self.rows.key, list(values)), (self.rows.value, list(values.values()))):
            parts: Sequence[Sequence[Any]] = [given]
            if len(fields) > 1:
                if not all(isinstance(row, tuple) and len(row) == len(fields) for row in given):
                    return None
                parts = list(zip(*given, strict=True)) if given else [()] * len(fields)
            for part, kind in zip(parts, fields.types, strict=True):
                column = fit_column(part, kind)
                if column is None or column.is_changed:
                    return None
                columns.append(column.array)
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _of_table(self, values: pa.Table) -> pa.Table | None:
        schema = self._schema
        if not self._is_alike(values.schema):
            return None
        try:
            return values.rename_columns(schema.names).cast(schema)
        except (pa.ArrowException, ValueError):
            return None


_TXID = pa.field(TXID_FIELD, pa.int64())

_ELEMENT_WISE: Mapping[Reduction, Callable[[Any, Any], Any]] = {
    Reduction.SUM: lambda new, stored: pc.add_checked(new, pc.fill_null(stored, 0)),
    Reduction.MIN: pc.min_element_wise,
    Reduction.MAX: pc.max_element_wise,
}
"""The element-wise reductions of new and stored values; a stored null means that there is no stored value."""


def _min(times: Any, default: int) -> int:
    """Return the first of some times in µs; ``default`` if there is none."""
    first = pc.min(times.cast(pa.int64())).as_py()
    return default if first is None else first


def _portions(parts: Sequence[TransactionRows], rows_max: int) -> Iterator[list[TransactionRows]]:
    """Yield the parts in order, in portions of at most ``rows_max`` rows; a part is never divided."""
    portion: list[TransactionRows] = []
    rows = 0
    for part in parts:
        if portion and rows + part.count > rows_max:
            yield portion
            portion, rows = [], 0
        portion.append(part)
        rows += part.count
    yield portion


def _is_alike(ours: pa.DataType, theirs: pa.DataType) -> bool:
    """Whether the types are equal, or a cast either loses nothing or raises."""
    return bool(
        ours == theirs
        or (pa.types.is_integer(ours) and pa.types.is_integer(theirs))
        or (pa.types.is_decimal(ours) and pa.types.is_decimal(theirs))
        or (pa.types.is_string(ours) and pa.types.is_large_string(theirs))
    )
