"""The folder by which a driver is launched, and found again by a supervisor that did not launch it.

::

    launch.json     what to run; written before the process is started
    lock            locked for as long as the process lives: the supervisor locks it, the process inherits it
    pid             the id of its process group; written by the driver
    exit.json       how it ended; written by the driver
    metrics.prom    the metrics of the run; written by the driver every few seconds
    code/           the unpacked archive

    ../../logs/ID/place.json   where the topology's metadata is, for its page; written by the driver

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
from txtopo.files.durable import is_shortage, write_whole
from txtopo.files.records import DAMAGE, from_json, to_json

STARTING = "starting"
"""The stage of a driver whose topology does not run yet."""

_PRIVATE = 0o600

R = TypeVar("R", bound=attrs.AttrsInstance)


@attrs.frozen
class DriverLaunch:
    """What a driver is started with; ``launch.json``.

    ``id`` is unique for each launch; ``code`` is the folder with archive and description; ``heartbeat_secs`` passes
    from one heartbeat to the next; if ZooKeeper takes none for ``isolation_secs``, the run is stopped, and the process
    ends ``shutdown_secs`` later at the latest; ``before`` says why the last start failed, to show.
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
    shutdown_secs: float = 3.0
    log_format: str = "text"
    start_timeout_secs: float = 120.0
    before: str = ""


@attrs.frozen
class DriverEnd:
    """How a driver ended; ``status`` is a :class:`~txtopo.cluster.decisions.slots.DriverExit`."""

    status: int
    error: str = ""


@attrs.frozen
class TopologyPlace:
    """Where a topology's metadata is on this machine, with its timeline; ``place.json`` beside the driver's log.

    It outlives the driver, as the log does, so that the page can show why a topology failed.
    """

    metadata_dir: str
    topology_id: str

    @classmethod
    def read(cls, log_dir: Path) -> TopologyPlace | None:
        """Return what a topology's last driver here wrote; None if none has run."""
        return _record(log_dir / "place.json", cls)

    def write(self, log_dir: Path) -> None:
        """Write it."""
        _write(log_dir / "place.json", to_json(self))


@attrs.frozen
class DriverFolder:
    """The folder of one slot's driver."""

    path: Path

    def log_dir(self, topology: str) -> Path:
        """Return the folder of a topology's log, which its drivers on this machine share."""
        return self.path.parents[1] / "logs" / topology

    def begin(self, launch: DriverLaunch) -> int:
        """Empty the folder, write ``launch.json``, and return the lock's descriptor, which the process must inherit."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True)
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, _PRIVATE)
        fcntl.flock(lock, fcntl.LOCK_EX)  # before launch.json: with that file an unlocked folder is a dead driver
        try:
            _write(self.path / "launch.json", to_json(launch))
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
        return _record(self.path / "launch.json", DriverLaunch)

    def is_locked(self) -> bool:
        """Whether the process lives."""
        with contextlib.suppress(FileNotFoundError):
            try:
                self._lock_shared(fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def wait_until_unlocked(self) -> None:
        """Wait until the process has ended; raise FileNotFoundError if none is recorded."""
        self._lock_shared()

    def pid(self) -> int | None:
        """Return the process id; None if the process has not written it yet."""
        record = _read(self.path / "pid")
        return record if isinstance(record, int) else None

    def end(self) -> DriverEnd | None:
        """Return how it ended; None if it was killed before it could write that."""
        return _record(self.path / "exit.json", DriverEnd)

    def write_pid(self) -> None:
        """Write this process' id."""
        _write(self.path / "pid", os.getpid())

    def write_end(self, end: DriverEnd) -> None:
        """Write how it ended."""
        _write(self.path / "exit.json", to_json(end))

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


def _record(path: Path, kind: type[R]) -> R | None:
    content = _read(path)
    try:
        return None if content is None else from_json(content, kind)
    except DAMAGE:
        return None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None
    except OSError as error:
        if is_shortage(error):
            raise  # a driver that has said how it ended would count as one that was killed
        return None


def _write(path: Path, content: Any) -> None:
    # Not synced: after a power cut no driver lives.
    write_whole(path, json.dumps(content).encode(), _PRIVATE)
