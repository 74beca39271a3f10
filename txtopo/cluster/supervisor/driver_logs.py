"""The logs of topologies' drivers on a supervisor's machine."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from txtopo.cluster.driver.folder import TopologyPlace
from txtopo.cluster.logs import rotate
from txtopo.files.durable import paths_in

_BYTES_MAX = 64 << 20
"""A larger log of a driver is rotated."""
_TOPOLOGIES_MAX = 100
"""Logs of at most so many topologies are kept; those written to least recently go first."""


class DriverLogs:
    """The folder of logs, with a folder of each topology."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, topology: str) -> Path:
        """Return the log that a topology's driver is to append to."""
        path = self._folder / topology / "driver.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def path(self, topology: str) -> Path | None:
        """Return the log of a topology's drivers; None if there is none here."""
        path = self._folder / topology / "driver.log"
        # The id comes from a URL: it must not lead out of the folder.
        is_inside = path.parent.parent == self._folder and topology not in {"", ".", ".."}
        return path if is_inside and path.is_file() else None

    def place(self, topology: str) -> TopologyPlace | None:
        """Return where a topology's metadata is on this machine; None if no driver of it has run here."""
        log = self.path(topology)
        return None if log is None else TopologyPlace.read(log.parent)

    def tidy(self, used: Collection[str]) -> None:
        """Remove old logs, but none of the topologies in use here; rotate the others."""
        logs = [folder / "driver.log" for folder in paths_in(self._folder) if (folder / "driver.log").exists()]
        logs.sort(key=lambda path: path.stat().st_mtime)
        for path in logs[:-_TOPOLOGIES_MAX]:
            if path.parent.name not in used:
                shutil.rmtree(path.parent, ignore_errors=True)
        for path in logs:
            rotate(path, _BYTES_MAX)
