"""Fold the rows of a commit group into a table's rows, column by column: what the driver and the executors do alike.

From the rows of each transaction, in their order, and the table's rows of their keys come the keys' next rows, which
replace those that were found. A stored value is one more value to fold, and the last txid of each key is the largest
one. This is only valid if the function does not depend on the order (integers, see
:class:`~txtopo.api.reduction.Reduction`), no sum exceeds 64 bits, and no stored value already includes a transaction of
the group. Otherwise the group is folded key by key. With a reduction for each value field, values may also be decimals,
floating numbers or, but for sums, whatever has an order, and null.

If keys expire, the rows that have expired for the group's first transaction take no part. A row that expires later in
the group, a stored one or one of the group's own, may be over for one of its transactions and not for another: the rows
of such keys are folded transaction by transaction.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.columns import fit_column
from state.delta.read.reading import key_mask
from state.delta.schema import PREVIOUS_PREFIX, TXID_FIELD, RowFormat, reaches
from txtopo.api.map_state import split_columns
from txtopo.api.reduction import Folding, Reduction
from txtopo.api.values import Key, StateKind
from txtopo.api.writes import Reducible, RowsFile, TransactionRows
from txtopo.columnar.folding import folded_in, places, with_columns
from txtopo.columnar.key_index import Mask, Positions
from txtopo.columnar.reducing import is_reducible, reduced
from txtopo.columnar.rows_by_time import BEFORE_ALL, are_over
from txtopo.columnar.rows_file import in_memory
from txtopo.columnar.selection import rows_at

FoundAmong = Callable[[pa.Table], tuple[Positions, pa.Table]]
"""Returns a table's rows of those of some keys that it has, and the position of each one's key among them."""


class TooManyKeys(Exception):
    """A group has too many keys for one process."""


@attrs.frozen
class Reducer:
    """Folds rows of one state; ``time`` is the column by which its keys expire, empty if they do not."""

    rows: RowFormat
    time: str = ""
    _schema: pa.Schema = attrs.field(init=False, repr=False, eq=False)
    """The key and value fields; each transaction of a group needs it several times."""

    _empty: pa.Table = attrs.field(init=False, repr=False, eq=False)
    """No rows of key and value fields with a txid: to make them takes as long as to reduce a few."""

    @_schema.default
    def _make_schema(self) -> pa.Schema:
        return pa.schema(list(self.rows.schema())[:-1])

    @_empty.default
    def _make_empty(self) -> pa.Table:
        return self._schema.append(_TXID).empty_table()

    def reducible(self, values: Reducible, reduction: Folding) -> pa.Table | None:
        """Return ``values`` as rows of key fields and value fields; None if they must go key by key."""
        fields = self.rows
        if fields.kind is not StateKind.TRANSACTIONAL:
            return None
        assert not isinstance(values, RowsFile), "rows in a file are folded unchanged"
        table = self._of_mapping(values) if isinstance(values, Mapping) else _as(self._schema, values)
        return table if table is not None and self._is_reducible(table, reduction) else None

    def _is_reducible(self, table: pa.Table, reduction: Folding) -> bool:
        if isinstance(reduction, Reduction):
            return is_reducible(table, list(self.rows.value))
        return not any(table[name].null_count for name in self.rows.key)

    def as_kept(self, rows: pa.Table) -> pa.Table | None:
        """Return rows of key and value fields as they are kept, of any kind of state; None if they don't fit."""
        fields = self.rows
        kept_rows = _as(pa.schema(list(fields.schema(with_previous=False))[:-1]), rows)
        if kept_rows is None or any(kept_rows[name].null_count for name in fields.key):
            return None
        if fields.kind is StateKind.OPAQUE and len(fields.value) > 1:
            nulls = functools.reduce(pc.and_, (kept_rows[name].is_null() for name in fields.value))
            return None if pc.any(nulls).as_py() else kept_rows  # no value, as a previous one
        return kept_rows

    def takes(self, columns: pa.Schema, reduction: Folding) -> bool:
        """Whether rows with these columns are reducible, provided that there is no null that a reduction minds."""
        is_integer = all(pa.types.is_integer(kind) for kind in self.rows.value.types)
        has_types = is_integer or not isinstance(reduction, Reduction)
        return self.rows.kind is StateKind.TRANSACTIONAL and has_types and _are_alike(self._schema, columns)

    def fold(
        self,
        parts: Sequence[TransactionRows],
        reduction: Folding | None,
        found_among: FoundAmong,
        rows_max: int | None = None,
    ) -> pa.Table | None:
        """Return the next rows of a group's keys, each once; None if they cannot be folded in columns.

        Args:
            parts: the rows of each transaction, in their order. If they are put, each part has a key once, a row
                without a txid removes its key, and the table has none of the transactions, but for that of an opaque
                row: its value is put anew.
            reduction: the function to fold with; None: of each key the last row is put, with the value before it, if
                that is kept.
            found_among: finds the table's rows of the group's keys, all of which the next ones replace.
            rows_max: the maximum number of rows to reduce at a time; None if any number is.

        Raises:
            TooManyKeys: there are more rows to reduce than ``rows_max``, and more keys than half of it, or some rows
                are in files, whose keys are already distinct.
        """
        keys = list(self.rows.key)
        if reduction is None:
            new, is_first = self._put_last(parts)
            if self.rows.kind is not StateKind.OPAQUE:
                return new
            positions, stored = found_among(new.select(keys))
            return self._with_previous(
                positions[is_first[positions]], stored.filter(pa.array(is_first[positions])), new
            )
        new = self._contributions(parts, reduction, rows_max)
        if new is None:
            return None
        positions, stored = found_among(new.select(keys))
        if reaches(stored, parts[0].txid):
            return None
        if self.time:
            untils = [BEFORE_ALL if part.until is None else part.until for part in parts]
            is_alive = pc.invert(are_over(stored, self.time, untils[0]))
            if not pc.all(is_alive).as_py():
                stored, positions = stored.filter(is_alive), positions[is_alive.to_numpy()]
            at, last = self._schema.get_field_index(self.time), untils[-1]
            times = [stored[self.time], *(in_memory(part.rows).column(at) for part in parts)]
            if any(_min(time, last + 1) <= last for time in times):
                return self._in_turn(stored, list(zip(untils, map(self._with_txid, parts), strict=True)), reduction)
        return folded_in(positions, stored, new, reduction.by_column(list(self.rows.value)))

    def _put_last(self, parts: Sequence[TransactionRows]) -> tuple[pa.Table, Mask]:
        """Return the last row that a group puts of each key, and whether it is the first one, too.

        A row of an opaque state has the value that the group has put before.
        """
        rows = pa.concat_tables(part.rows for part in parts)
        put, before = rows, np.full(rows.num_rows, -1)
        if len(parts) > 1:
            last, before = _last_two(rows.select(list(self.rows.key)))
            put = rows_at(rows, last)
        if self.rows.kind is StateKind.OPAQUE:
            earlier = rows_at(rows.select(list(self.rows.value)), pa.array(before, mask=before < 0))
            columns = [*put.columns[:-1], *earlier.columns, put[TXID_FIELD]]
            put = pa.Table.from_arrays(columns, schema=self.rows.schema())
        return put, before < 0

    def _with_previous(self, positions: Positions, stored: pa.Table, new: pa.Table) -> pa.Table:
        """Return ``new``, a row for each key, with the stored values, which are at ``positions``, as previous ones."""
        is_again = pc.equal(new[TXID_FIELD].take(positions), stored[TXID_FIELD]).fill_null(False)
        numbers, columns = places(positions, new.num_rows), {}
        for name in self.rows.value:
            previous = PREVIOUS_PREFIX + name
            was = pc.if_else(is_again, stored[previous], stored[name]).take(numbers)
            columns[previous] = pc.coalesce(new[previous], was)
        return with_columns(new, columns)

    def _contributions(
        self, parts: Sequence[TransactionRows], reduction: Folding, rows_max: int | None
    ) -> pa.Table | None:
        """Return a group's rows reduced to one row per key, with its last txid; None if a sum is too large.

        A group has many rows of a key, so they are reduced in portions of at most ``rows_max`` rows: only the rows of
        one portion need memory twice.
        """
        count = sum(part.count for part in parts)
        portion_max = count if rows_max is None else rows_max
        if count > portion_max and any(isinstance(part.rows, RowsFile) for part in parts):
            raise TooManyKeys
        total: pa.Table | None = self._empty
        for portion in _portions(parts, portion_max):
            try:
                total = self._reduced(pa.concat_tables([total, *map(self._with_txid, portion)]), reduction)
            except pa.ArrowInvalid:  # rows of a file that do not fit
                return None
            if total is None:
                return None
            if count > portion_max and total.num_rows > portion_max // 2:
                raise TooManyKeys
        return total

    def _with_txid(self, part: TransactionRows) -> pa.Table:
        schema, rows = self._schema, in_memory(part.rows)
        txids = pa.array(np.full(rows.num_rows, part.txid, dtype=np.int64))
        return rows.rename_columns(schema.names).cast(schema).append_column(_TXID, txids)

    def _in_turn(self, stored: pa.Table, new: Sequence[tuple[int, pa.Table]], reduction: Folding) -> pa.Table | None:
        """Return the rows of keys some of which expire within the group; None if a sum is too large.

        Args:
            stored: the table's rows that have not expired for the group's first transaction.
            new: the rows of each transaction, in order, and the time up to which keys have expired for it.
            reduction: the function to fold with.
        """
        time, keys, parts = self.time, list(self.rows.key), [stored, *(rows for _, rows in new)]
        expired = pa.concat_tables(part.filter(are_over(part, time, new[-1][0])).select(keys) for part in parts)
        total, *later_parts = [part.filter(key_mask(part, expired)) for part in parts]
        for (until, _), part_rows in zip(new, later_parts, strict=True):
            if part_rows.num_rows:
                # Not of a key that this transaction leaves alone: its row must still replace the stored one, which may
                # have no time, and would live on.
                is_over = pc.and_(
                    are_over(total, time, until), pc.less(total[TXID_FIELD], pc.min(part_rows[TXID_FIELD]))
                )
                is_over = pc.and_(is_over, key_mask(total, part_rows.select(keys)))
                total = self._reduced(pa.concat_tables([total.filter(pc.invert(is_over)), part_rows]), reduction)
                if total is None:
                    return None
        unaffected = [part.filter(pc.invert(key_mask(part, expired))) for part in parts]
        rest = self._reduced(pa.concat_tables(unaffected), reduction)
        return None if rest is None else pa.concat_tables([rest, total])

    def _reduced(self, rows: pa.Table, reduction: Folding) -> pa.Table | None:
        by_column = {**reduction.by_column(list(self.rows.value)), TXID_FIELD: Reduction.MAX}
        return reduced(rows, list(self.rows.key), by_column)

    def _of_mapping(self, values: Mapping[Key, Any]) -> pa.Table | None:
        columns: list[Any] = []
        for fields, given in ((self.rows.key, list(values)), (self.rows.value, list(values.values()))):
            width = len(fields)
            if width > 1 and not all(isinstance(row, tuple) and len(row) == width for row in given):
                return None
            for part, kind in zip(split_columns(given, width), fields.types, strict=True):
                column = fit_column(part, kind)
                if column is None or column.is_changed:
                    return None
                columns.append(column.array)
        return pa.Table.from_arrays(columns, schema=self._schema)


