"""Compaction of a table of rows: small files of one partition become one, the others stay as they are.

So what it costs goes by what was written since, and not by the table, which only ever grows.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable

from state.delta.log.data_files import DataFile, DataFolder, FileChange, files_of, put_change
from state.delta.log.fence import Fence
from state.delta.rows.format import RowsFormat

__all__ = ["compact_rows"]

FILE_BYTES = 64 * 1024 * 1024
"""What small files are put together to, about; files from half of it on are left alone."""


def compact_rows(table: DeltaTable, fence: Fence, folder: DataFolder, form: RowsFormat, files_max: int) -> bool:
    """Put small files together in one Delta write; return whether there were too many.

    Args:
        table: the handle to write by.
        fence: what the write must carry.
        folder: where the table's files lie.
        form: the format of its rows.
        files_max: the most files that may be there and could be spared.
    """
    bins = _bins(files_of(table, form.partition_by))
    if sum(len(each) - 1 for each in bins) < files_max:
        return False
    schema = form.schema()
    data_schema = pa.schema([field for field in schema if field.name not in form.partition_by])
    added = []
    for files in bins:
        rows = pa.concat_tables([folder.read(file.path, data_schema) for file in files])
        added.append(folder.put("rows-compacted", rows, files[0].partition))
    removed = [file for files in bins for file in files]
    change = FileChange(added, removed, schema, form.partition_by, is_of_rows=False)
    put_change(table, fence, None, folder, change)
    return True


def _bins(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """Return the small files that go together, two at least in each bin."""
    by_partition: dict[tuple[str | None, ...], list[DataFile]] = {}
    for file in files:
        if file.size < FILE_BYTES // 2:
            by_partition.setdefault(tuple(file.partition.values()), []).append(file)
    bins: list[list[DataFile]] = []
    for own in by_partition.values():
        size = FILE_BYTES
        for file in sorted(own, key=lambda each: each.size):
            if size + file.size > FILE_BYTES:
                bins.append([])
                size = 0
            bins[-1].append(file)
            size += file.size
    return [each for each in bins if len(each) > 1]
