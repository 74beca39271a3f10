"""Real nimbus processes, and what a client says to them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import httpx

from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.cluster.code.submission import Submission
from txtopo.cluster.decisions.assignment import SupervisorInfo
from txtopo.cluster.state import ClusterState, LeaderWrites
from txtopo.servers.server import free_port

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-for-tests"
SESSION_SECS = 4.0

QUICK = {
    "storm.zookeeper.session.timeout.secs": SESSION_SECS,
    "nimbus.monitor.freq.secs": 0.5,
    "nimbus.code.sync.freq.secs": 1,
}


def leading(state: ClusterState, address: str = "127.0.0.1:1") -> LeaderWrites:
    """Let a test lead a cluster; return its writes."""
    term = state.begin_term(address, state.epoch_version())
    assert term is not None
    return LeaderWrites(state, term)


def archive(text: str = "topology = None\n") -> bytes:
    """Return a zip with one module."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("words.py", text)
    return buffer.getvalue()


class DaemonProcess:
    """A daemon that can be killed, stopped, and started again on the same folder and port."""

    kind: str
    """The command that starts it."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.folder = cluster.folder / f"{self.kind}-{number}"
        self.port = free_port()
        self.log = cluster.folder / f"{self.kind}-{number}.log"
        self.options: list[str] = []
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, failpoints: str = "", **settings: object) -> Self:
        """Start it; do not wait for anything."""
        assert not self.is_alive()
        values: Mapping[str, object] = {
            **QUICK,
            **self._cluster.settings,
            "storm.zookeeper.servers": self._cluster.hosts,
            "storm.zookeeper.root": self._cluster.root,
            "storm.local.dir": self.folder,
            "cluster.token.file": self._cluster.folder / "token",
            f"{self.kind}.port": self.port,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        pairs = [f"--set={name}={value}" for name, value in values.items()]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["TXTOPO_FAILPOINTS"] = failpoints
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "txtopo", self.kind, *self.options, *pairs],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )
        return self

    def is_alive(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until it has ended; return its exit status."""
        assert self._process is not None
        return self._process.wait(DEADLINE_SECS)

    def kill(self) -> None:
        """Kill it, as ``kill -9`` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """End it in good order."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        """Kill it."""
        self.kill()


class NimbusProcess(DaemonProcess):
    """A nimbus, and a client's requests to it."""

    kind = "nimbus"

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster, number)
        self.address = f"127.0.0.1:{self.port}"
        self.client = httpx.Client(
            base_url=f"http://{self.address}",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=DEADLINE_SECS,
            trust_env=False,
        )

    def start_to_lead(self, failpoints: str = "", **settings: object) -> NimbusProcess:
        """Start it, and wait until it leads."""
        self.start(failpoints, **settings).wait_until_up()
        wait_for("it leads", lambda: self.leads)
        return self

    def wait_until_up(self) -> NimbusProcess:
        """Wait until it answers."""
        wait_for(f"{self.address} answers: {self.log}", self._answers)
        return self

    def _answers(self) -> bool:
        assert self.is_alive(), f"it has ended: {self.log.read_text()[-3000:]}"
        with contextlib.suppress(httpx.HTTPError):
            return self.client.get("/health").status_code == 200
        return False

    def close(self) -> None:
        super().close()
        self.client.close()

    def lose_disk(self) -> None:
        """Remove its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def get(self, path: str) -> Any:
        """Return the JSON of an answer that must be right."""
        answer = self.client.get(path)
        assert answer.is_success, answer.text
        return answer.json()

    def post(self, path: str, **arguments: Any) -> httpx.Response:
        """Post to a path below a topology's."""
        return self.client.post(f"/api/v1/topology{path}", **arguments)

    def submit(self, name: str, content: bytes | None = None, **values: Any) -> httpx.Response:
        """Submit a topology."""
        submission = Submission(name, values.pop("topology_id", name), "words", **values)
        return self.post("", content=submission.to_bytes() + b"\n" + (archive() if content is None else content))

    @property
    def leads(self) -> bool:
        """Whether it says that it leads."""
        with contextlib.suppress(httpx.HTTPError):
            return bool(self.client.get("/health", timeout=2.0).json()["isLeader"])
        return False

    def codes(self) -> list[str]:
        """Return the ids of topologies whose code is on its disk."""
        return sorted(path.parent.name for path in self.folder.glob("nimbus/*/code/[!.]*/manifest.json"))


