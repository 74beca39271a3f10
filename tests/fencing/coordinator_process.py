"""A coordinator in a process of its own, with a real Spark, that can be stopped, woken up and killed."""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator, Mapping

from tests.harness.soak.processes import java_of, kill_session
from tests.processes import python
from tests.waiting import DEADLINE_SECS

TARGET = "tests.fencing.topologies:words"


class CoordinatorProcess:
    """``txtopo run`` of the words topology, in a session of its own.

    Args:
        log: a file for what it prints.
        settings: what ``--set`` gives.
    """

    def __init__(self, log: pathlib.Path, settings: Mapping[str, object]) -> None:
        pairs = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        command = ["-m", "txtopo", "run", TARGET, *pairs]
        self._log = log
        with log.open("wb") as file:
            self._process = python(*command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        """All that it has printed so far."""
        return self._log.read_text(errors="replace")

    def is_running(self) -> bool:
        """Whether it has not ended; a stopped one has not."""
        return self._process.poll() is None

    def signal(self, number: int, *, to_jvm: bool) -> None:
        """Send a signal to the driver, and to Spark's JVM, which has a process group of its own, if that is wanted."""
        os.kill(self.pid, number)
        jvm = java_of(self.pid) if to_jvm else None
        if jvm is not None:
            os.kill(jvm, number)

    def wait(self) -> int:
        """Wait for its end, and return its exit status."""
        return self._process.wait(DEADLINE_SECS)

    def kill(self) -> None:
        """Kill the whole session, whatever is left of it."""
        kill_session(self.pid)
        self._process.wait()


@contextlib.contextmanager
def coordinator_process(log: pathlib.Path, settings: Mapping[str, object]) -> Iterator[CoordinatorProcess]:
    """Start a coordinator; it is killed at the end of a ``with`` block."""
    process = CoordinatorProcess(log, settings)
    try:
        yield process
    finally:
        process.kill()
