"""Fold rows into a table on the executors: each rewrites some buckets, and the driver only writes the log.

A *bucket* is a data file that holds the rows of a range of parts (see :mod:`txtopo.columnar.hashing`) and is named
after it: ``bucket-<first part>-<end>-….parquet``. To fold rows into a range, an executor reads the files that may hold
rows of the range, and the group's rows of the range, and writes one new file. So no process holds more than a bucket,
however large the table and the transaction are. The driver then replaces the old files with the new ones in the table's
log, in one Delta write.

If the driver has written a table, its files are not buckets; the first fold by executors converts them to buckets.
Files of a fold that was never written to the log are part of no version: upkeep removes them if it vacuums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.keyed.folding import reduced_in_turn
from state.delta.keyed.writing import FileWrites
from state.delta.log.data_files import BUCKET_ROWS, DataFile, DataFolder
from state.delta.schema import TXID_FIELD, RowFormat, reaches
from txtopo.api.reduction import ColumnReduction, Folding, Reduction, RowsFile, TransactionRows
from txtopo.api.state import Executors
from txtopo.columnar.hashing import PARTS, parts_of
from txtopo.columnar.reducing import reduced
from txtopo.columnar.rows_by_time import BEFORE_ALL
from txtopo.columnar.rows_file import read_rows_file

__all__ = ["BucketTask", "FoldedBucket", "fold_bucket", "fold_on_executors", "tasks_of"]


@attrs.frozen(eq=False)
class BucketTask:
    """The task of one executor: to fold rows into one bucket.

    ``parts`` are the first part of its range and the one after the last. ``old`` are the files that may hold rows
    of the range, and ``new`` holds the txid and the rows of each transaction. ``reductions`` covers all columns
    but the keys. If keys expire, ``time`` is the column by which they do, and ``untils`` has the time up to which they
    have expired for each transaction; the rows that have for the first one are not written again.
    """

    folder: DataFolder
    parts: tuple[int, int]
    old: tuple[DataFile, ...]
    new: tuple[tuple[int, RowsFile], ...]
    keys: tuple[str, ...]
    reductions: Mapping[str, ColumnReduction]
    schema: pa.Schema
    first_txid: int
    name: str
    time: str = ""
    untils: tuple[int, ...] = ()


@attrs.frozen
class FoldedBucket:
    """The new file, None if its rows cannot be folded in columns, and the number of keys that the group touched."""

    file: DataFile | None
    touched: int


def tasks_of(template: BucketTask, rows: int, slots: int) -> list[BucketTask]:
    """Return the tasks that fold a group's rows into a table, for ``slots`` executors at a time.

    ``template`` is the common part of all tasks, and its ``old`` are all files of the table. ``rows`` is the number of
    rows of the table and of the group together.
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
    """Fold the group's rows into one bucket, and write its new file; runs on an executor."""
    first, end = task.parts
    stored = pa.concat_tables([task.schema.empty_table(), *(_stored(task, file) for file in task.old)])
    # A transaction of the group is in the table already: only a fold key by key can leave it out.
    if reaches(stored, task.first_txid):
        return FoldedBucket(None, 0)
    try:
        new = [_with_txid(read_rows_file(file, first, end), txid, task.schema) for txid, file in task.new]
    except pa.ArrowInvalid:  # a value does not fit: folding key by key names it
        return FoldedBucket(None, 0)
    if task.time:
        in_order = list(zip(task.untils, new, strict=True))
        rows = reduced_in_turn(stored, in_order, task.time, task.keys, task.reductions)
    else:
        rows = reduced(pa.concat_tables([stored, *new]), task.keys, task.reductions)
    if rows is None:
        return FoldedBucket(None, 0)
    # A row's txid is that of its last transaction.
    touched = pc.sum(pc.greater_equal(rows[TXID_FIELD], task.first_txid)).as_py() or 0
    return FoldedBucket(task.folder.put(f"bucket-{first:03d}-{end:03d}-{task.name}", rows), touched)


