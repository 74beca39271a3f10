"""Fold new values into stored ones, a row for each key, column by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.api.reduction import ColumnReduction, Reduction
from txtopo.columnar.key_index import Positions
from txtopo.columnar.reducing import reduced

_NUMBER = ":number"
"""A column with the numbers of rows; no field's name has a colon."""

_ELEMENT_WISE: Mapping[ColumnReduction, Callable[[Any, Any], Any]] = {
    Reduction.SUM: lambda new, stored: pc.add_checked(new, pc.fill_null(stored, 0)),
    Reduction.MIN: pc.min_element_wise,
    Reduction.MAX: pc.max_element_wise,
}
"""The element-wise reductions of new and stored values; a stored null means that there is no stored value."""

_ORDERED = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_decimal)
"""The kinds of values of which Arrow finds the smaller one as :func:`reduced` does."""


def folded_in(
    asked: Positions, stored: pa.Table, new: pa.Table, by_column: Mapping[str, ColumnReduction]
) -> pa.Table | None:
    """Return ``new``, a row for each key, with the values of stored rows folded in; None if a result does not fit.

    Args:
        asked: the position in ``new`` of the key of each stored row; a key has at most one.
        stored: the stored rows.
        new: the new ones.
        by_column: how each value column is reduced; the others stay.
    """
    # What Arrow combines place by place takes 0.06 ms for 1,000 keys and 1.2 ms for 100,000, and not 0.34 and 7.9 ms as
    # other columns.
    found, made, others = places(asked, new.num_rows), {}, {}
    for name, how in by_column.items():
        if not _is_element_wise(how, new[name], stored[name]):
            others[name] = how
            continue
        try:
            made[name] = _ELEMENT_WISE[how](new[name], stored[name].take(found))
        except pa.ArrowInvalid:  # a sum that does not fit
            return None
    if others:
        rows = pa.concat_tables(
            table.select(list(by_column)).append_column(_NUMBER, pa.array(numbers))
            for table, numbers in ((new, np.arange(new.num_rows)), (stored, asked))
        )
        reduced_rows = reduced(rows, [_NUMBER], others)
        if reduced_rows is None:
            return None
        reduced_rows = reduced_rows.sort_by(_NUMBER)
        made.update((name, reduced_rows[name]) for name in others)
    return with_columns(new, made)


def _is_element_wise(how: ColumnReduction, new: Any, stored: Any) -> bool:
    if how is Reduction.SUM:
        return pa.types.is_integer(new.type) and not (new.null_count or stored.null_count)
    return how in _ELEMENT_WISE and any(is_kind(new.type) for is_kind in _ORDERED)


def places(asked: Positions, count: int) -> pa.Array:
    """Return for each of some keys the place of its stored row, null if it has none, given the key of each of these."""
    found = np.full(count, -1)
    found[asked] = np.arange(len(asked))
    return pa.array(found, mask=found < 0)


def with_columns(rows: pa.Table, made: Mapping[str, Any]) -> pa.Table:
    """Return rows with other columns in the places of some."""
    for name, column in made.items():
        position = rows.schema.get_field_index(name)
        rows = rows.set_column(position, rows.schema.field(position), column)
    return rows
