"""The data files of a table, as the log has them, and the folder that txtopo writes them to.

They are written before the log names them, possibly long before, because a coordinator that prepared them may be down.
So they are written to a folder whose name begins with an underscore, which vacuum skips. They stay there when the log
names them, so that no file is ever moved. Only :mod:`state.delta.upkeep` removes those that are no longer needed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from state.delta.log.location import Location
from txtopo.api.reduction import RowsFile, TransactionRows
from txtopo.columnar.rows_file import write_rows_file
from txtopo.errors import StateFailure

__all__ = [
    "BUCKET_ROWS",
    "DATA_FOLDER",
    "ROWS_MARK",
    "WAITING_FOLDER",
    "DataFile",
    "DataFolder",
    "files_in",
    "files_of",
    "fitted",
    "partition_text",
    "with_stats",
]

DATA_FOLDER = "_data"
"""The folder in a table's folder that txtopo writes data files to."""

WAITING_FOLDER = "_txtopo"
"""The folder for waiting rows in the table's folder; readers and vacuum ignore it."""

ROWS_MARK = "-rows"
"""In the names of files that pass a group's rows to the executors, in the waiting folder."""

PORTION_ROWS = 250_000
"""The number of rows to read at a time."""

_NAME = re.compile(r"bucket-(\d{3})-(\d{3})-[^/]*\.parquet")
BUCKET_ROWS = 500_000
"""The approximate number of rows in a bucket, and the maximum number in another file that the driver writes."""

_TEXT_MAX = 32

_SAMPLE_ROWS = 1_000

_LAST_CHARACTER = "\U0010ffff"
_BOUNDED = (pa.types.is_integer, pa.types.is_string, pa.types.is_date)
"""Types whose minimum and maximum go into the log."""


@attrs.frozen
class DataFile:
    """A data file of a table, new or old; the size is in bytes.

    ``path`` is relative to the table's folder, and percent-encoded, as in the log. ``stats`` are the log's statistics
    of its columns, as JSON, and empty for an old file. ``partition`` holds the values of the partition columns, as in
    the log.
    """

    path: str
    size: int
    rows: int
    stats: str = ""
    partition: Mapping[str, str | None] = attrs.field(factory=dict)

    @property
    def place(self) -> str:
        """Its path in the table's folder."""
        return unquote(self.path)

    @property
    def parts(self) -> tuple[int, int] | None:
        """The range of parts whose rows it holds; None if it is not a bucket."""
        found = _NAME.fullmatch(Path(self.path).name)
        return None if found is None else (int(found[1]), int(found[2]))


def _repetitive(rows: pa.Table) -> list[str] | bool:
    """Return the columns to encode by a dictionary, which doubles the time: those whose first values repeat."""
    if any(pa.types.is_nested(kind) for kind in rows.schema.types):
        return True
    first = rows.slice(0, _SAMPLE_ROWS)
    return [name for name in rows.column_names if pc.count_distinct(first[name]).as_py() * 2 <= first.num_rows]


