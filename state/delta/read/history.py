"""What a Delta table held as of a transaction.

The application transaction ``<topology>/<state>`` rises from version to version, so the newest version whose
txid is not above the wanted one is found by bisection, from the end on. It falls only where ``txtopo repair``
has rolled the table back: each version knows the last one that did, and what is not found from there on is
looked for before it. Versions whose log is gone count as too old.
"""

from __future__ import annotations

import os

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from state.delta.log.damage import plain_text
from state.delta.log.fence import WORLD_ERRORS, rolled_back_application, state_application
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.owner import Owner
from state.delta.read.between import rows_between
from state.delta.read.reading import read_rows
from state.delta.schema import TXID_FIELD
from txtopo.api.state import StateKind
from txtopo.errors import ConfigError, StateAccessError

__all__ = ["read_snapshot", "read_table", "shown_schema", "version_as_of"]


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
