"""A watcher, which tells a process that works from one that is frozen, ends with its worker; the rest is told on Spark."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import wait_for
from txtopo.workers.control import ControlServer, JobStarter
from txtopo.workers.events import StopAsked
from txtopo.workers.handshake import Listener, new_secret
from txtopo.workers.supervisor import Supervisor

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here: nobody can watch")

HOLD_SECS = 600.0


class Processes(JobStarter):
    """Runs one worker in a process of its own, which holds the interpreter."""

    def __init__(self) -> None:
        self.secret = new_secret()
        self.listener = Listener("127.0.0.1", self.secret)
        self.is_started = threading.Event()

    def start(self, worker: int, job: int, on_end: Callable[[Exception | None], None]) -> None:
        given = (job, self.listener.address[1], self.secret.hex(), HOLD_SECS)
        self.process = subprocess.Popen([sys.executable, "-m", "tests.workers.holding", *map(str, given)])
        self.is_started.set()

        def wait() -> None:
            status = self.process.wait()
            on_end(RuntimeError(f"exit status {status}") if status else None)

        threading.Thread(target=wait, daemon=True).start()

    def cancel(self, worker: int, job: int) -> None:
        self.process.kill()

    def watchers(self) -> list[int]:
        """Return the watchers of the worker."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_over(pid: int) -> bool:
    """Return whether a process is gone; one that nobody has waited for yet counts, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_watcher_ends_with_its_worker() -> None:
    """Nothing is left of a worker that is killed."""
    jobs = Processes()
    supervisor = Supervisor(1, restarts_max=0, period_secs=60.0, is_active=True, now=time.monotonic())
    server = ControlServer(supervisor, jobs, jobs.listener)
    server.start()
    assert jobs.is_started.wait(60.0)
    try:
        (watcher,) = wait_for("it has a watcher", jobs.watchers)
        jobs.process.kill()
        wait_for("the watcher ends", lambda: is_over(watcher))
    finally:
        jobs.process.kill()
        server.post(StopAsked(0.0))
        server.join(60.0)
