"""Fold rows into a table on the executors: each folds a range of keys, and the driver only writes the log.

A range is one of the parts of keys, see :mod:`txtopo.columnar.hashing`. An executor finds the keys of the group's rows
in its range among those of the table's files, folds the rows there as the driver does its own, see
:mod:`state.delta.keyed.folding`, and writes one new file. So no process holds more rows than those of a range, however
large the table and the transaction are. What becomes of the rows that were there depends on the table:

1. With deletion vectors, the executor says at which positions of which files they are, and the driver marks them.
2. Without, the executor writes the other rows of its range to the new file, too. The file is a *bucket*, named after
   the range: ``bucket-<first part>-<end>-….parquet``. The driver replaces the old files with the new ones; those that
   are not buckets yet, as those of its own writes, become buckets.

Either way it is one Delta write. Files of a fold that was never written to the log are part of no version: upkeep
removes them if it vacuums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from state.delta.keyed.folding import Reducer
from state.delta.keyed.writing import FileWrites
from state.delta.log.data_files import BUCKET_ROWS, DataFile, DataFolder
from state.delta.log.vectors import bitmap_of, positions_in
from txtopo.api.reduction import Folding, RowsFile, TransactionRows
from txtopo.api.state import Executors
from txtopo.columnar.hashing import PARTS, parts_of
from txtopo.columnar.key_index import KeyNumbers, Positions
from txtopo.columnar.rows_by_time import not_over
from txtopo.columnar.rows_file import read_rows_file

__all__ = ["FoldedRange", "RangeTask", "fold_on_executors", "fold_range", "tasks_of"]

RANGE_ROWS = 2_000_000
"""The approximate number of a group's rows in a range, if rows are marked: for each range, the keys of the whole table
are read. For 10,000,000 rows of as many keys that takes 21 CPU seconds, where ranges of 500,000 rows take 50."""

_OTHER, _NO_ROW = -1, -2
"""In place of a key's number, for a row of another key, and for one that is dead or outside of the range."""


@attrs.frozen(eq=False)
class RangeTask:
    """The task of one executor: to fold the rows of one range.

    Args:
        folder: the table's data files.
        parts: the first part of the range, and the one after the last.
        files: those that may hold rows of the range.
        new: the rows of each transaction of the group, in files.
        reducer: folds rows of the state.
        reduction: how.
        marks: whether the rows that are replaced are marked, and not the files.
        group: what the name of the new file has of the group.
    """

    folder: DataFolder
    parts: tuple[int, int]
    files: tuple[DataFile, ...]
    new: tuple[TransactionRows, ...]
    reducer: Reducer
    reduction: Folding
    marks: bool
    group: str


@attrs.frozen(eq=False)
class FoldedRange:
    """What an executor has made of a range.

    Args:
        file: the new file; None if no row is left.
        touched: the number of keys that the group touched.
        dead: the positions of the rows to mark in each file, by path.
    """

    file: DataFile | None
    touched: int
    dead: Mapping[str, BitMap64]


def tasks_of(template: RangeTask, slots: int) -> list[RangeTask]:
    """Return the tasks that fold a group's rows into a table, for ``slots`` executors at a time.

    ``template`` is the common part of all tasks, and its ``files`` are all those of the table.
    """
    tasks = []
    for first, end in _ranges_of(template, slots):
        has_new = any(file.offsets[end] > file.offsets[first] for file in map(_file_of, template.new))
        files = tuple(file for file in template.files if _overlaps(file.parts, (first, end)))
        is_left_alone = not has_new and (template.marks or all(file.parts == (first, end) for file in files))
        if not is_left_alone:
            tasks.append(attrs.evolve(template, parts=(first, end), files=files))
    return tasks


def fold_range(task: RangeTask) -> FoldedRange | None:
    """Fold the group's rows of one range, and write its new file; None if they cannot be folded in columns.

    It runs on an executor.
    """
    old = _OldRows(task)
    new = [attrs.evolve(part, rows=read_rows_file(_file_of(part), *task.parts)) for part in task.new]
    rows = task.reducer.fold(new, task.reduction, old.found_among)
    if rows is None:
        return None
    made = pa.concat_tables([rows, *old.rest])
    name = "keys" if task.marks else "bucket-{:03d}-{:03d}".format(*task.parts)
    file = task.folder.put(f"{name}-{task.group}", made) if made.num_rows else None
    return FoldedRange(file, rows.num_rows, old.dead)


