"""A consistent view: all tables of a topology as of one transaction, read while it runs, crashes or recovers.

Each table holds a prefix of the transactions at any moment. But when a group writes several tables, one may already
have it and another not yet. So a reader finds in the journal the last transaction that all tables have, N, and reads
each table as of N by Delta's time travel:

1. Read the end of the journal: the newest coordinator's header, and the last group that it has entered.
2. Take a handle of each table. If every table in the entry has the entry's last transaction, that is N. Otherwise N is
   the one before the entry's first, because a coordinator enters a group only when the one before is committed.
3. Read each table at its handle's version or an earlier one: the newest whose txid is not above N. Refuse the view if
   its txid is not the one in the journal, or if somebody else has changed the table since.
4. Read the end of the journal again. If it belongs to another coordinator now, start over.

These histories show why a view is never torn. A, B and C are coordinators, each newer than the one before:

- *A crash between two tables.* 1. A enters group 5 to 8, writes table X and dies. 2. The reader finds X at 8 and Y
  at 4: N is 4, and X is read at its version before. 3. B finishes the group from the staged writes, then begins
  its file, which says that 8 is committed. Between the two the reader still uses A's file, and finds both at 8.
- *A void entry.* 1. A enters group 5 to 8 and dies. 2. B drops it, begins its file (4 is committed), and enters
  5 to 6 instead. 3. Readers no longer use A's file.
- *A reader with an old end.* 1. The reader has read the end of A's file, group 5 to 8 of X alone. 2. A dies; B
  begins its file and makes another group, 5 to 8 of X and Y; X is written. 3. The reader finds X at 8: N is 8, but Y
  is read at 4. 4. The end of the journal is B's now, so the reader starts over. It cannot miss that, because B's header
  is durable before B writes a group.
- *A zombie.* 1. A is paused. 2. B takes the lead, opens all tables, which fences them, and begins its file. 3. A
  continues and enters a group: in a separate file, which readers no longer use; or, before B's file is begun, in the
  newest file. Its tables refuse the group then, so the reader takes N from before it: A's last committed transaction,
  as B found it.
- *A repair or a rewind.* 1. It rolls X back to 4. 2. The reader finds X at 4, rolled back in an epoch without a
  file, and Y at 8. Nothing shows what both have, so it refuses until a coordinator begins its file.
- *A truncated header.* 1. B's file has no complete line yet. 2. The reader uses A's file. B has written no group
  of its own, and has only finished A's, as in the first history.

Files that a view needs are not removed while they are needed. A coordinator maintains its tables only after a group:
then N is what every table holds now, and neither vacuum nor the clean-up of logs removes anything of a table's newest
version, however old it is. The version before it is needed only while the next group is in progress. A slower reader
finds that a file is missing and starts over, with a later N.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

import attrs
import pyarrow as pa

from state.delta.log.entries import read_entry
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS, Owner
from state.delta.read.foreign import change_on_top
from state.delta.read.history import FoundTable, between_points, rows_between, shown_schema
from state.delta.read.points import GroupWrites, ShownPoint, ShownPoints, TableVersions
from state.delta.read.reading import StoredRows
from state.delta.read.row_search import FoundRows, find_rows
from txtopo.api.arguments import checked_arguments
from txtopo.errors import ConfigError, DivergenceError, StateAccessError, TxtopoError
from txtopo.files.folder import Folder
from txtopo.files.places import folder_at
from txtopo.journal.ending import (
    READS_MAX,
    JournalEnd,
    journal_below,
    last_writes,
    read_consistently,
    read_end,
    table_path,
)
from txtopo.journal.entries import JournalHeader
from txtopo.journal.folders import find_journal
from txtopo.journal.search import JournalSearch
from txtopo.text.native import native_text

T = TypeVar("T")


@attrs.frozen
class ConsistentView:
    """All tables of a topology as of one transaction."""

    txid: int
    """The transaction: all tables include every transaction up to it, and none above it."""
    tables: Mapping[str, pa.Table]
    """The rows of each state: key fields, value fields, txid."""


@attrs.frozen
class _Handle:
    """A table at one version, which does not change if somebody writes meanwhile."""

    versions: TableVersions
    """Up to this version."""
    schema: pa.Schema
    is_before: bool = False
    """Whether it is meant as it was before its first write, of which no version is left."""

    @property
    def txid(self) -> int | None:
        return None if self.is_before else self.versions.txid

    @property
    def rows(self) -> StoredRows:
        """Its rows."""
        return StoredRows(self.versions.location, self.versions.table, self.schema, is_empty=self.is_before)


@checked_arguments
def read_tables(  # noqa: PLR0913 - all but two by name
    output: str | os.PathLike[str],
    txid: int | None = None,
    nearest: bool = False,  # noqa: FBT001, FBT002 - a flag that reads well by name
    *,
    states: Collection[str] | None = None,
    topology: str | None = None,
    storage_options: dict[str, str] | None = None,
) -> ConsistentView:
    """Return all tables of a topology as of one transaction, without the topology and while it may be running.

    Args:
        output: the folder that holds the tables and ``_txtopo``, or ``_txtopo`` itself.
        txid: the last transaction to see. None: the last one that every table has.
        nearest: whether to return the nearest kept moment before ``txid`` if that of ``txid`` itself is not kept;
            transactions that were written together are then seen together.
        states: the names of those to read; None: all. So a moment that another table does not keep can be seen.
        topology: the id of the topology; needed only if the folder has records of several.
        storage_options: options for tables in an object store.

    Returns:
        The view, with the states that the topology has now. A state without any write yet is empty; a state in memory
        is not included.

    Raises:
        ConfigError: there is no journal, which is needed to find the last transaction that all tables have; or the
            topology has no table of a state that is asked for; or there are several topologies and none is named.
        StateAccessError: the transaction is not committed yet, or the tables do not keep that moment: it was removed,
            or was written together with others, or is before the begin of a state that was begun empty.
        DivergenceError: a table is not the one that the journal knows, or was restored or changed by somebody else.
    """
    place = journal_below(folder_at(output, storage_options), topology)
    return ConsistentView(*_together(*place, txid, StoredRows.read, storage_options, states, is_exact=not nearest))


def stored_tables(
    output: str | os.PathLike[str],
    txid: int | None = None,
    *,
    states: Collection[str] | None = None,
    topology: str | None = None,
) -> tuple[int, Mapping[str, StoredRows]]:
    """Return the rows of all tables of a topology as of one transaction, which are not read yet, and which that is.

    As :func:`read_tables`, but who reads them may find that files have gone since.
    """
    return _together(*journal_below(folder_at(output), topology), txid, lambda rows: rows, None, states, is_exact=True)


def look_at_tables(
    output: str | os.PathLike[str],
    txid: int | None = None,
    limit: int | None = None,
    *,
    nearest: bool = False,
    topology: str | None = None,
) -> tuple[int, Mapping[str, FoundRows]]:
    """Return the first rows of all tables of a topology as of one transaction, and which that is.

    As :func:`read_tables`, but no more than ``limit`` rows of a table are held in memory.
    """
    place = journal_below(folder_at(output), topology)
    return _together(*place, txid, lambda rows: find_rows(rows, limit=limit), None, None, is_exact=not nearest)


def _together(  # noqa: PLR0913, PLR0917 - what is read, of which tables, and how
    metadata_dir: Folder,
    topology_id: str,
    txid: int | None,
    read: Callable[[StoredRows], T],
    storage_options: dict[str, str] | None,
    states: Collection[str] | None,
    *,
    is_exact: bool,
) -> tuple[int, Mapping[str, T]]:
    """Read all tables as of one transaction, and return which that is; see :func:`read_tables`."""
    cause: Exception | None = None

    def read_once(end: JournalEnd | None) -> tuple[int, Mapping[str, T]] | None:
        nonlocal cause
        cause = None
        try:
            tables = _Tables.at(metadata_dir, end, storage_options)
            tables.refuse_repair()
            if txid is not None and txid > tables.bound:
                raise StateAccessError(
                    f"transaction {txid} is not in all tables yet; the last one in all of them is {tables.bound}",
                    txid=txid,
                )
            return tables.chosen(states).read(txid, read, is_exact=is_exact)
        except WORLD_ERRORS as error:
            # A file may have been removed after the handles were taken: later versions do not need it.
            cause = error
            return None

    view = read_consistently(find_journal(metadata_dir, topology_id), read_once)
    if view is not None:
        return view
    raise StateAccessError(
        f"the tables of {metadata_dir.parent} could not be read together in {READS_MAX} tries"
        + ("; ask for a later transaction" if txid is not None else ""),
        txid=txid,
        cause=None if cause is None else f"{type(cause).__name__}: {native_text(cause)}",
    )


@checked_arguments
def read_points(
    path: str | os.PathLike[str], *, topology: str | None = None, storage_options: dict[str, str] | None = None
) -> ShownPoints:
    """Return the transactions as of which a table, or all tables of a topology, can be shown.

    Args:
        path: the path of a state's table; or the folder that holds the tables and ``_txtopo``.
        topology: the id of the topology; needed only if the folder has records of several.
        storage_options: options for tables in an object store.

    Raises:
        ConfigError: there is neither a table of a state nor a journal.
        StateAccessError: a table can't be read.
        DivergenceError: a table is not the one that the journal knows.
    """
    location = Location.resolve(os.fspath(path), storage_options)
    try:
        table = location.existing()
        if table is not None:
            return FoundTable(location, table).points()
        metadata_dir, topology_id = journal_below(folder_at(path, storage_options), topology)
        tables = _Tables.at(metadata_dir, end_of(metadata_dir, topology_id), storage_options)
        tables.refuse_repair()
        return tables.common  # noqa: TRY300 - it reads
    except WORLD_ERRORS as error:
        raise StateAccessError(
            f"the log of a table at {location.address} can't be read", cause=native_text(error)
        ) from error


def shown_ends(metadata_dir: Folder, topology_id: str, states: Collection[str], last: int) -> set[int]:
    """Return the ends of commit groups up to a transaction as of which the tables of some states can be shown.

    Of those from before the newest versions of the tables, the points, and where the journal's files begin.

    Raises:
        StateAccessError: a table can't be read.
        DivergenceError: a table is not the one that the journal knows.
    """
    end = end_of(metadata_dir, topology_id)
    try:
        tables = _Tables.at(metadata_dir, end).chosen(states)
        points = tables.points
    except WORLD_ERRORS as error:
        raise StateAccessError(f"a table of {metadata_dir.parent} can't be read", cause=native_text(error)) from error
    journal = JournalSearch(find_journal(metadata_dir, topology_id))
    ends = set[int]()
    for each in journal.headers():
        # A rewind may have gone back to where a file begins: later ones are undone, and others end elsewhere.
        ends = {end for end in ends if end <= each.committed} | {each.committed}
    ends |= tables.txids
    since = max((point.since.txid for point in points.values()), default=0)
    ends |= {group.entry.last for group in journal.backwards(last, since)}
    return {txid for txid in ends if txid <= last and tables.show(txid)}


def committed_in_tables(metadata_dir: Folder, topology_id: str) -> tuple[int, int] | None:
    """Return the last transactions that every and that any table of a journal has; None if they can't be determined."""

    def read_once(end: JournalEnd | None) -> tuple[int, int]:
        tables = _Tables.at(metadata_dir, end)
        tables.refuse_repair()
        return tables.bound, max((handle.txid or 0 for handle in tables.handles.values()), default=0)

    try:
        return read_consistently(find_journal(metadata_dir, topology_id), read_once)
    except (TxtopoError, *WORLD_ERRORS):
        return None


