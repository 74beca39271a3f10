"""Rows at some positions, however much text they have, and columns in one piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BYTES_MAX = 1 << 30
"""The bytes from which rows are taken in portions: Arrow can't join more than 2 GiB of text, as take() does."""

PORTION_BYTES = 1 << 28
"""The bytes of a portion on average; few, since one whose text is longer must not have 2 GiB, either."""


def rows_at(rows: pa.Table, positions: npt.NDArray[np.integer[Any]]) -> pa.Table:
    """Return the rows at some positions, in their order."""
    # Of few rows in one piece, nbytes takes three times as long as take().
    pieces = max((column.num_chunks for column in rows.columns), default=0)
    if rows.get_total_buffer_size() * pieces <= BYTES_MAX or rows.nbytes <= BYTES_MAX:
        return rows.take(positions)
    wide = rows.cast(pa.schema([field.with_type(_wide(field.type)) for field in rows.schema])).combine_chunks()
    size = max(1, rows.num_rows * PORTION_BYTES // rows.nbytes)
    starts = range(0, max(1, len(positions)), size)
    return pa.concat_tables(wide.take(positions[start : start + size]).cast(rows.schema) for start in starts)


def in_one_piece(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _wide(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values whose columns may have any size; text within lists stays as it is."""
    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else kind
