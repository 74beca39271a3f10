"""The versions that a table's log still has.

Its newest versions are all there, one entry after another, from a checkpoint on. Of older ones, those of points are
(see :mod:`txtopo.transactional.recovery.points`): each has a checkpoint of its own and the entry that made it, and the
entries in between are gone. So a version that can be opened may have no neighbour.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Checkpoints".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import attrs

from state.delta.log.damage import LOG_FOLDER
from state.delta.log.sync import CHECKPOINT
from txtopo.files.folder import Folder, Item

_DIGITS = 20
"""How many digits of its version begin the name of an entry, a checkpoint, and what others put beside them."""

_ENTRY = ".json"

_CHECKPOINT = re.compile(
    r"/\d{20}\.checkpoint(?:|\.\d{10}\.(?P<parts>\d{10})|\.(?P<name>[0-9a-f-]{36}))\.(?:parquet|json)$"
)
"""The end of the name of a checkpoint's file: the only one, or one of several parts, or one that names its parts."""


@attrs.frozen
class KeptLog:
    """The files of a log, as they are listed at one moment."""

    entries: Mapping[int, Item]
    """The entry of each version that has one, oldest first."""
    checkpoints: Mapping[int, Sequence[str]]
    """The paths of the files of a whole checkpoint, by its version, oldest first."""
    files: Mapping[int, Sequence[str]]
    """The paths of all files of each version, oldest first."""

    @staticmethod
    def of(folder: Folder) -> KeptLog:
        """List the log of a table in a folder."""
        entries: dict[int, Item] = {}
        files: dict[int, list[str]] = {}
        for item in folder.list(LOG_FOLDER):
            version, kind = _parts_of(item.path.removeprefix(f"{LOG_FOLDER}/"))
            if version < 0:
                continue
            files.setdefault(version, []).append(item.path)
            if kind == _ENTRY:
                entries[version] = item
        return KeptLog(entries, _whole_checkpoints(files), files)

    def versions(self) -> list[int]:
        """Return the versions that can be opened, oldest first."""
        numbers: list[int] = []
        for version in sorted({*self.entries, *self.checkpoints}):
            follows = version == 0 or (numbers and numbers[-1] == version - 1)
            if version in self.checkpoints or (version in self.entries and follows):
                numbers.append(version)
        return numbers


def checkpoint_until(folder: Folder, version: int) -> tuple[int, Sequence[str]]:
    """Return the number of the newest whole checkpoint up to a version, and its files; -1 if there is none.

    It looks at names alone: where each second makes versions, a log has 10,000 entries, and to ask for the size of each
    takes ten times as long.
    """
    files: dict[int, list[str]] = {}
    for name in folder.names(LOG_FOLDER):
        number, kind = _parts_of(name)
        if 0 <= number <= version and kind != _ENTRY:
            files.setdefault(number, []).append(f"{LOG_FOLDER}/{name}")
    complete = _whole_checkpoints(files)
    newest = max(complete, default=-1)
    return newest, complete.get(newest, ())


def _parts_of(name: str) -> tuple[int, str]:
    """Return the version in a name of the log's folder, and what follows it; -1 if it is no file of a version."""
    digits, kind = name[:_DIGITS], name[_DIGITS:]
    return (int(digits), kind) if kind.startswith(".") and digits.isdecimal() else (-1, "")


def _whole_checkpoints(files: Mapping[int, Sequence[str]]) -> dict[int, Sequence[str]]:
    """Return the files of each whole checkpoint among the files of versions."""
    complete: dict[int, Sequence[str]] = {}
    for version, paths in sorted(files.items()):
        parts: dict[str, list[str]] = {}
        for path in paths:
            match = _CHECKPOINT.search(path) if CHECKPOINT in path else None
            if match is not None:
                parts.setdefault(match["parts"] or match["name"] or "", []).append(path)
        for key in sorted(parts, reverse=True):  # one that is all in one file last
            if not key.isdecimal() or len(parts[key]) == int(key):
                complete[version] = parts[key]
    return complete
