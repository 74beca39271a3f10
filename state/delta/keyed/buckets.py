"""Folding rows into a table by the executors: each rewrites some buckets of it, the driver only writes the log.

A *bucket* is a data file that holds the rows of a range of parts (see :mod:`txtopo.columnar.rows_file`), and is named
for it: ``bucket-<first part>-<end>-….parquet``. Whoever folds rows into a range reads the files that may hold rows
of it, and the group's rows of it, and writes one new file. So no process sees more than a bucket, however large the
table and the transaction. The driver then takes the old files out of the table's log and puts the new ones in, in
one Delta write.

A table that the driver has written has files that are no buckets; the first fold by executors makes buckets of it.
Files of a fold whose write never came are part of no version: upkeep removes them.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from state.delta.log.data_files import BUCKET_ROWS, DataFile, stats_of
from state.delta.log.data_folder import DATA_FOLDER
from state.delta.schema import TXID_FIELD, reaches
from txtopo.api.reduction import Reduction, RowsFile, reduced
from txtopo.columnar.rows_file import PARTS, parts_of, read_rows_file


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


def tasks_of(template: BucketTask, rows: int, slots: int) -> list[BucketTask]:
    """Return the tasks that fold a group's rows into a table.

    Args:
        template: what all tasks have in common; its ``old`` are all files of the table.
        rows: the rows of the table and of the group together.
        slots: how many tasks run at the same time.
    """
    ranges = _ranges_of(template.old, rows, slots)
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


def _ranges_of(files: Sequence[DataFile], rows: int, slots: int) -> list[tuple[int, int]]:
    """Return the ranges of parts to fold by: those that the table has, unless its buckets have become too large."""
    wanted = max(slots, math.ceil(rows / BUCKET_ROWS))
    count = min(PARTS, 1 << (wanted - 1).bit_length())
    held = sorted({file.parts for file in files if file.parts is not None})
    is_whole = len(held) == len(files) and [0, *(end for _, end in held)] == [*(first for first, _ in held), PARTS]
    if is_whole and len(held) * 2 > count:
        return held
    return [(number * PARTS // count, (number + 1) * PARTS // count) for number in range(count)]


def _overlaps(parts: tuple[int, int] | None, other: tuple[int, int]) -> bool:
    return parts is None or (parts[0] < other[1] and other[0] < parts[1])
