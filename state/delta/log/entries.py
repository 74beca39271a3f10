"""Read the versions in a Delta table's log.

Each Delta write of txtopo records its epoch, and the txid that it makes visible, in the log. So a version without
an epoch is another writer's; :mod:`state.delta.read.foreign` says whether that changed rows.

The log's files are read directly, because delta-rs' ``history`` numbers its entries down from the handle's version,
even if the log has grown since, and leaves out versions without commit information.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from state.delta.log.kept import KeptLog
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.vectors import places_of, vector_in
from txtopo.files.folder import Item

EPOCH_KEY = "txtopo.epoch"
TXID_KEY = "txtopo.txid"
RESTORED_KEY = "txtopo.restored"
TURN_KEY = "txtopo.turn"

_INFORMATION = b"commitInfo"

_ENTRY = re.compile(rf"{LOG_FOLDER}/\d{{20}}\.json")


@attrs.frozen
class LogEntry:
    """One version of a table.

    Args:
        version: its number.
        operation: the operation that made it.
        epoch: the epoch of the coordinator that made it; None if somebody else made it.
        txid: the transaction that it makes visible; None for a marker, for upkeep, and for foreign versions.
        restored: the version whose rows a roll-back has restored; None for another operation.
        is_harmless: whether it leaves the rows as they are, by its own account: it is txtopo's, or moves rows at most.
        turn: the last transaction of the topology that stayed when it went back, in the marker of that; else None.
        written_ms: when it was written, in milliseconds since 1970; None if it does not say.
    """

    version: int
    operation: str
    epoch: int | None
    txid: int | None
    restored: int | None = None
    is_harmless: bool = True
    turn: int | None = None
    written_ms: int | None = None

    @property
    def is_own(self) -> bool:
        """Whether txtopo made it."""
        return self.epoch is not None

    @property
    def text(self) -> str:
        """It in words."""
        return f"{self.operation} made version {self.version}"


def entry_path(version: int) -> str:
    """Return the path of a version's log entry, relative to the table's folder."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def entries_from(location: Location, version: int) -> list[Item]:
    """Return the files of the log's entries from a version on, in order."""
    items = location.folder.list(LOG_FOLDER, f"{version:020d}")
    return [item for item in items if _ENTRY.fullmatch(item.path) is not None]


def actions_of(location: Location, version: int, kind: str) -> list[dict[str, Any]]:
    """Return a version's actions of one kind, such as ``add``; raise FileNotFoundError if the entry is gone."""
    lines = location.folder.get(entry_path(version)).splitlines()
    actions = (json.loads(line) for line in lines if f'"{kind}"'.encode() in line)
    return [action[kind] for action in actions if kind in action]


def log_entries(location: Location, latest: int, first: int = 0) -> Iterator[LogEntry]:
    """Yield the versions up to ``latest``, newest first, down to ``first`` or to the oldest entry that is kept."""
    for version in range(latest, first - 1, -1):
        entry = read_entry(location, version)
        if entry is None:  # whoever cleaned the log of it has taken what is older, too
            return
        yield entry


def kept_entries(location: Location, latest: int) -> Iterator[LogEntry]:
    """Yield the versions up to ``latest`` that have an entry, newest first, also those before a gap in the log."""
    below = latest
    for entry in log_entries(location, latest):
        yield entry
        below = entry.version - 1
    older = [] if below < 0 else [version for version in KeptLog.of(location.folder).entries if version < below]
    for version in reversed(older):
        found = read_entry(location, version)
        if found is not None:
            yield found


def version_after(location: Location, latest: int, txid: int) -> int | None:
    """Return the version that a transaction's write made, and none rolled back since; None if the log has none."""
    for version, txid_written in valid_transactions(location, latest):
        if txid_written <= txid:
            return version if txid_written == txid else None
    return None


