"""Rows in a file, because they are too many to pass through the driver.

The rows are sorted by the *part* of their key, one of 256 (:func:`~txtopo.columnar.hashing.parts_of`). So a worker
reads only the parts that it works on.
"""

from __future__ import annotations

import base64
import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.api.writes import RowsFile
from txtopo.columnar.hashing import PARTS, parts_of
from txtopo.columnar.key_index import Positions
from txtopo.columnar.selection import rows_at
from txtopo.errors import BucketUnreachable, FailedException
from txtopo.files.folder import Folder, LocalFolder

_PORTION_ROWS = 1_000_000
"""How many rows are written at a time: the others need not be copied into their order yet."""


def read_rows_file(file: RowsFile, first: int = 0, end: int = PARTS) -> pa.Table:
    """Return the rows of the parts from ``first`` to before ``end``; the mapped file is read as they are used."""
    return slice_of(file, file.offsets[first], file.offsets[end])


def slice_of(file: RowsFile, first: int, end: int) -> pa.Table:
    """Return the rows from ``first`` to before ``end``, mapped into memory as by :func:`read_rows_file`."""
    with _opened(file) as opened:
        table = pa.ipc.open_file(opened).read_all()
    return table.slice(first, end - first)


@contextlib.contextmanager
def _opened(file: RowsFile) -> Iterator[pa.NativeFile]:
    if isinstance(file.folder, LocalFolder):
        with pa.memory_map(str(file.folder.root / file.path)) as mapped:
            yield mapped
        return
    with replaying("read"):
        content = file.folder.get(file.path)
    yield pa.BufferReader(content)


@contextlib.contextmanager
def replaying(task: str) -> Iterator[None]:
    """Let a transaction be processed again, by a FailedException, if a bucket fails to take or give what is staged."""
    try:
        yield
    except BucketUnreachable as error:
        raise FailedException(f"what was staged of a transaction can't be {task}: {error}") from error


def in_memory(rows: Any) -> Any:
    """Return the rows of a RowsFile; return anything else unchanged."""
    return read_rows_file(rows) if isinstance(rows, RowsFile) else rows


def schema_of(file: RowsFile) -> pa.Schema:
    """Return the schema of a file's rows."""
    with _opened(file) as opened:
        return pa.ipc.open_file(opened).schema


def write_rows_file(folder: Folder, name: str, rows: pa.Table, keys: Sequence[str]) -> RowsFile:
    """Write rows to a new file, whose name begins with ``name``, in a folder, which is created if it is missing.

    Rows without key columns are split evenly into parts.

    Raises:
        FailedException: a bucket does not take the file.
    """
    path = f"{name}-{uuid.uuid4().hex}.arrow"
    order = None
    offsets = np.arange(PARTS + 1) * rows.num_rows // PARTS
    if keys:
        parts = parts_of(rows.select(keys))
        order = np.argsort(parts, kind="stable")
        offsets = np.searchsorted(parts[order], np.arange(PARTS + 1))
    # A crash before the transaction commits leaves the file. remove_rows_files finds it if its name begins with a txid.
    if isinstance(folder, LocalFolder):
        folder.root.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(folder.root / path), "wb") as file:
            _write(file, rows, order)
            file.flush()
    else:
        sink = pa.BufferOutputStream()
        _write(sink, rows, order)
        with replaying("written"):
            folder.put(path, memoryview(sink.getvalue()).cast("B"))
    return RowsFile(folder, path, rows.num_rows, tuple(int(offset) for offset in offsets))


def _write(sink: pa.NativeFile, rows: pa.Table, order: Positions | None) -> None:
    with pa.ipc.new_file(sink, rows.schema) as writer:
        for start in range(0, rows.num_rows, _PORTION_ROWS):
            end = start + _PORTION_ROWS
            writer.write_table(rows.slice(start, _PORTION_ROWS) if order is None else rows_at(rows, order[start:end]))


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


def rows_to_note(rows: pa.Table) -> str:
    """Return rows as text, for the note of a group."""
    return base64.b64encode(rows_to_bytes(rows)).decode()


def rows_of_note(text: str) -> pa.Table:
    """Return the rows that :func:`rows_to_note` encoded."""
    return rows_of_bytes(base64.b64decode(text))


def remove_rows_files(folder: Folder, is_over: Callable[[int], bool]) -> None:
    """Remove the files of transactions that ``is_over`` says are over, by txid; what can't be removed stays."""
    with contextlib.suppress(BucketUnreachable):
        for name in folder.names():
            txid = name.partition("-")[0]
            if name.endswith(".arrow") and txid.isdecimal() and is_over(int(txid)):  # not "²", a digit and no number
                folder.delete(name)
