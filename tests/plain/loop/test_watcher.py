"""A watcher tells a process that works from one that is frozen, while neither can say a word."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.plain.loop.holding import TASK
from txtopo.plain.supervision.control import ControlServer, JobStarter
from txtopo.plain.supervision.supervisor import SILENCE_SECS, StopAsked, Supervisor
from txtopo.plain.transport.handshake import Listener, new_secret

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here: nobody can watch")

WAIT_SECS = 60.0


class Processes(JobStarter):
    """Runs one worker in processes of its own; its first start holds the interpreter for some seconds."""

    def __init__(self, secs: float) -> None:
        self.secs = secs
        self.secret = new_secret()
        self.listener = Listener("127.0.0.1", self.secret)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, worker: int, job: int, on_end: Callable[[Exception | None], None]) -> None:
        given = (job, self.listener.address[1], self.secret.hex(), 0.0 if self.processes else self.secs)
        process = subprocess.Popen([sys.executable, "-m", "tests.plain.loop.holding", *map(str, given)])
        self.processes.append(process)

        def wait() -> None:
            status = process.wait()
            on_end(RuntimeError(f"exit status {status}") if status else None)

        threading.Thread(target=wait, daemon=True).start()

    def cancel(self, worker: int, job: int) -> None:
        self.processes[job].kill()

    def watchers(self) -> list[int]:
        """Return the watchers of the worker that was started last."""
        pid = self.processes[-1].pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def begin() -> Iterator[Callable[..., tuple[ControlServer, Processes]]]:
    """Start a run of one worker that holds the interpreter for some seconds, and may do so for some."""
    begun: list[tuple[ControlServer, Processes]] = []

    def begin(secs: float, secs_max: float, restarts_max: int = 0) -> tuple[ControlServer, Processes]:
        jobs = Processes(secs)
        supervisor = Supervisor(
            1,
            restarts_max=restarts_max,
            period_secs=60.0,
            is_active=True,
            now=time.monotonic(),
            stall_secs_max=secs_max,
            component_of={TASK: "split"},
        )
        server = ControlServer(supervisor, jobs, jobs.listener)
        server.start()
        begun.append((server, jobs))
        return server, jobs

    yield begin
    for server, jobs in begun:
        for process in jobs.processes:
            process.kill()
        server.post(StopAsked(0.0))
        server.join(WAIT_SECS)


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + WAIT_SECS
    while not condition():
        assert time.monotonic() < end, f"no {what} within {WAIT_SECS:g} s"
        time.sleep(0.02)


def is_over(pid: int) -> bool:
    """Return whether a process is gone; one that nobody has waited for yet counts, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.long
@pytest.mark.slow
def test_a_long_call_ends_nothing(begin: Callable[..., tuple[ControlServer, Processes]]) -> None:
    """A C call that keeps the interpreter for longer than a worker may be silent: it is waited for."""
    server, jobs = begin(SILENCE_SECS + 3.0, 600.0)
    assert server.join(WAIT_SECS)
    assert server.error is None
    assert [process.wait() for process in jobs.processes] == [0]


@pytest.mark.long
@pytest.mark.slow
def test_a_frozen_process_is_dead(begin: Callable[..., tuple[ControlServer, Processes]]) -> None:
    """A process that is stopped takes no processor time: it is replaced, whatever it is in."""
    server, jobs = begin(600.0, 600.0, restarts_max=1)
    wait_for(lambda: jobs.processes and jobs.watchers(), "watcher")
    jobs.processes[0].send_signal(signal.SIGSTOP)
    assert server.join(WAIT_SECS)
    assert server.error is None
    assert [process.wait() for process in jobs.processes] == [-signal.SIGKILL, 0]


def test_a_watcher_ends_with_its_worker(begin: Callable[..., tuple[ControlServer, Processes]]) -> None:
    """Nothing is left of a worker that is killed."""
    _, jobs = begin(600.0, 600.0)
    wait_for(lambda: jobs.processes and jobs.watchers(), "watcher")
    (watcher,) = jobs.watchers()
    jobs.processes[0].kill()
    wait_for(lambda: is_over(watcher), "end of the watcher")
