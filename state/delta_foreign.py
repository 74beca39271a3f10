"""Versions of a Delta table that another writer has made: did they change what it holds?"""

from __future__ import annotations

from deltalake import DeltaTable

from state.delta_location import Location
from state.delta_log import LogEntry, log_entries

__all__ = ["foreign_change"]

_HARMLESS = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""Delta operations that leave every row as it is."""


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


def _told(entry: LogEntry) -> str:
    return f"{entry.operation} made version {entry.version}"
