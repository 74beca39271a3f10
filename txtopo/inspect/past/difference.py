"""The difference between the tables of two outputs, or between two tables, as of the same transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import attrs

from state.delta.log.location import LOG_FOLDER
from state.delta.log.ownership import WORLD_ERRORS
from state.delta.read.consistent import committed_in_tables, end_of, shown_ends, stored_tables
from state.delta.read.difference import TableDifference, stored_difference
from state.delta.read.history import FoundTable
from state.delta.read.points import ShownPoints
from state.delta.read.reading import StoredRows
from txtopo.errors import ConfigError, StateAccessError
from txtopo.files.folder import Folder
from txtopo.files.places import folder_at
from txtopo.journal.backfills import backfills_of
from txtopo.journal.ending import journal_below, table_path
from txtopo.journal.entries import JournalPart
from txtopo.journal.folders import find_journal
from txtopo.journal.search import JournalSearch
from txtopo.text.native import native_text


@attrs.frozen
class Output:
    """A topology's output folder."""

    path: str
    metadata_dir: Folder
    topology_id: str

    @classmethod
    def of(cls, path: str, topology_id: str | None) -> Output:
        """Find the journal of the topology that is meant."""
        return cls(path, *journal_below(folder_at(path), topology_id))

    def tables(self) -> dict[str, str]:
        """Return the path of each table."""
        known = end_of(self.metadata_dir, self.topology_id).header.tables
        return {name: table_path(self.metadata_dir, table) for name, table in known.items()}

    def stored(
        self, txid: int | None = None, states: Collection[str] | None = None
    ) -> tuple[int, Mapping[str, StoredRows]]:
        """Return the rows of the tables as of a transaction, and which that is; see :func:`stored_tables`."""
        return stored_tables(self.path, txid, states=states, topology=self.topology_id)


@attrs.frozen
class Moment:
    """The newest transaction as of which two outputs can be compared."""

    txid: int
    committed: tuple[int, int]
    """The last transaction of each that all of its tables have."""
    later: int | None
    """The transaction up to which the one behind must run, so that they can be compared later; None if there is none.
    """

    @classmethod
    def of(cls, a: Output, b: Output, states: Collection[str], before: int | None = None) -> Moment:
        """Return the newest moment of all or before a transaction, which is not 0; raise ConfigError without one."""
        found_a, found_b = _Reach.of(a, states), _Reach.of(b, states)
        common = found_a.ends & found_b.ends
        if before is not None:
            committed = min(found_a.committed, found_b.committed)
            common = frozenset(end for end in common if 0 < end < before <= committed)
        if not common:
            raise ConfigError(
                f"no transaction that both {a.path} and {b.path} still show ends a commit group in both: name one with "
                "--to that both can show; 'txtopo state OUTPUT --points' lists those of each"
            )
        txid = max(common)
        behind, ahead = sorted((found_a, found_b), key=lambda output: output.committed)
        later = min((end for end in ahead.ends if end > behind.committed), default=None)
        return cls(txid, (found_a.committed, found_b.committed), later if txid < behind.committed else None)


@attrs.frozen
class Comparison:
    """What is compared of two tables, and how; see :func:`state.delta.read.difference.difference`."""

    since: int | None = None
    with_txids: bool = False
    limit: int | None = None

    def of(self, a: StoredRows, b: StoredRows) -> TableDifference:
        """Compare what two versions of tables do not have in common; StateAccessError if files of one can't be read."""
        try:
            return stored_difference(a, b, since=self.since, with_txids=self.with_txids, limit=self.limit)
        except WORLD_ERRORS as error:
            raise StateAccessError(
                f"the rows of {a.location.address} and {b.location.address} can't be read; files may have been removed "
                "meanwhile: compare them again, or as of a later transaction",
                cause=native_text(error),
            ) from error


