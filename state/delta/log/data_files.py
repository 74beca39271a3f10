"""Data files of a table: written and read by txtopo itself, beside what delta-rs does, and put into the table's log.

They are written before the log knows of them, which may take long: a coordinator that staged them may be down. So
they lie in a folder whose name begins with an underscore, where no vacuum looks for files that the log does not
name. They stay there when the log names them, so that none is ever moved; :mod:`state.delta.upkeep` removes those
that are no longer needed, for nobody else does. In an object store nothing can be staged, and they lie beside the rest.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from state.delta.log.location import Location
from state.delta.log.ownership import NO_HOOKS, Fence
from state.delta.schema import TXID_FIELD
from txtopo.api.reduction import PreparedWrites, RowsFile, RowsToWrite, TransactionRows
from txtopo.columnar.rows_file import write_rows_file

__all__ = [
    "BUCKET_ROWS",
    "DATA_FOLDER",
    "WAITING_FOLDER",
    "DataFile",
    "DataFolder",
    "FileChange",
    "FileWrites",
    "files_of",
    "moved_file",
    "partition_text",
    "put_change",
]

DATA_FOLDER = "_data"
"""The folder of a table's own that txtopo writes data files into."""

WAITING_FOLDER = "_txtopo"
"""Where rows and staged writes wait, in the table's folder: readers and vacuum leave it alone."""

PORTION_ROWS = 250_000
"""Rows of a file that are read at a time."""

_NAME = re.compile(r"bucket-(\d{3})-(\d{3})-[^/]*\.parquet")
BUCKET_ROWS = 500_000
"""Rows that a bucket should hold, about."""

_TEXT_MAX = 32

_LAST_CHARACTER = "\U0010ffff"
_BOUNDED = (pa.types.is_integer, pa.types.is_string, pa.types.is_date)
"""Types whose lowest and highest value the log is told."""


@attrs.frozen
class DataFile:
    """A data file of a table, new or old.

    Args:
        path: relative to the table's folder.
        size: its bytes.
        rows: its rows.
        stats: what the log says of its columns, as JSON; empty for an old file.
        partition: the values of the table's partition columns, as the log has them.
    """

    path: str
    size: int
    rows: int
    stats: str = ""
    partition: Mapping[str, str | None] = attrs.field(factory=dict)

    @property
    def parts(self) -> tuple[int, int] | None:
        """The range of parts that it holds rows of; None if it is no bucket."""
        found = _NAME.fullmatch(Path(self.path).name)
        return None if found is None else (int(found[1]), int(found[2]))


@attrs.frozen(eq=False)
class FileWrites(PreparedWrites):
    """What is to be kept for each key, in data files that are in the table's folder already.

    Args:
        folder: the table's folder.
        added: the new files.
        removed: the files that they replace.
        rows_put: the keys that the group has touched.
        first_txid: the group's first transaction.
        version: the table's version that was folded into; None if it is not known.
        read: makes the mapping of rows.
    """

    folder: str
    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    rows_put: int
    first_txid: int
    version: int | None
    _read: Callable[[pa.Table], Mapping[Any, Any]]

    def mapping(self) -> Mapping[Any, Any]:
        """Read what is to be kept for each key."""
        rows = pa.concat_tables(pq.read_table(os.path.join(self.folder, file.path)) for file in self.added)  # noqa: PTH118
        return self._read(rows.filter(pc.greater_equal(rows[TXID_FIELD], self.first_txid)))


