"""Rows in a file, for what is too large to pass through the driver.

The rows lie sorted by the *part* that their key falls into, one of 256, so that whoever works on some parts reads
those alone; see :func:`~txtopo.columnar.hashing.parts_of`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.api.reduction import RowsFile
from txtopo.columnar.hashing import PARTS, parts_of

_PORTION_ROWS = 1_000_000


def read_rows_file(file: RowsFile, first: int = 0, end: int = PARTS) -> pa.Table:
    """Return the rows of some parts, as they lie in the file: nothing is read before it is used.

    Args:
        file: the file.
        first: the first part.
        end: the part behind the last.
    """
    return slice_of(file, file.offsets[first], file.offsets[end])


def slice_of(file: RowsFile, first: int, end: int) -> pa.Table:
    """Return some rows, as they lie in the file: nothing is read before it is used.

    Args:
        file: the file.
        first: the first row.
        end: the row behind the last.
    """
    with pa.memory_map(file.path) as mapped:
        table = pa.ipc.open_file(mapped).read_all()
    return table.slice(first, end - first)


def in_memory(rows: Any) -> Any:
    """Return rows as they are, or those of a file."""
    return read_rows_file(rows) if isinstance(rows, RowsFile) else rows


def schema_of(file: RowsFile) -> pa.Schema:
    """Return the columns of a file's rows."""
    with pa.memory_map(file.path) as mapped:
        return pa.ipc.open_file(mapped).schema


def write_rows_file(folder: str, name: str, rows: pa.Table, keys: Sequence[str]) -> RowsFile:
    """Write rows to a new file.

    Args:
        folder: where.
        name: what its name begins with.
        rows: the rows.
        keys: the key columns; none for rows that may lie in any order: each part gets as many of them.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = str(Path(folder) / f"{name}-{uuid.uuid4().hex}.arrow")
    order = None
    offsets = np.arange(PARTS + 1) * rows.num_rows // PARTS
    if keys:
        parts = parts_of(rows.select(keys))
        order = np.argsort(parts, kind="stable")
        offsets = np.searchsorted(parts[order], np.arange(PARTS + 1))
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        for start in range(0, rows.num_rows, _PORTION_ROWS):
            end = start + _PORTION_ROWS
            writer.write_table(rows.slice(start, _PORTION_ROWS) if order is None else rows.take(order[start:end]))
        file.flush()
    return RowsFile(path, rows.num_rows, tuple(int(offset) for offset in offsets))


def rows_to_bytes(rows: pa.Table) -> bytes:
    """Return rows as bytes that travel: a pickled table's columns would not lie where Arrow wants them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def rows_of_bytes(encoded: bytes) -> pa.Table:
    """Return the rows that :func:`rows_to_bytes` made bytes of."""
    with pa.ipc.open_stream(encoded) as reader:
        return reader.read_all()


def remove_rows_files(folder: str, is_over: Any) -> None:
    """Remove the files of transactions that are over.

    Args:
        folder: where they lie; need not be there.
        is_over: tells by the txid, which a file's name begins with, whether it is.
    """
    if not os.path.isdir(folder):  # noqa: PTH112 - asked after every commit group
        return
    for path in Path(folder).glob("*.arrow"):
        txid = path.name.partition("-")[0]
        if txid.isdigit() and is_over(int(txid)):
            path.unlink(missing_ok=True)
