"""The data files of a table that txtopo itself writes, reads and adds to the table's log, in addition to delta-rs.

They are written before the log names them, possibly long before, because a coordinator that staged them may be down.
So they are written to a folder whose name begins with an underscore, which vacuum skips. They stay there when the log
names them, so that no file is ever moved. Only :mod:`state.delta.upkeep` removes those that are no longer needed. In
an object store nothing can be staged, and the files are beside the others.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
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
from txtopo.api.reduction import PreparedWrites, RowsFile, TransactionRows
from txtopo.columnar.rows_file import write_rows_file

__all__ = [
    "BUCKET_ROWS",
    "DATA_FOLDER",
    "ROWS_MARK",
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
"""The folder in a table's folder that txtopo writes data files to."""

WAITING_FOLDER = "_txtopo"
"""The folder for waiting rows and staged writes in the table's folder; readers and vacuum ignore it."""

ROWS_MARK = "-rows"
"""In the names of files that pass a group's rows to the executors, in the waiting folder."""

PORTION_ROWS = 250_000
"""The number of rows to read at a time."""

_NAME = re.compile(r"bucket-(\d{3})-(\d{3})-[^/]*\.parquet")
BUCKET_ROWS = 500_000
"""The approximate number of rows in a bucket."""

_TEXT_MAX = 32

_LAST_CHARACTER = "\U0010ffff"
_BOUNDED = (pa.types.is_integer, pa.types.is_string, pa.types.is_date)
"""Types whose minimum and maximum go into the log."""


@attrs.frozen
class DataFile:
    """A data file of a table, new or old; the path is relative to the table's folder, the size is in bytes.

    ``stats`` are the log's statistics of its columns, as JSON, and empty for an old file. ``partition`` holds the
    values of the partition columns, as in the log.
    """

    path: str
    size: int
    rows: int
    stats: str = ""
    partition: Mapping[str, str | None] = attrs.field(factory=dict)

    @property
    def parts(self) -> tuple[int, int] | None:
        """The range of parts whose rows it holds; None if it is not a bucket."""
        found = _NAME.fullmatch(Path(self.path).name)
        return None if found is None else (int(found[1]), int(found[2]))


