"""Start real ZooKeeper servers for tests, one or an ensemble, from the JARs that PySpark ships."""

from __future__ import annotations

import atexit
import contextlib
import functools
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from txtopo.testing.servers import READY_SECS, JavaServer, free_port, pyspark_jars

__all__ = ["ZooKeeperEnsemble", "ZooKeeperServer", "running_ensemble", "running_zookeeper", "shared_zookeeper"]

Server = TypeVar("Server", "ZooKeeperServer", "ZooKeeperEnsemble")

_ANSWER_SECS = 1.0
"""A server that is still starting may accept a connection and never answer."""
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

_SERVES = frozenset({"standalone", "leader", "follower"})


class ZooKeeperServer:
    """A ZooKeeper server process on 127.0.0.1 that can be killed and restarted on the same data.

    Args:
        folder: the folder of its data and log; created if it does not exist.
        tick_time_ms: its tickTime; sessions last 2 to 20 ticks.
        heap_mb: its heap in MiB.
        membership: lines of its configuration that make it a member of an ensemble.
        number: its id there, from 1.
        port: of its clients; None: a free one.
    """

    def __init__(  # noqa: PLR0913 - options
        self,
        folder: Path,
        *,
        tick_time_ms: int = 100,
        heap_mb: int = 64,
        membership: Sequence[str] = (),
        number: int = 1,
        port: int | None = None,
    ) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.hosts = f"127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        self.data = folder / "data"
        self._tick_time_ms = tick_time_ms
        self._membership = membership
        self._number = number
        self._server = JavaServer(self.log, heap_mb)

    def start(self) -> None:
        """Start the process, and wait until it serves requests.

        Raises:
            RuntimeError: it ended, or does not serve in time; the message has the end of its log.
        """
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "myid").write_text(f"{self._number}\n")
        config = self.folder / "zoo.cfg"
        lines = _CONFIG.format(tick_time_ms=self._tick_time_ms, folder=self.data, port=self.port)
        config.write_text(lines + "".join(f"{line}\n" for line in self._membership))
        self._server.launch(
            str(pyspark_jars() / "*"),
            "-Dzookeeper.preAllocSize=1024",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",  # it runs a single server as well
            str(config),
        )

    def wait_until_ready(self) -> None:
        """Wait until it serves requests; a member of an ensemble does so while it follows or leads.

        Raises:
            RuntimeError: it ended, or does not serve in time; the message has the end of its log.
        """
        self._server.wait_until(lambda: self.mode() in _SERVES, f"ZooKeeper does not serve on {self.hosts}")

    def mode(self) -> str | None:
        """Return its mode: ``standalone``, ``leader`` or ``follower``; None while it does not serve requests."""
        if not self._server.is_running:
            return None
        _, _, after = self._ask(b"srvr").partition(b"Mode: ")
        return after.split(b"\n", 1)[0].decode() or None

    def signal(self, number: int) -> None:
        """Send a signal, for example SIGSTOP, to the process."""
        self._server.signal(number)

    def stop(self) -> None:
        """Ask the process to end, and wait for it; kill it if it takes too long."""
        self._server.stop()

    def kill(self) -> None:
        """Kill the process, as ``kill -9`` does."""
        self._server.kill()

    def _ask(self, word: bytes) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=_ANSWER_SECS) as connection:
                connection.sendall(word)
                return b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return b""


class ZooKeeperEnsemble:
    """ZooKeeper servers on 127.0.0.1 that elect a leader; each can be killed and restarted separately.

    Args:
        folder: the parent of their folders.
        size: the number of servers; more than half of them must run.
        tick_time_ms: their tickTime; sessions last 2 to 20 ticks.
        heap_mb: the heap of each.
    """

    def __init__(self, folder: Path, *, size: int = 3, tick_time_ms: int = 100, heap_mb: int = 48) -> None:
        members = [
            f"server.{number}=127.0.0.1:{free_port()}:{free_port()}"  # one for followers, one for elections
            for number in range(1, size + 1)
        ]
        limits = ("initLimit=100", "syncLimit=20")  # in ticks: a busy machine is no reason for an election
        self.servers = [
            ZooKeeperServer(
                folder / f"server-{number}",
                tick_time_ms=tick_time_ms,
                heap_mb=heap_mb,
                membership=(*limits, *members),
                number=number,
            )
            for number in range(1, size + 1)
        ]
        self.hosts = ",".join(server.hosts for server in self.servers)

    def start(self) -> None:
        """Start all processes, and wait until all of them serve requests.

        Raises:
            RuntimeError: one of them ended, or does not serve in time.
        """
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_until_ready()

    def leader(self) -> ZooKeeperServer:
        """Wait for a leader and return it.

        Raises:
            RuntimeError: none was elected in time.
        """
        deadline = time.monotonic() + READY_SECS
        while time.monotonic() < deadline:
            for server in self.servers:
                if server.mode() == "leader":
                    return server
            time.sleep(_POLL_SECS)
        raise RuntimeError(f"the ensemble {self.hosts} has elected no leader")

    def kill(self) -> None:
        """Kill all processes."""
        for server in self.servers:
            server.kill()


@contextlib.contextmanager
def running_zookeeper(folder: Path, *, tick_time_ms: int = 100, heap_mb: int = 64) -> Iterator[ZooKeeperServer]:
    """Run a ZooKeeper server during a ``with`` block.

    Args:
        folder: the folder of its data and log; created if it does not exist.
        tick_time_ms: its tickTime; sessions last 2 to 20 ticks.
        heap_mb: its heap in MiB.
    """
    with _running(ZooKeeperServer(folder, tick_time_ms=tick_time_ms, heap_mb=heap_mb)) as server:
        yield server


@contextlib.contextmanager
def running_ensemble(
    folder: Path, *, size: int = 3, tick_time_ms: int = 100, heap_mb: int = 48
) -> Iterator[ZooKeeperEnsemble]:
    """Run an ensemble during a ``with`` block; see :class:`ZooKeeperEnsemble`."""
    with _running(ZooKeeperEnsemble(folder, size=size, tick_time_ms=tick_time_ms, heap_mb=heap_mb)) as ensemble:
        yield ensemble


@contextlib.contextmanager
def _running(server: Server) -> Iterator[Server]:
    try:
        server.start()
        yield server
    finally:
        server.kill()


@functools.cache
def shared_zookeeper() -> ZooKeeperServer:
    """Return a server that the first call starts and that runs until this process ends.

    Use a separate root node for each test, and do not kill the server.
    """
    folder = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    server = ZooKeeperServer(folder)
    server.start()
    atexit.register(server.kill)
    return server
