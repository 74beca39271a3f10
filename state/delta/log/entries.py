"""Read the versions in a Delta table's log, and find those in which another writer changed rows.

Each Delta write of txtopo records its epoch, and the txid that it makes visible, in the log. So a version without
an epoch is another writer's.

The log's files are read directly if possible, because delta-rs' ``history`` numbers its entries down from the handle's
version, even if the log has grown since, and leaves out versions without commit information.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
from deltalake import DeltaTable

from state.delta.log.location import LOG_FOLDER, Location

__all__ = [
    "EPOCH_NOTE",
    "TXID_NOTE",
    "LogEntry",
    "change_on_top",
    "change_since",
    "foreign_change",
    "log_entries",
    "version_after",
]

EPOCH_NOTE = "txtopo.epoch"
TXID_NOTE = "txtopo.txid"

_INFORMATION = "commitInfo"


@attrs.frozen
class LogEntry:
    """One version of a table.

    Args:
        version: its number.
        operation: the operation that made it.
        epoch: the epoch of the coordinator that made it; None if somebody else made it.
        txid: the transaction that it makes visible; None for a marker, for upkeep, and for foreign versions.
    """

    version: int
    operation: str
    epoch: int | None
    txid: int | None

    @property
    def is_own(self) -> bool:
        """Whether txtopo made it."""
        return self.epoch is not None


def log_entries(location: Location, table: DeltaTable, first: int = 0) -> Iterator[LogEntry]:
    """Yield the versions up to the handle's, newest first, down to ``first`` or to the oldest entry that is kept."""
    if location.folder is None:
        count = table.version() - first + 1
        yield from (_entry(each["version"], each) for each in table.history(limit=count) if each["version"] >= first)
        return
    for version in range(table.version(), first - 1, -1):
        information = _information(location.folder / LOG_FOLDER / f"{version:020d}.json")
        if information is None:
            return
        yield _entry(version, information)


def version_after(location: Location, table: DeltaTable, txid: int) -> int | None:
    """Return the version that the write of a transaction made; None if the log has none.

    Versions that were rolled back do not count: from the newest version back, only versions whose txid is below all
    txids seen so far are valid.
    """
    lowest: int | None = None
    for entry in log_entries(location, table):
        if entry.txid is None or (lowest is not None and entry.txid >= lowest):
            continue
        lowest = entry.txid
        if lowest <= txid:
            return entry.version if lowest == txid else None
    return None


def _entry(version: int, information: Mapping[str, Any]) -> LogEntry:
    operation = str(information.get("operation", "an unknown operation"))
    return LogEntry(version, operation, _number(information, EPOCH_NOTE), _number(information, TXID_NOTE))


def _number(information: Mapping[str, Any], name: str) -> int | None:
    text = str(information.get(name, ""))
    return int(text) if text.isdecimal() else None


def _information(path: Path) -> Mapping[str, Any] | None:
    """Return a version's commit information, empty if it has none; None if the log file is missing."""
    try:
        with path.open(encoding="utf-8") as file:
            line = None
            for line in file:
                if _INFORMATION in line:
                    information: Any = json.loads(line).get(_INFORMATION)
                    if isinstance(information, dict):
                        return information
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise OSError(f"{path} is damaged: it was truncated or overwritten") from error
    return {} if line is not None else {"operation": f"what has emptied {path}"}


_HARMLESS = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""Delta operations that change no row."""

_LOOK_BACK_VERSIONS = 1_000
"""The number of versions that a reader checks if it knows no version of txtopo's."""


def foreign_change(location: Location, table: DeltaTable, since: int | None) -> str | None:
    """Describe a change by somebody else up to the handle's version; return None if there is none.

    ``since`` is a version that is known to be txtopo's; it is checked too. If it is None, or the table has not reached
    it, the last version that made a transaction visible is used.
    """
    known = since if since is not None and since <= table.version() else None
    below = table.version()
    for entry in log_entries(location, table, known or 0):
        below = entry.version - 1
        if entry.version == known:
            return None if entry.is_own or entry.version == 0 else f"{_text(entry)}, in place of our own"
        if entry.is_own and known is None and entry.txid is not None:
            return None
        if not entry.is_own and entry.version > 0 and entry.operation not in _HARMLESS:
            return _text(entry)
    # If the loop stopped above version 0, the older log is gone, and with it the proof that nobody else wrote.
    return None if below < 0 else f"somebody made version {below + 1}, and the log before it is missing"


def change_on_top(location: Location, table: DeltaTable) -> str | None:
    """Describe a change by somebody else between the last transaction and the handle's version; None if none.

    The search goes back as far as the log, but at most 1,000 versions.
    """
    for entry in log_entries(location, table, max(0, table.version() - _LOOK_BACK_VERSIONS)):
        if entry.txid is not None or entry.version == 0:
            return None
        if not entry.is_own and entry.operation not in _HARMLESS:
            return _text(entry)
    return None


def change_since(location: Location, table: DeltaTable, version: int | None) -> str | None:
    """Describe a change of rows by somebody else after a version; None if none.

    Without a version, it begins at the last one that made a transaction visible.
    """
    if version is None:
        return foreign_change(location, table, None)
    below = table.version() + 1
    for entry in log_entries(location, table, version + 1):
        below = entry.version
        if not entry.is_own and entry.operation not in _HARMLESS:
            return _text(entry)
    return None if below <= version + 1 else f"somebody made version {below}, and the log before it is missing"


def _text(entry: LogEntry) -> str:
    return f"{entry.operation} made version {entry.version}"
