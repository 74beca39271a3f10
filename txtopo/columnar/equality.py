"""Which values of two columns are the same: nested ones, too, and NaN is the same as NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.columnar.selection import in_one_piece

Mask = npt.NDArray[np.bool_]


def same_rows(left: pa.Table, right: pa.Table) -> Mask:
    """Return for each position whether the rows of two tables with the same columns are the same."""
    is_same = np.ones(left.num_rows, dtype=bool)
    for left_column, right_column in zip(left.columns, right.columns, strict=True):
        is_same &= _are_same(in_one_piece(left_column), in_one_piece(right_column))
    return is_same


def _are_same(left: Any, right: Any) -> Mask:
    kind = left.type
    is_there, is_other = (np.asarray(each.is_valid()) for each in (left, right))
    is_same: Mask = is_there == is_other
    if pa.types.is_struct(kind):
        for part, other_part in zip(left.flatten(), right.flatten(), strict=True):
            is_same &= _are_same(part, other_part)
        return is_same
    if pa.types.is_map(kind):  # Arrow compares none: by their entries, in the order in which these are there
        entries = pa.list_(pa.struct([kind.key_field, kind.item_field]))
        return _are_same(left.cast(entries), right.cast(entries))
    if pa.types.is_list(kind):
        lengths, right_lengths = (np.asarray(pc.fill_null(pc.list_value_length(each), 0)) for each in (left, right))
        is_same &= lengths == right_lengths
        rows = np.flatnonzero(is_same & (lengths > 0))
        parts = _are_same(*(each.take(pa.array(rows)).flatten() for each in (left, right)))
        is_same[np.repeat(rows, lengths[rows])[~parts]] = False
        return is_same
    equal = pc.equal(left, right)
    if pa.types.is_floating(kind):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    are_equal: Mask = np.asarray(pc.fill_null(equal, False)) | ~(is_there | is_other)
    return are_equal
