"""A keyed table of txtopo as input: what each of its versions changes, row by row, without a change data feed.

The log says which files a version replaces, and which rows of others it marks as dead: all other rows are the same
before and after it. Of these, rows that have only moved to another file are the same, too. So what is left is the rows
of the keys that the version's commit group has touched, as they were before it and as they are after it.

Keys that expire leave no trace in the files: a version says up to which time they have, and they are looked for in the
files that have such times.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from spouts.delta.files import FEED, InputFile, file_of, replaced
from state.delta.log.data_files import DataFile, DataFolder, add_actions, files_of
from state.delta.log.location import Location
from state.delta.log.ownership import Numbers, Owner
from state.delta.read.difference import difference
from state.delta.schema import TXID_FIELD
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.api.data.utc import micros_at
from txtopo.columnar.rows_by_time import AFTER_ALL, BEFORE_ALL, are_after, are_over, not_over

_TIME = pa.timestamp("us", tz="UTC")

_CUT = 1000
"""How much of a time other writers may cut off a bound, in microseconds."""


@attrs.frozen
class InputStep:
    """What a version changes in a keyed table.

    Args:
        version: the version.
        txid: the last transaction in it.
        columns: the columns by which rows are compared beside those to read, each with its type: the key first.
        key: how many of them are the key.
        before: the files, or rows of them, that the version no longer has.
        after: those that it has got.
        expires: the column with the time by which keys expire; empty if they do not.
        expired: the times up to which they have before and after it, in µs since 1970 UTC.
        staying: files that it leaves as they are, and that may have rows that expire in it.
    """

    version: int
    txid: int
    columns: tuple[str, ...]
    key: int
    before: Sequence[InputFile]
    after: Sequence[InputFile]
    expires: str = ""
    expired: tuple[int, int] = (BEFORE_ALL, BEFORE_ALL)
    staying: Sequence[InputFile] = ()

    @property
    def files(self) -> Sequence[InputFile]:
        """All files that it reads."""
        return [*self.before, *self.after, *self.staying]

    @property
    def size(self) -> int:
        """About how many bytes are read of them."""
        return sum(file.size for file in self.files)

    @property
    def metadata(self) -> dict[str, Any]:
        """What metadata has of it."""
        files = {name: [file.metadata for file in getattr(self, name)] for name in ("before", "after", "staying")}
        attributes = attrs.asdict(self, filter=lambda field, _: field.name not in files)
        return {**attributes, "columns": list(self.columns), "expired": list(self.expired), **files}

    @staticmethod
    def from_metadata(metadata: Mapping[str, Any]) -> InputStep:
        """Return the step that metadata has."""
        files = {name: list(map(InputFile.from_metadata, metadata[name])) for name in ("before", "after", "staying")}
        tuples = {name: tuple(metadata[name]) for name in ("columns", "expired")}
        return InputStep(**{**metadata, **tuples, **files})

    def portions(self, folder: DataFolder, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of keys that it changes, as in a change data feed; always in the same order.

        The ``txid`` of a row that it deletes is that of the version: the last that touched the key.
        """
        read_schema = self._schema(schema)
        before, after = (self._rows(folder, files, read_schema) for files in (self.before, self.after))
        if self.expires:
            since, until = self.expired
            staying = self._rows(folder, self.staying, read_schema)
            expired = staying.filter(
                pc.and_(are_over(staying, self.expires, until), are_after(staying, self.expires, since))
            )
            before = pa.concat_tables([not_over(before, self.expires, since), expired])
            after = not_over(after, self.expires, until)
        changes = difference(before, after, with_txids=True)
        for kind, rows in (
            ("delete", changes.only_in_a),
            ("update_preimage", changes.differing_a),
            ("update_postimage", changes.differing_b),
            ("insert", changes.only_in_b),
        ):
            if rows.count:
                yield self._feed_rows(rows.rows, kind, schema)

    def _schema(self, schema: pa.Schema) -> pa.Schema:
        """Return what is read: of the key's columns, which :func:`difference` finds by that, none has a null."""
        compared = Fields(*self.columns).arrow_schema()
        key = [field.with_nullable(False) for field in list(compared)[: self.key]]
        names = {*compared.names, *FEED}
        more_fields = [field for field in schema if field.name not in names]
        return pa.schema([*key, *list(compared)[self.key :], *more_fields])

    def _rows(self, folder: DataFolder, files: Sequence[InputFile], schema: pa.Schema) -> pa.Table:
        return pa.concat_tables(
            [schema.empty_table(), *(rows for file in files for rows in file.portions(folder, schema))]
        )

    def _feed_rows(self, rows: pa.Table, kind: str, schema: pa.Schema) -> pa.Table:
        values: dict[str, Any] = {"_change_type": kind, "_commit_version": self.version}
        if kind == "delete":
            values[TXID_FIELD] = self.txid
        columns = [
            pa.repeat(pa.scalar(values[field.name], field.type), rows.num_rows)
            if field.name in values
            else rows[field.name].cast(field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)


@attrs.define(eq=False)
class KeyedVersions:
    """The versions of a keyed table, one after another.

    Args:
        owner: the table's owner.
        columns: the key's columns, then others by which rows are compared, each with its type.
        key: how many of them are the key.
        version: the version at which they are.
        txid: the last transaction in it.
        taken: the time up to which keys have expired in it.
        files: its files, by path, if keys expire; else none.
        times: the bounds of the times by which they expire, by path, in µs since 1970 UTC, where the log has them.
    """

    owner: Owner
    columns: tuple[str, ...]
    key: int
    version: int
    txid: int
    taken: int
    files: dict[str, DataFile]
    times: dict[str, tuple[int, int]]

    @staticmethod
    def at(location: Location, table: DeltaTable) -> KeyedVersions:
        """Return them from the version of a handle on, which has an owner."""
        owner = Owner.of(table)
        assert owner is not None, "only keyed tables of txtopo are followed"
        schema = pa.schema(table.schema())
        key = [field for field in schema if not field.nullable]
        more_fields = [field for field in schema if field.name in {TXID_FIELD, owner.expires}]
        columns = tuple(f"{field.name}: {ddl_name(field.type)}" for field in (*key, *more_fields))
        version, numbers = int(table.version()), Numbers.of(table, owner.application)
        txid, taken = numbers.txid or 0, numbers.taken_until
        files, times = files_of(location, table), _times_in(add_actions(table), owner.expires)
        return KeyedVersions(owner, columns, len(key), version, txid, taken, files, times)

    def before_all(self) -> KeyedVersions:
        """Return them from before the first one on."""
        return attrs.evolve(self, version=-1, txid=0, taken=BEFORE_ALL, files={}, times={})

    def visible(self, files: Sequence[InputFile]) -> list[InputStep]:
        """Return the rows of files of the version, one by one, without keys that have expired."""
        return [self._step([], [file], BEFORE_ALL, []) for file in files]

    def next(self, actions: Sequence[Mapping[str, Any]]) -> InputStep | None:
        """Go to the next version, given its actions; return what it changes, None if that is nothing."""
        numbers, since = Numbers.in_entry(actions, self.owner.application), self.taken
        self.version += 1
        self.txid = self.txid if numbers.txid is None else numbers.txid
        self.taken = since if numbers.taken is None else numbers.taken
        removed, added = (
            [file_of(action[kind]) for action in actions if kind in action and action[kind].get("dataChange", True)]
            for kind in ("remove", "add")
        )
        staying = self._follow(actions, since)
        before, after = replaced(removed, added)
        return self._step(before, after, since, staying) if before or after or staying else None

    def to(self, later: KeyedVersions) -> InputStep | None:
        """Return what differs between this version and a later one, of which no entry in between is needed."""
        removed, added = (
            [file for file in version.files.values() if not file.is_in(other_version.files)]
            for version, other_version in ((self, later), (later, self))
        )
        before, after = replaced(removed, added)
        staying = later.expiring({*self.files}, self.taken)
        return later._step(before, after, self.taken, staying) if before or after or staying else None

    def expiring(self, former: AbstractSet[str], since: int) -> list[InputFile]:
        """Return those files of an earlier version that this one has, too, and in which keys may have expired since."""
        if self.taken == since:
            return []
        return [
            InputFile(file) for path, file in self.files.items() if path in former and self._may_expire(path, since)
        ]

    def _step(
        self, before: Sequence[InputFile], after: Sequence[InputFile], since: int, staying: Sequence[InputFile]
    ) -> InputStep:
        expired = (since, self.taken) if self.owner.expires else (BEFORE_ALL, BEFORE_ALL)
        version = self.version, self.txid, self.columns, self.key
        return InputStep(*version, before, after, self.owner.expires, expired, staying)

    def _follow(self, actions: Sequence[Mapping[str, Any]], since: int) -> list[InputFile]:
        """Take over which files a version has; return those in which keys may have expired in it."""
        former = {*self.files}
        for path in [action["remove"]["path"] for action in actions if "remove" in action]:
            self.files.pop(path, None)
        for added in [action["add"] for action in actions if "add" in action]:
            self.files[added["path"]] = file_of(added)
            bounds = _bounds_in(added, self.owner.expires)
            if bounds is not None:
                self.times[added["path"]] = bounds
        self.times = {path: bounds for path, bounds in self.times.items() if path in self.files}
        return self.expiring(former, since)

    def _may_expire(self, path: str, since: int) -> bool:
        low, high = self.times.get(path, (BEFORE_ALL, AFTER_ALL))
        return low <= self.taken and high > since


def _times_in(added: pa.Table, column: str) -> dict[str, tuple[int, int]]:
    """Return the bounds of a column of times in the files that a log names, by path, where it has them."""
    names = f"min.{column}", f"max.{column}"
    if not column or not {*names} <= {*added.column_names}:
        return {}
    low, high = (added[name].cast(_TIME).cast(pa.int64()).to_pylist() for name in names)
    bounds = zip(added["path"].to_pylist(), low, high, strict=True)
    return {path: (low, high + _CUT) for path, low, high in bounds if low is not None and high is not None}


def _bounds_in(added: Mapping[str, Any], column: str) -> tuple[int, int] | None:
    stats = json.loads(added.get("stats") or "{}")
    texts = [stats.get(kind, {}).get(column) for kind in ("minValues", "maxValues")]
    if not column or None in texts:
        return None
    low, high = (micros_at(dt.datetime.fromisoformat(text)) for text in texts)
    return low, high + _CUT