Answer = Callable[[str], tuple[int, bytes]]
"""What a supervisor answers to a path: status and body."""


def builds(path: str) -> tuple[int, bytes]:
    """Say of a check that the topology has the name that was submitted."""
    return 200, json.dumps({"topologyId": unquote(path.split("/")[-2]).rsplit("-", 2)[0]}).encode()


class _Supervisor(BaseHTTPRequestHandler):
    """Answers checks of code, and requests for it, to those with the token."""

    answer: Answer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        status, body = type(self).answer(self.path)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


class Cluster(contextlib.ExitStack):
    """Some nimbuses on one root of a ZooKeeper."""

    def __init__(self, hosts: str, root: str, folder: Path, size: int, **settings: object) -> None:
        super().__init__()
        self.hosts, self.root, self.folder = hosts, root, folder
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(TOKEN)
        self.nimbuses = [NimbusProcess(self, number) for number in range(1, size + 1)]
        for nimbus in self.nimbuses:
            self.callback(nimbus.close)
        self.state = ClusterState(hosts, root, 10.0, self.settings.get("storm.zookeeper.auth"))
        self.callback(self.state.close)

    def start(self, failpoints: str = "") -> Cluster:
        """Start all, and wait until they answer and one leads."""
        for nimbus in self.nimbuses:
            nimbus.start(failpoints)
        for nimbus in self.nimbuses:
            nimbus.wait_until_up()
        self.leader()
        return self

    def leader(self) -> NimbusProcess:
        """Wait until one leads, and return it."""
        found: list[NimbusProcess] = wait_for(
            "somebody leads", lambda: [n for n in self.nimbuses if n.is_alive() and n.leads]
        )
        assert len(found) == 1, [each.address for each in found]
        return found[0]

    def add(self) -> NimbusProcess:
        """Return one more nimbus, not started."""
        nimbus = NimbusProcess(self, len(self.nimbuses) + 1)
        self.callback(nimbus.close)
        self.nimbuses.append(nimbus)
        return nimbus

    def add_supervisor(self, name: str, slots: int, answer: Answer = builds) -> None:
        """Announce a supervisor that starts nothing; by default each submission builds its topology there."""
        server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Supervisor,), {"answer": staticmethod(answer)})
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.callback(server.server_close)
        self.callback(server.shutdown)
        self.state.announce_supervisor(SupervisorInfo(name, f"127.0.0.1:{server.server_port}", slots))

    def others(self, leader: NimbusProcess) -> list[NimbusProcess]:
        """Return the others."""
        return [nimbus for nimbus in self.nimbuses if nimbus is not leader]

    def pair(self) -> tuple[NimbusProcess, NimbusProcess]:
        """Start the two nimbuses; return the leader and the other one."""
        leader = self.start().leader()
        [other] = self.others(leader)
        return leader, other

    def statuses(self) -> dict[str, str]:
        """Return the status of each topology, by name, as ZooKeeper has it."""
        return {topology.name: topology.status.value for topology in self.state.topologies().values()}


_roots = iter(range(1, 1_000_000))


def next_root() -> str:
    """Return a root that no other test of this process uses."""
    return f"/nimbus-{os.getpid()}-{next(_roots)}"


def submitted(nimbus: NimbusProcess, *names: str) -> Iterator[str]:
    """Submit topologies; give their ids."""
    for name in names:
        answer = nimbus.submit(name)
        assert answer.status_code == 201, answer.text
        yield answer.json()["id"]
