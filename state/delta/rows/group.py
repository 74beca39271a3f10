"""The effect of a commit group on a table of rows: the rows that it leaves, and the partitions that it replaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from state.delta.log.data_files import DataFile, DataFolder
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
from txtopo.api.state import Executors
from txtopo.api.writes import PreparedWrites, RowsMode, TransactionRows
from txtopo.columnar.rows_file import in_memory


@attrs.frozen(eq=False)
class RowsWrites(PreparedWrites):
    """Rows to put into a table of rows, in data files that are already in its folder, and those that go.

    Args:
        added: the files.
        replaced: the partitions whose older rows are removed, each by its values in the format of the log.
        rows_removed: the number of rows that go when this was made.
        taken: the time up to which rows that expire are taken, in µs since 1970 UTC; None if none are.
        is_taking: whether an earlier write had an earlier time, or none.
    """

    added: Sequence[DataFile]
    replaced: Sequence[Mapping[str, str | None]]
    rows_removed: int = 0
    taken: int | None = None
    is_taking: bool = False

    @property
    def rows_put(self) -> int:
        """The number of rows in the files."""
        return sum(file.rows for file in self.added)

    def __bool__(self) -> bool:
        """Whether there is anything to write, if only the time."""
        return bool(self.added) or self.is_taking

    def note(self) -> dict[str, Any]:
        """Return it as JSON."""
        expiry = {} if self.taken is None else {"taken": self.taken}
        return {"files": [file.note for file in self.added], "replaced": [*map(dict, self.replaced)], **expiry}


def replaced_after(
    parts: Sequence[TransactionRows], partitions: Callable[[Sequence[TransactionRows]], pa.Table]
) -> tuple[dict[int, pa.Table], pa.Table | None]:
    """Return the partitions that the transactions after each txid replace, and all that the group replaces.

    ``partitions`` returns the distinct partitions of some of its rows.
    """
    # From the last transaction back: each one gets what those after it replace, and then adds its own.
    later: dict[int, pa.Table] = {}
    replaced: pa.Table | None = None
    for txid in sorted({part.txid for part in parts}, reverse=True):
        if replaced is not None:
            later[txid] = replaced
        replacing = [part for part in parts if part.txid == txid and part.mode is RowsMode.REPLACE]
        if replacing:
            found = partitions(replacing)
            replaced = found if replaced is None else distinct(pa.concat_tables([replaced, found]))
    return later, replaced


def rows_left(parts: Sequence[TransactionRows], form: RowsFormat) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows that remain of a group, with their txids, and the partitions that it replaces."""
    read = [(part, _in_memory(part, form)) for part in parts]
    rows_of = {id(part): rows for part, rows in read}

    def partitions(parts_of_txid: Sequence[TransactionRows]) -> pa.Table:
        return distinct(pa.concat_tables([rows_of[id(part)].select(list(form.partition_by)) for part in parts_of_txid]))

    later, replaced = replaced_after(parts, partitions)
    schema = form.schema()
    tables = [schema.empty_table()]
    for part, rows in read:
        remaining = rows if part.txid not in later else without(rows, later[part.txid])
        tables.append(with_txid(remaining, part.txid, schema))
    return pa.concat_tables(tables), replaced


def place_here(folder: DataFolder, form: RowsFormat, parts: Sequence[TransactionRows]) -> RowsWrites:
    """Write the remaining rows of a group in this process: one file, or one per partition."""
    rows, replaced = rows_left(parts, form)
    added = write_partitions(folder, rows, form.partition_by, _name_of(parts))
    return RowsWrites(added, _texts(replaced))


def place_on_executors(
    executors: Executors, folder: DataFolder, form: RowsFormat, parts: Sequence[TransactionRows]
) -> RowsWrites:
    """Let the executors write the remaining rows of a group, each a share of them."""

    def tasks(slices: Sequence[RowSlice]) -> list[WriteTask]:
        count = sum(each.end - each.first for each in slices)
        pieces = slices_of(slices, max(executors.slots, -(-count // folder.sizes.file_rows)))
        name, schema = _name_of(parts), form.schema()
        return [WriteTask(folder, piece, schema, form.partition_by, name) for piece in pieces]

    def whole(part: TransactionRows, replaced: pa.Table | None = None) -> RowSlice:
        file = file_of[id(part)]
        return RowSlice(part.txid, file, 0, file.rows, replaced)

    def partitions(parts_of_txid: Sequence[TransactionRows]) -> pa.Table:
        partitions_found = executors.compute(partitions_in, tasks([whole(part) for part in parts_of_txid]))
        return distinct(pa.concat_tables(partitions_found))

    with folder.rows_in_files(parts, form.partition_by) as files:
        file_of = {id(part): file for part, file in zip(parts, files, strict=True)}
        later, replaced = replaced_after(parts, partitions)
        written = executors.compute(write_slices, tasks([whole(part, later.get(part.txid)) for part in parts]))
    added = [file for own in written for file in own]
    folder.check_there(added)
    return RowsWrites(added, _texts(replaced))


def _in_memory(part: TransactionRows, form: RowsFormat) -> pa.Table:
    rows = in_memory(part.rows)
    arrangement = arranged(rows, form.fields.names)
    assert arrangement is not None, "rows of other columns were refused"
    return arrangement


def _texts(partitions: pa.Table | None) -> list[dict[str, str | None]]:
    return [] if partitions is None else [partition_of(row) for row in partitions.to_pylist()]


def _name_of(parts: Sequence[TransactionRows]) -> str:
    return f"{parts[0].txid}-{parts[-1].txid}"
