"""A watcher is a small process beside each worker that reports for it while the worker can't.

A C call that keeps Python's interpreter lock, such as a bad regular expression, stops every thread of its process,
including the one that sends heartbeats. A frozen process is just as silent, but takes no processor time. The watcher
runs on the worker's machine, so it can tell the two apart. While the worker sends no heartbeat, the watcher reports to
the driver, on a separate connection: for how long, whether the worker takes processor time, and which task has its
turn. The worker writes that task into memory that both share.

The watcher's program is the source of this file, and of :mod:`txtopo.files.proc` as an argument; for the program this
file imports only the standard library.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

if __name__ != "__main__":  # the program has it as an argument
    from txtopo.files import proc

POLL_SECS = 1.0
"""How often a watcher looks."""

QUIET_SECS = 2.0
"""A watcher reports after this long without a heartbeat; a worker sends one every second."""

NO_TASK = -1
"""Stands for the task while none has its turn."""

_SEND_SECS = 5.0
"""A driver that reads nothing for so long is stopped or gone."""
_LENGTH = struct.Struct("!I")
_REPORT = struct.Struct("!qd?")
_WORDS_BYTES = 16
_BEATS, _TASK = 0, 1
"""The words in shared memory."""


def unpack(report: bytes) -> tuple[int, float, bool]:
    """Return a watcher's report: the task, the seconds without a heartbeat, and whether the process works."""
    task, secs, is_working = _REPORT.unpack(report)
    return task, secs, is_working


class Watcher:
    """The worker's side: starts a watcher, hands it the connection, and writes into the memory that both share.

    The driver has been told on the connection which worker is watched.
    """

    def __init__(self, connection: socket.socket) -> None:
        with tempfile.TemporaryFile(prefix="txtopo-watcher-") as file, connection:
            file.truncate(_WORDS_BYTES)
            self._memory = mmap.mmap(file.fileno(), _WORDS_BYTES)
            self._words = memoryview(self._memory).cast("q")
            self.record_task: Callable[[int], None] = functools.partial(self._words.__setitem__, _TASK)
            """Writes which task has its turn; a partial, because it is called several times in a pass."""
            self.record_task(NO_TASK)
            shared = (connection.fileno(), file.fileno())
            program, proc_module = (inspect.getsource(module) for module in (sys.modules[__name__], proc))
            self._process = subprocess.Popen(  # noqa: S603 - our source
                [sys.executable, "-I", "-S", "-c", program, *map(str, shared), proc_module],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=shared,
            )

    @staticmethod
    def can_watch() -> bool:
        """Return whether this machine reports the processor time of a process."""
        return proc.cpu_ticks(os.getpid()) is not None

    def beat(self) -> None:
        """Record that Python's threads run."""
        self._words[_BEATS] += 1

    def close(self) -> None:
        """End the watcher."""
        self._process.kill()
        self._process.wait()  # else it stays a zombie: Spark uses its Python processes again


def _watch(worker: int, connection: socket.socket, memory: mmap.mmap, cpu_ticks: Callable[[int], int | None]) -> None:
    words = memoryview(memory).cast("q")
    beats, quiet_since, ticks = words[_BEATS], time.monotonic(), cpu_ticks(worker)
    while os.getppid() == worker:  # a dead worker is no longer the parent
        if select.select([connection], [], [], POLL_SECS)[0]:  # the driver sends nothing, so this is its end
            return
        now, ticks_before = time.monotonic(), ticks
        ticks = cpu_ticks(worker)
        if words[_BEATS] != beats:
            beats, quiet_since = words[_BEATS], now
        elif now - quiet_since >= QUIET_SECS:
            report = _REPORT.pack(words[_TASK], now - quiet_since, ticks != ticks_before)
            connection.sendall(_LENGTH.pack(len(report)) + report)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver: it ends its workers in good order
    proc_module: dict[str, Any] = {"__name__": "proc"}
    exec(sys.argv[3], proc_module)  # noqa: S102 - our source
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.settimeout(_SEND_SECS)
    with contextlib.suppress(OSError):  # the driver or the worker is gone, or the driver took longer than _SEND_SECS
        _watch(os.getppid(), connection, mmap.mmap(int(sys.argv[2]), _WORDS_BYTES), proc_module["cpu_ticks"])


if __name__ == "__main__":
    _main()
