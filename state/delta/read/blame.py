"""The writes of one key of a keyed table, newest first: from the table's versions and the journal.

A row names the last transaction that wrote it. So the version before that transaction's group has the row of the write
before, and so on: one version is read for each write, however many versions there are. A key that is missing in a
version was removed, or never written. Only groups that removed keys, as the journal knows, can have removed it, so the
newest of them before which the key was there has.

A file never changes, so each is read once, however many versions have it: only which of its rows are dead differs.

Transactions that committed together are one version. Of those that wrote the key only the last one is in it, and an
opaque state's value before it. So it is between two points, whose versions alone are kept: what was written there
before the last write is not known, and the search goes on at the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from state.delta.log.data_files import DataFile, DataFolder, files_of
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS, Owner
from state.delta.read.history import shown_schema
from state.delta.read.points import TableVersions
from state.delta.read.reading import StoredRows, can_read_files, key_mask
from state.delta.read.row_search import key_value
from state.delta.schema import TXID_FIELD
from txtopo.api.values import KEYED_KINDS
from txtopo.columnar.conversion import python_rows
from txtopo.errors import ConfigError
from txtopo.files.folder import Folder
from txtopo.journal.ending import table_path
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalTransaction
from txtopo.journal.search import JournalSearch


@attrs.frozen
class KeyWrite:
    """One write of a key."""

    txid: int
    """The last transaction of its group that wrote the key; of a removal, the last one of the group."""
    value: Mapping[str, Any] | None
    """Its value fields afterwards, by name; None if the group removed the key."""
    entry: JournalEntry | None
    """Its group; None if the journal does not have it any more."""

    @property
    def transaction(self) -> JournalTransaction | None:
        """The transaction in the journal."""
        entered = () if self.entry is None else self.entry.transactions
        return next((each for each in entered if each.txid == self.txid), None)


@attrs.frozen
class KeyGap:
    """Transactions of which it is not known whether they wrote the key: the versions in between are gone."""

    first: int
    last: int


@attrs.frozen
class KeyEnd:
    """Where the history of a key begins."""

    text: str
    """Why nothing is known of earlier writes; or that there are none."""


@attrs.frozen
class Blame:
    """The writes of a key in one state."""

    state: str
    key: Mapping[str, Any]
    steps: Iterator[KeyWrite | KeyGap | KeyEnd]
    """Each write, newest first, found one by one; then the end."""


def blame(metadata_dir: Folder, journal: JournalSearch, key: Sequence[str], state: str | None = None) -> list[Blame]:
    """Return the writes of a key by state: in every keyed table whose key fields it fits, or in that of one state.

    Args:
        metadata_dir: the metadata directory.
        journal: the journal, which must have a file.
        key: the key's fields as text.
        state: the state; None for all.

    Raises:
        ConfigError: there is no such keyed table, or the key does not fit its key fields.
    """
    headers = journal.headers()
    tables = headers[-1].tables
    if state is not None and state not in tables:
        raise ConfigError(f"the topology has no table of a state {state!r}; there are {', '.join(tables)}")
    writes, misfits = [], []
    for name, table in tables.items():
        if state in {None, name}:
            reader = _KeyReader.of(
                name, Location.in_store_of(metadata_dir, table_path(metadata_dir, table)), journal, headers
            )
            rows = reader if isinstance(reader, str) else reader.keys_of(key)
            if isinstance(rows, str) or isinstance(reader, str):
                misfits.append(f"state {name!r}: {rows}")
            else:
                writes.append(Blame(name, python_rows(rows)[0], reader.steps(rows)))
    if not writes:
        raise ConfigError("; ".join(misfits))
    return writes


@attrs.frozen
class _KeyReader:
    """Reads the versions of one keyed table for a key."""

    versions: TableVersions
    schema: pa.Schema
    name: str
    journal: JournalSearch
    headers: Sequence[JournalHeader]
    expires: bool
    """Whether a key may also go by its time to live."""
    _known: dict[str, list[tuple[int, pa.Table]]] = attrs.field(factory=dict)
    """The rows of the key in each file that was read, by its path, each with its position."""

    @staticmethod
    def of(name: str, location: Location, journal: JournalSearch, headers: Sequence[JournalHeader]) -> _KeyReader | str:
        """Return the reader of a state's table; as a text, why it has none."""
        latest = location.existing()
        owner = None if latest is None else Owner.of(latest)
        if latest is None or owner is None:
            return f"there is no table of a txtopo state at {location.address}"
        if owner.kind not in KEYED_KINDS:
            return "its table has no keys"
        schema = shown_schema(latest, owner.kind)
        expires = bool(owner.expires)
        versions = TableVersions(location, latest, owner)
        return _KeyReader(versions, schema, name, journal, headers, expires=expires)

    def keys_of(self, key: Sequence[str]) -> pa.Table | str:
        """Return a table of the key columns with the key in its only row; as a text, why it does not fit."""
        fields = [field for field in self.schema if not field.nullable]
        if len(fields) != len(key):
            return f"its key is {', '.join(field.name for field in fields)}: give {len(fields)}, not {len(key)}"
        try:
            values = [key_value(field, text) for field, text in zip(fields, key, strict=True)]
        except ConfigError as error:
            return error.message
        return pa.Table.from_arrays([pa.array([value]) for value in values], schema=pa.schema(fields))

    def steps(self, key: pa.Table) -> Iterator[KeyWrite | KeyGap | KeyEnd]:
        """Yield the writes of a key, newest first, then the end."""
        last = self.versions.txid or 0
        at = last
        gap_at = 0
        """The last transaction of a gap that is not over; 0: there is none."""
        while True:
            try:
                row = self._row(key, at)
                write = self._removal(key, at) if row is None else self._write(key, row, last)
            except _GoneError as error:
                before = self._point_before(error.txid) if error.txid else None
                if before is None:
                    yield KeyEnd(str(error))
                    return
                gap_at, at = gap_at or at, before
                continue
            if gap_at:
                yield KeyGap(at + 1, gap_at)
                gap_at = 0
            yield write
            if isinstance(write, KeyEnd):
                return
            is_removal = write.value is None and write.entry is not None
            at = (write.entry.first if is_removal and write.entry is not None else write.txid) - 1

    def _write(self, key: pa.Table, row: dict[str, Any], last: int) -> KeyWrite | KeyEnd:
        txid = row[TXID_FIELD]
        if txid is None:
            return KeyEnd("somebody else has put it there, without a transaction, so earlier writes are not known")
        group = self.journal.find(txid)
        is_known = group is not None and self.name in group.entry.states and group.entry.last <= last
        entry = group.entry if group is not None and is_known else None
        return KeyWrite(txid, {name: row[name] for name in row if name not in {*key.column_names, TXID_FIELD}}, entry)

    def _point_before(self, txid: int) -> int | None:
        """Return the last point before a transaction that the table can't be shown as of; None if there is none."""
        before, _ = self.versions.points().around(txid)
        return None if before is None else before.txid

    def _row(self, key: pa.Table, txid: int) -> dict[str, Any] | None:
        """Return the row of a key as of a transaction, at which or before which a group ends; None if there is none."""
        if not txid:
            return None
        reason = f"the table no longer keeps its version of transaction {txid}, so earlier writes are not known"
        try:
            table = self.versions.exact_as_of(txid)
            if table is None:
                raise _GoneError(reason, txid)
            rows = python_rows(self._rows(key, table))
        except WORLD_ERRORS as error:
            raise _GoneError(f"{reason}: its files were vacuumed, or can't be read") from error
        return rows[0] if rows else None

    def _rows(self, key: pa.Table, table: DeltaTable) -> pa.Table:
        """Return the rows of a key in a version: at most one."""
        data, portions = DataFolder(self.versions.location), [self.schema.empty_table()]
        if not can_read_files(table):
            batches = StoredRows(self.versions.location, table, self.schema).batches()
            return pa.concat_tables([portions[0], *(rows.filter(key_mask(rows, key)) for rows in batches)])
        for file in files_of(self.versions.location, table, table.metadata().partition_columns).values():
            cached = self._known.get(file.path)
            if cached is None:
                cached = self._known[file.path] = list(self._rows_in(key, data, file))
            dead = data.dead(file) if cached else ()
            portions += [row for at, row in cached if at not in dead]
        return pa.concat_tables(portions)

    def _rows_in(self, key: pa.Table, data: DataFolder, file: DataFile) -> Iterator[tuple[int, pa.Table]]:
        """Yield all rows of a key in a file, also those that are dead, each with its position."""
        first = 0
        for rows in data.portions(file, self.schema, with_dead=True):
            for at in np.flatnonzero(key_mask(rows, key).to_numpy()).tolist():
                yield first + at, rows.take([at])  # a slice would keep all of them in memory
            first += rows.num_rows

    def _removal(self, key: pa.Table, at: int) -> KeyWrite | KeyEnd:
        """Return the newest write up to ``at`` that removed a key which is missing then; or the end."""
        for entry in (group.entry for group in self.journal.backwards(at)):
            _, removed = entry.states.get(self.name, (0, 0))
            if entry.last <= at and removed and self._row(key, entry.first - 1) is not None:
                return KeyWrite(entry.last, None, entry)
        if self.expires:
            return KeyEnd("no earlier write is known: keys of this state expire, and one that has leaves no trace")
        begin = min(header.committed for header in self.headers)
        begun_after = self.headers[-1].begun_after.get(self.name, 0)
        if begin <= begun_after:
            return KeyEnd("no earlier transaction wrote it")
        return KeyEnd(f"the journal begins at transaction {begin + 1}: whether earlier ones wrote it is not known")


class _GoneError(Exception):
    """The version of a transaction is not kept; the message says which. 0: that of a point before does not help."""

    def __init__(self, message: str, txid: int = 0) -> None:
        super().__init__(message)
        self.txid = txid
