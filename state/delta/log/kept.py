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

from state.delta.log.location import LOG_FOLDER, Location
from txtopo.files.folder import Item

__all__ = ["KeptLog"]

_ENTRY = re.compile(rf"{LOG_FOLDER}/(\d{{20}})\.json")
_CHECKPOINT = re.compile(
    rf"{LOG_FOLDER}/(?P<version>\d{{20}})\.checkpoint"
    r"(?:|\.\d{10}\.(?P<parts>\d{10})|\.(?P<name>[0-9a-f-]{36}))\.(?:parquet|json)"
)
"""A checkpoint's file: the only one, or one of several parts, or one that names its parts."""

_OF_VERSION = re.compile(rf"{LOG_FOLDER}/(\d{{20}})\..+")
"""Any file of a version: its entry, its checkpoints, and what others put beside them."""


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
    def of(location: Location) -> KeptLog:
        """List the log of a table."""
        entries: dict[int, Item] = {}
        parts: dict[tuple[int, str], list[str]] = {}
        files: dict[int, list[str]] = {}
        for item in location.folder.list(LOG_FOLDER):
            of_version = _OF_VERSION.fullmatch(item.path)
            if of_version is None:
                continue
            version = int(of_version[1])
            files.setdefault(version, []).append(item.path)
            if _ENTRY.fullmatch(item.path):
                entries[version] = item
            found = _CHECKPOINT.fullmatch(item.path)
            if found is not None:
                parts.setdefault((version, found["parts"] or found["name"] or ""), []).append(item.path)
        is_whole = {key: not key[1].isdecimal() or len(paths) == int(key[1]) for key, paths in parts.items()}
        whole = {key[0]: parts[key] for key in sorted(parts) if is_whole[key]}
        return KeptLog(entries, whole, files)

    def versions(self) -> list[int]:
        """Return the versions that can be opened, oldest first."""
        found: list[int] = []
        for version in sorted({*self.entries, *self.checkpoints}):
            follows = version == 0 or (found and found[-1] == version - 1)
            if version in self.checkpoints or (version in self.entries and follows):
                found.append(version)
        return found

    def checkpoint_until(self, version: int) -> tuple[int, Sequence[str]]:
        """Return the number of the newest whole checkpoint up to a version, and its files; -1 if there is none."""
        newest = max((each for each in self.checkpoints if each <= version), default=-1)
        return newest, self.checkpoints.get(newest, ())
