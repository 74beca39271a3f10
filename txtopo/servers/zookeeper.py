"""Real ZooKeeper servers, one or an ensemble, from the JARs that PySpark ships."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path

from txtopo.servers.server import READY_SECS, JavaServer, Server, free_port, pyspark_jars

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


class ZooKeeperServer(JavaServer):
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
        self.data = folder / "data"
        self._tick_time_ms = tick_time_ms
        self._membership = membership
        self._number = number
        super().__init__(folder / "server.log", heap_mb)

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "myid").write_text(f"{self._number}\n")
        config = self.folder / "zoo.cfg"
        lines = _CONFIG.format(tick_time_ms=self._tick_time_ms, folder=self.data, port=self.port)
        config.write_text(lines + "".join(f"{line}\n" for line in self._membership))
        self.launch_java(
            str(pyspark_jars() / "*"),
            "-Dzookeeper.preAllocSize=1024",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",  # it runs a single server as well
            str(config),
        )

    def wait_until_ready(self) -> None:
        """Wait until it serves requests; a member of an ensemble does so while it follows or leads."""
        self.wait_until(lambda: self.mode() in _SERVES, f"ZooKeeper does not serve on {self.hosts}")

    def mode(self) -> str | None:
        """Return its mode: ``standalone``, ``leader`` or ``follower``; None while it does not serve requests."""
        if not self.is_running:
            return None
        _, _, after = self._ask(b"srvr").partition(b"Mode: ")
        return after.split(b"\n", 1)[0].decode() or None

    def _ask(self, word: bytes) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=_ANSWER_SECS) as connection:
                connection.sendall(word)
                return b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return b""


class ZooKeeperEnsemble(Server):
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
        """Start all processes, and wait until all of them serve requests."""
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_until_ready()

    def leader(self) -> ZooKeeperServer:
        """Wait for a leader and return it; raise RuntimeError if none was elected in time."""
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


def running_zookeeper(folder: Path, *, tick_time_ms: int = 100, heap_mb: int = 64) -> ZooKeeperServer:
    """Return a server for a ``with`` block, which starts it and kills it at its end; see :class:`ZooKeeperServer`."""
    return ZooKeeperServer(folder, tick_time_ms=tick_time_ms, heap_mb=heap_mb)


def running_ensemble(folder: Path, *, size: int = 3, tick_time_ms: int = 100, heap_mb: int = 48) -> ZooKeeperEnsemble:
    """Return an ensemble for a ``with`` block, which starts it and kills it at its end."""
    return ZooKeeperEnsemble(folder, size=size, tick_time_ms=tick_time_ms, heap_mb=heap_mb)
