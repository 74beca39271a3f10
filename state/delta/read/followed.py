"""The rows of a table, followed from version to version: a step costs what its version has touched, not the table.

The log says which files a version adds and removes. All other files have the same rows in both versions, so what
differs between two versions is in the rows of these files. Of a file that stays and gets another deletion vector, only
the rows are looked at that are dead in one of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
from deltalake import DeltaTable
from pyroaring import BitMap64

from state.delta.log.data_files import DataFile, DataFolder, files_of
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS, Numbers, Owner
from state.delta.log.vectors import positions_in, vector_in
from state.delta.read.reading import can_read_files, read_rows
from txtopo.api.values import ROWS_KINDS
from txtopo.columnar.key_index import hashes_of
from txtopo.columnar.rows_by_time import BEFORE_ALL, are_over, not_over
from txtopo.errors import StateAccessError
from txtopo.text.native import native_text


@attrs.frozen(eq=False)
class Step:
    """What differs between the rows of two versions: those in one of them that need not be in the other."""

    before: pa.Table
    after: pa.Table


@attrs.frozen(eq=False)
class _Read:
    """A file of a version, as it was read: all of its rows, and which of them are dead."""

    file: DataFile
    all: pa.Table
    dead: BitMap64

    @property
    def rows(self) -> pa.Table:
        """Its live rows."""
        return (
            self.all.take(pa.array(positions_in(BitMap64(range(self.all.num_rows)) - self.dead)))
            if self.dead
            else self.all
        )

    def without(self, other: _Read | None) -> pa.Table:
        """Return its live rows that are not live in the same file as another version has it, or in none."""
        return self.rows if other is None else self.all.take(pa.array(positions_in(other.dead - self.dead)))


_Files = dict[str, _Read | None]


@attrs.define(eq=False)
class FollowedRows:
    """The rows of the version to which :meth:`go_to` has gone last, in the schema of ``latest``, the newest."""

    location: Location
    latest: DeltaTable
    owner: Owner
    schema: pa.Schema = attrs.field(init=False)
    keys: Sequence[str] = attrs.field(init=False)
    """The key columns; none of a table of rows."""
    _version: int | None = None
    _files: _Files = attrs.field(factory=dict)
    """The files of the version, by path; None for one that is gone."""
    _hashes: set[int] = attrs.field(factory=set)
    """Of the keys of its rows."""
    _is_doubled: bool = False
    """Whether a key may occur more than once."""
    _taken: int = BEFORE_ALL
    """The time up to which it has taken out expired rows."""

    def __attrs_post_init__(self) -> None:
        self.schema = pa.schema(self.latest.schema())
        fields = [] if self.owner.kind in ROWS_KINDS else [field for field in self.schema if not field.nullable]
        self.keys = [field.name for field in fields]

    def go_to(self, version: int, actions: Sequence[Mapping[str, Any]]) -> Step | None:
        """Go to a later version, given its actions: its log entry is enough if it is the next one.

        Returns what differs; None if that can't be known, because files are gone or there was no version before.
        """
        before, is_first = self._taken, self._version is None
        if not can_read_files(self.latest):
            self._taken = Numbers.of(self.location.handle(version), self.owner.application).taken_until
            removed, added = self._files, {"": self._whole(version)}
            self._files = added
        elif self._version == version - 1:
            removed, added = self._apply(version, actions)
        else:
            removed, added = self._jump(version)
        self._version, step = version, None
        if None not in removed.values() and None not in added.values():
            step = Step(self._only_in(removed, added), self._only_in(added, removed))
            if self.keys:
                self._hashes.difference_update(hashes_of(step.before.select(self.keys)).tolist())
                self._enter(step.after)
        if self.owner.expires and not self.keys:
            expires, taken = self.owner.expires, self._taken
            stayed = [file.rows for path, file in self._files.items() if file is not None and path not in added]
            expired = [rows.filter(are_over(rows, expires, taken)) for rows in stayed if before != taken]
            step = step and Step(
                not_over(self._joined([step.before, *expired]), expires, before), not_over(step.after, expires, taken)
            )
        return None if is_first else step

    def forget(self) -> None:
        """Leave the version for one whose rows are not known."""
        self._version, self._files, self._hashes, self._is_doubled = None, {}, set(), False

    def since(self, version: int) -> Step | None:
        """Return all rows of a version, and all of the one that it is at; None if files are gone."""
        before, after = self._whole(version), self.all()
        return None if before is None or after is None else Step(before.all, after)

    def alive(self, rows: pa.Table) -> pa.Table:
        """Return rows without those of keys that have expired in the version."""
        return not_over(rows, self.owner.expires, self._taken) if self.owner.expires else rows

    def _apply(self, version: int, actions: Sequence[Mapping[str, Any]]) -> tuple[_Files, _Files]:
        gone: _Files = {}
        come: _Files = {}
        for removed in (action["remove"] for action in actions if "remove" in action):
            if removed["path"] in self._files:
                gone[removed["path"]] = self._files.pop(removed["path"])
        for added in (action["add"] for action in actions if "add" in action):
            path = added["path"]
            if path in self._files:  # once more, with other statistics
                gone[path] = self._files[path]
            file = DataFile(path, added["size"], 0, "", added.get("partitionValues") or {}, vector_in(added))
            come[path] = self._files[path] = self._open(version, file, gone.get(path))
        taken = Numbers.in_entry(actions, self.owner.application).taken
        self._taken = self._taken if taken is None else taken
        return gone, come

    def _jump(self, version: int) -> tuple[_Files, _Files]:
        """Go to any version; return the files that go and those that come."""
        table, before = self.location.handle(version), self._files
        self._taken = Numbers.of(table, self.owner.application).taken_until
        self._files = {}
        for path, file in files_of(self.location, table, table.metadata().partition_columns).items():
            known = before.get(path)
            is_same = known is not None and known.file.vector == file.vector
            self._files[path] = known if is_same else self._open(version, file, known)
        gone = {path: each for path, each in before.items() if path not in self._files or self._files[path] is not each}
        come = {path: file for path, file in self._files.items() if path not in before or before[path] is not file}
        return gone, come

    def doubled(self) -> pa.Table | None:
        """Return rows in which to look for keys that occur more than once; None if there are no such keys."""
        rows = self.all() if self._is_doubled else None
        if rows is not None:
            hashes = hashes_of(rows.select(self.keys)).tolist()
            self._hashes = set(hashes)
            self._is_doubled = len(self._hashes) < len(hashes)
        return rows if self._is_doubled else None

    def all(self) -> pa.Table | None:
        """Return all rows; None if files are gone."""
        if None in self._files.values():
            return None
        rows = self._joined([file.rows for file in self._files.values() if file is not None])
        return rows if self.keys else self.alive(rows)

    def _enter(self, rows: pa.Table) -> None:
        """Note keys; if one is there twice, by its hash, :meth:`doubled` looks at all of them."""
        hashes = hashes_of(rows.select(self.keys)).tolist()
        entered = set(hashes)
        self._is_doubled |= len(entered) < len(hashes) or not entered.isdisjoint(self._hashes)
        self._hashes |= entered

    def _only_in(self, left: _Files, right: _Files) -> pa.Table:
        return self._joined([each.without(right.get(path)) for path, each in left.items() if each is not None])

    def _joined(self, parts: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables([self.schema.empty_table(), *parts])

    def _open(self, version: int, file: DataFile, opened: _Read | None = None) -> _Read | None:
        """Read a file, of which it may be known with another vector; return None if it is gone."""
        data = DataFolder(self.location)
        try:
            if opened is None and self.location.folder.size(file.place) not in {None, file.size}:
                raise OSError(f"{file.place} has another size than the log says: it was replaced")
            rows = data.read(file, self.schema, with_dead=True) if opened is None else opened.all
            return _Read(file, rows, data.dead(file))
        except WORLD_ERRORS as error:
            self._refuse_damage(version, [file], error)
            return None

    def _whole(self, version: int) -> _Read | None:
        table = self.location.handle(version)
        try:
            return _Read(DataFile("", 0, 0), read_rows(self.location, table, self.schema), BitMap64())
        except WORLD_ERRORS as error:
            self._refuse_damage(version, files_of(self.location, table).values(), error)
            return None

    def _refuse_damage(self, version: int, files: Iterable[DataFile], error: Exception) -> None:
        """Raise a StateAccessError if all that some files need is there."""
        folder = self.location.folder
        if all(folder.size(place) is not None for file in files for place in file.places):
            raise StateAccessError(
                f"the files of version {version} of the table at {self.location.address} exist, but cannot be read: "
                "they are damaged",
                cause=native_text(error),
            ) from error
