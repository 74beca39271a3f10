"""What a Delta table's log says of each version: who made it, by which operation, and as of which transaction.

Each Delta write of txtopo notes its epoch, and the txid that it makes visible, in the log. So a version without
such a note was made by somebody else, and may have changed what the table holds.

The log's files are read where that can be done. delta-rs' ``history`` numbers its entries from the handle's
version down, whatever the log has got since, and leaves out versions whose writer told nothing of itself.
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
        operation: what made it.
        epoch: the epoch of the coordinator that made it; None if it was somebody else.
        txid: the transaction that it makes visible; None for a marker, for upkeep, and for others' versions.
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
    """Yield the versions of a table, newest first, until ``first`` or until the log is gone.

    Args:
        location: where the table lies.
        table: a handle that is up to date.
        first: the oldest version to yield.
    """
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
    """Return the version that the write of a transaction made, None if the log tells of none.

    Versions that were rolled back do not count: going back in time, the txids of those that do only fall.
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
    """Return what a version's writer told of itself, empty if nothing; None if the log is gone."""
    try:
        with path.open(encoding="utf-8") as file:
            line = None
            for line in file:
                if _INFORMATION in line:
                    told: Any = json.loads(line).get(_INFORMATION)
                    if isinstance(told, dict):
                        return told
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise OSError(f"{path} is damaged: it was cut off or overwritten") from error
    return {} if line is not None else {"operation": f"what has emptied {path}"}


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
