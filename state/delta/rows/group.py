"""What a commit group does to a table of rows: which rows stay, and which partitions lose those they had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
import pyarrow as pa

from state.delta.log.data_files import BUCKET_ROWS, DataFile, DataFolder
from state.delta.rows.files import (
    RowSlice,
    WriteTask,
    distinct,
    partition_of,
    partitions_in,
    slices_of,
    with_txid,
    without,
    write_partitions,
    write_slices,
)
from state.delta.rows.format import RowsFormat, arranged
from txtopo.api.reduction import PreparedWrites, RowsMode, RowsToWrite
from txtopo.api.state import Executors
from txtopo.columnar.rows_file import in_memory

__all__ = ["RowsWrites", "place_here", "place_on_executors", "replaced_after", "rows_left"]


@attrs.frozen(eq=False)
class RowsWrites(PreparedWrites):
    """Rows to put into a table of rows, in data files that are in its folder already.

    Args:
        added: the files.
        replaced: the partitions whose older rows go, each by its values as the log has them.
        rows_removed: how many those were when this was made.
    """

    added: Sequence[DataFile]
    replaced: Sequence[Mapping[str, str | None]]
    rows_removed: int = 0

    @property
    def rows_put(self) -> int:
        """How many rows the files hold."""
        return sum(file.rows for file in self.added)


def replaced_after(
    parts: Sequence[RowsToWrite], partitions: Callable[[Sequence[RowsToWrite]], pa.Table]
) -> tuple[dict[int, pa.Table], pa.Table | None]:
    """Return what later transactions of a group replace, and what all of them do.

    Args:
        parts: the rows of the group.
        partitions: returns the partitions that occur among some of its rows.

    Returns:
        By txid, the partitions that transactions above it replace, where there are some; and all that are replaced.
    """
    later: dict[int, pa.Table] = {}
    replaced: pa.Table | None = None
    for txid in sorted({part.txid for part in parts}, reverse=True):
        if replaced is not None:
            later[txid] = replaced
        own = [part for part in parts if part.txid == txid and part.mode is RowsMode.REPLACE]
        if own:
            found = partitions(own)
            replaced = found if replaced is None else distinct(pa.concat_tables([replaced, found]))
    return later, replaced


def rows_left(parts: Sequence[RowsToWrite], form: RowsFormat) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows that a group leaves, with their txids, and the partitions that it replaces.

    Args:
        parts: the rows of the group, in txid order.
        form: the format of the table's rows.
    """
    held = [(part, _in_memory(part, form)) for part in parts]
    rows_of = {id(part): rows for part, rows in held}

    def partitions(some: Sequence[RowsToWrite]) -> pa.Table:
        return distinct(pa.concat_tables([rows_of[id(part)].select(list(form.partition_by)) for part in some]))

    later, replaced = replaced_after(parts, partitions)
    schema = form.schema()
    tables = [schema.empty_table()]
    for part, rows in held:
        left = rows if part.txid not in later else without(rows, later[part.txid])
        tables.append(with_txid(left, part.txid, schema))
    return pa.concat_tables(tables), replaced


def place_here(folder: DataFolder, form: RowsFormat, parts: Sequence[RowsToWrite]) -> RowsWrites:
    """Write what a group leaves in this process: one file, or one for each partition."""
    rows, replaced = rows_left(parts, form)
    added = write_partitions(folder, rows, form.partition_by, _name_of(parts))
    return RowsWrites(added, _texts(replaced))


def place_on_executors(
    executors: Executors, folder: DataFolder, form: RowsFormat, parts: Sequence[RowsToWrite]
) -> RowsWrites:
    """Let the executors write what a group leaves, each its share of the rows.

    Raises:
        FailedException: some of the work was lost; it may be tried again.
    """

    def tasks(slices: Sequence[RowSlice]) -> list[WriteTask]:
        count = sum(each.end - each.first for each in slices)
        pieces = slices_of(slices, max(executors.slots, -(-count // BUCKET_ROWS)))
        name, schema = _name_of(parts), form.schema()
        return [WriteTask(folder, piece, schema, form.partition_by, name) for piece in pieces]

    def whole(part: RowsToWrite, replaced: pa.Table | None = None) -> RowSlice:
        file = file_of[id(part)]
        return RowSlice(part.txid, file, 0, file.rows, replaced)

    def partitions(some: Sequence[RowsToWrite]) -> pa.Table:
        found = executors.compute(partitions_in, tasks([whole(part) for part in some]))
        return distinct(pa.concat_tables(found))

    with folder.rows_in_files(parts, form.partition_by) as files:
        file_of = {id(part): file for part, file in zip(parts, files, strict=True)}
        later, replaced = replaced_after(parts, partitions)
        written = executors.compute(write_slices, tasks([whole(part, later.get(part.txid)) for part in parts]))
    return RowsWrites([file for own in written for file in own], _texts(replaced))


def _in_memory(part: RowsToWrite, form: RowsFormat) -> pa.Table:
    rows = in_memory(part.rows)
    found = arranged(rows, form.fields.names)
    assert found is not None, "rows of other columns were refused"
    return found


def _texts(partitions: pa.Table | None) -> list[dict[str, str | None]]:
    return [] if partitions is None else [partition_of(row) for row in partitions.to_pylist()]


def _name_of(parts: Sequence[RowsToWrite]) -> str:
    return f"{parts[0].txid}-{parts[-1].txid}"
