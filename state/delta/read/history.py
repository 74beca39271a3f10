"""Read a Delta table as of a transaction.

A transaction between two Delta writes can be read only if that is possible with certainty. Transactions that commit
together are one Delta write, and only the rows' txids distinguish them:

* If the journal has the group that made the next version, and that group begins after the wanted transaction, nothing
  was written in between: the version before is the table as of the transaction.
* A table of rows only grows, unless partitions are replaced or expired rows taken: the rows up to the wanted txid are
  the table as of it.
* A keyed table has one row per key. If no key was touched after the wanted transaction, and the journal shows that the
  group removed none, the next version is the table as of it; of live keys alone only if none could expire in between.
  Otherwise a row that a later transaction has overwritten may have had another value in between, which is kept
  nowhere. A removed key leaves no txid, and a key that the same group put and removed leaves nothing in either version:
  only the journal knows about it.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import attrs
import pyarrow as pa
from deltalake import DeltaTable

from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.ownership import WORLD_ERRORS, Owner
from state.delta.read.points import ShownPoints, TableVersions
from state.delta.read.reading import StoredRows
from state.delta.read.row_search import FoundRows, find_rows
from state.delta.schema import TXID_FIELD
from txtopo.api.arguments import checked_arguments
from txtopo.api.values import ROWS_KINDS, StateKind
from txtopo.attempts import not_reached
from txtopo.errors import ConfigError, StateAccessError
from txtopo.files.durable import is_folder, paths_in
from txtopo.journal.ending import READS_MAX
from txtopo.text.native import native_text

T = TypeVar("T")


@checked_arguments
def read_table(
    path: str | os.PathLike[str],
    txid: int | None = None,
    nearest: bool = False,  # noqa: FBT001, FBT002 - a flag that reads well by name
    *,
    live: bool = False,
    storage_options: dict[str, str] | None = None,
) -> pa.Table:
    """Return the rows of a state's table (key fields, value fields, txid), without its topology.

    A Delta table of no state, such as those that plain topologies write, is returned as it is: its rows have no txid.

    Args:
        path: the table's path.
        txid: the last transaction to see; None for the latest.
        nearest: whether to return the nearest kept moment before ``txid`` if that of ``txid`` itself is not kept.
        live: whether to leave out the keys that had expired when the table was last written; it is of a state with a
            ``ttl``.
        storage_options: options for an object store.

    Raises:
        ConfigError: there is no table; ``txid`` is given, and the table is of no state; or ``live`` is, and nothing in
            the table expires.
        StateAccessError: the table can't be read, or no longer keeps that version; or the transaction was written
            together with others, and the table has no version between them. The message names the nearest that can be
            shown.
    """
    return _read_again(path, storage_options, lambda table: table.rows(txid, is_exact=not nearest, live=live))


def look_up(
    path: str | os.PathLike[str],
    keys: Sequence[str] = (),
    txid: int | None = None,
    limit: int | None = None,
    *,
    nearest: bool = False,
) -> FoundRows:
    """Return some rows of a table, of which no more are held in memory than ``limit``; see :func:`read_table`.

    Args:
        path: the table's path.
        keys: the key of the rows, a text for each of the first columns; those of each key if there is none.
        txid: the last transaction to see; None for the latest.
        limit: how many rows to return at most, the first in their order; None: all.
        nearest: as for :func:`read_table`.

    Raises:
        ConfigError: as by :func:`read_table`; or there are too many keys, or one is not of its column's type.
        StateAccessError: as by :func:`read_table`.
    """
    return _read_again(path, None, lambda table: table.find(keys, txid, limit, is_exact=not nearest))


def _read_again(
    path: str | os.PathLike[str], storage_options: dict[str, str] | None, read: Callable[[FoundTable], T]
) -> T:
    """Open a table and read it; again if it is written meanwhile, as files that only its older version has may go."""
    for _ in range(READS_MAX - 1):
        table = FoundTable.at(path, storage_options)
        try:
            return read(table)
        except StateAccessError:
            if table.is_newest():
                raise
    return read(FoundTable.at(path, storage_options))


@attrs.frozen
class FoundTable:
    """A table that is opened once: whatever is read of it is of the same version, while its topology runs on."""

    _location: Location
    _latest: DeltaTable

    @classmethod
    def at(cls, path: str | os.PathLike[str], storage_options: dict[str, str] | None = None) -> FoundTable:
        """Open a table.

        Raises:
            ConfigError: there is none.
            StateAccessError: it can't be read.
        """
        return cls.of(Location.resolve(os.fspath(path), storage_options))

    @classmethod
    def of(cls, location: Location) -> FoundTable:
        """Open the table at a location, as :meth:`at` does."""
        table = _existing(location)
        if table is None:
            raise ConfigError(f"{location.address} is not a table of a txtopo state{_advice(location)}")
        return cls(location, table)

    @functools.cached_property
    def _versions(self) -> TableVersions | None:
        """Its versions; None if it is of no state."""
        owner = Owner.of(self._latest)
        return None if owner is None else TableVersions(self._location, self._latest, owner)

    @property
    def last_txid(self) -> int | None:
        """The last transaction in it; None if it has none yet, or is of no state."""
        return None if self._versions is None else self._versions.txid

    def points(self) -> ShownPoints:
        """Return the transactions as of which it can be shown.

        Raises:
            ConfigError: it is of no state.
            StateAccessError: its log can't be read.
        """
        if self._versions is None:
            raise ConfigError(f"the table at {self._location.address} is of no state, so its rows have no transactions")
        try:
            return self._versions.points()
        except WORLD_ERRORS as error:
            raise StateAccessError(
                f"the log of a table at {self._location.address} can't be read", cause=native_text(error)
            ) from error

    def is_newest(self) -> bool:
        """Whether nobody is known to have written it since it was opened."""
        try:
            return bool(self._location.handle().version() == self._latest.version())
        except WORLD_ERRORS:
            return True

    def rows(self, txid: int | None, *, is_exact: bool = True, live: bool = False) -> pa.Table:
        """Return its rows; see :func:`read_table`."""
        if live and (self._versions is None or not self._versions.owner.expires):
            raise ConfigError(f"nothing in the table at {self._location.address} expires: read it without live=True")
        return self._read(txid, StoredRows.read, is_exact=is_exact, live=live)

    def stored(self, txid: int | None) -> StoredRows:
        """Return its rows, which are not read yet; see :func:`read_table`."""
        return self._read(txid, lambda stored: stored, is_exact=True)

    def find(self, keys: Sequence[str], txid: int | None, limit: int | None, *, is_exact: bool = True) -> FoundRows:
        """Return some of its rows; see :func:`look_up`."""
        found = self._read(txid, lambda stored: find_rows(stored, keys, limit), is_exact=is_exact)
        last = found.last_txid  # of a later version, too, which has the same rows
        return found if txid is None or last is None else attrs.evolve(found, last_txid=min(last, txid))

    def _read(self, txid: int | None, read: Callable[[StoredRows], T], *, is_exact: bool, live: bool = False) -> T:
        location, latest, versions = self._location, self._latest, self._versions
        if versions is None and txid is not None:
            raise ConfigError(
                f"the table at {location.address} is of no state, so its rows have no transactions: read it without a "
                "txid"
            )
        with _telling(location, txid):
            schema = pa.schema(latest.schema()) if versions is None else shown_schema(latest, versions.owner.kind)
            stored = StoredRows(location, latest, schema, live)
            if versions is None or txid is None:
                return read(stored)
            handle = _kept_as_of(versions, txid)
            if handle is None:
                if not versions.is_last_write(0, txid):
                    raise _not_kept(versions, txid)
                return read(attrs.evolve(stored, is_empty=True))
            stored = attrs.evolve(stored, table=handle)
            return read(rows_between(stored, versions, txid) if is_exact else stored)


def _existing(location: Location) -> DeltaTable | None:
    try:
        return location.existing()
    except WORLD_ERRORS as error:
        raise StateAccessError(
            f"the table at {location.address} cannot be read; it may be damaged, or out of reach",
            cause=native_text(error),
        ) from error


def _advice(location: Location) -> str:
    """Return advice for a path that is not a table."""
    folder = location.root
    if folder is not None and not folder.exists():
        return ": there is no such folder"
    if folder is not None and not folder.is_dir():
        return ": it is a file"
    try:
        tables = [] if folder is None else [path.name for path in paths_in(folder) if is_folder(path / LOG_FOLDER)]
    except OSError as error:
        return f": it can't be read ({error.strerror})"
    if tables:
        return f": it is a folder of tables; give one of {', '.join(tables)} in it"
    return "; give the path of a DeltaState"


def shown_schema(table: DeltaTable, kind: StateKind) -> pa.Schema:
    """Return the columns of a state's table to show: the key columns, which are not null, the values, and txid."""
    schema = pa.schema(table.schema())
    keys = [field for field in schema if not field.nullable]
    values = [field for field in schema if field.nullable and field.name != TXID_FIELD]
    if kind is StateKind.OPAQUE:
        values = values[: len(values) // 2]
    return pa.schema([*keys, *values, schema.field(TXID_FIELD)])


@contextlib.contextmanager
def _telling(location: Location, txid: int | None) -> Iterator[None]:
    """Raise what reading raises as a StateAccessError that says which rows were read."""
    try:
        yield
    except WORLD_ERRORS as error:
        as_of = "now" if txid is None else f"as of transaction {txid}"
        raise StateAccessError(
            f"the rows of the table at {location.address} {as_of} cannot be read; its files may have been "
            "vacuumed, ask for a later transaction",
            txid=txid,
            cause=native_text(error),
        ) from error


def _kept_as_of(versions: TableVersions, txid: int) -> DeltaTable | None:
    """Return what :meth:`TableVersions.as_of` does of a transaction that the table has reached."""
    last = versions.txid or 0
    if txid > last:
        raise StateAccessError(not_reached(txid, f"the table at {versions.location.address}", last), txid=txid)
    return versions.as_of(txid)


def _not_kept(versions: TableVersions, txid: int) -> StateAccessError:
    _, oldest = versions.points().around(txid)
    return StateAccessError(
        f"the table at {versions.location.address} no longer keeps its version as of transaction {txid}: its log "
        f"begins later; the oldest that it keeps is as of transaction {oldest}",
        txid=txid,
    )


def between_points(what: str, txid: int, before: object, after: object) -> StateAccessError:
    """Return the error for a transaction that lies between two points of a table, or of some."""
    return StateAccessError(
        f"transaction {txid} lies between two points of {what}, {before} and {after}; ask for one of them, or for the "
        f"nearest before {txid} (nearest=True, --nearest); read_points and 'txtopo state --points' list all",
        txid=txid,
    )


def rows_between(stored: StoredRows, versions: TableVersions, txid: int) -> StoredRows:
    """Return the rows as of a transaction, which must be committed.

    Args:
        stored: the rows of the newest version whose txid is not above ``txid``.
        versions: of the table, with the newest version to consider.
        txid: the transaction.

    Raises:
        StateAccessError: the rows cannot be determined; the message names the nearest transactions that can be shown.
    """
    location, handle, latest = versions.location, stored.table, versions.table
    # Nothing to decide: the version ends exactly there, or no later one exists.
    reached = versions.txid_of(handle) or 0
    if reached == txid or handle.version() >= latest.version():
        return stored
    following = versions.following(handle)
    if following != handle.version() + 1:  # the versions between two points are gone
        if versions.is_last_write(reached, txid):
            return stored
        before, then = versions.points().around(txid)
        raise between_points(f"the table at {location.address}", txid, before, then)
    after = location.handle(following)
    while (above := versions.txid_of(after) or 0) == reached and after.version() < latest.version():
        after = location.handle(after.version() + 1)  # it has only moved rows, and files of it may be gone
    group = versions.group_of(above)
    # The transactions from the version's own up to the group wrote nothing into this table.
    if group is not None and txid < group.first:
        return stored
    later = attrs.evolve(stored, table=after)
    is_taken = versions.numbers_of(after).taken_until > versions.numbers_of(handle).taken_until
    if versions.owner.kind in ROWS_KINDS:
        if not after.metadata().partition_columns and not is_taken:
            return attrs.evolve(later, until=txid)
    elif group is not None and not group.removed and not (stored.live and is_taken) and not later.reach(txid):
        return later
    below = reached if group is None else group.first - 1
    raise StateAccessError(
        f"the table at {location.address} has no version as of transaction {txid}: it was written as of "
        f"{below} and as of {above}, but not in between; ask for one of these, or for the nearest before {txid} "
        "(nearest=True, --nearest)",
        txid=txid,
    )
