"""A Delta table as input: the files of one version, then those that each later version adds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyroaring import BitMap64

from state.delta.log.data_files import DataFile, DataFolder, files_in, files_of
from state.delta.log.entries import entries_from, entry_path
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS
from state.delta.log.vectors import Vector, vector_in
from state.delta.read.reading import can_read_files
from txtopo.api.data.types import ddl_name
from txtopo.errors import ConfigError, FieldsError, InputError, SourceFailure
from txtopo.text.native import plain_text
from txtopo.text.suggestions import did_you_mean

__all__ = ["FEED", "Changes", "InputFile", "InputTable"]


Changes = Literal["refuse", "skip", "emit"]
"""What to do about a version that changes or deletes rows."""

FEED = {"_change_type": pa.string(), "_commit_version": pa.int64()}
"""The columns that the change data feed has beside the table's, as Delta names them."""

_FEED_PROPERTY = "delta.enableChangeDataFeed"

_OVERWRITES = ("WRITE", "CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE AS SELECT")
"""Operations that replace files whole, whose changes are the rows of these files."""


@attrs.frozen
class _Entry:
    """What a version does."""

    operation: str
    added: Sequence[dict[str, Any]]
    removed: Sequence[dict[str, Any]]
    feed: Sequence[dict[str, Any]]
    has_schema: bool

    @staticmethod
    def from_bytes(content: bytes) -> _Entry:
        actions = [json.loads(line) for line in content.splitlines() if line.strip()]
        added, removed = (
            [action[kind] for action in actions if kind in action and action[kind].get("dataChange", True)]
            for kind in ("add", "remove")
        )
        information: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        return _Entry(
            str(information.get("operation", "an unknown operation")),
            added,
            removed,
            [action["cdc"] for action in actions if "cdc" in action],
            any("metaData" in action for action in actions),
        )


@attrs.frozen
class InputFile:
    """A file, or the rows of it that a version has marked as dead, or as alive again."""

    file: DataFile
    is_marked: bool = False
    """Whether only rows are meant that are dead by the file's vector, and alive by the other one."""
    other: Vector | None = None

    @property
    def note(self) -> dict[str, Any]:
        """What metadata has of it."""
        other = None if self.other is None else attrs.asdict(self.other)
        return {**self.file.note, "is_marked": self.is_marked, "other": other}

    @staticmethod
    def of_note(note: Mapping[str, Any]) -> InputFile:
        """Return the file that a note is of."""
        other = note["other"]
        (file,) = files_in({"files": [{n: v for n, v in note.items() if n not in {"is_marked", "other"}}]})
        return InputFile(file, note["is_marked"], None if other is None else Vector(**other))

    def portions(self, folder: DataFolder, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows, in portions."""
        dead = None
        if self.is_marked:
            marked = folder.dead(self.file) - folder.dead(attrs.evolve(self.file, vector=self.other))
            dead = BitMap64(range(self.file.rows)) - marked
            if not marked:
                return
        for rows in folder.portions(self.file, schema, dead=dead):
            yield self._told(rows)

    def _told(self, rows: pa.Table) -> pa.Table:
        """Return rows with what the log says of them: Spark's files may have a column of that name, with nulls."""
        for name in {*FEED} & {*self.file.partition} & {*rows.column_names}:
            column = pa.repeat(pa.scalar(self.file.partition[name]).cast(FEED[name]), rows.num_rows)
            rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)
        return rows


