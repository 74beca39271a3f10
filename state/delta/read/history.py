"""What a Delta table held as of a transaction.

The application transaction ``<topology>/<state>`` rises from version to version, so the newest version whose
txid is not above the wanted one is found by bisection, from the end on. It falls only where ``txtopo repair``
has rolled the table back: each version knows the last one that did, and what is not found from there on is
looked for before it. Versions whose log is gone count as too old.

Transactions that commit together are one Delta write. What the table was as of one between two Delta writes can be told
for certain only sometimes:

* If the journal has the group that made the next version, and it begins behind the wanted transaction, nothing was
  written in between: the version before is the table as of it.
* A table of rows only ever grows, unless partitions are replaced: the rows up to the wanted txid are what it held.
* A keyed table keeps one row a key. If no key was touched behind the wanted transaction, and the journal says that the
  group removed none, the next version is what it held. Otherwise a row that a later transaction has overwritten may
  have had another value meanwhile, which is kept nowhere. A removed key leaves no txid, and one that the same group had
  put before leaves nothing at all in either version: only the journal knows of it.
"""

from __future__ import annotations

import os
from typing import Never

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from state.delta.log.damage import plain_text
from state.delta.log.location import LOG_FOLDER, Location, parent_of
from state.delta.log.ownership import WORLD_ERRORS, Owner, rolled_back_application, state_application
from state.delta.read.reading import read_rows
from state.delta.schema import TXID_FIELD
from txtopo.api.state import OpenedState, StateKind, Writes
from txtopo.errors import ConfigError, DivergenceError, StateAccessError
from txtopo.journal.ending import metadata_dir_below
from txtopo.journal.journal import find_journal, read_journal

__all__ = ["PastDeltaTable", "read_snapshot", "read_table", "rows_between", "shown_schema", "version_as_of"]


def read_table(
    path: str | os.PathLike[str],
    txid: int | None = None,
    nearest: bool = False,  # noqa: FBT001, FBT002 - a flag that reads well by name
    *,
    storage_options: dict[str, str] | None = None,
) -> pa.Table:
    """Return what a state's table holds: key fields, value fields, txid. Needs no topology.

    Args:
        path: where the table lies.
        txid: the last transaction to see; None for the latest.
        nearest: whether to return the nearest moment before ``txid`` that is kept, if that of ``txid`` itself is not.
        storage_options: what an object store needs.

    Raises:
        ConfigError: there is no table of a state.
        StateAccessError: see :func:`read_snapshot`; or the transaction was written together with others, and what the
            table held between them is kept nowhere. The message names the nearest ones that can be shown.
    """
    location = Location.resolve(os.fspath(path), storage_options)
    table = location.existing()
    owner = None if table is None else Owner.of(table)
    if table is None or owner is None:
        raise ConfigError(f"{location.address} is no table of a txtopo state{_advice(location)}")
    application = state_application(owner.topology_id, owner.state)
    return read_snapshot(location, application, shown_schema(table, owner.kind), txid, is_exact=not nearest)


def _advice(location: Location) -> str:
    """Return what to do about a path that is no table."""
    folder = location.folder
    if folder is not None and not folder.exists():
        return ": there is no such folder"
    tables = [] if folder is None or not folder.is_dir() else sorted(folder.glob(f"*/{LOG_FOLDER}"))
    if tables:
        return f": it is a folder of tables; give one of {', '.join(path.parent.name for path in tables)} in it"
    return "; give the path of a DeltaState"


