"""Snapshots: where a run stands, in a small file that ``txtopo explain`` reads while the run goes on.

The file lies in the metadata directory. It is an aid for people: nothing is recovered from it, so it is not made
durable, and a run that can't write it goes on without a word. It is replaced as a whole, so a reader never sees half
of one. It has two lines of JSON: who wrote it and when, and what was so.

A coordinator that has lost its lead must not hide its successor's snapshots behind its own, told as a history:

1. The coordinator of epoch 4 stalls, and that of epoch 5 takes the lead and writes its snapshots.
2. The one of epoch 4 wakes up. It looks at the first line of the file, sees a later epoch, and never writes again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
import urllib.parse
from pathlib import Path

import attrs

from txtopo.core.story import Story
from txtopo.errors import ConfigError
from txtopo.records import DAMAGE, from_json, to_json

logger = logging.getLogger("txtopo")

_PROC = Path("/proc")
_START_TIME_FIELD = 19
"""Where /proc/PID/stat has the time at which the process began, counted behind the name of its program."""


@attrs.frozen
class TransactionSnapshot:
    """One begun, uncommitted transaction.

    Args:
        txid: the transaction.
        status: where it stands, as :class:`txtopo.core.transitions.Status` has it.
        progress_ms: when its live attempt got on last, on the coordinator's clock.
        component: whose code the driver runs for it just now; None: nobody's, or that is on the executors.
        story: what has happened to it, abridged.
    """

    txid: int
    status: str
    progress_ms: int
    component: str | None
    story: Story


@attrs.frozen
class Snapshot:
    """Where a run stands.

    Args:
        now_ms: the coordinator's clock.
        timeout_ms: how long an attempt may make no progress.
        committed: the last committed transaction.
        last_begun: the last transaction that has begun.
        tries_max: tries of a transaction; None: no bound.
        skips: whether a transaction that has used them up is written to the dead letters.
        transactions: the lowest uncommitted ones.
        ended: why the run ended; empty: it goes on.
        failed_txid: the transaction of the error that ended it.
        failed_component: the component of that error.
    """

    now_ms: int
    timeout_ms: int
    committed: int
    last_begun: int
    tries_max: int | None
    skips: bool
    transactions: tuple[TransactionSnapshot, ...]
    ended: str = ""
    failed_txid: int | None = None
    failed_component: str | None = None


@attrs.frozen
class Writer:
    """Who has written a snapshot, and when.

    Args:
        epoch: its lead's epoch.
        incarnation: of the topology.
        host: the machine it runs on.
        pid: its process.
        process_start: when that process began, in ticks since the machine did; None: not known on this system.
        written_secs: seconds since 1970.
    """

    epoch: int
    incarnation: str
    host: str
    pid: int
    process_start: int | None
    written_secs: float

    @property
    def is_alive(self) -> bool | None:
        """Whether its process still runs; None if it was on another machine, which can't be asked."""
        if self.host != socket.gethostname():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # somebody else's, so it is there
        return self.process_start is None or self.process_start == _start_of(self.pid)  # or its number came again


class SnapshotWriter:
    """Writes the snapshots of one run.

    Args:
        path: the file.
        epoch: the run's epoch.
        incarnation: of the topology.
    """

    def __init__(self, path: Path, epoch: int, incarnation: str) -> None:
        self._path = path
        self._epoch = epoch
        self._incarnation = incarnation
        self._process_start = _start_of(os.getpid())
        self._has_begun = False
        self._is_over = False

    def write(self, snapshot: Snapshot) -> None:
        """Replace the file; if that can't be done, for now do nothing."""
        if self._is_over:
            return
        draft = self._path.with_suffix(f".{self._epoch}.draft")  # never another coordinator's
        try:
            if self._has_begun and self._is_succeeded():
                self._is_over = True
                return
            writer = Writer(
                self._epoch, self._incarnation, socket.gethostname(), os.getpid(), self._process_start, time.time()
            )
            draft.write_text(f"{json.dumps(to_json(writer))}\n{json.dumps(to_json(snapshot))}\n", encoding="utf-8")
            draft.replace(self._path)
            self._has_begun = True
        except OSError as error:  # the run is what counts; a metadata directory that is gone stops it elsewhere
            logger.debug("a snapshot of the run could not be written: %s", error)
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)

    def _is_succeeded(self) -> bool:
        """Whether a later coordinator has written its own."""
        with contextlib.suppress(OSError, *DAMAGE), self._path.open("rb") as file:
            writer = from_json(json.loads(file.readline()), Writer)
            return writer.incarnation == self._incarnation and writer.epoch > self._epoch
        return False


def snapshot_path(metadata_dir: Path, topology_id: str) -> Path:
    """Return the file of a topology's snapshots."""
    return metadata_dir / f"run-{urllib.parse.quote(topology_id, safe='')}.json"


def read_snapshot(path: Path) -> tuple[Writer, Snapshot] | None:
    """Return the last snapshot and who wrote it; None if there is none.

    Raises:
        ConfigError: the file is not a snapshot of this version.
    """
    try:
        first, second = path.read_text(encoding="utf-8").splitlines()
        return from_json(json.loads(first), Writer), from_json(json.loads(second), Snapshot)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, *DAMAGE) as error:
        raise ConfigError(f"the snapshot {path} can't be read ({error}); remove it: nothing depends on it") from error


def _start_of(pid: int) -> int | None:
    """Return when a process began, where the system tells."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[_START_TIME_FIELD])
    return None
