"""When the versions of a Delta table became visible, from its log, so that every writer is measured in the same way."""

import json
from pathlib import Path

import attrs
import numpy as np


@attrs.frozen
class LogTime:
    """One version of a table: when its log file got its name, in seconds since the epoch, and its application transactions.

    A file may have been written long before it got its name, so its time is that of its last change of any kind.
    """

    version: int
    at_secs: float
    applications: dict[str, int]


def log_times(table: Path) -> list[LogTime]:
    """Return the versions of a table on a local disk, oldest first."""
    return [_log_time(path) for path in sorted((table / "_delta_log").glob("*.json"))]


def visible_at(table: Path, application: str, first: int, last: int) -> np.ndarray:
    """Return when the transactions ``first`` to ``last`` became visible, in seconds since the epoch.

    The table records their txids under the application id ``application``, ``<topology>/<state>``.
    """
    writes = [each for each in log_times(table) if application in each.applications]
    txids = np.array([each.applications[application] for each in writes])
    times = np.array([each.at_secs for each in writes])
    return times[np.searchsorted(txids, np.arange(first, last + 1))]


def _log_time(path: Path) -> LogTime:
    applications: dict[str, int] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        action = json.loads(line)
        if "txn" in action:
            applications[action["txn"]["appId"]] = action["txn"]["version"]
    return LogTime(int(path.stem), path.stat().st_ctime_ns / 1e9, applications)
