"""Folding rows into a table by the executors: each rewrites some buckets of it, the driver only writes the log.

A *bucket* is a data file that holds the rows of a range of parts (see :mod:`txtopo.phases.rows_file`), and is named
for it: ``bucket-<first part>-<end>-….parquet``. Whoever folds rows into a range reads the files that may hold rows
of it, and the group's rows of it, and writes one new file. So no process sees more than a bucket, however large the
table and the transaction. The driver then takes the old files out of the table's log and puts the new ones in, in
one Delta write.

A table that the driver has written has files that are no buckets; the first fold by executors makes buckets of it.
Files of a fold whose write never came are part of no version: upkeep removes them.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from state.delta_data_folder import DATA_FOLDER
from state.delta_rows import TXID_FIELD, reaches
from txtopo.contracts.reduction import FoldedWrites, Reduction, RowsFile, reduced
from txtopo.phases.rows_file import PARTS, parts_of, read_rows_file

__all__ = ["BucketTask", "DataFile", "FileWrites", "FoldedBucket", "fold_bucket", "tasks_of"]

BUCKET_ROWS = 500_000
"""Rows that a bucket should hold, about."""

_NAME = re.compile(r"bucket-(\d{3})-(\d{3})-[^/]*\.parquet")
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
class BucketTask:
    """What one executor is to do.

    Args:
        folder: the table's folder.
        parts: the range of parts: the first, and the one behind the last.
        old: the files that may hold rows of it.
        new: each transaction's rows, by txid.
        keys: the key columns.
        reductions: how the other columns are reduced.
        schema: the table's columns.
        first_txid: the group's first transaction.
        name: what new files' names hold.
    """

    folder: str
    parts: tuple[int, int]
    old: tuple[DataFile, ...]
    new: tuple[tuple[int, RowsFile], ...]
    keys: tuple[str, ...]
    reductions: Mapping[str, Reduction]
    schema: pa.Schema
    first_txid: int
    name: str


@attrs.frozen
class FoldedBucket:
    """What came of a task.

    Args:
        file: the new data file; None if its rows cannot be folded at once.
        touched: the keys that the group has touched.
    """

    file: DataFile | None
    touched: int


class FileWrites(FoldedWrites):
    """What is to be kept for each key, in data files that are in the table's folder already.

    Args:
        folder: the table's folder.
        added: the new files.
        removed: the files that they replace.
        touched: the keys that the group has touched.
        first_txid: the group's first transaction.
        version: the table's version that was folded into; None if it is not known.
        read: makes the mapping of rows.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a value
        self,
        folder: str,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        touched: int,
        first_txid: int,
        version: int | None,
        read: Any,
    ) -> None:
        self.folder = folder
        self.added = tuple(added)
        self.removed = tuple(removed)
        self.first_txid = first_txid
        self.version = version
        self._touched = touched
        self._read = read

    def __getitem__(self, key: Any) -> Any:
        return self._mapping()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._mapping())

    def __len__(self) -> int:
        return self._touched

    def _mapping(self) -> Mapping[Any, Any]:
        rows = pa.concat_tables(pq.read_table(os.path.join(self.folder, file.path)) for file in self.added)  # noqa: PTH118
        touched: Mapping[Any, Any] = self._read(rows.filter(pc.greater_equal(rows[TXID_FIELD], self.first_txid)))
        return touched


def tasks_of(template: BucketTask, rows: int, places: int) -> list[BucketTask]:
    """Return the tasks that fold a group's rows into a table.

    Args:
        template: what all tasks have in common; its ``old`` are all files of the table.
        rows: the rows of the table and of the group together.
        places: how many tasks run at the same time.
    """
    ranges = _ranges_of(template.old, rows, places)
    tasks = []
    for first, end in ranges:
        has_new = any(file.offsets[end] > file.offsets[first] for _, file in template.new)
        old = tuple(file for file in template.old if _overlaps(file.parts, (first, end)))
        is_left_alone = not has_new and all(file.parts == (first, end) for file in old)
        if not is_left_alone:
            tasks.append(attrs.evolve(template, parts=(first, end), old=old))
    return tasks


def fold_bucket(task: BucketTask) -> FoldedBucket:
    """Fold the group's rows into one bucket, and write its new file: runs in an executor."""
    first, end = task.parts
    stored = pa.concat_tables([task.schema.empty_table(), *(_stored(task, file) for file in task.old)])
    if reaches(stored, task.first_txid):
        return FoldedBucket(None, 0)
    new = [_with_txid(read_rows_file(file, first, end), txid, task.schema) for txid, file in task.new]
    rows = reduced(pa.concat_tables([stored, *new]), task.keys, task.reductions)
    if rows is None:
        return FoldedBucket(None, 0)
    touched = pc.sum(pc.greater_equal(rows[TXID_FIELD], task.first_txid)).as_py() or 0
    return FoldedBucket(_write(task, rows), touched)


def _stored(task: BucketTask, file: DataFile) -> pa.Table:
    path = os.path.join(task.folder, file.path)  # noqa: PTH118 - as the log has it
    rows = pq.read_table(path, columns=task.schema.names).cast(task.schema)
    first, end = task.parts
    if file.parts is not None and first <= file.parts[0] and file.parts[1] <= end:
        return rows
    parts = parts_of(rows.select(list(task.keys)))
    return rows.filter(pa.array((parts >= first) & (parts < end)))


def _with_txid(rows: pa.Table, txid: int, schema: pa.Schema) -> pa.Table:
    named = rows.rename_columns(schema.names[:-1])
    txids = pa.array(np.full(rows.num_rows, txid, dtype=np.int64))
    return named.append_column(schema.field(TXID_FIELD), txids).cast(schema)


def _write(task: BucketTask, rows: pa.Table) -> DataFile:
    name = f"bucket-{task.parts[0]:03d}-{task.parts[1]:03d}-{task.name}-{uuid.uuid4().hex}.parquet"
    path = Path(task.folder) / DATA_FOLDER / name
    path.parent.mkdir(exist_ok=True)
    with path.open("xb") as file:
        pq.write_table(rows, file, compression="snappy")
        file.flush()
        os.fsync(file.fileno())
    return DataFile(f"{DATA_FOLDER}/{name}", path.stat().st_size, rows.num_rows, json.dumps(stats_of(rows)))


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


def _ranges_of(files: Sequence[DataFile], rows: int, places: int) -> list[tuple[int, int]]:
    """Return the ranges of parts to fold by: those that the table has, unless its buckets have become too large."""
    wanted = max(places, math.ceil(rows / BUCKET_ROWS))
    count = min(PARTS, 1 << (wanted - 1).bit_length())
    held = sorted({file.parts for file in files if file.parts is not None})
    is_whole = len(held) == len(files) and [0, *(end for _, end in held)] == [*(first for first, _ in held), PARTS]
    if is_whole and len(held) * 2 > count:
        return held
    return [(number * PARTS // count, (number + 1) * PARTS // count) for number in range(count)]


def _overlaps(parts: tuple[int, int] | None, other: tuple[int, int]) -> bool:
    return parts is None or (parts[0] < other[1] and other[0] < parts[1])
