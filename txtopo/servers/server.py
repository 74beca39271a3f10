"""Servers on this machine, which end with this process, and their ports."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Self

from txtopo.spark.session.versions import check_java

READY_SECS = 180.0
"""How long a server may take to start on a busy machine."""

_POLL_SECS = 0.05
_STOP_SECS = 30.0


class Server(ABC):
    """One process or several that a context manager starts, and kills at its end."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @abstractmethod
    def start(self) -> None:
        """Start them, and wait until they serve; raise RuntimeError, with the log's end, if one does not in time."""

    @abstractmethod
    def kill(self) -> None:
        """Kill them, as ``kill -9`` does."""


class JavaServer(Server):
    """A Java process that can be stopped, killed and started again, and that dies with this process.

    Its output is appended to the file ``log``; its heap has ``heap_mb`` MiB.
    """

    def __init__(self, log: Path, heap_mb: int) -> None:
        self.log = log
        self._options = (f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, and wait until it serves requests; raises as :meth:`Server.start` does."""
        self.launch()
        self.wait_until_ready()

    @abstractmethod
    def launch(self) -> None:
        """Start the process without waiting for it."""

    @abstractmethod
    def wait_until_ready(self) -> None:
        """Wait until it serves requests; raises as :meth:`Server.start` does."""

    def launch_java(self, class_path: str, *arguments: str, lock: int | None = None) -> None:
        """Start a main class as the process.

        Args:
            class_path: as for ``java -cp``.
            arguments: options of Java, the main class and its arguments.
            lock: the descriptor of a lock that the process takes over: it holds as long as the process lives.

        Raises:
            ConfigError: there is no Java that fits.
        """
        assert self._process is None, "it is already running"
        command = [_java(), *self._options, "-cp", class_path, *arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our command
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process, which then stops the server
                pass_fds=() if lock is None else (lock,),
            )
        # The pipe closes when this process ends, even by SIGKILL; then the guard kills the server.
        self._guard = subprocess.Popen(  # noqa: S603 - as above
            ["/bin/sh", "-c", f"cat >/dev/null; kill -9 {self._process.pid}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def run_java(self, class_path: str, *arguments: str) -> None:
        """Run another class to its end; raise RuntimeError, with the log's end, if it failed."""
        with self.log.open("ab") as log:
            command = [_java(), *self._options, "-cp", class_path, *arguments]
            result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)  # noqa: S603 - as above
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)} failed:\n{self._end_of_log()}")

    def wait_until(self, is_ready: Callable[[], bool], purpose: str) -> None:
        """Wait until ``is_ready()``; kill the process if that takes too long.

        Raises:
            RuntimeError: the process has ended, or is not ready in time; the message is ``purpose`` and the end of the
            log.
        """
        assert self._process is not None, "it was launched"
        deadline = time.monotonic() + READY_SECS
        while time.monotonic() < deadline:
            if self._process.poll() is None and is_ready():
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_SECS)
                break
        self.kill()
        raise RuntimeError(f"{purpose}:\n{self._end_of_log()}")

    def signal(self, number: int) -> None:
        """Send a signal, for example SIGSTOP, to the process."""
        assert self._process is not None, "it is running"
        self._process.send_signal(number)

    def stop(self) -> None:
        """Ask the process to end, and wait for it; kill it if it takes too long."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECS)
            self.kill()

    def kill(self) -> None:
        """Kill the process, as ``kill -9`` does."""
        # The guard first: if this process died in between, it would kill whichever process gets the server's id next.
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


def _java() -> str:
    check_java()
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def pyspark_jars() -> Path:
    """Return the folder of the JARs that PySpark ships; raise RuntimeError if PySpark is not installed."""
    specification = importlib.util.find_spec("pyspark")
    if specification is None or specification.origin is None:
        raise RuntimeError("PySpark, whose JARs the server is made of, is not installed: pip install pyspark")
    return Path(specification.origin).parent / "jars"


_reserved: list[socket.socket] = []
"""One for each port that was given, until this process ends."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody else gets while this process lives, whether a server runs there or not."""
    # A server takes a second to listen, and may be killed and started again. Meanwhile the kernel gives the port to no
    # connection, not even to one that asks for this very port, since a socket is bound to it. A server can bind it,
    # too: the socket does not listen, and Java's servers let others use their address, as this one does.
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    _reserved.append(bound)
    port: int = bound.getsockname()[1]
    return port
