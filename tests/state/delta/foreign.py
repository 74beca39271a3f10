"""What somebody else does to a table, with another library than ours or by hand."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from state.delta.log.data_files import DataFile, DataFolder, files_of
from state.delta.log.entries import entry_path
from state.delta.log.location import Location


def live_files(path: Path) -> list[str]:
    """Return the paths of a table's data files, as in the log, in the order of their names."""
    return sorted(pa.table(DeltaTable(path).get_add_actions())["path"].to_pylist())


def rows_in(path: Path, files: Sequence[str]) -> pa.Table:
    """Return the rows in some files of a table; of those of its newest version without the dead ones."""
    data, held = _files_of(path)
    schema = pa.schema(DeltaTable(path).schema())
    read = {file: data.read(held[file], schema) for file in files if file in held}
    return pa.concat_tables([read[file] if file in read else pq.ParquetFile(path / file).read() for file in files])


def _files_of(path: Path) -> tuple[DataFolder, dict[str, DataFile]]:
    location, table = Location.resolve(str(path), None), DeltaTable(path)
    return DataFolder(location), files_of(location, table, table.metadata().partition_columns)


def move_rows(
    path: Path,
    removed: Sequence[str],
    rows: pa.Table | None = None,
    operation: str = "OPTIMIZE",
    *,
    int96: bool = False,
    has_statistics: bool = True,
) -> str:
    """Put one file in the place of some, as an OPTIMIZE does, and return its path.

    ``rows`` are those of the new file; None: those of the old ones. ``int96``: write times as Spark does. The log need
    not have the number of its rows, ``has_statistics``.
    """
    added = f"part-{uuid.uuid4().hex}.parquet"
    rows = rows_in(path, removed) if rows is None else rows
    pq.write_table(rows, path / added, use_deprecated_int96_timestamps=int96, store_schema=not int96)
    count = pq.ParquetFile(path / added).metadata.num_rows
    vectors = {name: {"deletionVector": file.vector.in_log} for name, file in _files_of(path)[1].items() if file.vector}
    common = {"partitionValues": {}, "dataChange": False}
    actions = [
        {"commitInfo": {"operation": operation}},
        *({"remove": {"path": file, "deletionTimestamp": 0, **common, **vectors.get(file, {})}} for file in removed),
        {
            "add": {
                "path": added,
                "size": (path / added).stat().st_size,
                "modificationTime": 0,
                **({"stats": json.dumps({"numRecords": count})} if has_statistics else {}),
                **common,
            }
        },
    ]
    entry = path / entry_path(DeltaTable(path).version() + 1)
    entry.write_text("\n".join(map(json.dumps, actions)))
    return added
