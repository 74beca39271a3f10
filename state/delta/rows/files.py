"""Data files of a table of rows, written by the driver or by executors; each holds rows of one partition.

Their names, ``rows-<first txid>-<last txid>-….parquet``, do not contain the partition, which is in the log. Files of a
write that was never made are part of no version: upkeep removes them if it vacuums.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.log.data_files import DataFile, DataFolder, partition_text
from state.delta.read.reading import key_mask
from state.delta.rows.format import arranged
from state.delta.schema import TXID_FIELD
from txtopo.api.writes import RowsFile
from txtopo.columnar.rows_file import slice_of
from txtopo.columnar.selection import rows_at


@attrs.frozen(eq=False)
class RowSlice:
    """Some of the rows that a task of a transaction puts: those of a file from ``first`` up to ``end``, exclusive.

    ``replaced`` are the partitions that later transactions of the group replace.
    """

    txid: int
    file: RowsFile
    first: int
    end: int
    replaced: pa.Table | None = None


@attrs.frozen(eq=False)
class WriteTask:
    """The task of one executor: to write rows to data files, whose names contain ``name``."""

    folder: DataFolder
    slices: tuple[RowSlice, ...]
    schema: pa.Schema
    partition_by: tuple[str, ...]
    name: str


def slices_of(slices: Sequence[RowSlice], count: int) -> list[tuple[RowSlice, ...]]:
    """Divide the rows into at most ``count`` pieces of nearly the same size."""
    total = sum(each.end - each.first for each in slices)
    size = max(1, -(-total // count))
    pieces: list[tuple[RowSlice, ...]] = []
    piece: list[RowSlice] = []
    room = size
    for each in slices:
        first = each.first
        while first < each.end:
            end = min(each.end, first + room)
            piece.append(attrs.evolve(each, first=first, end=end))
            room -= end - first
            first = end
            if room == 0:
                pieces.append(tuple(piece))
                piece, room = [], size
    return [*pieces, tuple(piece)] if piece else pieces


def partitions_in(task: WriteTask) -> pa.Table:
    """Return the distinct partitions of the rows of a task; runs on an executor."""
    names = list(task.partition_by)
    return distinct(pa.concat_tables([_rows_of(task, each).select(names) for each in task.slices]))


def write_slices(task: WriteTask) -> list[DataFile]:
    """Write the rows of a task, one file per partition; runs on an executor."""
    tables = []
    for each in task.slices:
        rows = with_txid(_rows_of(task, each), each.txid, task.schema)
        tables.append(rows if each.replaced is None else without(rows, each.replaced))
    return write_partitions(task.folder, pa.concat_tables(tables), task.partition_by, task.name)


def write_partitions(folder: DataFolder, rows: pa.Table, partition_by: Sequence[str], name: str) -> list[DataFile]:
    """Write rows, one file per partition; ``name`` is a part of the files' names."""
    return folder.put_each(f"rows-{name}", _split(rows, partition_by))


def with_txid(rows: pa.Table, txid: int, schema: pa.Schema) -> pa.Table:
    """Return rows with the txid column, with the types of the table's schema."""
    txids = pa.array(np.full(rows.num_rows, txid, dtype=np.int64))
    return rows.append_column(pa.field(TXID_FIELD, pa.int64()), txids).cast(schema)


def without(rows: pa.Table, partitions: pa.Table) -> pa.Table:
    """Return the rows of all other partitions."""
    return rows.filter(pc.invert(key_mask(rows, partitions)))


def distinct(partitions: pa.Table) -> pa.Table:
    """Return each partition once."""
    return partitions.group_by(partitions.column_names).aggregate([]).combine_chunks()


def partition_of(row: Mapping[str, object]) -> dict[str, str | None]:
    """Return a partition's values in the format of the log."""
    return {name: partition_text(value) for name, value in row.items()}


def _rows_of(task: WriteTask, of: RowSlice) -> pa.Table:
    rows = arranged(slice_of(of.file, of.first, of.end), task.schema.names[:-1])
    assert rows is not None, "a file of other columns was refused"
    return rows


def _split(rows: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[pa.Table, dict[str, str | None]]]:
    if not rows.num_rows:
        return
    if not partition_by:
        yield rows, {}
        return
    # One code for each distinct combination of the columns so far, and next to it the following column's.
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in partition_by:
        encoded = pa.chunked_array([rows[name].combine_chunks()]).dictionary_encode().combine_chunks()
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, codes = np.unique(codes * len(encoded.dictionary) + indices, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order], prepend=-1, append=-1))
    if len(bounds) == 1 + 1:
        yield rows, partition_of(rows.select(list(partition_by)).slice(0, 1).to_pylist()[0])
        return
    ordered = rows_at(rows, order)
    for first, end in itertools.pairwise(bounds):
        part = ordered.slice(first, end - first)
        yield part, partition_of(part.select(list(partition_by)).slice(0, 1).to_pylist()[0])
