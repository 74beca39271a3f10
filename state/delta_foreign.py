"""Versions of a Delta table that another writer has made: did they change what was read from it?"""

from __future__ import annotations

from deltalake import DeltaTable

__all__ = ["foreign_change"]

_HARMLESS = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""Delta operations that leave every row as it is."""


def foreign_change(table: DeltaTable, version: int) -> str | None:
    """Return in words what changed rows after ``version`` up to the handle's, or None if nothing did.

    Args:
        table: a handle of a later version.
        version: the version that values were read from.
    """
    for entry in table.history(limit=table.version() - version):
        operation = entry.get("operation", "an unknown operation")
        if operation not in _HARMLESS:
            return f"{operation} made version {entry.get('version', table.version())}"
    return None
