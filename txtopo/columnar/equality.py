"""Which values of two columns are the same: nested ones, too, and NaN is the same as NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.columnar.selection import in_one_piece

Mask = npt.NDArray[np.bool_]


def same_rows(some: pa.Table, others: pa.Table) -> Mask:
    """Return for each position whether the rows of two tables with the same columns are the same."""
    same = np.ones(some.num_rows, dtype=bool)
    for one, other in zip(some.columns, others.columns, strict=True):
        same &= _same(in_one_piece(one), in_one_piece(other))
    return same


def _same(one: Any, other: Any) -> Mask:
    kind = one.type
    is_there, is_other = (np.asarray(each.is_valid()) for each in (one, other))
    same: Mask = is_there == is_other
    if pa.types.is_struct(kind):
        for part, other_part in zip(one.flatten(), other.flatten(), strict=True):
            same &= _same(part, other_part)
        return same
    if pa.types.is_map(kind):  # Arrow compares none: by their entries, in the order in which these are there
        entries = pa.list_(pa.struct([kind.key_field, kind.item_field]))
        return _same(one.cast(entries), other.cast(entries))
    if pa.types.is_list(kind):
        lengths, others = (np.asarray(pc.fill_null(pc.list_value_length(each), 0)) for each in (one, other))
        same &= lengths == others
        rows = np.flatnonzero(same & (lengths > 0))
        parts = _same(*(each.take(pa.array(rows)).flatten() for each in (one, other)))
        same[np.repeat(rows, lengths[rows])[~parts]] = False
        return same
    equal = pc.equal(one, other)
    if pa.types.is_floating(kind):
        equal = pc.or_(equal, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    found: Mask = np.asarray(pc.fill_null(equal, False)) | ~(is_there | is_other)
    return found
