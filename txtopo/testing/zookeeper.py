"""A real one-node ZooKeeper on this machine, for tests: from the JARs that PySpark ships."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ZooKeeperServer", "running_zookeeper", "shared_zookeeper"]

_READY_SECS = 60.0
_ANSWER_SECS = 1.0
"""A server asked in the middle of its start may throw an error, and never answer that connection."""
_POLL_SECS = 0.05

_CONFIG = """\
tickTime={tick_time_ms}
dataDir={folder}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
4lw.commands.whitelist=srvr
"""


class ZooKeeperServer:
    """A ZooKeeper server process on 127.0.0.1, that can be killed and started again on the same data.

    Args:
        folder: where its data and its log lie; made if need be.
        tick_time_ms: its unit of time; sessions last from 2 to 20 of them.
        heap_mb: its heap.
    """

    def __init__(self, folder: Path, *, tick_time_ms: int = 100, heap_mb: int = 64) -> None:
        self.folder = folder
        self.port = _free_port()
        self.hosts = f"127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        self._tick_time_ms = tick_time_ms
        self._heap_mb = heap_mb
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; return when it serves.

        Raises:
            RuntimeError: it ended, or does not serve in time; the message has the end of its log.
        """
        assert self._process is None, "it runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "zoo.cfg"
        config.write_text(_CONFIG.format(tick_time_ms=self._tick_time_ms, folder=self.folder / "data", port=self.port))
        command = [
            shutil.which("java") or "java",
            f"-Xmx{self._heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.preAllocSize=1024",
            "-cp",
            str(_jars() / "*"),
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(config),
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603  # our own command
        self._wait_until_ready(self._process)

    def kill(self) -> None:
        """Kill the process, as ``kill -9`` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _READY_SECS
        while time.monotonic() < deadline:
            if b"Mode: standalone" in self._ask(b"srvr"):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECS)
                break
        self.kill()
        raise RuntimeError(f"ZooKeeper does not serve on {self.hosts}:\n{self.log.read_text(errors='replace')[-2000:]}")

    def _ask(self, word: bytes) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=_ANSWER_SECS) as connection:
                connection.sendall(word)
                return b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return b""


@contextlib.contextmanager
def running_zookeeper(folder: Path, *, tick_time_ms: int = 100, heap_mb: int = 64) -> Iterator[ZooKeeperServer]:
    """Run a ZooKeeper server for the time of a ``with`` block.

    Args:
        folder: where its data and its log lie; made if need be.
        tick_time_ms: its unit of time; sessions last from 2 to 20 of them.
        heap_mb: its heap.
    """
    server = ZooKeeperServer(folder, tick_time_ms=tick_time_ms, heap_mb=heap_mb)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@functools.cache
def shared_zookeeper() -> ZooKeeperServer:
    """Return a server that is started by the first call and runs until this process ends.

    Give each test a root node of its own in it, and do not kill it.
    """
    folder = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    server = ZooKeeperServer(folder)
    server.start()
    atexit.register(server.kill)
    return server


def _jars() -> Path:
    specification = importlib.util.find_spec("pyspark")
    if specification is None or specification.origin is None:
        raise RuntimeError("PySpark, whose JARs hold ZooKeeper, is not installed: pip install pyspark")
    return Path(specification.origin).parent / "jars"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
