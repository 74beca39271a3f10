"""Fold rows into a table on the executors: each folds a range of keys, and the driver only writes the log.

A range is one of the parts of keys, see :mod:`txtopo.columnar.hashing`. An executor finds the keys of the group's rows
in its range among those of the table's files, folds the rows there as the driver does its own, see
:mod:`state.delta.keyed.folding`, writes one new file, and says at which positions of which files the rows were that it
replaces. So no process holds more rows than those of a range, however large the table and the transaction are. With
deletion vectors, the driver marks these rows. Without, executors write the others of each such file once more, one file
each.

Either way it is one Delta write. Files of a fold that was never written to the log are part of no version: upkeep
removes them if it vacuums.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import attrs
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from state.delta.keyed.folding import Reducer
from state.delta.keyed.writing import FileWrites, numbers_in
from state.delta.log.data_files import DataFile, DataFolder
from state.delta.log.vectors import bitmap_of
from state.delta.schema import with_txids
from txtopo.api.reduction import Folding
from txtopo.api.state import Executors
from txtopo.api.writes import RowsFile, TransactionRows
from txtopo.columnar.hashing import PARTS
from txtopo.columnar.key_index import KeyNumbers, Positions
from txtopo.columnar.rows_file import read_rows_file


@attrs.frozen(eq=False)
class RangeTask:
    """The task of one executor: to fold the rows of one range.

    The range is from the first of ``parts`` to before the second. ``new`` has the rows of each transaction, in files;
    ``group`` is what the name of the new file has of it.
    """

    folder: DataFolder
    parts: tuple[int, int]
    files: tuple[DataFile, ...]
    new: tuple[TransactionRows, ...]
    reducer: Reducer
    reduction: Folding
    group: str


@attrs.frozen(eq=False)
class FoldedRange:
    """What an executor has made of a range.

    Args:
        file: the new file; None if the group has no row in the range.
        touched: the number of keys that the group touched.
        dead: the positions of the rows that are replaced in each file, by path.
    """

    file: DataFile | None
    touched: int
    dead: Mapping[str, BitMap64]


@attrs.frozen(eq=False)
class RestTask:
    """The task of one executor: to write the rows of a file that are not dead to new files of the group.

    ``dead`` are the positions of its dead rows, ``schema`` has all columns of the table.
    """

    folder: DataFolder
    file: DataFile
    dead: BitMap64
    schema: pa.Schema
    group: str


def tasks_of(template: RangeTask, slots: int) -> list[RangeTask]:
    """Return the tasks, each as ``template``, that fold a group's rows for ``slots`` executors at a time."""
    files = [_file_of(part) for part in template.new]
    wanted = max(slots, math.ceil(sum(file.rows for file in files) / template.folder.sizes.range_rows))
    count = min(PARTS, 1 << (wanted - 1).bit_length())
    bounds = [(number * PARTS // count, (number + 1) * PARTS // count) for number in range(count)]
    return [
        attrs.evolve(template, parts=(first, end))
        for first, end in bounds
        if any(file.offsets[end] > file.offsets[first] for file in files)
    ]


def fold_range(task: RangeTask) -> FoldedRange | None:
    """Fold a range's group rows on an executor, and write its file; None if they cannot be folded in columns."""
    dead: dict[str, BitMap64] = {}
    new = [attrs.evolve(part, rows=read_rows_file(_file_of(part), *task.parts)) for part in task.new]
    rows = task.reducer.fold(new, task.reduction, lambda keys: _found_among(task, keys, dead))
    if rows is None:
        return None
    file = task.folder.put(f"keys-{task.group}", rows) if rows.num_rows else None
    return FoldedRange(file, rows.num_rows, dead)


def _found_among(task: RangeTask, keys: pa.Table, dead: dict[str, BitMap64]) -> tuple[Positions, pa.Table]:
    """Return the rows of those keys that exist, and their keys' positions; ``dead`` gets the rows' own, by path."""
    sought, schema = KeyNumbers(keys), task.reducer.rows.schema()
    owns, stored = [np.empty(0, dtype=np.int64)], [schema.empty_table()]
    for file in task.files:
        numbers = numbers_in(task.folder, file, task.folder.dead(file), sought, keys.schema)
        at, first = np.flatnonzero(numbers >= 0), 0
        if not len(at):
            continue
        owns.append(numbers[at])
        dead[file.path] = bitmap_of(at)
        for rows in task.folder.portions(file, schema, with_dead=True):
            stored.append(rows.filter(pa.array(numbers[first : first + rows.num_rows] >= 0)))
            first += rows.num_rows
    return np.concatenate(owns), with_txids(pa.concat_tables(stored))


def write_rest(task: RestTask) -> list[DataFile]:
    """Write the rows of a file that are not dead to new files; runs on an executor."""
    return task.folder.put_rest(f"rest-{task.group}", [task.file], {task.file.path: task.dead}, task.schema)


def _file_of(part: TransactionRows) -> RowsFile:
    assert isinstance(part.rows, RowsFile), "an executor is not sent the rows themselves"
    return part.rows


def fold_on_executors(
    executors: Executors, template: RangeTask, written: FileWrites, *, with_vectors: bool
) -> FileWrites | None:
    """Fold the rows of a group into a table on the executors.

    Args:
        executors: who folds.
        template: the table and the rows, which need not be in files yet; its range is of no account.
        written: a write of nothing into the version that has the files.
        with_vectors: whether rows that are replaced are marked, and their files stay.

    Returns:
        The new files, which are in the table's folder, but not in its log; None if a result does not fit.

    Raises:
        FailedException: a part of the work was lost; it may be tried again.
    """
    folder, keys = template.folder, list(template.reducer.rows.key)
    with folder.rows_in_files(template.new, keys) as files:
        new = tuple(attrs.evolve(part, rows=file) for part, file in zip(template.new, files, strict=True))
        ranges = executors.compute(fold_range, tasks_of(attrs.evolve(template, new=new), executors.slots))
    if any(each is None for each in ranges):
        return None
    added = [each.file for each in ranges if each.file is not None]
    dead: dict[str, BitMap64] = {}
    for path, own in (each for folded in ranges for each in folded.dead.items()):
        dead[path] = dead.get(path, BitMap64()) | own
    removed = [file for file in template.files if file.path in dead]
    dead.update((file.path, dead[file.path] | folder.dead(file)) for file in removed)
    if removed and not with_vectors:
        schema, group = template.reducer.rows.schema(), template.group
        tasks = [RestTask(folder, file, dead[file.path], schema, group) for file in removed]
        added += itertools.chain.from_iterable(executors.compute(write_rest, tasks))
    folder.check_there(added)
    if with_vectors:
        added += folder.with_dead(removed, dead)
    touched = sum(each.touched for each in ranges)
    return attrs.evolve(written, added=added, removed=removed, rows_put=touched, until=template.new[-1].until)
