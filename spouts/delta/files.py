"""The files of a Delta table that are read, whole or some of their rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
from pyroaring import BitMap64

from state.delta.log.data_files import DataFile, DataFolder, files_in
from state.delta.log.vectors import Vector, vector_in

FEED = {"_change_type": pa.string(), "_commit_version": pa.int64()}
"""The columns that the change data feed has beside the table's, as Delta names them."""


@attrs.frozen
class InputFile:
    """A file, or the rows of it that a version has marked as dead, or as alive again."""

    file: DataFile
    is_marked: bool = False
    """Whether only rows are meant that are dead by the file's vector, and alive by the other one."""
    other: Vector | None = None

    @property
    def size(self) -> int:
        """About how many bytes are read of it."""
        if not self.is_marked:
            return self.file.size
        marked = abs(self.file.live - attrs.evolve(self.file, vector=self.other).live)
        return self.file.size * marked // max(1, self.file.rows)

    @property
    def files(self) -> Sequence[InputFile]:
        """All files that it reads."""
        return [self]

    @property
    def metadata(self) -> dict[str, Any]:
        """What metadata has of it."""
        other_vector = None if self.other is None else attrs.asdict(self.other)
        return {**self.file.note, "is_marked": self.is_marked, "other": other_vector}

    @staticmethod
    def from_metadata(metadata: Mapping[str, Any]) -> InputFile:
        """Return the file that metadata has."""
        other_vector = metadata["other"]
        (file,) = files_in({"files": [{n: v for n, v in metadata.items() if n not in {"is_marked", "other"}}]})
        return InputFile(file, metadata["is_marked"], None if other_vector is None else Vector(**other_vector))

    def portions(self, folder: DataFolder, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows, in portions."""
        dead = None
        if self.is_marked:
            marked = folder.dead(self.file) - folder.dead(attrs.evolve(self.file, vector=self.other))
            dead = BitMap64(range(self.file.rows)) - marked
            if not marked:
                return
        for rows in folder.portions(self.file, schema, dead=dead):
            yield self._with_feed_columns(rows)

    def _with_feed_columns(self, rows: pa.Table) -> pa.Table:
        """Return rows with what the log says of them: Spark's files may have a column of that name, with nulls."""
        for name in {*FEED} & {*self.file.partition} & {*rows.column_names}:
            column = pa.repeat(pa.scalar(self.file.partition[name]).cast(FEED[name]), rows.num_rows)
            rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)
        return rows


def replaced(removed: Sequence[DataFile], added: Sequence[DataFile]) -> tuple[list[InputFile], list[InputFile]]:
    """Return what is in files that a version removes, and what is in those that it adds.

    A file that it adds again, with another vector, has changed only in the rows that differ.
    """
    before, after = ({file.path: file for file in files} for files in (removed, added))
    marked = sorted(set(before) & set(after))
    again = [attrs.evolve(after[path], vector=before[path].vector) for path in marked]
    return (
        [
            *(InputFile(file) for file in removed if file.path not in after),
            *(InputFile(after[path], True, before[path].vector) for path in marked),
        ],
        [
            *(InputFile(file, True, after[file.path].vector) for file in again),
            *(InputFile(file) for file in added if file.path not in before),
        ],
    )


def file_of(action: dict[str, Any]) -> DataFile:
    """Return the file that an action of the log adds, removes or has changes in."""
    statistics = json.loads(action.get("stats") or "{}")
    return DataFile(
        action["path"],
        action.get("size") or 0,
        int(statistics.get("numRecords", 0)),
        # The log says an empty text for null, whatever the column's type.
        partition={name: value or None for name, value in (action.get("partitionValues") or {}).items()},
        vector=vector_in(action),
    )
