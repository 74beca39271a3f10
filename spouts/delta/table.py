"""A Delta table as input: the files of one version, then those that each later version adds."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from spouts.delta.files import FEED, InputFile, file_of, replaced
from state.delta.log.data_files import DataFile, files_of
from state.delta.log.entries import RESTORED_KEY, LogEntry, entries_from, entry_path, read_entry
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS, Owner
from state.delta.log.put import KNOWN_READER_FEATURES
from state.delta.log.vectors import VECTORS_FEATURE
from state.delta.read.points import TableVersions
from state.delta.read.reading import can_read_files
from txtopo.api.data.types import ddl_name
from txtopo.api.data.utc import EPOCH
from txtopo.api.values import StateKind
from txtopo.errors import ConfigError, FieldsError, InputError, SourceFailure
from txtopo.text.native import native_text
from txtopo.text.suggestions import did_you_mean

Changes = Literal["refuse", "skip", "emit"]
"""What to do about a version that changes or deletes rows."""

_FEED_PROPERTY = "delta.enableChangeDataFeed"

_OVERWRITES = ("WRITE", "STREAMING UPDATE", "RESTORE", "CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE AS SELECT")
"""Operations that replace files whole, whose changes are the rows of these files."""


@attrs.frozen
class Entry:
    """What a version does, by the content of its log entry, which never changes."""

    version: int
    content: bytes = attrs.field(repr=False)

    @functools.cached_property
    def actions(self) -> Sequence[Mapping[str, Any]]:
        """The actions in it."""
        return [json.loads(line) for line in self.content.splitlines() if line.strip()]

    @property
    def operation(self) -> str:
        """Delta's word for what has made it."""
        return str(self.information.get("operation", "an unknown operation"))

    @property
    def information(self) -> Mapping[str, Any]:
        """What it says of itself."""
        return next((action["commitInfo"] for action in self.actions if "commitInfo" in action), {})

    @property
    def restored(self) -> int | None:
        """The version whose rows it has brought back, if txtopo went back; None for others."""
        text = str(self.information.get(RESTORED_KEY, ""))
        return int(text) if text.isdecimal() else None

    @property
    def has_schema(self) -> bool:
        """Whether it says what columns the table has."""
        return any("metaData" in action for action in self.actions)

    def changes(self, kind: str) -> list[DataFile]:
        """Return the files that it adds, removes, or has changes in, but for those that only move rows."""
        actions = [action[kind] for action in self.actions if kind in action]
        return [file_of(each) for each in actions if kind == "cdc" or each.get("dataChange", True)]