def _stored(task: BucketTask, file: DataFile) -> pa.Table:
    rows = task.folder.read(file, task.schema)
    first, end = task.parts
    if file.parts is not None and first <= file.parts[0] and file.parts[1] <= end:
        return rows
    parts = parts_of(rows.select(list(task.keys)))
    return rows.filter(pa.array((parts >= first) & (parts < end)))


def _with_txid(rows: pa.Table, txid: int, schema: pa.Schema) -> pa.Table:
    named = rows.rename_columns(schema.names[:-1])
    txids = pa.array(np.full(rows.num_rows, txid, dtype=np.int64))
    return named.append_column(schema.field(TXID_FIELD), txids).cast(schema)


def _ranges_of(files: Sequence[DataFile], rows: int, slots: int) -> list[tuple[int, int]]:
    """Return the ranges of parts to fold: those of the table's buckets, unless the buckets have become too large."""
    # A power of two, so that the next larger number divides each bucket into equal ones.
    wanted = max(slots, math.ceil(rows / BUCKET_ROWS))
    count = min(PARTS, 1 << (wanted - 1).bit_length())
    held = sorted({file.parts for file in files if file.parts is not None})
    is_whole = len(held) == len(files) and [0, *(end for _, end in held)] == [*(first for first, _ in held), PARTS]
    # Kept until there should be twice as many: a new division rewrites the whole table.
    if is_whole and len(held) * 2 > count:
        return held
    return [(number * PARTS // count, (number + 1) * PARTS // count) for number in range(count)]


def _overlaps(parts: tuple[int, int] | None, other: tuple[int, int]) -> bool:
    return parts is None or (parts[0] < other[1] and other[0] < parts[1])


def fold_on_executors(  # noqa: PLR0913, PLR0917 - what to fold, into what, by whom
    executors: Executors,
    folder: DataFolder,
    held: Iterable[DataFile],
    rows: RowFormat,
    parts: Sequence[TransactionRows],
    reduction: Folding,
    written: FileWrites,
    time: str = "",
) -> FileWrites | None:
    """Fold the rows of a group into a table's buckets on the executors.

    Args:
        executors: who folds.
        folder: the table's data files.
        held: those of its version.
        rows: the format of its rows.
        parts: the rows of each transaction.
        reduction: the function to fold with.
        written: which version that is.
        time: the column by which keys expire; empty if they do not.

    Returns:
        The new files, which are in the table's folder, but not in its log; None if a result does not fit.

    Raises:
        FailedException: a part of the work was lost; it may be tried again.
    """
    keys, old = tuple(rows.key), tuple(held)
    with folder.rows_in_files(parts, keys) as files:
        template = BucketTask(
            folder=folder,
            parts=(0, 0),
            old=old,
            new=tuple((part.txid, file) for part, file in zip(parts, files, strict=True)),
            keys=keys,
            reductions={**reduction.by_column(list(rows.value)), TXID_FIELD: Reduction.MAX},
            schema=rows.schema(),
            first_txid=parts[0].txid,
            name=f"{parts[0].txid}-{parts[-1].txid}",
            time=time,
            untils=tuple(BEFORE_ALL if part.until is None else part.until for part in parts),
        )
        count = sum(file.rows for file in old) + sum(part.count for part in parts)
        tasks = tasks_of(template, count, executors.slots)
        buckets = executors.compute(fold_bucket, tasks)
    if any(bucket.file is None for bucket in buckets):
        return None
    removed = {file.path: file for task in tasks for file in task.old}
    added = [bucket.file for bucket in buckets if bucket.file.rows]
    folder.check_there(added)
    touched = sum(bucket.touched for bucket in buckets)
    return attrs.evolve(written, added=added, removed=list(removed.values()), rows_put=touched, until=parts[-1].until)