def stats_of(rows: pa.Table) -> dict[str, Any]:
    """Return what the log is to say of a file's columns, so that readers can skip it."""
    stats: dict[str, Any] = {"numRecords": rows.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in rows.column_names:
        column = rows[name]
        if pa.types.is_nested(column.type):  # whose counts the log has in another form
            continue
        stats["nullCount"][name] = column.null_count
        if not any(is_kind(column.type) for is_kind in _BOUNDED) or column.null_count == len(column):
            continue
        bounds = pc.min_max(column).as_py()
        low, high = bounds["min"], bounds["max"]
        if isinstance(low, str):
            low, high = low[:_TEXT_MAX], _upper_bound(high)
        elif isinstance(low, dt.date):
            low, high = low.isoformat(), high.isoformat()
        stats["minValues"][name], stats["maxValues"][name] = low, high
    return stats


def _upper_bound(text: str) -> str:
    """Return a text that is no smaller, and seldom longer than a bound may be."""
    end = _TEXT_MAX
    while text[end : end + 1] == _LAST_CHARACTER:  # than which no character behind is larger
        end += 1
    return text if len(text) <= end else text[:end] + _LAST_CHARACTER


def partition_text(value: Any) -> str:
    """Return a value of a partition column as Delta's log has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.date):
        return value.isoformat()
    return str(value)


@attrs.frozen
class DataFolder:
    """Where a table's data files lie. It pickles.

    Args:
        location: where the table lies.
    """

    location: Location

    def put(self, name: str, rows: pa.Table, partition: Mapping[str, str | None] | None = None) -> DataFile:
        """Write rows to a new file, durable on return.

        Args:
            name: what its name begins with.
            rows: its rows, without the columns that the table is partitioned by.
            partition: the values of those.
        """
        path = self.new_path(name)
        return DataFile(path, self.write(path, rows), rows.num_rows, json.dumps(stats_of(rows)), partition or {})

    def new_path(self, name: str) -> str:
        """Return where a new file, whose name begins so, is to lie, relative to the table."""
        own = f"{name}-{uuid.uuid4().hex}.parquet"
        return own if self.location.folder is None else f"{DATA_FOLDER}/{own}"

    def write(self, path: str, rows: pa.Table) -> int:
        """Write a new Parquet file, durable on return, and return its bytes."""
        folder = self.location.folder
        if folder is None:
            with self._remote().open_output_stream(path) as sink:
                pq.write_table(rows, sink, compression="snappy")
            size = self.size_of(path)
            assert size is not None, "it was just written"
            return size
        with self.writer(path, rows.schema) as writer:
            writer.write_table(rows)
        return (folder / path).stat().st_size

    @contextlib.contextmanager
    def writer(self, path: str, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
        """Give what writes a new Parquet file to a local table, a portion at a time; durable at the end."""
        place = self._local() / path
        place.parent.mkdir(exist_ok=True)
        with place.open("xb") as file:
            with pq.ParquetWriter(file, schema, compression="snappy") as writer:
                yield writer
            file.flush()
            os.fsync(file.fileno())

    def portions(self, path: str, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of a local table's file, a portion at a time, as :meth:`read` returns them."""
        with (self._local() / path).open("rb") as file:
            for batch in pq.ParquetFile(file).iter_batches(PORTION_ROWS, columns=schema.names):
                yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)

    @contextlib.contextmanager
    def rows_in_files(
        self, parts: Sequence[TransactionRows] | Sequence[RowsToWrite], keys: Sequence[str]
    ) -> Iterator[list[RowsFile]]:
        """Give the rows of each part in a file; those in memory wait in the table's folder as long as that is needed.

        Args:
            parts: the rows of some transactions.
            keys: the columns to sort them by, see :func:`~txtopo.columnar.rows_file.write_rows_file`.
        """
        files: list[RowsFile] = []
        held: list[RowsFile] = []
        try:
            for part in parts:
                file = part.rows
                if not isinstance(file, RowsFile):
                    file = write_rows_file(str(self._local() / WAITING_FOLDER), f"{part.txid}-rows", file, keys)
                    held.append(file)
                files.append(file)
            yield files
        finally:
            for file in held:
                Path(file.path).unlink(missing_ok=True)

    def remove(self, path: str) -> None:
        """Remove a local table's file, which the log must not name."""
        (self._local() / path).unlink()

    def read(self, path: str, schema: pa.Schema) -> pa.Table:
        """Return the columns of a file that ``schema`` names, with its types."""
        folder = self.location.folder
        if folder is None:
            with self._remote().open_input_file(path) as file:
                return pq.ParquetFile(file).read(columns=schema.names).select(schema.names).cast(schema)
        with Path(folder / path).open("rb") as file:
            return pq.ParquetFile(file).read(columns=schema.names).select(schema.names).cast(schema)

    def size_of(self, path: str) -> int | None:
        """Return the bytes of a file; None if it is not there."""
        folder = self.location.folder
        if folder is None:
            found = self._remote().get_file_info(path)
            return None if found.type is not fs.FileType.File else int(found.size)
        place = folder / path
        return place.stat().st_size if place.is_file() else None

    def _local(self) -> Path:
        assert self.location.folder is not None, "the table lies in a local folder"
        return self.location.folder

    def _remote(self) -> fs.FileSystem:
        return fs.PyFileSystem(DeltaStorageHandler(self.location.address, self.location.options))