_TXID = pa.field(TXID_FIELD, pa.int64())


def _min(times: Any, default: int) -> int:
    """Return the first of some times in µs; ``default`` if there is none."""
    first = pc.min(times.cast(pa.int64())).as_py()
    return default if first is None else first


def _last_two(keys: pa.Table) -> tuple[Positions, Positions]:
    """Return the positions of the last row of each of some keys, and of the one before it, -1 if there is none."""
    numbered = keys.append_column(TXID_FIELD, pa.array(np.arange(keys.num_rows)))
    by_key = numbered.group_by(keys.column_names, use_threads=False).aggregate([(TXID_FIELD, "list")])
    lists: Any = by_key[f"{TXID_FIELD}_list"].combine_chunks()
    positions, counts = lists.flatten().to_numpy(), lists.value_lengths().to_numpy()
    ends = np.cumsum(counts)
    return positions[ends - 1], np.where(counts > 1, positions[ends - 2], -1)


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


def _are_alike(ours: pa.Schema, theirs: pa.Schema) -> bool:
    """Whether columns, whatever their names, have the types of ours, or can be cast to them."""
    return len(theirs) == len(ours) and all(
        _is_alike(our_field.type, their_field.type) for our_field, their_field in zip(ours, theirs, strict=True)
    )


def _as(schema: pa.Schema, rows: pa.Table) -> pa.Table | None:
    """Return rows with the columns of a schema; None if they don't fit."""
    if not _are_alike(schema, rows.schema):
        return None
    try:
        return rows.rename_columns(schema.names).cast(schema)
    except (pa.ArrowException, ValueError):
        return None
