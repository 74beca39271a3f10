"""When the versions of a Delta table became visible, seen from outside, so that every writer is measured in the same way."""

import ctypes
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import attrs
import numpy as np

_CREATED, _MOVED_TO = 0x100, 0x80
"""A file got its name: by a link or otherwise, or by a rename."""
_EVENT = struct.Struct("iIII")
_POLL_SECS = 0.002


class LogWatch:
    """Another process, which the kernel tells of each file of a table's log as a reader that waits for it.

    The file's own times are of no use: they are those of the kernel's last tick, up to 4 ms before.
    """

    def __init__(self, table: Path) -> None:
        self._table = table
        self._notes = table.with_name(f"{table.name}-seen")
        self.seen: Mapping[int, float] = {}
        """By version, when its file had got its name, in seconds since 1970; known at the end of the context."""

    def __enter__(self) -> Self:
        with self._notes.open("wb") as notes:
            self._process = subprocess.Popen([sys.executable, "-m", __spec__.name, self._table], stdout=notes)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        lines = (line.split() for line in self._notes.read_text().splitlines())
        self.seen = {int(version): float(secs) for version, secs in lines}
        self._notes.unlink()


@attrs.frozen
class LogTime:
    """One version of a table: when its log file got its name, in seconds since 1970, and its application transactions."""

    version: int
    at_secs: float
    applications: dict[str, int]


def log_times(table: Path, seen: Mapping[int, float]) -> list[LogTime]:
    """Return the versions of a table on a local disk that a :class:`LogWatch` has seen, oldest first."""
    paths = sorted((table / "_delta_log").glob("*.json"))
    return [_log_time(path, seen[int(path.stem)]) for path in paths if int(path.stem) in seen]


def visible_at(table: Path, application: str, first: int, last: int, seen: Mapping[int, float]) -> np.ndarray:
    """Return when the transactions ``first`` to ``last`` became visible, in seconds since 1970.

    The table records their txids under the application id ``application``, ``<topology>/<state>``.
    """
    writes = [each for each in log_times(table, seen) if application in each.applications]
    txids = np.array([write.applications[application] for write in writes])
    times = np.array([write.at_secs for write in writes])
    return times[np.searchsorted(txids, np.arange(first, last + 1))]


def _log_time(path: Path, at_secs: float) -> LogTime:
    applications: dict[str, int] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        action = json.loads(line)
        if "txn" in action:
            applications[action["txn"]["appId"]] = action["txn"]["version"]
    return LogTime(int(path.stem), at_secs, applications)


def _watch(log: Path) -> None:
    """Print the version and the time of each file that gets its name in a log, which need not be there yet."""
    while not log.is_dir():
        time.sleep(_POLL_SECS)
    libc = ctypes.CDLL(None)
    descriptor = libc.inotify_init()
    libc.inotify_add_watch(descriptor, os.fsencode(log), _CREATED | _MOVED_TO)
    while True:
        told, at = os.read(descriptor, 1 << 16), 0
        now = time.time()
        while at < len(told):
            *_, length = _EVENT.unpack_from(told, at)
            at += _EVENT.size + length
            name = told[at - length : at].rstrip(b"\0").decode()
            if name.endswith(".json") and name[:-5].isdecimal():
                print(int(name[:-5]), now, flush=True)


if __name__ == "__main__":
    _watch(Path(sys.argv[1]) / "_delta_log")
