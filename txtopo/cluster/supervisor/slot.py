"""A slot of a supervisor with its driver process: launch, adoption, signals, signs of life, and how it ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from txtopo.cluster.decisions.assignment import Assignment, Ending, Heartbeat
from txtopo.cluster.decisions.slots import DriverSlot, adopted
from txtopo.cluster.driver.child import child_environment, driver_command, end_group
from txtopo.cluster.driver.folder import STARTING, DriverFolder, DriverLaunch


class LocalSlot:
    """A slot of this supervisor, and the process in it; a thread calls ``on_end`` when the process has ended."""

    def __init__(self, number: int, folder: Path, on_end: Callable[[], None]) -> None:
        self.now = DriverSlot(number)
        self._on_end = on_end
        self.has_run = False
        self.detail = ""
        """The last ``detail`` of the driver's heartbeat."""
        self.fault = ""
        """Why no process could be started."""
        self.unsent: tuple[Assignment, Ending] | None = None
        """A report that has still to reach ZooKeeper: until then the folder stays, and the slot is ENDED."""
        self._folder = DriverFolder(folder)
        self._launch: DriverLaunch | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._beat: tuple[str, int] | None = None
        self._beat_at: float | None = None

    @property
    def metrics(self) -> Path:
        """The file that the driver writes its metrics to."""
        return self._folder.metrics

    def launch(self, launch: DriverLaunch, log: Path, work_dir: Path) -> None:
        """Start a driver."""
        self.clean_up()
        lock = self._folder.begin(launch)
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(  # noqa: S603 - our command
                    driver_command(str(self._folder.path)),
                    cwd=work_dir,
                    env=child_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(lock,),
                    start_new_session=True,  # it outlives this supervisor, and signals reach its whole group
                )
        finally:
            # The process holds the lock now; this supervisor must not, or a dead driver would look alive.
            os.close(lock)
        self._launch = launch
        self._watch(partial(os.waitid, os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT))

    def adopt(self, launch: DriverLaunch, beats: Mapping[str, Heartbeat]) -> None:
        """Take over a driver of an earlier supervisor, alive or dead."""
        self._launch = launch
        self.take_beat(beats, time.monotonic(), is_new_time=True)
        self.now = adopted(self.now.number, launch.assignment, self.has_run, time.monotonic())
        self._watch(self._folder.wait_until_unlocked)

    def _watch(self, wait: Callable[[], object]) -> None:
        """Wake the supervisor when the process ends, instead of at its next look."""

        def watch() -> None:
            with contextlib.suppress(OSError):  # the supervisor has seen the end already, and cleaned up
                wait()
            self._on_end()

        threading.Thread(target=watch, name=f"slot-{self.now.number}", daemon=True).start()

    def take_beat(self, beats: Mapping[str, Heartbeat], now: float, *, is_new_time: bool) -> None:
        """Record the last heartbeat. With ``is_new_time``, count silence from now: no beat could arrive before."""
        beat = None if self._launch is None else beats.get(self._launch.assignment.topology)
        # A beat of an earlier launch says nothing about this process.
        if self._launch is None or beat is None or beat.launch != self._launch.id:
            return
        self.has_run = self.has_run or beat.stage != STARTING
        self.detail = beat.detail
        if self._beat != (beat.launch, beat.count) or is_new_time:
            self._beat, self._beat_at = (beat.launch, beat.count), now

    def beat_age_secs(self) -> float | None:
        """Return the time since the last heartbeat; None before the first."""
        return None if self._beat_at is None else time.monotonic() - self._beat_at

    def is_alive(self) -> bool:
        """Whether the process lives."""
        if self._process is not None:
            return not _has_ended(self._process)
        return self._launch is not None and self._folder.is_locked()

    def end(self) -> tuple[int | None, str]:
        """Return exit status and error of the ended process, as far as they are known."""
        if self.fault or self._launch is None:
            return None, self.fault
        said = self._folder.end()
        status = None if self._process is None else self._process.returncode
        if said is None:
            return status, "" if status is None else f"the driver ended with status {status}; see its log"
        # The kernel's status counts: a kill may come after exit.json. Only a child has one, an adopted process has not.
        return (said.status if status is None else status), said.error

    def pid(self) -> int | None:
        """Return the process id, if it is known."""
        return self._folder.pid() if self._process is None else self._process.pid

    def signal(self, number: int) -> None:
        """Send a signal to the process group, if the process lives."""
        pid = self.pid()
        if pid is not None and self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)

    def clean_up(self) -> None:
        """Forget the process, and remove its folder."""
        self._folder.remove()
        self._launch = self._process = self._beat = self._beat_at = self.unsent = None
        self.has_run, self.fault, self.detail = False, "", ""


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended; if so, kill the rest of its group, such as a JVM, before its id can be used again."""
    if process.returncode is not None:
        return True
    if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return False
    end_group(process)
    return True
