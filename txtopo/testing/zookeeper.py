"""Real ZooKeeper servers on this machine, for tests: one, or an ensemble, from the JARs that PySpark ships."""

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
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["ZooKeeperEnsemble", "ZooKeeperServer", "running_ensemble", "running_zookeeper", "shared_zookeeper"]

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

_SERVES = frozenset({"standalone", "leader", "follower"})


class ZooKeeperServer:
    """A ZooKeeper server process on 127.0.0.1, that can be killed and started again on the same data.

    Args:
        folder: where its data and its log lie; made if need be.
        tick_time_ms: its unit of time; sessions last from 2 to 20 of them.
        heap_mb: its heap.
        membership: lines of its configuration that make it a member of an ensemble.
        number: its number there.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tick_time_ms: int = 100,
        heap_mb: int = 64,
        membership: Sequence[str] = (),
        number: int = 1,
    ) -> None:
        self.folder = folder
        self.port = _free_port()
        self.hosts = f"127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        self.data = folder / "data"
        self._tick_time_ms = tick_time_ms
        self._heap_mb = heap_mb
        self._membership = membership
        self._number = number
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; return when it serves.

        Raises:
            RuntimeError: it ended, or does not serve in time; the message has the end of its log.
        """
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process, and do not wait for it."""
        assert self._process is None, "it runs already"
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "myid").write_text(f"{self._number}\n")
        config = self.folder / "zoo.cfg"
        lines = _CONFIG.format(tick_time_ms=self._tick_time_ms, folder=self.data, port=self.port)
        config.write_text(lines + "".join(f"{line}\n" for line in self._membership))
        command = [
            shutil.which("java") or "java",
            f"-Xmx{self._heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.preAllocSize=1024",
            "-cp",
            str(_jars() / "*"),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",  # it runs a single server as well
            str(config),
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603  # our own command

    def wait_until_ready(self) -> None:
        """Return when it serves; the member of an ensemble does so while it follows or leads.

        Raises:
            RuntimeError: it ended, or does not serve in time; the message has the end of its log.
        """
        assert self._process is not None, "it was launched"
        deadline = time.monotonic() + _READY_SECS
        while time.monotonic() < deadline:
            if self.mode() in _SERVES:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_SECS)
                break
        self.kill()
        raise RuntimeError(f"ZooKeeper does not serve on {self.hosts}:\n{self.log.read_text(errors='replace')[-2000:]}")

    def mode(self) -> str | None:
        """Return what it says it is: ``standalone``, ``leader``, ``follower``; None while it does not serve."""
        if self._process is None:
            return None
        _, _, after = self._ask(b"srvr").partition(b"Mode: ")
        return after.split(b"\n", 1)[0].decode() or None

    def signal(self, number: int) -> None:
        """Send the process a signal, SIGSTOP for example."""
        assert self._process is not None, "it runs"
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process, as ``kill -9`` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _ask(self, word: bytes) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=_ANSWER_SECS) as connection:
                connection.sendall(word)
                return b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return b""


class ZooKeeperEnsemble:
    """ZooKeeper servers on 127.0.0.1 that elect a leader; each can be killed and started again by itself.

    Args:
        folder: where their folders lie.
        size: how many servers; more than half of them must run.
        tick_time_ms: their unit of time; sessions last from 2 to 20 of them.
        heap_mb: the heap of each.
    """

    def __init__(self, folder: Path, *, size: int = 3, tick_time_ms: int = 100, heap_mb: int = 48) -> None:
        members = [
            f"server.{number}=127.0.0.1:{_free_port()}:{_free_port()}"  # one for followers, one for elections
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
        """Start all processes; return when all of them serve.

        Raises:
            RuntimeError: one of them ended, or does not serve in time.
        """
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_until_ready()

    def leader(self) -> ZooKeeperServer:
        """Return the server that leads, once there is one.

        Raises:
            RuntimeError: none was elected in time.
        """
        deadline = time.monotonic() + _READY_SECS
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
    """Run a ZooKeeper server for the time of a ``with`` block.

    Args:
        folder: where its data and its log lie; made if need be.
        tick_time_ms: its unit of time; sessions last from 2 to 20 of them.
        heap_mb: its heap.
    """
    server = ZooKeeperServer(folder, tick_time_ms=tick_time_ms, heap_mb=heap_mb)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def running_ensemble(
    folder: Path, *, size: int = 3, tick_time_ms: int = 100, heap_mb: int = 48
) -> Iterator[ZooKeeperEnsemble]:
    """Run an ensemble for the time of a ``with`` block; see :class:`ZooKeeperEnsemble`."""
    ensemble = ZooKeeperEnsemble(folder, size=size, tick_time_ms=tick_time_ms, heap_mb=heap_mb)
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.kill()


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


_given_ports: set[int] = set()


def _free_port() -> int:
    """Return a port that nobody listens on, and that was not returned before."""
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
        if port not in _given_ports:
            _given_ports.add(port)
            return port