def end_of(metadata_dir: Folder, topology_id: str) -> JournalEnd:
    """Return the end of a topology's journal.

    Raises:
        StateAccessError: the first coordinator has not begun it yet.
    """
    return _begun(read_end(find_journal(metadata_dir, topology_id)), metadata_dir)


def _begun(end: JournalEnd | None, metadata_dir: Folder) -> JournalEnd:
    if end is None:
        raise StateAccessError(f"the first coordinator is still creating its journal in {metadata_dir}; try again")
    return end


@attrs.frozen
class _Tables:
    """The tables of a topology at one moment, as the end of its journal tells of them."""

    folder: Folder
    """The metadata directory."""
    header: JournalHeader
    bound: int
    """The last transaction that all of them have, those that are not chosen, too."""
    handles: Mapping[str, _Handle]

    @classmethod
    def at(cls, folder: Folder, end: JournalEnd | None, storage_options: dict[str, str] | None = None) -> _Tables:
        """Take a handle of each; raise DivergenceError if one is not that which the journal knows."""
        end, handles = _begun(end, folder), {}
        for name, known in end.header.tables.items():
            location = Location.in_store_of(folder, table_path(folder, known), storage_options)
            table = location.existing()
            owner = None if table is None else Owner.of(table)
            if table is None or owner is None or str(table.metadata().id) != known.identity:
                raise DivergenceError(
                    f"state {name!r}: the table at {location.address} is missing, or is not the one that the journal "
                    f"in {folder} knows; restore it, or read the tables one by one"
                )
            handles[name] = _Handle(TableVersions(location, table, owner), shown_schema(table, owner.kind))
        bound = end.bound({name: handle.txid for name, handle in handles.items()})
        return cls(folder, end.header, bound, handles)

    def chosen(self, states: Collection[str] | None) -> _Tables:
        """Return those of some states, None for all; raise ConfigError if there is no such state."""
        if states is None:
            return self
        unknown = sorted(set(states).difference(self.handles))
        if unknown:
            raise ConfigError(f"the topology has no table of state {unknown[0]!r}; it has: {', '.join(self.handles)}")
        return attrs.evolve(self, handles={name: handle for name, handle in self.handles.items() if name in states})

    def refuse_repair(self) -> None:
        """Refuse tables that were rolled back after the journal was begun, because the journal does not know of it."""
        for name, handle in self.handles.items():
            versions = handle.versions
            rolled_back = versions.numbers_of(versions.table).rolled_back_at
            # Its entry stays, the version may not; without the entry, somebody else has cleaned up long since.
            entry = read_entry(versions.location, rolled_back) if rolled_back else None
            if entry is not None and (entry.epoch or 0) > self.header.epoch:
                raise StateAccessError(
                    f"state {name!r}: its table was rolled back by a repair or a rewind, which the journal does not "
                    "show yet; wait for its end, or run the topology, and read again"
                )

    def read(
        self, txid: int | None, read: Callable[[StoredRows], T], *, is_exact: bool
    ) -> tuple[int, Mapping[str, T]] | None:
        """Read them as of a transaction, None for the last one in all; return which that is.

        None if a version is gone; unless a transaction is asked for, the next try may want a later one.
        """
        target = self.bound if txid is None else txid
        self._refuse_before_begin(target)
        handles = self._as_of(target)
        if handles is None and txid is not None:
            target = self._point_before(txid, is_exact=is_exact)
            handles = self._as_of(target)
        if handles is None:
            return None
        self._refuse_torn(handles, target)
        tables, is_between = {}, target != self.bound and is_exact
        for name, handle in handles.items():
            is_ended = handle.is_before or not is_between
            tables[name] = read(
                handle.rows if is_ended else rows_between(handle.rows, self.handles[name].versions, target)
            )
        seen = max((handle.txid or 0 for handle in handles.values()), default=0)
        return target if target == self.bound or is_exact else seen, tables

    def _refuse_before_begin(self, txid: int) -> None:
        """Refuse a moment before a state was begun empty: its table would be empty then, and never was."""
        begun = ((number, name) for name, number in self.header.begun_after.items() if name in self.handles)
        begun_after, name = max(begun, default=(0, ""))
        if txid < begun_after:
            raise StateAccessError(
                f"state {name!r} was begun empty after transaction {begun_after}, so it can't be read together with "
                f"the other tables as of transaction {txid}; ask for transaction {begun_after} or a later one, or read "
                "the tables one by one",
                txid=txid,
            )

    def _as_of(self, txid: int) -> dict[str, _Handle] | None:
        """Return handles of the versions as of ``txid``; None if one is missing, or may have been written since."""
        tables = {name: handle.versions.exact_as_of(txid) for name, handle in self.handles.items()}
        missing = [name for name, table in tables.items() if table is None]
        writes = self._writes_around([txid], missing) if missing else {}
        if not all(write.has_none(0, txid) for write in writes.values()):
            return None
        handles = {}
        for name, table in tables.items():
            handle = self.handles[name]
            versions = handle.versions if table is None else attrs.evolve(handle.versions, table=table)
            handles[name] = attrs.evolve(handle, versions=versions, is_before=table is None)
        return handles

    def _refuse_torn(self, handles: Mapping[str, _Handle], txid: int) -> None:
        """Refuse tables that contradict the journal: they were restored from a copy, or changed by somebody else.

        Raises:
            DivergenceError: some tables do; the message names each with its txids.
        """
        journal = find_journal(self.folder, self.header.topology)
        writes = last_writes(journal, self.header.epoch, handles.keys(), txid)
        faults = []
        for name, handle in handles.items():
            at, versions = handle.txid or 0, handle.versions
            where = f"state {name!r}: its table at {versions.location.address} is at transaction {at}"
            change = None if handle.is_before else change_on_top(versions.location, versions.table.version())
            if change is not None:
                faults.append(f"{where}, but somebody else has changed it since: {change}")
            elif writes is not None and at != (writes[name] or 0):
                faults.append(f"{where}, but the journal in {self.folder} has it at {writes[name]}")
        if faults:
            raise DivergenceError(
                f"the tables do not belong together as of transaction {txid}: {'; '.join(faults)}. Run 'txtopo "
                "repair', or read the tables one by one",
                txid=txid,
            )

    @functools.cached_property
    def points(self) -> Mapping[str, ShownPoints]:
        """The points of each."""
        return {name: handle.versions.points() for name, handle in self.handles.items()}

    @property
    def txids(self) -> set[int]:
        """The transactions of all points."""
        return {point.txid for each in self.points.values() for point in (*each.points, each.since)}

    def show(self, txid: int) -> bool:
        """Whether all can be shown as of the end of a group: nothing was written since the point before."""
        return all(
            point.shows(txid) or self._writes[name].has_none(point.until(txid), txid)
            for name, point in self.points.items()
        )

    @property
    def common(self) -> ShownPoints:
        """The transactions as of which all can be shown.

        A table that a point's group did not write has the version of an earlier one there, as the journal shows.
        """
        own = self.points.values()
        if not own:
            return ShownPoints((), ShownPoint(self.bound), ShownPoint(self.bound))
        since = max((each.since for each in own), key=lambda point: point.txid)
        begun = max((number for name, number in self.header.begun_after.items() if name in self.points), default=0)
        known = {point.txid: point for each in own for point in (*each.points, each.since) if point.txid < since.txid}
        points = [known[txid] for txid in sorted(known) if txid >= begun and self.show(txid)]
        last = max((each.last for each in own), key=lambda point: point.txid)
        return ShownPoints(tuple(points), since, last if last.txid == self.bound else ShownPoint(self.bound))

    def _point_before(self, txid: int, *, is_exact: bool) -> int:
        """Return the last point before a transaction that they can't be shown as of.

        Raises:
            StateAccessError: there is none, or the transaction itself is asked for; the message names those around it.
        """
        before, after = self.common.around(txid)
        if before is not None and not is_exact:
            return before.txid
        tables = f"the tables of {self.folder.parent}"
        if before is None:
            raise StateAccessError(
                f"{tables} no longer keep their versions as of transaction {txid}; the oldest point is {after}",
                txid=txid,
            )
        raise between_points(tables, txid, before, after)

    @functools.cached_property
    def _writes(self) -> Mapping[str, GroupWrites]:
        """The groups that wrote each, as far as they tell of points; read only if a table has no version of one."""
        return self._writes_around(self.txids, self.handles)

    def _writes_around(self, txids: Collection[int], states: Iterable[str]) -> dict[str, GroupWrites]:
        parts = JournalSearch(find_journal(self.folder, self.header.topology)).around(txids)
        return {name: GroupWrites.of(parts, name) for name in states}
