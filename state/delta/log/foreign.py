"""Versions of a Delta table that another writer has made: did they change what it holds?"""

from __future__ import annotations

from deltalake import DeltaTable

from state.delta.log.entries import LogEntry, log_entries
from state.delta.log.location import Location

__all__ = ["change_on_top", "change_since", "foreign_change"]

_HARMLESS = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""Delta operations that leave every row as it is."""

_LOOK_BACK_VERSIONS = 1_000
"""How far back a reader looks, which knows of no version that is txtopo's."""


def foreign_change(location: Location, table: DeltaTable, since: int | None) -> str | None:
    """Return in words what somebody else has changed up to the handle's version, or None if nobody has.

    Args:
        location: where the table lies.
        table: a handle that is up to date.
        since: a version that is known to be txtopo's; it is looked at, too. None, or one that the table has not
            got to: the last one that made a transaction visible.
    """
    known = since if since is not None and since <= table.version() else None
    below = table.version()
    for entry in log_entries(location, table, known or 0):
        below = entry.version - 1
        if entry.version == known:
            return None if entry.is_own or entry.version == 0 else f"{_told(entry)}, in place of our own"
        if entry.is_own and known is None and entry.txid is not None:
            return None
        if not entry.is_own and entry.version > 0 and entry.operation not in _HARMLESS:
            return _told(entry)
    return None if below < 0 else f"somebody made version {below + 1}, and the log before it is gone"


def change_on_top(location: Location, table: DeltaTable) -> str | None:
    """Return in words what somebody else has changed on top of the last transaction, as far as the log is kept.

    Args:
        location: where the table lies.
        table: a handle; later versions do not count.
    """
    for entry in log_entries(location, table, max(0, table.version() - _LOOK_BACK_VERSIONS)):
        if entry.txid is not None or entry.version == 0:
            return None
        if not entry.is_own and entry.operation not in _HARMLESS:
            return _told(entry)
    return None


def change_since(location: Location, table: DeltaTable, version: int | None) -> str | None:
    """Return in words how somebody else has changed rows after a version of the table, whosever that was.

    Args:
        location: where the table lies.
        table: a handle that is up to date.
        version: the version; None: the last one that made a transaction visible.
    """
    if version is None:
        return foreign_change(location, table, None)
    below = table.version() + 1
    for entry in log_entries(location, table, version + 1):
        below = entry.version
        if not entry.is_own and entry.operation not in _HARMLESS:
            return _told(entry)
    return None if below <= version + 1 else f"somebody made version {below}, and the log before it is gone"


def _told(entry: LogEntry) -> str:
    return f"{entry.operation} made version {entry.version}"