@attrs.frozen
class Compared:
    """The differences of the tables that two outputs both have, as of the same transaction."""

    txid: int | None
    """None: as they are now."""
    tables: Mapping[str, TableDifference]
    moment: Moment | None = None
    """The newest moment of two outputs, if none was asked for."""
    only_in: tuple[Sequence[str], Sequence[str]] = ((), ())
    """The tables that only the first output has, and those that only the second has."""

    @classmethod
    def outputs(cls, a: Output, b: Output, names: Sequence[str], txid: int | None, comparison: Comparison) -> Compared:
        """Compare the tables of some names of two outputs, by default all that both have.

        By default they are compared as of the newest transaction as of which they can be, else as of a transaction, or
        of the newest before it as of which they can be.

        Raises:
            ConfigError: they do not both have such a table, or can't be shown as of any transaction.
            StateAccessError: they can't be shown as of the transaction, nor of one before it.
        """
        tables_a, tables_b = a.tables(), b.tables()
        states = [name for name in tables_a if name in tables_b]
        if not states:
            raise ConfigError(f"{a.path} and {b.path} have no state in common")
        for name in names:
            if name not in states:
                known = ", ".join(states)
                raise ConfigError(f"{a.path} and {b.path} have no table {name!r} in common, only {known}")
        only_a, only_b = ([name for name in tables if name not in states] for tables in (tables_a, tables_b))
        only_in = ((), ()) if names else (only_a, only_b)
        states = [name for name in states if not names or name in names]

        def as_of(txid: int, moment: Moment | None = None) -> Compared:
            (_, of_a), (_, of_b) = a.stored(txid, states), b.stored(txid, states)
            found = {name: comparison.of(of_a[name], of_b[name]) for name in of_a}
            return cls(txid, found, moment, only_in)

        if txid is None:
            moment = Moment.of(a, b, states)
            return as_of(moment.txid, moment)
        try:
            return as_of(txid)
        except StateAccessError as error:
            try:
                before = Moment.of(a, b, states, before=txid).txid
            except ConfigError:
                raise error from None
            return as_of(before)

    @classmethod
    def pair(cls, a: str, b: str, txid: int | None, comparison: Comparison) -> Compared:
        """Compare two single tables, by default as of the last transaction that both have.

        As of a transaction that they can't both be shown as of, they are compared as of the newest before it that they
        can.
        """
        found = FoundTable.at(a), FoundTable.at(b)

        def as_of(txid: int | None) -> Compared:
            return cls(txid, {folder_at(a).name: comparison.of(found[0].stored(txid), found[1].stored(txid))})

        last = tuple(table.last_txid for table in found)
        if txid is None and None not in last and last[0] != last[1]:
            txid = _newest_of_both(found[0].points(), found[1].points())
        try:
            return as_of(txid)
        except StateAccessError:
            before = txid and _newest_of_both(found[0].points(), found[1].points(), before=txid)
            if not before or before == txid:
                raise
            return as_of(before)


def _newest_of_both(a: ShownPoints, b: ShownPoints, before: int | None = None) -> int:
    """Return the last transaction that both tables have, or the last one before it as of which both can be shown.

    With ``before``, return the last one before that as of which both can be shown; itself if there is none.
    """
    txid = min(a.last.txid, b.last.txid) if before is None else before
    txids = [point.txid for table in (a, b) for point in table.points if point.txid < txid]
    if before is None:
        txids.append(txid)
    return max((number for number in txids if a.shows(number) and b.shows(number)), default=txid)


def is_table(path: str) -> bool:
    """Return whether a path is that of a single table."""
    try:
        return bool(folder_at(path).names(LOG_FOLDER))
    except OSError:  # whoever reads it says why
        return True


@attrs.frozen
class _Reach:
    """How far an output is committed."""

    committed: int
    """The last transaction that all tables have."""
    ends: frozenset[int]
    """The transactions up to it that end a commit group, and as of which the tables can still be shown."""

    @classmethod
    def of(cls, output: Output, states: Collection[str]) -> _Reach:
        """Look at the tables of some states."""
        of_topology = output.metadata_dir, output.topology_id
        found = committed_in_tables(*of_topology)
        # If it can't be told, reading the tables says why.
        committed = output.stored()[0] if found is None else found[0]
        ends = shown_ends(*of_topology, states, committed)
        parts = JournalSearch(find_journal(*of_topology)).around(())
        for name, parts_of_backfill in backfills_of(output.metadata_dir, parts).items() if parts else ():
            # Up to where it joined, the groups of its backfill are those that a state's table can show.
            if name in states:
                backfilled = _ends_in(parts_of_backfill)
                ends = {end for end in ends if end in backfilled or end > max(backfilled)}
        return cls(committed, frozenset(ends))


def _ends_in(parts: Sequence[JournalPart]) -> set[int]:
    ends: set[int] = set()
    for part in parts:
        # A rewind may have gone back to where a part begins: groups after it are undone, and later ones end elsewhere.
        ends = {end for end in ends if end <= part.header.committed} | {part.header.committed}
        ends |= {entry.last for entry in part.entries}
    return ends
