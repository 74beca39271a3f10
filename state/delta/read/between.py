"""A table as of a transaction between two of its Delta writes, where that can be told for certain.

Transactions that commit together are one Delta write, and nothing but the rows' own txids tells them apart:

* If the journal has the group that made the next version, and it begins behind the wanted transaction, nothing was
  written in between: the version before is the table as of it.
* A table of rows only ever grows, unless partitions are replaced: the rows up to the wanted txid are what it held.
* A keyed table keeps one row a key. If no key was touched behind the wanted transaction, and the journal says that the
  group removed none, the next version is what it held. Otherwise a row that a later transaction has overwritten may
  have had another value meanwhile, which is kept nowhere. A removed key leaves no txid, and one that the same group had
  put before leaves nothing at all in either version: only the journal knows of it.
"""

from __future__ import annotations

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from state.delta.log.location import Location, parent_of
from state.delta.log.owner import Owner
from state.delta.read.reading import read_rows
from state.delta.schema import TXID_FIELD
from txtopo.api.state import StateKind
from txtopo.errors import ConfigError, DivergenceError, StateAccessError
from txtopo.journal.ending import metadata_dir_below
from txtopo.journal.journal import find_journal, read_journal

__all__ = ["rows_between"]


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
