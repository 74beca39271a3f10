"""Delta writes of the log alone: data files that lie in a table's folder are put into it, others taken out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from state.delta.log.data_files import DataFile, partition_text
from state.delta.log.data_folder import DataFolder
from state.delta.log.fence import NO_HOOKS, Fence

__all__ = ["FileChange", "files_of", "put_change"]


@attrs.frozen(eq=False)
class FileChange:
    """What one Delta write does to the files of a table.

    Args:
        added: files to put in; they are in its folder.
        removed: files to take out.
        schema: its columns.
        partition_by: those that it is partitioned by.
        is_of_rows: whether rows come or go; else they only lie in other files.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    schema: pa.Schema
    partition_by: Sequence[str] = ()
    is_of_rows: bool = True


def put_change(table: DeltaTable, fence: Fence, txid: int | None, folder: DataFolder, change: FileChange) -> None:
    """Write the version after the handle's.

    Args:
        table: the handle to write by.
        fence: what the write must carry.
        txid: the transaction it makes visible; None for upkeep.
        folder: where the table's files lie.
        change: what to do.

    Raises:
        FileNotFoundError: a new file is not in the table's folder, or not as large as it was; or one to take out is
            no longer part of the table, for somebody else has put its rows elsewhere.
        deltalake.exceptions.CommitFailedError: another writer took that version.
    """
    for file in change.added:
        if folder.size_of(file.path) != file.size:
            raise FileNotFoundError(f"{file.path} is not in {folder.location.address} with its {file.size} bytes")
    if change.removed:
        held = {file.path for file in files_of(table)}
        for file in change.removed:
            if file.path not in held:
                raise FileNotFoundError(f"{file.path} is no longer part of the table at {folder.location.address}")
    time_ms = int(time.time() * 1000)
    actions: list[Any] = [
        *(
            AddAction(file.path, file.size, file.partition, time_ms, change.is_of_rows, file.stats)
            for file in change.added
        ),
        *(RemoveAction(file.path, change.is_of_rows, time_ms, file.size) for file in change.removed),
    ]
    table.create_write_transaction(
        actions,
        "append",
        change.schema,
        partition_by=list(change.partition_by),
        commit_properties=fence.properties(txid),
        post_commithook_properties=NO_HOOKS,
    )


def files_of(table: DeltaTable, partition_by: Sequence[str] = ()) -> tuple[DataFile, ...]:
    """Return the files of the handle's version, by their paths below the table's folder.

    The log has paths percent-encoded, and delta-rs hands them out so; it encodes them again where it takes them.

    Args:
        table: the handle.
        partition_by: the columns that it is partitioned by, if each file's partition is wanted.
    """
    added = pa.table(table.get_add_actions(flatten=True))
    if not added.num_rows:
        return ()
    paths, sizes, counts = (added[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    columns = [map(partition_text, added[f"partition.{name}"].to_pylist()) for name in partition_by]
    partitions = zip(*columns, strict=True) if columns else [()] * len(paths)
    return tuple(
        DataFile(unquote(path), size, rows or 0, partition=dict(zip(partition_by, values, strict=True)))
        for path, size, rows, values in zip(paths, sizes, counts, partitions, strict=True)
    )