def shown_schema(table: DeltaTable, kind: StateKind) -> pa.Schema:
    """Return the columns to show of a state's table: those of the key are not null, txid is the last."""
    schema = pa.schema(table.schema())
    keys = [field for field in schema if not field.nullable]
    values = [field for field in schema if field.nullable and field.name != TXID_FIELD]
    if kind is StateKind.OPAQUE:
        values = values[: len(values) // 2]
    return pa.schema([*keys, *values, schema.field(TXID_FIELD)])


def read_snapshot(
    location: Location, application: str, schema: pa.Schema, txid: int | None, *, is_exact: bool = False
) -> pa.Table:
    """Return the rows of a table as of a transaction.

    Args:
        location: where the table lies.
        application: the application id that carries its txids.
        schema: the columns to return.
        txid: the last transaction to see. Transactions that were written together are seen together: what is
            returned is as of the last Delta write whose txid is not above this one. None for the latest.
        is_exact: whether nothing but what the table held as of ``txid`` will do.

    Raises:
        StateAccessError: the table has not got so far yet, or what it held then is no longer kept.
    """
    try:
        latest = location.handle()
        found = latest if txid is None else _as_of(location, latest, application, txid)
        if txid is None or not is_exact:
            return read_rows(found, schema)
        return rows_between(location, found, application, schema, txid, latest)
    except WORLD_ERRORS as error:
        as_of = "now" if txid is None else f"as of transaction {txid}"
        raise StateAccessError(
            f"what the table at {location.address} holds {as_of} cannot be read; its files may have been "
            "vacuumed away, ask for a later transaction",
            txid=txid,
            cause=plain_text(error),
        ) from error


def _as_of(location: Location, latest: DeltaTable, application: str, txid: int) -> DeltaTable:
    last = latest.transaction_version(application)
    if last is None or txid > last:
        held = "nothing has been written to it yet" if last is None else f"its last transaction is {last}"
        raise StateAccessError(
            f"transaction {txid} is not in the table at {location.address}: {held}; ask for that or an earlier one",
            txid=txid,
        )
    found = version_as_of(location, latest, application, txid)
    if found is None:
        raise StateAccessError(
            f"what the table at {location.address} held as of transaction {txid} is no longer kept: its log "
            f"begins later; ask for a transaction nearer to {last}",
            txid=txid,
        )
    return found


def version_as_of(location: Location, latest: DeltaTable, application: str, txid: int) -> DeltaTable | None:
    """Return a handle of the newest version whose txid is not above a wanted one; None if it is no longer kept.

    Most often it is one of the last few, so those are looked at first.

    Args:
        location: where the table lies.
        latest: a handle of it, as new as any that may be returned.
        application: the application id that carries its txids.
        txid: the last transaction to see.
    """
    if (latest.transaction_version(application) or 0) <= txid:
        return latest
    low, high = latest.transaction_version(rolled_back_application(application)) or 0, latest.version()
    rolled_back = _kept_version(location, low) if low else None
    if rolled_back is not None and (rolled_back.transaction_version(application) or 0) > txid:
        before = _kept_version(location, low - 1)
        return None if before is None else version_as_of(location, before, application, txid)
    step = 1
    found: DeltaTable | None = None
    while low < high:  # the version wanted is in [low, high), and what ``found`` is, is the one before ``low``
        middle = max((low + high) // 2, high - step)
        step *= 2
        table = _kept_version(location, middle)
        if table is not None and (table.transaction_version(application) or 0) > txid:
            high = middle
        else:
            found = table
            low = middle + 1
    return found


def _kept_version(location: Location, version: int) -> DeltaTable | None:
    try:
        return location.handle(version)
    except DeltaError:
        return None


def rows_between(  # noqa: PLR0913, PLR0917 - a table has that many sides
    location: Location,
    found: DeltaTable,
    application: str,
    schema: pa.Schema,
    txid: int,
    latest: DeltaTable,
) -> pa.Table:
    """Return the rows of a table as of a transaction.

    Args:
        location: where the table lies.
        found: its newest version whose txid is not above ``txid``.
        application: the application id that carries its txids.
        schema: the columns to return.
        txid: the transaction, which is committed.
        latest: a handle of the newest version that counts.

    Raises:
        StateAccessError: they can't be told; the message names the nearest transactions that can be shown.
    """
    reached = found.transaction_version(application) or 0
    if reached == txid or found.version() >= latest.version():
        return read_rows(found, schema)
    after = location.handle(found.version() + 1)
    above = after.transaction_version(application) or 0
    owner = Owner.of(after)
    group = None if owner is None else _group_of(location, after, owner, above)
    if group is not None and txid < group.first:
        return read_rows(found, schema)
    if owner is not None and owner.kind is StateKind.ROWS:
        if not after.metadata().partition_columns:
            rows = read_rows(after, schema)
            return rows.filter(pc.less_equal(rows[TXID_FIELD], txid))
    elif group is not None and not group.removed:
        rows = read_rows(after, schema)
        if not pc.any(pc.greater(rows[TXID_FIELD], txid)).as_py():
            return rows
    below = reached if group is None else group.first - 1
    raise StateAccessError(
        f"what the table at {location.address} held as of transaction {txid} is kept nowhere: it was written as of "
        f"{below} and as of {above}, and not in between; ask for one of these, or for the nearest before {txid} "
        "(nearest=True, --nearest)",
        txid=txid,
    )


@attrs.frozen
class _Group:
    """What the journal says of the group that a Delta write was made of.

    Args:
        first: the transaction it began with.
        removed: how many keys it removed.
    """

    first: int
    removed: int


def _group_of(location: Location, table: DeltaTable, owner: Owner, last: int) -> _Group | None:
    """Return the group that a Delta write was made of; None if no journal beside the table has it."""
    folder = parent_of(location.address)
    if folder is None:
        return None
    try:
        parts = read_journal(find_journal(metadata_dir_below(folder), owner.topology_id))
    except (ConfigError, DivergenceError):
        return None
    identity = str(table.metadata().id)
    entries = [
        entry
        for part in parts
        if owner.state in part.header.tables and part.header.tables[owner.state].identity == identity
        for entry in part.entries
        if entry.last == last and owner.state in entry.states
    ]
    if not entries:
        return None
    # A group that was dropped may have been entered again, divided otherwise: then what is sure of all of them counts.
    return _Group(min(entry.first for entry in entries), max(entry.states[owner.state][1] for entry in entries))


class PastDeltaTable(OpenedState):
    """A table at the newest version whose txid is not above a wanted one. It refuses to be written.

    Args:
        topology_id: the topology that the table belongs to.
        location: where it lies.
        state: the state's name.
        kind: its kind.
        txid: the last transaction to see.

    Raises:
        ConfigError: there is no table.
        StateAccessError: what it held then is no longer kept.
    """

    def __init__(self, topology_id: str, location: Location, state: str, kind: StateKind, txid: int) -> None:
        self._location = location
        self._state = state
        self._kind = kind
        self._application = state_application(topology_id, state)
        latest = location.existing()
        if latest is None:
            raise ConfigError(f"state {state!r}: there is no table at {location.address}")
        found = version_as_of(location, latest, self._application, txid)
        if found is None:
            raise self._gone(txid)
        self._table: DeltaTable = found
        self._txid = txid

    @property
    def identity(self) -> str:
        """Delta's id of the table."""
        return str(self._table.metadata().id)

    @property
    def last_txid(self) -> int | None:
        """The last transaction that the table had got then; None before the first."""
        return self._table.transaction_version(self._application)

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as they were then, or as of an earlier transaction."""
        schema = shown_schema(self._table, self._kind)
        if txid is not None and txid < self._txid:
            return read_snapshot(self._location, self._application, schema, txid)
        return self._read(schema)

    def write(self, txid: int, values: Writes) -> Never:  # noqa: ARG002 - refused
        """Refuse."""
        raise self._refusal()

    def _read(self, schema: pa.Schema) -> pa.Table:
        try:
            return read_rows(self._table, schema)
        except WORLD_ERRORS as error:
            raise self._gone(self._txid) from error

    def _gone(self, txid: int) -> StateAccessError:
        return StateAccessError(
            f"state {self._state!r}: what the table at {self._location.address} held as of transaction {txid} "
            "is no longer kept, or cannot be read; a later transaction may be",
            txid=txid,
        )

    def _refusal(self) -> StateAccessError:
        return StateAccessError(f"state {self._state!r} is shown as it was in the past, and cannot be written")
