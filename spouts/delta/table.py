"""A Delta table as input: the files of one version, then those that each later version adds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from state.delta.log.data_files import DataFile, files_of
from state.delta.log.entries import entries_from, entry_path
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS
from state.delta.log.vectors import vector_in
from state.delta.read.reading import can_read_files
from txtopo.api.data.types import ddl_name
from txtopo.errors import ConfigError, FieldsError, InputError, SourceFailure
from txtopo.text.native import plain_text
from txtopo.text.suggestions import did_you_mean

__all__ = ["InputTable"]


@attrs.frozen
class _Entry:
    """What a version does."""

    operation: str
    added: Sequence[dict[str, Any]]
    removed: Sequence[dict[str, Any]]
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
            any("metaData" in action for action in actions),
        )


@attrs.frozen
class InputTable:
    """A table whose rows of some columns are read.

    Args:
        location: where it is.
        schema: the columns to read, and their types.
        is_skipping: whether versions that change or delete rows are left out; otherwise they are refused.
    """

    location: Location
    schema: pa.Schema
    is_skipping: bool

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

    def snapshot(self, identity: str, version: int) -> list[DataFile]:
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
        return [files[path] for path in sorted(files)]

    def added(self, identity: str, version: int) -> list[DataFile] | None:
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
        if not entry.removed:
            return [_file_of(action) for action in entry.added]
        if self.is_skipping:
            return []
        raise InputError(
            f"version {version} of the table at {self.location.address} ({entry.operation}) changes or deletes rows "
            "that a transaction may hold already; changes='skip' leaves such versions out, with all that they add"
        )

    def check_identity(self, table: DeltaTable, identity: str) -> None:
        """Raise an InputError unless a handle is of the table that was read before."""
        found = str(table.metadata().id)
        if found != identity:
            raise InputError(
                f"the table at {self.location.address} was replaced: transactions read the one with the id {identity}, "
                f"and it has {found}. Put the former one back, or read the new one by a spout with another id"
            )

    def missing(self, files: Sequence[DataFile]) -> str | None:
        """Return the path of the first file that is gone; None if all are there."""
        return next((file.place for file in files if self.location.folder.size(file.place) is None), None)

    def _check(self, table: DeltaTable) -> None:
        where = f"the table at {self.location.address}"
        if not can_read_files(table):
            raise ConfigError(
                f"{where} has a feature by which its files have other columns than the table, such as column mapping; "
                "read it by a DataFrameSpout, or write it to a table without that"
            )
        schema = pa.schema(table.schema())
        for field in self.schema:
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
        action["size"],
        int(statistics.get("numRecords", 0)),
        partition=action.get("partitionValues") or {},
        vector=vector_in(action),
    )
