"""A write of buckets to a table whose rows somebody else has moved into other files meanwhile.

OPTIMIZE keeps every row, but the files that the write takes out are no longer part of the table. What the write puts
is as right as before, for each new bucket holds all rows of its parts. So whatever files the table has now, their rows
of those parts go, and rows of other parts that lie in the same files stay, in files that are written here.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.delta.log.data_files import DataFile, FileWrites
from state.delta.log.data_folder import DataFolder
from state.delta.schema import RowFormat
from txtopo.columnar.rows_file import PARTS, parts_of

__all__ = ["has_moved", "write_after_move"]


def has_moved(removed: Sequence[DataFile], held: Sequence[DataFile]) -> bool:
    """Whether a file to take out is not among those that the table has."""
    paths = {file.path for file in held}
    return any(file.path not in paths for file in removed)


def write_after_move(folder: DataFolder, writes: FileWrites, held: Sequence[DataFile], rows: RowFormat) -> FileWrites:
    """Return a write that does to the files which the table has now what ``writes`` was to do.

    Args:
        folder: where the table's files lie.
        writes: the write, worked out on files that held the same rows.
        held: the files that the table has now.
        rows: the format of its rows.

    Raises:
        OSError: a file can't be read or written.
        pyarrow.ArrowException: as above.
    """
    is_new = _parts_mask(writes.added)
    removed = [file for file in held if is_new[slice(*(file.parts or (0, PARTS)))].any()]
    rests = [_rest_of(folder, file, is_new, rows) for file in removed]
    added = [*writes.added, *(file for file in rests if file is not None)]
    return FileWrites(
        writes.folder, added, removed, writes.rows_put, writes.first_txid, writes.version, rows.read_writes
    )


def _parts_mask(buckets: Sequence[DataFile]) -> npt.NDArray[np.bool_]:
    """Return for each part whether one of some buckets holds its rows."""
    mask = np.zeros(PARTS, dtype=np.bool_)
    for file in buckets:
        assert file.parts is not None, f"{file.path} is no bucket"
        mask[slice(*file.parts)] = True
    return mask


def _rest_of(folder: DataFolder, file: DataFile, is_gone: npt.NDArray[np.bool_], rows: RowFormat) -> DataFile | None:
    """Write a file's rows of other parts to a new file, a portion at a time; None if there are none."""
    schema, keys = rows.schema(), list(rows.key)
    path = folder.path_of(f"rest-{uuid.uuid4().hex}.parquet")
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
