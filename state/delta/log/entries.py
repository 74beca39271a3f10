"""What a Delta table's log says of each version: who made it, by which operation, as of which transaction.

Each Delta write of txtopo notes its epoch, and the txid that it makes visible, in the log. So a version without
such a note was made by somebody else.

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

__all__ = ["EPOCH_NOTE", "TXID_NOTE", "LogEntry", "log_entries", "version_after"]

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