@attrs.frozen(eq=False)
class FileWrites(PreparedWrites):
    """The new values by key, in data files that are already in the table's folder, and the files that they replace.

    ``rows_put`` is the number of keys that the group has touched. ``version`` is the table version that the rows were
    folded into; None if it is not known.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    rows_put: int
    first_txid: int
    version: int | None

    def note(self) -> dict[str, Any]:
        """Return what is staged of it, as JSON."""
        return {
            "added": [attrs.asdict(file) for file in self.added],
            "removed": [attrs.asdict(file) for file in self.removed],
            "touched": self.rows_put,
            "first_txid": self.first_txid,
            "version": self.version,
        }

    @staticmethod
    def of_note(note: Mapping[str, Any]) -> FileWrites:
        """Return the write that :meth:`note` describes."""
        added, removed = ([DataFile(**file) for file in note[name]] for name in ("added", "removed"))
        return FileWrites(added, removed, note["touched"], note["first_txid"], note.get("version"))


def stats_of(rows: pa.Table) -> dict[str, Any]:
    """Return the statistics of a file's columns for the log, which allow readers to skip the file."""
    stats: dict[str, Any] = {"numRecords": rows.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in rows.column_names:
        column = rows[name]
        if pa.types.is_nested(column.type):  # the log has their counts in another form
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
    """Return an upper bound for a text, rarely longer than the maximum length of a bound."""
    end = _TEXT_MAX
    while text[end : end + 1] == _LAST_CHARACTER:  # no larger character can be appended
        end += 1
    return text if len(text) <= end else text[:end] + _LAST_CHARACTER


def partition_text(value: Any) -> str:
    """Return a value of a partition column in the format of Delta's log."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.date):
        return value.isoformat()
    return str(value)


@attrs.frozen
class DataFolder:
    """The data files of a table. Picklable."""

    location: Location

    def put(self, name: str, rows: pa.Table, partition: Mapping[str, str | None] | None = None) -> DataFile:
        """Write rows, without the table's partition columns, to a new file whose name begins with ``name``.

        Its content is durable on return.
        """
        path = self.new_path(name)
        # JSON may write a character beyond 16 bits as \ud83d\ude00. delta-rs 1.6 reads another character then, and
        # skips the file when it looks for the text.
        stats = json.dumps(stats_of(rows), ensure_ascii=False)
        return DataFile(path, self.write(path, rows), rows.num_rows, stats, partition or {})

    def new_path(self, name: str) -> str:
        """Return the path for a new file whose name begins with ``name``, relative to the table."""
        own = f"{name}-{uuid.uuid4().hex}.parquet"
        return own if self.location.folder is None else f"{DATA_FOLDER}/{own}"

    def write(self, path: str, rows: pa.Table) -> int:
        """Write a new Parquet file, durable on return, and return its size in bytes."""
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
        """Yield a writer for a new Parquet file of a local table, for writing in portions; durable at the end."""
        place = self._local() / path
        place.parent.mkdir(exist_ok=True)
        # Only the content is synced here: the Delta write or the note that names the file syncs its folder.
        with place.open("xb") as file:
            with pq.ParquetWriter(file, schema, compression="snappy") as writer:
                yield writer
            file.flush()
            os.fsync(file.fileno())

    def portions(self, path: str, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of a local table's file in portions, each as :meth:`read` returns them."""
        with (self._local() / path).open("rb") as file:
            for batch in pq.ParquetFile(file).iter_batches(PORTION_ROWS, columns=schema.names):
                yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)

    @contextlib.contextmanager
    def rows_in_files(self, parts: Sequence[TransactionRows], keys: Sequence[str]) -> Iterator[list[RowsFile]]:
        """Yield a file of rows for each part; rows in memory are written to the table's folder within the context.

        ``keys`` are the columns to sort them by, see :func:`~txtopo.columnar.rows_file.write_rows_file`.
        """
        files: list[RowsFile] = []
        held: list[RowsFile] = []
        try:
            for part in parts:
                file = part.rows
                if not isinstance(file, RowsFile):
                    file = write_rows_file(str(self._local() / WAITING_FOLDER), f"{part.txid}{ROWS_MARK}", file, keys)
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
        """Return the columns of ``schema`` from a file, with the schema's types."""
        folder = self.location.folder
        if folder is None:
            with self._remote().open_input_file(path) as file:
                return pq.ParquetFile(file).read(columns=schema.names).select(schema.names).cast(schema)
        with Path(folder / path).open("rb") as file:
            return pq.ParquetFile(file).read(columns=schema.names).select(schema.names).cast(schema)

    def size_of(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        folder = self.location.folder
        if folder is None:
            found = self._remote().get_file_info(path)
            return None if found.type is not fs.FileType.File else int(found.size)
        place = folder / path
        return place.stat().st_size if place.is_file() else None

    def _local(self) -> Path:
        assert self.location.folder is not None, "the table is in a local folder"
        return self.location.folder

    def _remote(self) -> fs.FileSystem:
        return fs.PyFileSystem(DeltaStorageHandler(self.location.address, self.location.options))


@attrs.frozen(eq=False)
class FileChange:
    """The change of a table's files by one Delta write; the added ones are already in the table's folder.

    ``is_of_rows`` is False if rows only move between files.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    schema: pa.Schema
    partition_by: Sequence[str] = ()
    is_of_rows: bool = True


def put_change(table: DeltaTable, fence: Fence, txid: int | None, folder: DataFolder, change: FileChange) -> None:
    """Write the version after the handle's; it makes transaction ``txid`` visible, or none for upkeep.

    Raises:
        FileNotFoundError: a new file is missing in the table's folder or has another size; or a file to remove is
            no longer part of the table, because somebody else has moved its rows.
        deltalake.exceptions.CommitFailedError: another writer took that version.
    """
    # A staged write may be made long after its files were written: somebody may have removed them.
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
    """Return a file to remove that is no longer part of the table; None if there is none."""
    paths = {file.path for file in held}
    return next((file for file in removed if file.path not in paths), None)


def files_of(table: DeltaTable, partition_by: Sequence[str] = ()) -> tuple[DataFile, ...]:
    """Return the files of the handle's version, with paths relative to the table's folder.

    Each has its values of the columns in ``partition_by``. The log's paths are percent-encoded: delta-rs returns them
    encoded, but encodes the paths that it is given.
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
