"""The processes of a run, in a session of their own: Spark's Python workers leave the driver's process group."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import attrs

END_SECS = 30.0
"""How long processes may take to be gone once they are killed."""

POLL_SECS = 0.01

_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@attrs.frozen
class Member:
    """A process of a session."""

    pid: int
    parent: int
    command: tuple[str, ...]

    @property
    def is_java(self) -> bool:
        return bool(self.command) and Path(self.command[0]).name == "java"

    @property
    def is_python_of_spark(self) -> bool:
        """Whether it is Spark's Python daemon, or one of the workers that it has forked."""
        return "pyspark.daemon" in self.command


def members(session: int) -> list[Member]:
    """Return the processes of a session that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # Fields of /proc/PID/stat after the command, which may hold anything but parentheses last: state,
            # parent, group, session (proc(5)). Z and X are dead but not yet buried.
            state, parent, _, its_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state not in {"Z", "X"}:
                command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found.append(Member(int(entry.name), int(parent), tuple(command)))
    return found


def java_of(session: int) -> int | None:
    """Return the JVM of a session, if it has one."""
    return next((member.pid for member in members(session) if member.is_java), None)


def workers_of(session: int) -> list[int]:
    """Return Spark's Python workers in a session."""
    pythons = {member.pid: member for member in members(session) if member.is_python_of_spark}
    return [member.pid for member in pythons.values() if member.parent in pythons]


def executors_of(session: int) -> list[int]:
    """Return the JVMs of Spark's executors in a session."""
    return [member.pid for member in members(session) if _EXECUTOR in member.command]


def kill_process(pid: int) -> bool:
    """Kill a process, as ``kill -9`` does; return whether it was there."""
    return signal_process(pid, signal.SIGKILL)


def signal_process(pid: int, what: signal.Signals) -> bool:
    """Send a signal to a process; return whether it was there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)
        return True
    return False


def kill_session(session: int) -> None:
    """Kill all processes of a session, and those that they start meanwhile; return when they are gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)
    deadline = time.monotonic() + END_SECS
    # A process may fork between the look and its death. So look again until none is left.
    while left := members(session):
        assert time.monotonic() < deadline, f"processes survive SIGKILL: {left}"
        for member in left:
            kill_process(member.pid)
        pause()


def pause() -> None:
    """Wait a moment between two looks at a condition."""
    threading.Event().wait(POLL_SECS)