@attrs.frozen
class InputTable:
    """A table whose rows of some columns are read.

    Args:
        location: where it is.
        schema: the columns to read, and their types.
        changes: whether versions that change or delete rows are refused, left out, or read as changes.
    """

    location: Location
    schema: pa.Schema
    changes: Changes

    def newest(self) -> DeltaTable:
        """Return a handle of the newest version, whose columns are those to read.

        Raises:
            ConfigError: there is no table.
            FieldsError: it lacks a column, or one has another type.
            SourceFailure: it can't be read now.
        """
        try:
            table = self.location.handle()
        except TableNotFoundError as error:
            address = self.location.address
            raise ConfigError(f"there is no Delta table at {address}; create it, or correct the path") from error
        except WORLD_ERRORS as error:
            raise self._unreadable(error) from error
        self._check(table)
        return table

    def snapshot(self, identity: str, version: int) -> list[InputFile]:
        """Return the files of a version, in the order of their paths.

        Raises:
            InputError: the version is gone, or the table was replaced.
        """
        try:
            table = self.location.handle(version)
            self._check(table)
            self.check_identity(table, identity)
            files = files_of(self.location, table, table.metadata().partition_columns)
        except WORLD_ERRORS as error:
            raise InputError(
                f"version {version} of the table at {self.location.address}, with whose rows the spout began, can't be "
                "read any more; its files or its log were cleaned up. To begin with the newest version, give the spout "
                "another id",
                cause=plain_text(error),
            ) from error
        return self._read([files[path] for path in sorted(files)], "insert", version)

    def added(self, identity: str, version: int) -> list[InputFile] | None:
        """Return the files that a version adds, in the order of its log entry; None if there is no such version yet.

        Raises:
            InputError: the version changes rows that may have been read, its log entry is gone, or the table was
                replaced.
            SourceFailure: it can't be read now.
        """
        try:
            content = self.location.folder.get(entry_path(version))
        except FileNotFoundError:
            self._check_kept(version)
            return None
        except OSError as error:
            raise self._unreadable(error) from error
        entry = _Entry.from_bytes(content)
        if entry.has_schema:
            table = self.newest()
            self.check_identity(table, identity)
        added = [_file_of(action) for action in entry.added]
        if not entry.removed and not entry.feed:
            return self._read(added, "insert", version)
        if self.changes == "skip":
            return []
        what = f"version {version} of the table at {self.location.address} ({entry.operation})"
        if self.changes == "refuse":
            raise InputError(
                f"{what} changes or deletes rows that a transaction may hold already; changes='skip' leaves such "
                "versions out, with all that they add, and changes='emit' takes changes from the change data feed"
            )
        if entry.feed:
            return self._read([_file_of(action) for action in entry.feed], None, version)
        removed = [_file_of(action) for action in entry.removed]
        before, after = ({file.path: file for file in files} for files in (removed, added))
        if set(before) != set(after) and added and removed and entry.operation not in _OVERWRITES:
            raise InputError(
                f"{what} has no change data: the feed was turned on later. Begin after it with starting_version, or "
                "with the newest version by a spout with another id"
            )
        # A file that comes with another vector has changed only in the rows that differ.
        marked = sorted(set(before) & set(after))
        again = [attrs.evolve(after[path], vector=before[path].vector) for path in marked]
        return [
            *self._read([file for file in removed if file.path not in after], "delete", version),
            *self._read([after[path] for path in marked], "delete", version, [before[path].vector for path in marked]),
            *self._read(again, "insert", version, [after[path].vector for path in marked]),
            *self._read([file for file in added if file.path not in before], "insert", version),
        ]

    def check_identity(self, table: DeltaTable, identity: str) -> None:
        """Raise an InputError unless a handle is of the table that was read before."""
        found = str(table.metadata().id)
        if found != identity:
            raise InputError(
                f"the table at {self.location.address} was replaced: transactions read the one with the id {identity}, "
                f"and it has {found}. Put the former one back, or read the new one by a spout with another id"
            )

    def missing(self, files: Sequence[InputFile]) -> str | None:
        """Return the path of the first file that is gone; None if all are there."""
        return next((each.file.place for each in files if self.location.folder.size(each.file.place) is None), None)

    def _read(
        self, files: Sequence[DataFile], kind: str | None, version: int, others: Sequence[Vector | None] | None = None
    ) -> list[InputFile]:
        """Return files with the columns of the change data feed, as if the table were partitioned by them.

        With the vectors of another version they stand for the rows that are dead by their own and not by these.
        """
        if self.changes == "emit":
            told = {"_commit_version": str(version), **({} if kind is None else {"_change_type": kind})}
            files = [attrs.evolve(file, partition={**file.partition, **told}) for file in files]
        if others is None:
            return [InputFile(file) for file in files]
        return [InputFile(file, True, other) for file, other in zip(files, others, strict=True)]

    def _check(self, table: DeltaTable) -> None:
        where = f"the table at {self.location.address}"
        if not can_read_files(table):
            raise ConfigError(
                f"{where} has a feature by which its files have other columns than the table, such as column mapping; "
                "read it by a DataFrameSpout, or write it to a table without that"
            )
        if self.changes == "emit" and table.metadata().configuration.get(_FEED_PROPERTY) != "true":
            raise ConfigError(
                f"{where} has no change data feed, which changes='emit' reads; set {_FEED_PROPERTY}=true on it"
            )
        schema = pa.schema(table.schema())
        for field in self.schema:
            if self.changes == "emit" and FEED.get(field.name) == field.type:
                continue
            if field.name not in schema.names:
                near = did_you_mean(field.name, schema.names) or f"; it has {', '.join(schema.names)}"
                raise FieldsError(f"{where} has no column {field.name!r}{near}")
            kind = schema.field(field.name).type
            if ddl_name(kind) != ddl_name(field.type):
                raise FieldsError(
                    f"column {field.name!r} of {where} is {ddl_name(kind)}, and the spout's field is "
                    f"{ddl_name(field.type)}; give the field the column's type"
                )

    def _check_kept(self, version: int) -> None:
        """Raise an InputError if there are later versions than one whose entry is missing."""
        later = next(iter(entries_from(self.location, version)), None)
        if later is None or later.path == entry_path(version):
            return
        raise InputError(
            f"versions of the table at {self.location.address} from {version} on are gone from its log, and the spout "
            f"has not read them: it was away for longer than the log is kept. The oldest one that is left is in "
            f"{later.path}. Keep the log longer (delta.logRetentionDuration; for a table of txtopo "
            "topology.rewind.hours and vacuum_retention_hours); to begin with the newest version, give the spout "
            "another id"
        )

    def _unreadable(self, error: Exception) -> SourceFailure:
        return SourceFailure(f"the table at {self.location.address} can't be read now", cause=plain_text(error))


def _file_of(action: dict[str, Any]) -> DataFile:
    statistics = json.loads(action.get("stats") or "{}")
    return DataFile(
        action["path"],
        action.get("size") or 0,
        int(statistics.get("numRecords", 0)),
        partition=action.get("partitionValues") or {},
        vector=vector_in(action),
    )
