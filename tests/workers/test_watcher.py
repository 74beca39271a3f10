"""A watcher, which tells a process that works from one that is frozen, ends with its worker; the rest is told on Spark."""

import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.workers.control import ControlServer, JobStarter
from txtopo.workers.events import StopAsked
from txtopo.workers.handshake import Listener, new_secret
from txtopo.workers.supervisor import Supervisor
from txtopo.workers.watcher import QUIET_SECS, unpack

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


@pytest.mark.slow
def test_a_watcher_ends_with_its_worker() -> None:
    """Nothing is left of a worker that is killed."""
    jobs = Processes()
    supervisor = Supervisor(1, restarts_max=0, period_secs=60.0, is_active=True, now=time.monotonic())
    server = ControlServer(supervisor, jobs, jobs.listener)
    server.start()
    assert jobs.is_started.wait(DEADLINE_SECS)
    try:
        (watcher,) = wait_for("it has a watcher", jobs.watchers)
        jobs.process.kill()
        wait_for("the watcher ends", lambda: is_over(watcher))
    finally:
        jobs.process.kill()
        server.post(StopAsked(0.0))
        server.join(DEADLINE_SECS)


QUIET = """
import os, signal, socket, sys, threading
from txtopo.workers.watcher import Watcher
watcher = Watcher(socket.socket(fileno=int(sys.argv[1])))
threading.Timer(600, os._exit, [0]).start()
print("watched", flush=True)
"""
WORK = {
    "sleeps": "threading.Event().wait()",
    "computes": "while True: sum(range(1_000_000))",
    "is in the system": "file, into = open('/dev/urandom', 'rb', 0), bytearray(16 << 20)\nwhile True: file.readinto(into)",
}


REPORTS_MAX = 10


def report_of(connection: socket.socket) -> tuple[float, bool]:
    """Return a watcher's next report: for how many seconds nothing was heard, and whether the process works."""
    (length,) = struct.unpack("!I", connection.recv(4, socket.MSG_WAITALL))
    _, secs, is_working = unpack(connection.recv(length, socket.MSG_WAITALL))
    return secs, is_working


@pytest.mark.slow
@pytest.mark.parametrize("what", WORK)
def test_what_counts_as_work(what: str) -> None:
    """A process that takes no beat works if it takes processor time, its own or the system's for it."""
    ours, others = socket.socketpair()
    with (
        ours,
        subprocess.Popen(
            [sys.executable, "-c", f"{QUIET}{WORK[what]}", str(others.fileno())], pass_fds=[others.fileno()]
        ) as process,
    ):
        others.close()
        ours.settimeout(DEADLINE_SECS)
        try:
            works = what != "sleeps"
            reports = [report_of(ours)]
            while reports[-1][1] != works and len(reports) < REPORTS_MAX:  # others may have the cores
                reports.append(report_of(ours))
            assert all(secs >= QUIET_SECS for secs, _ in reports)
            assert reports[-1][1] == works
        finally:
            process.kill()
