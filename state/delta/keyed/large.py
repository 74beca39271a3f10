"""Large folds: what the driver does of them; see :mod:`state.delta.keyed.buckets` for what the executors do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deltalake import DeltaTable

from state.delta.file_change import FileChange, files_of, put_change
from state.delta.keyed.buckets import BucketTask, fold_bucket, tasks_of
from state.delta.log.data_files import FileWrites
from state.delta.log.data_folder import DataFolder
from state.delta.log.fence import Fence
from state.delta.log.foreign import change_since
from state.delta.log.location import Location
from state.delta.moved import has_moved, write_after_move
from state.delta.schema import TXID_FIELD, RowFormat
from txtopo.api.reduction import Reduction, RowsFile, TransactionRows
from txtopo.api.state import Executors
from txtopo.columnar.rows_file import write_rows_file
from txtopo.errors import DivergenceError

__all__ = ["fold_on_executors", "put_files"]

_FOLDER = "_txtopo"
"""Where rows wait, in the table's folder: readers and vacuum leave it alone."""


def fold_on_executors(  # noqa: PLR0913, PLR0917 - what to fold, into what, by whom
    executors: Executors,
    folder: Path,
    table: DeltaTable,
    rows: RowFormat,
    parts: Sequence[TransactionRows],
    reduction: Reduction,
) -> FileWrites | None:
    """Let the executors fold the rows of a group into a table's buckets.

    Returns:
        The new files, which are in the table's folder, but not in its log; None if a result does not fit.

    Raises:
        FailedException: some of the work was lost; it may be tried again.
    """
    keys = tuple(rows.key)
    held: list[RowsFile] = []
    new: list[tuple[int, RowsFile]] = []
    try:
        for part in parts:
            file = part.rows
            if not isinstance(file, RowsFile):
                file = write_rows_file(str(folder / _FOLDER), f"{part.txid}-rows", file, keys)
                held.append(file)
            new.append((part.txid, file))
        old = files_of(table)
        template = BucketTask(
            folder=str(folder),
            parts=(0, 0),
            old=old,
            new=tuple(new),
            keys=keys,
            reductions={**dict.fromkeys(rows.value, reduction), TXID_FIELD: Reduction.MAX},
            schema=rows.schema(),
            first_txid=parts[0].txid,
            name=f"{parts[0].txid}-{parts[-1].txid}",
        )
        count = sum(file.rows for file in old) + sum(part.count for part in parts)
        tasks = tasks_of(template, count, executors.slots)
        buckets = executors.compute(fold_bucket, tasks)
    finally:
        for file in held:
            Path(file.path).unlink(missing_ok=True)
    if any(bucket.file is None for bucket in buckets):
        return None
    removed = {file.path: file for task in tasks for file in task.old}
    added = [bucket.file for bucket in buckets if bucket.file.rows]
    touched = sum(bucket.touched for bucket in buckets)
    first, version = parts[0].txid, table.version()
    return FileWrites(str(folder), added, list(removed.values()), touched, first, version, rows.read_writes)


def put_files(table: DeltaTable, fence: Fence, txid: int, writes: FileWrites, rows: RowFormat) -> None:
    """Write the version after the handle's: without the files that are replaced, with the new ones.

    Raises:
        FileNotFoundError: a new file is not in the table's folder, or not as large as it was.
        DivergenceError: the files to replace are no longer part of the table, and not because they were compacted.
        deltalake.exceptions.CommitFailedError: another writer took that version.
    """
    location = Location.resolve(writes.folder, None)
    folder, held = DataFolder(location), files_of(table)
    if has_moved(writes.removed, held):
        change = change_since(location, table, writes.version)
        if change is not None:
            raise DivergenceError(
                f"state {fence.state!r}: what is to be written as of transaction {txid} was worked out before somebody "
                f"else changed the table at {location.address} ({change}); nothing was written. Run 'txtopo repair'",
                txid=txid,
            )
        writes = write_after_move(folder, writes, held, rows)
    put_change(table, fence, txid, folder, FileChange(writes.added, writes.removed, rows.schema()))
