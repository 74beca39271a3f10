"""Fold rows into a table on the executors: each rewrites some buckets, and the driver only writes the log.

A *bucket* is a data file that holds the rows of a range of parts (see :mod:`txtopo.columnar.hashing`) and is named
after it: ``bucket-<first part>-<end>-….parquet``. To fold rows into a range, an executor reads the files that may hold
rows of the range, and the group's rows of the range, and writes one new file. So no process holds more than a bucket,
however large the table and the transaction are. The driver then replaces the old files with the new ones in the table's
log, in one Delta write.

If the driver has written a table, its files are not buckets; the first fold by executors converts them to buckets.
Files of a fold that was never written to the log are part of no version: upkeep removes them if it vacuums.

Another writer may move the table's rows to other files between the fold and the write: OPTIMIZE keeps every row, but
afterwards the files that the write removes are no longer part of the table. The new buckets are still valid, because
each holds all rows of its parts. So the table's current files with rows of those parts are removed, and their rows of
other parts are kept in files that are written here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from state.delta.log.data_files import (
    BUCKET_ROWS,
    DataFile,
    DataFolder,
    FileChange,
    FileWrites,
    files_of,
    moved_file,
    put_change,
)
from state.delta.log.entries import change_since
from state.delta.log.location import Location
from state.delta.log.ownership import Fence
from state.delta.schema import TXID_FIELD, RowFormat, reaches
from txtopo.api.reduction import Reduction, RowsFile, TransactionRows, reduced
from txtopo.api.state import Executors
from txtopo.columnar.hashing import PARTS, parts_of
from txtopo.columnar.rows_file import read_rows_file
from txtopo.errors import DivergenceError

__all__ = ["BucketTask", "FoldedBucket", "fold_bucket", "fold_on_executors", "put_files", "tasks_of"]


@attrs.frozen(eq=False)
class BucketTask:
    """The task of one executor: to fold rows into one bucket.

    ``parts`` are the first part of its range and the one after the last. ``old`` are the files that may hold rows
    of the range, and ``new`` holds the txid and the rows of each transaction. ``reductions`` covers all columns
    but the keys.
    """

    folder: DataFolder
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
    new = [_with_txid(read_rows_file(file, first, end), txid, task.schema) for txid, file in task.new]
    rows = reduced(pa.concat_tables([stored, *new]), task.keys, task.reductions)
    if rows is None:
        return FoldedBucket(None, 0)
    # A row's txid is that of its last transaction.
    touched = pc.sum(pc.greater_equal(rows[TXID_FIELD], task.first_txid)).as_py() or 0
    return FoldedBucket(task.folder.put(f"bucket-{first:03d}-{end:03d}-{task.name}", rows), touched)


def _stored(task: BucketTask, file: DataFile) -> pa.Table:
    rows = task.folder.read(file.path, task.schema)
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
    location: Location,
    table: DeltaTable,
    rows: RowFormat,
    parts: Sequence[TransactionRows],
    reduction: Reduction,
) -> FileWrites | None:
    """Fold the rows of a group into a table's buckets on the executors.

    Returns:
        The new files, which are in the table's folder, but not in its log; None if a result does not fit.

    Raises:
        FailedException: a part of the work was lost; it may be tried again.
    """
    folder, keys, old = DataFolder(location), tuple(rows.key), files_of(table)
    with folder.rows_in_files(parts, keys) as files:
        template = BucketTask(
            folder=folder,
            parts=(0, 0),
            old=old,
            new=tuple((part.txid, file) for part, file in zip(parts, files, strict=True)),
            keys=keys,
            reductions={**dict.fromkeys(rows.value, reduction), TXID_FIELD: Reduction.MAX},
            schema=rows.schema(),
            first_txid=parts[0].txid,
            name=f"{parts[0].txid}-{parts[-1].txid}",
        )
        count = sum(file.rows for file in old) + sum(part.count for part in parts)
        tasks = tasks_of(template, count, executors.slots)
        buckets = executors.compute(fold_bucket, tasks)
    if any(bucket.file is None for bucket in buckets):
        return None
    removed = {file.path: file for task in tasks for file in task.old}
    added = [bucket.file for bucket in buckets if bucket.file.rows]
    touched = sum(bucket.touched for bucket in buckets)
    first, version = parts[0].txid, table.version()
    return FileWrites(added, list(removed.values()), touched, first, version)


def put_files(  # noqa: PLR0913, PLR0917 - the table, who writes, and what
    table: DeltaTable, fence: Fence, txid: int, writes: FileWrites, rows: RowFormat, location: Location
) -> None:
    """Write the version after the handle's, with the replaced files removed and the new ones added.

    Raises:
        FileNotFoundError: a new file is missing in the table's folder, or has another size.
        DivergenceError: the files to replace are no longer part of the table, and the reason is not a compaction.
        deltalake.exceptions.CommitFailedError: another writer took that version.
    """
    folder, held = DataFolder(location), files_of(table)
    # Another writer has moved rows since the fold: the new buckets are right only if it changed no row.
    if moved_file(writes.removed, held) is not None:
        change = change_since(location, table, writes.version)
        if change is not None:
            raise DivergenceError(
                f"state {fence.state!r}: the write of transaction {txid} was computed before somebody "
                f"else changed the table at {location.address} ({change}); nothing was written. Run 'txtopo repair'",
                txid=txid,
            )
        writes = _after_move(folder, writes, held, rows)
    put_change(table, fence, txid, folder, FileChange(writes.added, writes.removed, rows.schema()))


def _after_move(folder: DataFolder, writes: FileWrites, held: Sequence[DataFile], rows: RowFormat) -> FileWrites:
    """Return a write with the same effect as ``writes`` for ``held``, the table's files, which hold the same rows."""
    is_new = _parts_mask(writes.added)
    removed = [file for file in held if is_new[slice(*(file.parts or (0, PARTS)))].any()]
    rests = [_rest_of(folder, file, is_new, rows) for file in removed]
    added = [*writes.added, *(file for file in rests if file is not None)]
    return attrs.evolve(writes, added=added, removed=removed)


def _parts_mask(buckets: Sequence[DataFile]) -> npt.NDArray[np.bool_]:
    """Return for each part whether one of the buckets holds its rows."""
    mask = np.zeros(PARTS, dtype=np.bool_)
    for file in buckets:
        assert file.parts is not None, f"{file.path} is not a bucket"
        mask[slice(*file.parts)] = True
    return mask


def _rest_of(folder: DataFolder, file: DataFile, is_gone: npt.NDArray[np.bool_], rows: RowFormat) -> DataFile | None:
    """Write a file's rows of other parts to a new file, in portions; return None if there are none."""
    schema, keys = rows.schema(), list(rows.key)
    path = folder.new_path("rest")
    count = 0
    with folder.writer(path, schema) as writer:
        for portion in folder.portions(file.path, schema):
            rest = portion.filter(pa.array(~is_gone[parts_of(portion.select(keys))]))
            if rest.num_rows:
                writer.write_table(rest)
                count += rest.num_rows
    if not count:
        folder.remove(path)
        return None
    size = folder.size_of(path)
    assert size is not None, "it was just written"
    return DataFile(path, size, count, json.dumps({"numRecords": count}))