def stats_of(rows: pa.Table, made: pq.FileMetaData | None = None) -> dict[str, Any]:
    """Return the statistics of a file's columns for the log, which allow readers to skip the file.

    ``made`` is what Parquet says of the file: where it has the bounds of a column, they need no second search.
    """
    stats: dict[str, Any] = {"numRecords": rows.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in rows.column_names:
        column = rows[name]
        if pa.types.is_nested(column.type):  # the log has their counts in another form
            continue
        stats["nullCount"][name] = column.null_count
        if not any(is_kind(column.type) for is_kind in _BOUNDED) or column.null_count == len(column):
            continue
        position = rows.schema.get_field_index(name)
        try:
            low, high = _bounds_in(made, position, rows.num_columns) or pc.min_max(column).as_py().values()
        except OverflowError:  # a date outside of the years 1 to 9999, which a file may hold and Python does not know
            continue
        if isinstance(low, str):
            low, high = low[:_TEXT_MAX], _upper_bound(high)
        elif isinstance(low, dt.date):
            low, high = low.isoformat(), high.isoformat()
        stats["minValues"][name], stats["maxValues"][name] = low, high
    return stats


def _bounds_in(made: pq.FileMetaData | None, column: int, width: int) -> tuple[Any, Any] | None:
    """Return the minimum and maximum of a column; None if Parquet has none."""
    # A nested column is several ones in Parquet, and moves those behind it.
    if made is None or made.num_row_groups != 1 or made.num_columns != width:
        return None
    found = made.row_group(0).column(column).statistics
    return (found.min, found.max) if found is not None and found.has_min_max else None


def _upper_bound(text: str) -> str:
    """Return an upper bound for a text, rarely longer than the maximum length of a bound."""
    end = _TEXT_MAX
    while text[end : end + 1] == _LAST_CHARACTER:  # no larger character can be appended
        end += 1
    return text if len(text) <= end else text[:end] + _LAST_CHARACTER


def partition_text(value: Any) -> str | None:
    """Return a value of a partition column in the format of Delta's log."""
    if value is None:
        return None
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

        It is durable on return. A crash before a version names it leaves a file that upkeep removes.
        """
        path = f"{DATA_FOLDER}/{name}-{uuid.uuid4().hex}.parquet"
        sink = pa.BufferOutputStream()
        made: list[pq.FileMetaData] = []
        pq.write_table(rows, sink, compression="snappy", use_dictionary=_repetitive(rows), metadata_collector=made)
        content = memoryview(sink.getvalue()).cast("B")
        self.location.folder.put(path, content)
        # JSON may write a character beyond 16 bits as \ud83d\ude00. delta-rs 1.6 reads another character then, and
        # skips the file when it looks for the text.
        stats = json.dumps(stats_of(rows, made[0]), ensure_ascii=False)
        return DataFile(path, content.nbytes, rows.num_rows, stats, partition or {})

    def put_all(self, name: str, rows: pa.Table) -> list[DataFile]:
        """Write rows as :meth:`put` does, to as many files as they need, several at a time."""
        slices = [rows.slice(first, BUCKET_ROWS) for first in range(0, rows.num_rows, BUCKET_ROWS)]
        if len(slices) <= 1:
            return [self.put(name, each) for each in slices]
        with ThreadPoolExecutor(min(len(slices), os.cpu_count() or 1)) as threads:
            return list(threads.map(lambda each: self.put(name, each), slices))

    def put_portions(self, name: str, portions: Iterable[pa.Table]) -> list[DataFile]:
        """Write the rows of portions as :meth:`put_all` does; no more than a file and a portion is held in memory."""
        files: list[DataFile] = []
        held: list[pa.Table] = []
        for portion in portions:
            held.append(portion)
            while sum(each.num_rows for each in held) >= BUCKET_ROWS:
                rows = pa.concat_tables(held)
                files.append(self.put(name, rows.slice(0, BUCKET_ROWS)))
                held = [rows.slice(BUCKET_ROWS)]
        return [*files, *self.put_all(name, pa.concat_tables(held))] if held else files

    def portions(self, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of a file in portions, each as :meth:`read` returns them."""
        for batch in self._open(file).iter_batches(PORTION_ROWS, columns=schema.names):
            yield fitted(pa.Table.from_batches([batch]), schema)

    def read(self, file: DataFile, schema: pa.Schema) -> pa.Table:
        """Return the columns of ``schema`` from a file, with the schema's types."""
        return fitted(self._open(file).read(columns=schema.names), schema)

    def missing(self, files: Iterable[DataFile]) -> str | None:
        """Describe the first of some files that is not there with its size, after "it needs"; None if all are."""
        for file in files:
            size = self.location.folder.size(file.place)
            if size != file.size:
                what = "is gone" if size is None else f"has {size} bytes and not {file.size}"
                return f"the file {file.place}, but that {what}"
        return None

    def presence(self) -> Callable[[str], bool]:
        """Return a function that says of a path in the log whether its file is there; the folder is listed once."""
        folder = self.location.folder
        own = {item.path for item in folder.list(DATA_FOLDER)}

        @functools.cache  # those outside, of other writers, are asked for one by one
        def is_there(path: str) -> bool:
            place = unquote(path)
            return place in own if place.startswith(f"{DATA_FOLDER}/") else folder.size(place) is not None

        return is_there

    def check_there(self, files: Iterable[DataFile]) -> None:
        """Raise a StateFailure unless files that executors have written are there."""
        missing = self.missing(files)
        if missing is not None:
            raise StateFailure(
                f"the table at {self.location.address} needs {missing}, although an executor has written it"
            )

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
                    file = write_rows_file(str(self._root() / WAITING_FOLDER), f"{part.txid}{ROWS_MARK}", file, keys)
                    held.append(file)
                files.append(file)
            yield files
        finally:
            for file in held:
                Path(file.path).unlink(missing_ok=True)

    def _open(self, file: DataFile) -> pq.ParquetFile:
        root = self.location.root
        return pq.ParquetFile(
            pa.BufferReader(self.location.folder.get(file.place)) if root is None else root / file.place
        )

    def _root(self) -> Path:
        assert self.location.root is not None, "the table is in a local folder"
        return self.location.root


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns and types of ``schema``; a column that was added to the table later is null."""
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


def add_actions(table: DeltaTable) -> pa.Table:
    """Return what the log has of the files of the handle's version: a row for each, a column for each statistic."""
    # pa.table() would do, but it imports pandas, which takes longer than all else at the start of a run.
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()


def files_of(table: DeltaTable, partition_by: Sequence[str] = ()) -> dict[str, DataFile]:
    """Return the files of the handle's version by path, each with its values of the columns in ``partition_by``."""
    added = add_actions(table)
    if not added.num_rows:
        return {}
    paths, sizes, counts = (added[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    columns = [map(partition_text, added[f"partition.{name}"].to_pylist()) for name in partition_by]
    partitions = zip(*columns, strict=True) if columns else [()] * len(paths)
    return {
        path: DataFile(path, size, rows or 0, partition=dict(zip(partition_by, values, strict=True)))
        for path, size, rows, values in zip(paths, sizes, counts, partitions, strict=True)
    }


def with_stats(table: DeltaTable, files: Mapping[str, DataFile]) -> Iterator[DataFile]:
    """Yield files of the handle's version, each with what the log has of its columns.

    That is the bounds of integers, texts and dates, and the numbers of nulls.
    """
    names = [field.name for field in pa.schema(table.schema()) if not pa.types.is_nested(field.type)]
    for row in add_actions(table).to_pylist():
        if row["path"] not in files:
            continue

        def of_columns(key: str, row: dict[str, Any] = row) -> dict[str, Any]:
            found = {name: row.get(f"{key}.{name}") for name in names}
            # By type() and not isinstance(), because a datetime is a date, and True is an int.
            return {name: _in_log(each) for name, each in found.items() if type(each) in _BOUNDED_VALUES}

        stats = {
            "numRecords": row["num_records"],
            "minValues": of_columns("min"),
            "maxValues": of_columns("max"),
            "nullCount": of_columns("null_count"),
        }
        is_known = row["num_records"] is not None
        yield attrs.evolve(files[row["path"]], stats=json.dumps(stats, ensure_ascii=False) if is_known else "")


_BOUNDED_VALUES = (int, str, dt.date)


def _in_log(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.date) else value


def files_in(note: Mapping[str, Any], *names: str) -> list[DataFile]:
    """Return the files that a note has under some names, by default those that must be in the table's folder.

    :func:`attrs.asdict` makes what the note has of each.
    """
    names = names or ("added", "rest", "without", "files")
    return [DataFile(**file) for name in names for file in note.get(name, ())]