@attrs.frozen(eq=False)
class FileChange:
    """What one Delta write does to the files of a table.

    Args:
        added: files to put in; they are in its folder.
        removed: files to take out.
        schema: its columns.
        partition_by: those that it is partitioned by.
        is_of_rows: whether rows come or go; else they only lie in other files.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    schema: pa.Schema
    partition_by: Sequence[str] = ()
    is_of_rows: bool = True


def put_change(table: DeltaTable, fence: Fence, txid: int | None, folder: DataFolder, change: FileChange) -> None:
    """Write the version after the handle's.

    Args:
        table: the handle to write by.
        fence: what the write must carry.
        txid: the transaction it makes visible; None for upkeep.
        folder: where the table's files lie.
        change: what to do.

    Raises:
        FileNotFoundError: a new file is not in the table's folder, or not as large as it was; or one to take out is
            no longer part of the table, for somebody else has put its rows elsewhere.
        deltalake.exceptions.CommitFailedError: another writer took that version.
    """
    for file in change.added:
        if folder.size_of(file.path) != file.size:
            raise FileNotFoundError(f"{file.path} is not in {folder.location.address} with its {file.size} bytes")
    moved = moved_file(change.removed, files_of(table)) if change.removed else None
    if moved is not None:
        raise FileNotFoundError(f"{moved.path} is no longer part of the table at {folder.location.address}")
    time_ms = int(time.time() * 1000)
    actions: list[Any] = [
        *(
            AddAction(file.path, file.size, file.partition, time_ms, change.is_of_rows, file.stats)
            for file in change.added
        ),
        *(RemoveAction(file.path, change.is_of_rows, time_ms, file.size) for file in change.removed),
    ]
    table.create_write_transaction(
        actions,
        "append",
        change.schema,
        partition_by=list(change.partition_by),
        commit_properties=fence.properties(txid),
        post_commithook_properties=NO_HOOKS,
    )


def moved_file(removed: Sequence[DataFile], held: Sequence[DataFile]) -> DataFile | None:
    """Return a file to take out that is not among those that the table has, for its rows lie in others now."""
    paths = {file.path for file in held}
    return next((file for file in removed if file.path not in paths), None)


def files_of(table: DeltaTable, partition_by: Sequence[str] = ()) -> tuple[DataFile, ...]:
    """Return the files of the handle's version, by their paths below the table's folder.

    The log has paths percent-encoded, and delta-rs hands them out so; it encodes them again where it takes them.

    Args:
        table: the handle.
        partition_by: the columns that it is partitioned by, if each file's partition is wanted.
    """
    added = pa.table(table.get_add_actions(flatten=True))
    if not added.num_rows:
        return ()
    paths, sizes, counts = (added[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    columns = [map(partition_text, added[f"partition.{name}"].to_pylist()) for name in partition_by]
    partitions = zip(*columns, strict=True) if columns else [()] * len(paths)
    return tuple(
        DataFile(unquote(path), size, rows or 0, partition=dict(zip(partition_by, values, strict=True)))
        for path, size, rows, values in zip(paths, sizes, counts, partitions, strict=True)
    )