@attrs.define(eq=False)
class _OldRows:
    """The rows of a range that the table has, once those of the group's keys are found."""

    task: RangeTask
    rest: list[pa.Table] = attrs.field(factory=list)
    """The rows of other keys, if they go to the new file; without those that have expired."""
    dead: dict[str, BitMap64] = attrs.field(factory=dict)
    """The positions of the rows of the group's keys in each file, by path."""

    def found_among(self, keys: pa.Table) -> tuple[Positions, pa.Table]:
        """Return the rows of those of some keys that exist, and the position of each one's key among them."""
        task, sought, schema = self.task, KeyNumbers(keys), self.task.reducer.rows.schema()
        owns, stored = [np.empty(0, dtype=np.int64)], [schema.empty_table()]
        for file in task.files:
            numbers, first = self._numbers_of(file, keys.schema, sought), 0
            at = np.flatnonzero(numbers >= 0)
            if len(at):
                owns.append(numbers[at])
                self.dead[file.path] = bitmap_of(at)
            elif task.marks:
                continue
            for rows in task.folder.portions(file, schema, with_dead=True):
                own, first = numbers[first : first + rows.num_rows], first + rows.num_rows
                stored.append(rows.filter(pa.array(own >= 0)))
                if not task.marks:
                    self.rest.append(self._unexpired(rows.filter(pa.array(own == _OTHER))))
        return np.concatenate(owns), pa.concat_tables(stored)

    def _numbers_of(self, file: DataFile, keys: pa.Schema, sought: KeyNumbers) -> Positions:
        """Return for each row of a file the number of its key."""
        task, numbers = self.task, [np.empty(0, dtype=np.int64)]
        first, end = task.parts
        is_within = file.parts is not None and first <= file.parts[0] and file.parts[1] <= end
        for rows in task.folder.portions(file, keys, with_dead=True):
            numbers.append(sought.of(rows))
            if not (task.marks or is_within):  # else only rows of the range can have a key of the range
                parts = parts_of(rows)
                numbers[-1][(parts < first) | (parts >= end)] = _NO_ROW
        found = np.concatenate(numbers)
        found[positions_in(task.folder.dead(file))] = _NO_ROW
        return found

    def _unexpired(self, rows: pa.Table) -> pa.Table:
        time, until = self.task.reducer.time, self.task.new[0].until
        return rows if not time or until is None else not_over(rows, time, until)


def _file_of(part: TransactionRows) -> RowsFile:
    assert isinstance(part.rows, RowsFile), "an executor is not sent the rows themselves"
    return part.rows


def _ranges_of(template: RangeTask, slots: int) -> list[tuple[int, int]]:
    """Return the ranges to fold: those of the table's buckets, unless the buckets have become too large."""
    rows, rows_max = sum(part.count for part in template.new), RANGE_ROWS
    if not template.marks:
        rows, rows_max = rows + sum(file.rows for file in template.files), BUCKET_ROWS
    # A power of two, so that the next larger number divides each bucket into equal ones.
    wanted = max(slots, math.ceil(rows / rows_max))
    count = min(PARTS, 1 << (wanted - 1).bit_length())
    held = sorted({file.parts for file in template.files if file.parts is not None})
    bounds = [0, *(end for _, end in held)], [*(first for first, _ in held), PARTS]
    is_whole = len(held) == len(template.files) and bounds[0] == bounds[1]
    # Kept until there should be twice as many: a new division rewrites the whole table.
    if is_whole and len(held) * 2 > count and not template.marks:
        return held
    return [(number * PARTS // count, (number + 1) * PARTS // count) for number in range(count)]


def _overlaps(parts: tuple[int, int] | None, other: tuple[int, int]) -> bool:
    return parts is None or (parts[0] < other[1] and other[0] < parts[1])


def fold_on_executors(executors: Executors, template: RangeTask, written: FileWrites) -> FileWrites | None:
    """Fold the rows of a group into a table on the executors.

    Args:
        executors: who folds.
        template: the table and the rows, which need not be in files yet; its range is of no account.
        written: a write of nothing into the version that has the files.

    Returns:
        The new files, which are in the table's folder, but not in its log; None if a result does not fit.

    Raises:
        FailedException: a part of the work was lost; it may be tried again.
    """
    folder, keys = template.folder, list(template.reducer.rows.key)
    with folder.rows_in_files(template.new, keys) as files:
        new = tuple(attrs.evolve(part, rows=file) for part, file in zip(template.new, files, strict=True))
        tasks = tasks_of(attrs.evolve(template, new=new), executors.slots)
        ranges = executors.compute(fold_range, tasks)
    if any(each is None for each in ranges):
        return None
    added = [each.file for each in ranges if each.file is not None]
    folder.check_there(added)
    dead: dict[str, BitMap64] = {}
    for path, own in (each for made in ranges for each in made.dead.items()):
        dead[path] = dead.get(path, BitMap64()) | own
    if template.marks:
        removed = [file for file in template.files if file.path in dead]
        added += folder.with_dead(removed, {file.path: dead[file.path] | folder.dead(file) for file in removed})
    else:
        removed = list({file.path: file for task in tasks for file in task.files}.values())
    touched = sum(each.touched for each in ranges)
    return attrs.evolve(written, added=added, removed=removed, rows_put=touched, until=template.new[-1].until)
