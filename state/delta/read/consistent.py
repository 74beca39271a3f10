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
from state.delta.log.ownership import WORLD_ERRORS, Owner, rolled_back_application
from state.delta.read.foreign import change_on_top
from state.delta.read.history import FoundTable, exact_version_as_of, rows_between, shown_schema
from state.delta.read.look import FoundRows, look_for
from state.delta.read.points import GroupWrites, ShownPoint, ShownPoints, TableVersions
from state.delta.read.reading import StoredRows
from txtopo.api.arguments import checked_arguments
from txtopo.errors import ConfigError, DivergenceError, StateAccessError, TxtopoError
from txtopo.files.folder import Folder
from txtopo.files.places import folder_at
from txtopo.journal.ending import READS_MAX, JournalEnd, journal_below, last_writes, read_beside, read_end, table_path
from txtopo.journal.entries import JournalHeader
from txtopo.journal.folders import find_journal
from txtopo.journal.search import JournalSearch
from txtopo.text.native import plain_text

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
    return _together(*place, txid, lambda rows: look_for(rows, limit=limit), None, None, is_exact=not nearest)


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
        header = _begun(end, metadata_dir).header
        try:
            cause, handles = None, _take_handles(metadata_dir, header, storage_options)
            bound = _begun(end, metadata_dir).bound({name: handle.txid for name, handle in handles.items()})
            _refuse_repair(handles, header)
            if txid is not None and txid > bound:
                raise StateAccessError(
                    f"transaction {txid} is not in all tables yet; the last one in all of them is {bound}", txid=txid
                )
            wanted = bound if txid is None else txid
            chosen = _chosen(handles, states)
            _refuse_before_begin(header, chosen, wanted)
            found = _as_of(metadata_dir, header, chosen, wanted)
            if found is None and txid is not None:
                wanted = _point_before(metadata_dir, header, chosen, txid, bound, is_exact=is_exact)
                found = _as_of(metadata_dir, header, chosen, wanted)
            if found is None:  # a version is gone; unless a txid was requested, the next try may want a later one
                return None
            _refuse_torn(metadata_dir, found, header, wanted)
            return _read(handles, found, wanted, bound, read, is_exact=is_exact)
        except WORLD_ERRORS as error:
            # A file may have been removed after the handles were taken: later versions do not need it.
            cause = error
            return None

    view = read_beside(find_journal(metadata_dir, topology_id), read_once)
    if view is not None:
        return view
    raise StateAccessError(
        f"the tables of {metadata_dir.parent} could not be read together in {READS_MAX} tries"
        + ("; ask for a later transaction" if txid is not None else ""),
        txid=txid,
        cause=None if cause is None else f"{type(cause).__name__}: {plain_text(cause)}",
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
            return FoundTable(location, table, Owner.of(table)).points()
        metadata_dir, topology_id = journal_below(folder_at(path, storage_options), topology)
        end = end_of(metadata_dir, topology_id)
        handles = _take_handles(metadata_dir, end.header, storage_options)
        _refuse_repair(handles, end.header)
        bound = end.bound({name: handle.txid for name, handle in handles.items()})
        return _Points.of(metadata_dir, end.header, handles).common(bound)
    except WORLD_ERRORS as error:
        raise StateAccessError(
            f"the log of a table at {location.address} can't be read", cause=plain_text(error)
        ) from error


def shown_ends(metadata_dir: Folder, topology_id: str, states: Collection[str], last: int) -> set[int]:
    """Return the ends of commit groups up to a transaction as of which the tables of some states can be shown.

    Of those from before the newest versions of the tables, the points, and where the journal's files begin.

    Raises:
        StateAccessError: a table can't be read.
        DivergenceError: a table is not the one that the journal knows.
    """
    header = end_of(metadata_dir, topology_id).header
    try:
        points = _Points.of(metadata_dir, header, _chosen(_take_handles(metadata_dir, header, None), states))
    except WORLD_ERRORS as error:
        raise StateAccessError(f"a table of {metadata_dir.parent} can't be read", cause=plain_text(error)) from error
    journal = JournalSearch(find_journal(metadata_dir, topology_id))
    ends = set[int]()
    for each in journal.headers():
        # A rewind may have gone back to where a file begins: later ones are undone, and others end elsewhere.
        ends = {end for end in ends if end <= each.committed} | {each.committed}
    ends |= _txids_of(points.points.values())
    since = max((point.since.txid for point in points.points.values()), default=0)
    ends |= {group.entry.last for group in journal.backwards(last, since)}
    return {txid for txid in ends if txid <= last and points.show(txid)}


@attrs.frozen
class _Points:
    """The points of several tables, and the groups that wrote each."""

    header: JournalHeader
    points: Mapping[str, ShownPoints]
    writes: Callable[[], Mapping[str, GroupWrites]]
    """Reads the journal once, as far as it tells of points: only if a table has no version of one."""

    @classmethod
    def of(cls, metadata_dir: Folder, header: JournalHeader, handles: Mapping[str, _Handle]) -> _Points:
        points = {name: handle.versions.points() for name, handle in handles.items()}
        txids = _txids_of(points.values())
        return cls(header, points, functools.cache(lambda: _writes_of(metadata_dir, header, handles, txids)))

    def show(self, txid: int) -> bool:
        """Whether all tables can be shown as of the end of a group: nothing was written since the point before."""
        return all(
            point.shows(txid) or self.writes()[name].has_none(point.until(txid), txid)
            for name, point in self.points.items()
        )

    def common(self, bound: int) -> ShownPoints:
        """Return the transactions up to ``bound`` as of which all tables can be shown.

        A table that a point's group did not write has the version of an earlier one there, as the journal shows.
        """
        own = self.points.values()
        if not own:
            return ShownPoints((), ShownPoint(bound), ShownPoint(bound))
        since = max((each.since for each in own), key=lambda each: each.txid)
        begun = max((number for name, number in self.header.begun_after.items() if name in self.points), default=0)
        known = {point.txid: point for each in own for point in (*each.points, each.since) if point.txid < since.txid}
        points = [known[txid] for txid in sorted(known) if txid >= begun and self.show(txid)]
        last = max((each.last for each in own), key=lambda each: each.txid)
        return ShownPoints(tuple(points), since, last if last.txid == bound else ShownPoint(bound))


def _txids_of(points: Iterable[ShownPoints]) -> set[int]:
    return {point.txid for each in points for point in (*each.points, each.since)}


def _writes_of(
    metadata_dir: Folder, header: JournalHeader, states: Collection[str], txids: Collection[int]
) -> dict[str, GroupWrites]:
    """Return the groups that wrote states, as far as they tell what was written last up to some transactions."""
    parts = JournalSearch(find_journal(metadata_dir, header.topology)).around(txids)
    return {name: GroupWrites.of(parts, name) for name in states}


def _point_before(  # noqa: PLR0913 - where it is looked for, and how
    metadata_dir: Folder,
    header: JournalHeader,
    handles: Mapping[str, _Handle],
    txid: int,
    bound: int,
    *,
    is_exact: bool,
) -> int:
    """Return the last point before a transaction that the tables can't be shown as of.

    Raises:
        StateAccessError: there is none, or the transaction itself is asked for; the message names those around it.
    """
    before, after = _Points.of(metadata_dir, header, handles).common(bound).around(txid)
    if before is not None and not is_exact:
        return before.txid
    tables = f"the tables of {metadata_dir.parent}"
    if before is None:
        raise StateAccessError(
            f"{tables} no longer keep their versions as of transaction {txid}; the oldest point is {after}", txid=txid
        )
    raise StateAccessError(
        f"transaction {txid} lies between two points of {tables}, {before} and {after}; ask for one of them, or for "
        f"the nearest before {txid} (nearest=True, --nearest); read_points and 'txtopo state --points' list all",
        txid=txid,
    )


def committed_in_tables(metadata_dir: Folder, topology_id: str) -> tuple[int, int] | None:
    """Return the last transactions that every and that any table of a journal has; None if they can't be determined."""

    def read_once(end: JournalEnd | None) -> tuple[int, int]:
        begun = _begun(end, metadata_dir)
        handles = _take_handles(metadata_dir, begun.header, None)
        _refuse_repair(handles, begun.header)
        txids = {name: handle.txid for name, handle in handles.items()}
        return begun.bound(txids), max((txid or 0 for txid in txids.values()), default=0)

    try:
        return read_beside(find_journal(metadata_dir, topology_id), read_once)
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


def _take_handles(
    metadata_dir: Folder, header: JournalHeader, storage_options: dict[str, str] | None
) -> dict[str, _Handle]:
    handles = {}
    for name, known in header.tables.items():
        location = Location.beside(metadata_dir, table_path(metadata_dir, known), storage_options)
        table = location.existing()
        owner = None if table is None else Owner.of(table)
        if table is None or owner is None or str(table.metadata().id) != known.identity:
            raise DivergenceError(
                f"state {name!r}: the table at {location.address} is missing, or is not the one that the journal in "
                f"{metadata_dir} knows; restore it, or read the tables one by one"
            )
        handles[name] = _Handle(TableVersions(location, table, owner.application), shown_schema(table, owner.kind))
    return handles


def _chosen(handles: Mapping[str, _Handle], states: Collection[str] | None) -> Mapping[str, _Handle]:
    if states is None:
        return handles
    unknown = sorted(set(states).difference(handles))
    if unknown:
        raise ConfigError(f"the topology has no table of state {unknown[0]!r}; it has: {', '.join(handles)}")
    return {name: handle for name, handle in handles.items() if name in states}


def _refuse_before_begin(header: JournalHeader, states: Collection[str], txid: int) -> None:
    """Refuse a moment before a state was begun empty: its table would be empty then, and never was, or did not exist.

    Raises:
        StateAccessError: it is before the begin of a state.
    """
    begun = ((number, name) for name, number in header.begun_after.items() if name in states)
    begun_after, name = max(begun, default=(0, ""))
    if txid < begun_after:
        raise StateAccessError(
            f"state {name!r} was begun empty after transaction {begun_after}, so it can't be read together with the "
            f"other tables as of transaction {txid}; ask for transaction {begun_after} or a later one, or read the "
            "tables one by one",
            txid=txid,
        )


def _refuse_repair(handles: Mapping[str, _Handle], header: JournalHeader) -> None:
    """Refuse tables that were rolled back after the journal was begun, because the journal does not know about it."""
    for name, handle in handles.items():
        versions = handle.versions
        rolled_back = versions.table.transaction_version(rolled_back_application(versions.application)) or 0
        # Its entry stays, the version may not; without the entry, somebody else has cleaned up long since.
        entry = read_entry(versions.location, rolled_back) if rolled_back else None
        if entry is not None and (entry.epoch or 0) > header.epoch:
            raise StateAccessError(
                f"state {name!r}: its table was rolled back by a repair or a rewind, which the journal does not show "
                "yet; wait for its end, or run the topology, and read again"
            )


def _as_of(
    metadata_dir: Folder, header: JournalHeader, handles: Mapping[str, _Handle], txid: int
) -> dict[str, _Handle] | None:
    """Return handles of the versions as of ``txid``; None if one is missing, or may have been written in between."""
    tables = {name: exact_version_as_of(handle.versions, txid) for name, handle in handles.items()}
    missing = [name for name, table in tables.items() if table is None]
    writes = _writes_of(metadata_dir, header, missing, [txid]) if missing else {}
    if not all(write.has_none(0, txid) for write in writes.values()):
        return None
    found = {}
    for name, table in tables.items():
        handle = handles[name]
        versions = handle.versions if table is None else attrs.evolve(handle.versions, table=table)
        found[name] = attrs.evolve(handle, versions=versions, is_before=table is None)
    return found


def _refuse_torn(metadata_dir: Folder, found: Mapping[str, _Handle], header: JournalHeader, txid: int) -> None:
    """Refuse tables that contradict the journal, because they were restored from a copy or changed by somebody else.

    Raises:
        DivergenceError: some tables do; the message names each with its txids.
    """
    writes = last_writes(find_journal(metadata_dir, header.topology), header.epoch, found.keys(), txid)
    faults = []
    for name, handle in found.items():
        at = handle.txid or 0
        where = f"state {name!r}: its table at {handle.versions.location.address} is at transaction {at}"
        versions = handle.versions
        change = None if handle.is_before else change_on_top(versions.location, versions.table.version())
        if change is not None:
            faults.append(f"{where}, but somebody else has changed it since: {change}")
        elif writes is not None and at != (writes[name] or 0):
            faults.append(f"{where}, but the journal in {metadata_dir} has it at {writes[name]}")
    if faults:
        raise DivergenceError(
            f"the tables do not belong together as of transaction {txid}: {'; '.join(faults)}. Run 'txtopo repair', or "
            "read the tables one by one",
            txid=txid,
        )


def _read(  # noqa: PLR0913 - the versions, which of them is meant, and how to read
    handles: Mapping[str, _Handle],
    found: Mapping[str, _Handle],
    txid: int,
    bound: int,
    read: Callable[[StoredRows], T],
    *,
    is_exact: bool,
) -> tuple[int, Mapping[str, T]]:
    """Read tables as of ``txid``, given the newest handles and those of the versions as of ``txid``."""
    tables = {}
    for name, handle in found.items():
        rows = handle.rows
        if txid != bound and is_exact and not handle.is_before:
            rows = rows_between(rows, handles[name].versions, txid)
        tables[name] = read(rows)
    seen = max((handle.txid or 0 for handle in found.values()), default=0)
    return txid if txid == bound or is_exact else seen, tables