@attrs.frozen
class InputTable:
    """A table whose rows of some columns, those of ``schema``, are read.

    ``changes``: whether versions that change or delete rows are refused, left out, or read as changes.
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

    def version_as_of(self, table: DeltaTable, txid: int) -> int:
        """Return the version after a transaction of the table's topology; ConfigError if it is not kept, or foreign."""
        owner, address = Owner.of(table), self.location.address
        if owner is None:
            raise ConfigError(f"as_of_txid is {txid}; the table at {address} is of no topology of txtopo")
        try:
            versions = TableVersions(self.location, table, owner)
            handle = versions.as_of(txid)
            reached = None if handle is None else handle.transaction_version(owner.application) or 0
            if handle is not None and reached == txid:
                return int(handle.version())
            points = versions.points()
        except WORLD_ERRORS as error:
            raise self._unreadable(error) from error
        before, after = points.around(txid)
        # A group of the last minutes may be nearer than the point before.
        near = [before if before is None or reached is None or reached <= before.txid else reached, after]
        raise ConfigError(
            f"as_of_txid is {txid}; the table at {address} keeps no version that ends with it, but as of "
            f"{' and '.join(str(each) for each in near if each is not None)}"
        )

    def snapshot(self, identity: str, version: int) -> list[InputFile]:
        """Return the files of a version by path; raise InputError if it is gone, or the table was replaced."""
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
                cause=native_text(error),
            ) from error
        return self._read([InputFile(files[path]) for path in sorted(files)], "insert", version)

    def entry(self, version: int) -> Entry | None:
        """Return what a version does; None if it has no entry. Raises SourceFailure if it can't be read now."""
        try:
            return Entry(version, self.location.folder.get(entry_path(version)))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from error

    def added(self, entry: Entry, *, is_own: bool) -> list[InputFile]:
        """Return the files that a version adds, in the order of its log entry, or what it changes.

        ``is_own`` is whether the table is one of txtopo, whose versions replace files whole.

        Raises:
            InputError: the version changes rows that may have been read.
        """
        version, added, removed, feed = entry.version, *map(entry.changes, ("add", "remove", "cdc"))
        # A restore may only add files, whose rows were read before those were removed.
        if self.changes == "skip" and (removed or entry.operation == "RESTORE"):
            return []
        # A merge that only inserts tells that in the feed, too.
        if not removed and (not feed or self.changes != "emit"):
            return self._read(map(InputFile, added), "insert", version)
        where = f"version {version} of the table at {self.location.address} ({entry.operation})"
        if self.changes == "refuse":
            raise InputError(
                f"{where} changes or deletes rows that a transaction may hold already; changes='skip' leaves such "
                "versions out, with all that they add, and changes='emit' takes what they change"
            )
        if feed:
            return self._read(map(InputFile, feed), None, version)
        before, after = ({file.path for file in files} for files in (removed, added))
        if not is_own and before != after and added and removed and entry.operation not in _OVERWRITES:
            raise InputError(
                f"{where} has no change data: the feed was turned on later. Begin after it with starting_version, or "
                "with the newest version by a spout with another id"
            )
        deleted, inserted = replaced(removed, added)
        return [*self._read(deleted, "delete", version), *self._read(inserted, "insert", version)]

    def check_identity(self, table: DeltaTable, identity: str) -> None:
        """Raise an InputError unless a handle is of the table that was read before."""
        identity_now = str(table.metadata().id)
        if identity_now != identity:
            raise InputError(
                f"the table at {self.location.address} was replaced: transactions read the one with the id {identity}, "
                f"and it has {identity_now}. Put the former one back, or read the new one by a spout with another id"
            )

    def missing(self, files: Iterable[InputFile]) -> str | None:
        """Return the path of the first file that is gone; None if all are there."""
        places = dict.fromkeys(place for file in files for place in file.file.places)
        return next((place for place in places if self.location.folder.size(place) is None), None)

    def _read(self, files: Iterable[InputFile], kind: str | None, version: int) -> list[InputFile]:
        files = list(files)
        elsewhere = next((file.file.path for file in files if file.file.is_elsewhere), None)
        if elsewhere is not None:
            raise InputError(
                f"version {version} of the table at {self.location.address} has the file {elsewhere} of another table, "
                "as a shallow clone has; read that table, or make a deep clone"
            )
        if self.changes != "emit":
            return files
        feed_columns = {"_commit_version": str(version), **({} if kind is None else {"_change_type": kind})}
        return [
            attrs.evolve(file, file=attrs.evolve(file.file, partition={**file.file.partition, **feed_columns}))
            for file in files
        ]

    def _check(self, table: DeltaTable) -> None:
        where = f"the table at {self.location.address}"
        if not can_read_files(table):
            features = {*(table.protocol().reader_features or ())} - KNOWN_READER_FEATURES - {VECTORS_FEATURE}
            raise ConfigError(
                f"{where} has the table feature {', '.join(sorted(features)) or 'columnMapping'}, by which its files "
                "may have other columns than it has, or of other types; read it by a DataFrameSpout, or write it to a "
                "table without that"
            )
        owner = Owner.of(table)
        if owner is not None and owner.kind is StateKind.EXPIRING:
            raise ConfigError(
                f"{where} has rows that expire, which only its own topology reads; read another table of it"
            )
        has_feed = table.metadata().configuration.get(_FEED_PROPERTY) == "true"
        if self.changes == "emit" and not has_feed and owner is None:
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

    def is_next(self, version: int) -> bool:
        """Return whether a version that has no entry is the next one of the same table; False if there are later ones.

        Raises:
            InputError: the version before it, which was read, is gone.
            SourceFailure: it can't be read now.
        """
        try:
            entries = [item.path for item in entries_from(self.location, max(0, version - 1))]
        except OSError as error:
            raise self._unreadable(error) from error
        if entries:
            return entry_path(version) in entries or entries == [entry_path(version - 1)]
        newest = self.newest().version()
        if newest >= version - 1:
            return True
        raise InputError(
            f"the table at {self.location.address} was replaced, or its end is gone: its newest version is {newest}, "
            f"and version {version - 1} was read before. Put the former table back, or read the new one by a spout "
            "with another id"
        )

    def versions_gone(self, version: int) -> InputError:
        """Return the error for versions that are gone from a version on."""
        oldest = next((item.path for item in entries_from(self.location, version)), "none")
        return InputError(
            f"versions of the table at {self.location.address} from {version} on are gone from its log, and the spout "
            "has not read them: it was away for longer than the log is kept. The oldest one that is left is in "
            f"{oldest}. Keep the log longer (delta.logRetentionDuration; for a table of txtopo "
            "topology.history.recent.secs). To go on, begin anew with the rows that the table has now: give the spout "
            "another id"
        )

    def turns(self, table: DeltaTable, version: int) -> list[tuple[int, int]]:
        """Return how often a table's topology has gone back from a version on, oldest first.

        Each is the version whose rows were brought back, and the one that did it; none is undone by a later one.
        """
        owner, turns = Owner.of(table), deque[tuple[int, int]]()
        if owner is not None:
            with contextlib.suppress(*WORLD_ERRORS):  # entries that are gone are told of when they are read
                for rollback in TableVersions(self.location, table, owner).rollbacks(version - 1):
                    turns.appendleft((rollback.restored or 0, rollback.version))
        return list(turns)

    def past_turns(self, table: DeltaTable, version: int, *, is_begun: bool = True) -> int:
        """Return the version to read next at a version, past what the table's topology has taken back of it.

        It is an earlier one where the topology went back and could not, so that what it had taken back is there again.

        ``is_begun`` is whether the ones before it were read.

        Raises:
            InputError: some that was read is taken back.
        """
        if not is_begun:
            for restored, turn in self.turns(table, version):
                version = turn + 1 if restored < version <= turn else version
            return version
        read: list[LogEntry | None] = []
        at, last = version - 1, None
        while turn_over := [turn for turn in self.turns(table, at + 1) if turn[0] < at < turn[1]]:  # one at most
            last = last or turn_over[0]
            while at > turn_over[0][0]:
                entry = read_entry(self.location, at)
                if entry is not None and entry.restored is not None:
                    at = entry.restored
                    break
                read.append(entry)
                at -= 1
        if last is not None and any(each is None or each.txid is not None for each in read):
            first = next((each for each in reversed(read) if each is not None and each.txid is not None), None)
            raise self._taken_back(Owner.of(table), last, first or read_entry(self.location, last[0]))
        if not all(each is None or each.is_harmless for each in read):
            return version
        unread = at + 1
        for restored, turn in self.turns(table, unread):
            unread = turn + 1 if restored + 1 == unread else unread
        return unread

    def _taken_back(self, owner: Owner | None, turned: tuple[int, int], first: LogEntry | None) -> InputError:
        """Return the error for transactions that hold rows which a turn has taken back, from a version on."""
        way = "txtopo rewind MODULE"
        if first is not None and first.written_ms is not None:
            time = (EPOCH + dt.timedelta(milliseconds=first.written_ms)).replace(tzinfo=None)
            way += f" --to '{time.isoformat(' ', 'milliseconds')}'"
        restored, turn = turned
        return InputError(
            f"topology {'' if owner is None else owner.topology_id!r} has gone back: version {turn} of the table at "
            f"{self.location.address} brings back the rows of version {restored}, and transactions hold later ones. Go "
            f"back, too, to before them, and run again: {way}. What was taken back is not read any more"
        )

    def _unreadable(self, error: Exception) -> SourceFailure:
        return SourceFailure(f"the table at {self.location.address} can't be read now", cause=native_text(error))
