"""Rows in a file, because they are too many to pass through the driver.

The rows are sorted by the *part* of their key, one of 256 (:func:`~txtopo.columnar.hashing.parts_of`). So a worker
reads only the parts that it works on.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.api.reduction import RowsFile
from txtopo.columnar.hashing import PARTS, parts_of
from txtopo.columnar.selection import rows_at
from txtopo.files.durable import paths_in

_PORTION_ROWS = 1_000_000
"""How many rows are written at a time: the others need not be copied into their order yet."""


def read_rows_file(file: RowsFile, first: int = 0, end: int = PARTS) -> pa.Table:
    """Return the rows of the parts from ``first`` to before ``end``.

    The file is mapped into memory, and read only as the rows are used.
    """
    return slice_of(file, file.offsets[first], file.offsets[end])


def slice_of(file: RowsFile, first: int, end: int) -> pa.Table:
    """Return the rows from ``first`` to before ``end``, mapped into memory as by :func:`read_rows_file`."""
    with pa.memory_map(file.path) as mapped:
        table = pa.ipc.open_file(mapped).read_all()
    return table.slice(first, end - first)


def in_memory(rows: Any) -> Any:
    """Return the rows of a RowsFile; return anything else unchanged."""
    return read_rows_file(rows) if isinstance(rows, RowsFile) else rows


def schema_of(file: RowsFile) -> pa.Schema:
    """Return the schema of a file's rows."""
    with pa.memory_map(file.path) as mapped:
        return pa.ipc.open_file(mapped).schema


def write_rows_file(folder: str, name: str, rows: pa.Table, keys: Sequence[str]) -> RowsFile:
    """Write rows to a new file, whose name begins with ``name``, in a folder, which is created if it is missing.

    Rows without key columns are split evenly into parts.
    """
    # A crash before the transaction commits leaves the file. remove_rows_files finds it if its name begins with a txid.
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
            writer.write_table(rows.slice(start, _PORTION_ROWS) if order is None else rows_at(rows, order[start:end]))
        file.flush()
    return RowsFile(path, rows.num_rows, tuple(int(offset) for offset in offsets))


def rows_to_bytes(rows: pa.Table) -> bytes:
    """Return rows in Arrow's stream format, which keeps buffers aligned; a pickled table would not."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def rows_of_bytes(encoded: bytes) -> pa.Table:
    """Return the rows that :func:`rows_to_bytes` encoded."""
    with pa.ipc.open_stream(encoded) as reader:
        return reader.read_all()


def remove_rows_files(folder: str, is_over: Any) -> None:
    """Remove the files of transactions that are over. The folder may be missing.

    ``is_over`` takes a txid, the first part of a file's name, and returns whether that transaction is over.
    """
    for path in paths_in(Path(folder), "*.arrow"):
        txid = path.name.partition("-")[0]
        if txid.isdecimal() and is_over(int(txid)):  # not "²", which is a digit and no number
            path.unlink(missing_ok=True)