def standing(entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
    """Yield those of some versions, newest first, that the first one goes back to: none that was rolled back.

    A roll-back has the rows of the version that it has restored, whatever came in between, other roll-backs included:

    1. A table at transaction 3 is rolled back to 1, and needs a file that is gone: it is rolled back to 3 again.
    2. It goes on. As of transaction 2 it has the rows that it had then, and not those of the first roll-back.
    """
    last: int | None = None
    for entry in entries:
        if last is None or entry.version <= last:
            yield entry
            last = last if entry.restored is None else entry.restored


def valid_transactions(location: Location, latest: int) -> Iterator[tuple[int, int]]:
    """Yield the versions that have made a transaction visible and were not rolled back, and those, newest first."""
    return _valid_among(kept_entries(location, latest))


def _valid_among(entries: Iterable[LogEntry]) -> Iterator[tuple[int, int]]:
    lowest: int | None = None
    for entry in standing(entries):
        # The same one once more is of the version that somebody has taken for it since.
        if entry.txid is not None and (lowest is None or entry.txid < lowest):
            lowest = entry.txid
            yield entry.version, lowest


def undone_to(
    entries: Iterable[LogEntry], latest: int, epoch: int, last_at: int | None, txid_of: Callable[[LogEntry], int | None]
) -> int | None:
    """Return the lowest transaction to which an epoch after a given one has gone back; None if none has.

    ``entries`` are the versions that count, newest first. Where a log has gaps, it still has the versions of that kind,
    see :mod:`state.delta.upkeep`, of which ``last_at`` is the last; if the log lacks it, it counts as one to 0.
    ``txid_of`` returns the transaction to which a version has gone back; None if it is none of that kind.
    """
    if last_at is None:
        return None
    txids: list[int] = []
    is_unknown = 0 <= last_at <= latest
    for entry in entries:
        if entry.epoch is not None and entry.epoch <= epoch:  # so are all versions before it
            is_unknown = is_unknown and last_at > entry.version
            break
        is_unknown = is_unknown and entry.version != last_at
        txid = txid_of(entry)
        if txid is not None:
            txids.append(txid)
    return 0 if is_unknown else min(txids, default=None)


def complete_transactions(
    location: Location,
    latest: int,
    files_at: Callable[[int], Iterable[tuple[str, ...]]],
    is_there: Callable[[str], bool],
) -> set[int]:
    """Return the transactions whose versions can still be read, with all of their files, in one pass over the log.

    The pass begins with the newest version's files and takes back one version after another: what a version has added
    was not there before it, and what it has removed was. A version that moves rows and removes nothing, such as one
    with a new column, adds files once more that were there. Before a gap in the log, each version is looked at
    by itself.

    Args:
        location: the table.
        latest: its newest version.
        files_at: returns the paths in the table's folder that each file of a version needs.
        is_there: says of such a path whether the file is there.
    """
    missing = {places for places in files_at(latest) if not all(map(is_there, places))}
    entries: list[LogEntry] = []
    complete: set[int] = set()
    version = latest
    while version >= 0:
        content = _content(location, version)
        if content is None:
            break
        entries.append(_entry_of(location, version, content))
        if not missing:
            complete.add(version)
        actions = [json.loads(line) for line in content.splitlines()]
        removed = [action["remove"] for action in actions if "remove" in action]
        added = [action["add"] for action in actions if "add" in action]
        missing.difference_update(_places_in(each) for each in added if removed or not _moves(each))
        missing.update(places for places in map(_places_in, removed) if not all(map(is_there, places)))
        version -= 1
    if version < 0:
        return {txid for number, txid in _valid_among(entries) if number in complete}
    log = KeptLog.of(location.folder)
    openable, older = log.versions(), [number for number in log.entries if number < version]
    entries += [entry for number in reversed(older) if (entry := read_entry(location, number)) is not None]

    def is_complete(each: int) -> bool:
        if each > version:
            return each in complete and each in {latest, *openable}
        return each in openable and all(is_there(place) for places in files_at(each) for place in places)

    return {txid for number, txid in _valid_among(entries) if is_complete(number)}


def _places_in(action: Mapping[str, Any]) -> tuple[str, ...]:
    return places_of(action["path"], vector_in(action))


def read_entry(location: Location, version: int) -> LogEntry | None:
    """Return a version's entry; None if its log file is missing."""
    content = _content(location, version)
    return None if content is None else _entry_of(location, version, content)


def _content(location: Location, version: int) -> bytes | None:
    try:
        return location.folder.get(entry_path(version))
    except FileNotFoundError:
        return None


def _entry_of(location: Location, version: int, content: bytes) -> LogEntry:
    path = f"{location.address}/{entry_path(version)}"
    information = _information(path, content)
    numbers = (_number(information, name) for name in (EPOCH_KEY, TXID_KEY, RESTORED_KEY, TURN_KEY))
    epoch, txid, restored, turn = numbers
    is_harmless = epoch is not None or _is_harmless(path, content)
    operation = str(information.get("operation", "an unknown operation"))
    timestamp = _number(information, "timestamp")
    return LogEntry(version, operation, epoch, txid, restored, is_harmless, turn, timestamp)


def _is_harmless(path: str, content: bytes) -> bool:
    """Whether a version of somebody else's changes no row by its own account, whatever it is called."""
    return bool(content) and all(
        kind == "commitInfo" or (kind in {"add", "remove"} and _moves(action))
        for line in content.splitlines()
        if line.strip()
        for kind, action in _parsed(path, line).items()
    )


def _moves(action: Mapping[str, Any]) -> bool:
    return action.get("dataChange") is False


def _parsed(path: str, line: bytes) -> Mapping[str, Any]:
    try:
        action: Any = json.loads(line)
    except ValueError as error:
        raise OSError(f"{path} is damaged: it was truncated or overwritten") from error
    return action if isinstance(action, dict) else {}


def _number(information: Mapping[str, Any], name: str) -> int | None:
    text = str(information.get(name, ""))
    return int(text) if text.isdecimal() else None


def _information(path: str, content: bytes) -> Mapping[str, Any]:
    """Return the commit information in a log file, empty if it has none."""
    for line in content.splitlines():
        if _INFORMATION in line:
            information = _parsed(path, line).get("commitInfo")
            if isinstance(information, dict):
                return information
    return {} if content else {"operation": f"what has emptied {path}"}
