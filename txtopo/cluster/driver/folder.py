"""The folder by which a driver is launched, and found again by a supervisor that did not launch it.

::

    launch.json     what to run; written before the process is started
    lock            locked for as long as the process lives: the supervisor locks it, the process inherits it
    pid             the id of its process group; written by the driver
    exit.json       how it ended; written by the driver
    metrics.prom    the metrics of the run; written by the driver every few seconds
    code/           the unpacked archive

The lock tells whether a driver lives. The kernel releases it when the process dies; a process id would be wrong as soon
as another process gets it:

1. The supervisor locks ``lock``, writes ``launch.json``, and starts the process, which inherits the lock.
2. A kill ends the supervisor, at any moment of this.
3. Started again, it finds ``launch.json``. If ``lock`` is locked, the driver lives, and the supervisor adopts it. If
   not, the driver is dead or never started, and ``exit.json``, if it is there, says how it ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any, TypeVar

import attrs

from txtopo.cluster.decisions.assignment import Assignment
from txtopo.records import DAMAGE, from_json, to_json

STARTING = "starting"
"""The stage of a driver whose topology does not run yet."""

_PRIVATE = 0o600

R = TypeVar("R", bound=attrs.AttrsInstance)


@attrs.frozen
class DriverLaunch:
    """What a driver is started with; ``launch.json``.

    ``id`` is unique for each launch; ``code`` is the folder with archive and description; ``heartbeat_secs`` passes
    from one heartbeat to the next; without ZooKeeper the driver ends after ``isolation_secs``; ``before`` says why the
    last start failed, to show.
    """

    id: str
    assignment: Assignment
    code: str
    zookeeper_hosts: str
    zookeeper_root: str
    zookeeper_credentials: str | None = attrs.field(default=None, repr=False)
    session_timeout_secs: float = 10.0
    supervisor: str = ""
    heartbeat_secs: float = 3.0
    isolation_secs: float = 20.0
    log_format: str = "text"
    start_timeout_secs: float = 120.0
    before: str = ""


@attrs.frozen
class DriverEnd:
    """How a driver ended; ``status`` is a :class:`~txtopo.cluster.decisions.slots.DriverExit`."""

    status: int
    error: str = ""


@attrs.frozen
class DriverFolder:
    """The folder of one slot's driver."""

    path: Path

    def begin(self, launch: DriverLaunch) -> int:
        """Empty the folder, write ``launch.json``, and return the lock's descriptor, which the process must inherit."""
        self.remove()
        self.path.mkdir(parents=True)
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, _PRIVATE)
        fcntl.flock(lock, fcntl.LOCK_EX)  # before launch.json: with that file an unlocked folder is a dead driver
        try:
            self._write("launch.json", to_json(launch))
        except BaseException:
            os.close(lock)
            raise
        return lock

    @property
    def metrics(self) -> Path:
        """The file of the run's metrics."""
        return self.path / "metrics.prom"

    def launch(self) -> DriverLaunch | None:
        """Return what :meth:`begin` wrote; None if nothing is there, or only a part."""
        return self._record("launch.json", DriverLaunch)

    def is_locked(self) -> bool:
        """Whether the process lives."""
        with contextlib.suppress(FileNotFoundError):
            try:
                self._lock_shared(fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def wait_until_unlocked(self) -> None:
        """Wait until the process has ended.

        Raises:
            FileNotFoundError: no process is recorded.
        """
        self._lock_shared()

    def pid(self) -> int | None:
        """Return the process id; None if the process has not written it yet."""
        written = self._read("pid")
        return written if isinstance(written, int) else None

    def end(self) -> DriverEnd | None:
        """Return how it ended; None if it was killed before it could write that."""
        return self._record("exit.json", DriverEnd)

    def write_pid(self) -> None:
        """Write this process' id."""
        self._write("pid", os.getpid())

    def write_end(self, end: DriverEnd) -> None:
        """Write how it ended."""
        self._write("exit.json", to_json(end))

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _lock_shared(self, flags: int = 0) -> None:
        # Shared, so that two who look at the same time do not take each other for the driver.
        lock = os.open(self.path / "lock", os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | flags)
        finally:
            os.close(lock)

    def _record(self, name: str, kind: type[R]) -> R | None:
        written = self._read(name)
        try:
            return None if written is None else from_json(written, kind)
        except DAMAGE:
            return None

    def _read(self, name: str) -> Any:
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.path / name).read_bytes())
        return None

    def _write(self, name: str, content: Any) -> None:
        """Write a file that a reader sees whole or not at all. Not synced: after a power cut no driver lives."""
        draft = self.path / f".{name}"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE), "w") as file:  # noqa: PTH123 - a mode
            json.dump(content, file)
        draft.replace(self.path / name)
