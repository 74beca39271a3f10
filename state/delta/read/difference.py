"""The difference between two tables, row by row and in columns: a second or two for a million rows.

Rows with equal keys belong together, and are equal or differ in a value. The rows of a table without keys are a
multiset: equal rows belong together one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.columns import column_values
from state.delta.read.multiset import missing_from
from state.delta.schema import TXID_FIELD

__all__ = ["TableDifference", "difference"]

_IN_A, _IN_B = "position in a", "position in b"

Mask = npt.NDArray[np.bool_]


@attrs.frozen(eq=False)
class TableDifference:
    """The difference between the tables A and B; its rows have the compared columns, and are sorted by key."""

    keys: tuple[str, ...]
    """The key columns; empty for a table without keys."""
    values: tuple[str, ...]
    """The other columns that were compared."""
    unlike: tuple[str, ...]
    """The columns that only one of the tables has, which were not compared."""
    equal: int
    """The number of rows of A that have an equal row in B."""
    only_in_a: pa.Table
    only_in_b: pa.Table
    differing_a: pa.Table
    """The rows of A that have the key of a row in B, but other values; in the order of ``differing_b``."""
    differing_b: pa.Table

    @property
    def count(self) -> int:
        """The number of differences."""
        return sum(each.num_rows for each in (self.only_in_a, self.only_in_b, self.differing_a))


def difference(a: pa.Table, b: pa.Table, *, since: int | None = None, with_txids: bool = False) -> TableDifference:
    """Return the difference between two tables.

    The columns that are not null are the keys, if they are the same in both tables; otherwise neither has keys.

    Args:
        a: key columns, value columns and, in the table of a state, the column ``txid``.
        b: likewise.
        since: only rows that this transaction or a later one wrote; a key counts in both tables if it was written in
            one of them. None: all.
        with_txids: whether rows with other txids differ.
    """
    keys = _keys_of(a) if _keys_of(a) == _keys_of(b) else ()
    common = [name for name in a.column_names if name in b.column_names]
    values = tuple(name for name in common if name not in keys and (with_txids or name != TXID_FIELD))
    unlike = tuple(name for name in (*a.column_names, *b.column_names) if name not in common)
    if not keys:
        rows_a, rows_b = (each.filter(pa.array(_written(each, since))).select(values) for each in (a, b))
        only_in_a, only_in_b = missing_from(rows_b, rows_a), missing_from(rows_a, rows_b)
        none = only_in_a.slice(0, 0)
        equal = rows_a.num_rows - only_in_a.num_rows
        return TableDifference(keys, values, unlike, equal, only_in_a, only_in_b, none, none)
    in_a, in_b = _paired(a, b, keys)
    # A row that is missing in one table, at position -1, was not written there.
    is_written = np.append(_written(a, since), False)[in_a] | np.append(_written(b, since), False)[in_b]
    in_a, in_b = in_a[is_written], in_b[is_written]
    a, b = a.select([*keys, *values]), b.select([*keys, *values])
    is_in_both = (in_a >= 0) & (in_b >= 0)
    both_a, both_b = a.take(in_a[is_in_both]), b.take(in_b[is_in_both])
    differs = np.zeros(both_a.num_rows, dtype=bool)
    for name in values:
        differs |= _differs(both_a[name], both_b[name])
    differing = np.flatnonzero(differs)
    differing = differing[_order(both_a.take(differing), keys)]
    return TableDifference(
        keys,
        values,
        unlike,
        both_a.num_rows - len(differing),
        _sorted(a.take(in_a[in_b < 0]), keys),
        _sorted(b.take(in_b[in_a < 0]), keys),
        both_a.take(differing),
        both_b.take(differing),
    )


def _keys_of(rows: pa.Table) -> tuple[str, ...]:
    return tuple(field.name for field in rows.schema if not field.nullable)


def _written(rows: pa.Table, since: int | None) -> Mask:
    """Return which rows a transaction or a later one wrote; None: all."""
    if since is None:
        return np.ones(rows.num_rows, dtype=bool)
    return np.asarray(pc.fill_null(rows[TXID_FIELD], 0).to_numpy() >= since)


def _paired(a: pa.Table, b: pa.Table, keys: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each key its position in either table, -1 where it is missing."""
    sides = [
        rows.select(keys).append_column(name, pa.array(np.arange(rows.num_rows)))
        for rows, name in ((a, _IN_A), (b, _IN_B))
    ]
    found = sides[0].join(sides[1], list(keys), join_type="full outer")
    in_a, in_b = (pc.fill_null(found[name], -1).to_numpy() for name in (_IN_A, _IN_B))
    return in_a, in_b


def _differs(a: pa.ChunkedArray, b: pa.ChunkedArray) -> Mask:
    """Return in which rows two columns differ; a null equals a null only, and NaN equals NaN."""
    if pa.types.is_nested(a.type) or a.type != b.type:
        pairs = zip(column_values(a), column_values(b), strict=True)
        return np.fromiter((repr(one) != repr(other) for one, other in pairs), dtype=bool, count=len(a))
    is_same = pc.fill_null(pc.equal(a, b), False)
    is_same = pc.or_(is_same, pc.and_(pc.is_null(a, nan_is_null=True), pc.is_null(b, nan_is_null=True)))
    # One of the two may be a null and the other NaN.
    is_same = pc.and_(is_same, pc.equal(pc.is_null(a), pc.is_null(b)))
    return np.asarray(pc.invert(is_same).to_numpy())


def _order(rows: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    return np.asarray(pc.sort_indices(rows, [(key, "ascending") for key in keys]).to_numpy())


def _sorted(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    return rows.take(_order(rows, keys))
