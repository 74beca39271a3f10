"""Compare rows as multisets, whatever their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.columns import column_values
from txtopo.columnar.hashing import Hashes, mix_columns, portions_of, text_hashes

PORTION_ROWS = 100_000
"""The number of rows to process at a time."""

_OF_NULL = np.uint64(0x9AE16A3B2F90404F)


def missing_from(rows_there: pa.Table, rows: pa.Table) -> pa.Table:
    """Return the rows that are not among others with the same columns; of equal rows, return the surplus."""
    hashes, known = row_hashes(rows), np.sort(row_hashes(rows_there))
    order = np.argsort(hashes, kind="stable")
    # The n-th of several equal rows is missing if fewer than n of the others equal it.
    ordered = hashes[order]
    occurrence = np.arange(len(ordered)) - np.searchsorted(ordered, ordered, side="left")
    among_others = np.searchsorted(known, ordered, side="right") - np.searchsorted(known, ordered, side="left")
    return rows.take(np.sort(order[occurrence >= among_others]))


def row_hashes(rows: pa.Table) -> Hashes:
    """Return a hash of each row: equal for equal rows, and almost certainly different for others."""
    combined = np.zeros(rows.num_rows, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in rows.columns:
            hashes = [_column_hashes(portion) for portion in portions_of(column, PORTION_ROWS)]
            combined = mix_columns(combined + (np.concatenate(hashes) if hashes else combined))
    return combined


def _column_hashes(array: Any) -> Hashes:
    hashes: Hashes = mix_columns(text_hashes(pc.fill_null(_texts(array), "")))
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _OF_NULL
    return hashes


def _texts(array: Any) -> Any:
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        return pa.array(map(repr, column_values(array)), pa.string())
    if pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    return array.cast(pa.string())
