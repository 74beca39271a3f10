"""Both distributors, over real HTTP and a real ZooKeeper."""

import contextlib
import functools
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.nimbuses import leading, next_root
from txtopo.cluster.code import distribution
from txtopo.cluster.code.distribution import (
    CodeAccess,
    CodeDistributor,
    LocalCodeDistributor,
    SharedFolderCodeDistributor,
    receive,
)
from txtopo.cluster.code_store import CodeFile, CodeStore, Manifest
from txtopo.cluster.state import ClusterState, NimbusInfo
from txtopo.errors import CodeUnavailable, ConfigError
from txtopo.testing import CodeDistributorConformance, DistributorNimbus, DistributorPlace, ZooKeeperServer

TOKEN = "token-of-the-cluster"


class _Files(http.server.BaseHTTPRequestHandler):
    """Serves a store of code as a nimbus does, and files that are damaged, too."""

    def __init__(self, store: CodeStore, *arguments: Any) -> None:
        self._store = store
        super().__init__(*arguments)

    def do_GET(self) -> None:
        topology, _, name = self.path.removeprefix("/api/v1/code/").partition("/")
        path = self._store.path(topology) / name
        if not path.is_file() or self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(path.read_bytes())

    def log_message(self, *arguments: Any) -> None:
        pass


class Place(DistributorPlace, contextlib.ExitStack):
    """Nimbuses with stores below one folder."""

    def __init__(self, hosts: str, folder: Path, shared: Path | None = None) -> None:
        super().__init__()
        self.state = ClusterState(hosts, next_root())
        self.callback(self.state.close)
        self.servers: dict[str, http.server.ThreadingHTTPServer] = {}
        self._folder = folder
        self._shared = shared

    def nimbus(self) -> DistributorNimbus:
        store = CodeStore(self._folder / str(len(self.servers)))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Files, store))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.callback(server.server_close)
        self.callback(server.shutdown)
        address = f"127.0.0.1:{server.server_port}"
        self.servers[address] = server
        self.state.announce_nimbus(NimbusInfo(address))
        distributor: CodeDistributor = (
            LocalCodeDistributor() if self._shared is None else SharedFolderCodeDistributor(str(self._shared))
        )
        distributor.prepare(CodeAccess(self.state, address, TOKEN))
        self.callback(distributor.close)
        return DistributorNimbus(address, store, distributor)

    def publish(self, nimbus: DistributorNimbus, manifest: Manifest) -> None:
        writes = leading(self.state, nimbus.address)
        writes.publish(manifest)
        self.state.end_term(writes.term)

    def hold(self, nimbus: DistributorNimbus, topology: str) -> None:
        assert self.state.hold(topology, nimbus.address)

    def leave(self, nimbus: DistributorNimbus) -> None:
        self.state.remove_nodes(self.state.node("nimbuses", nimbus.address))


def second_holder(place: Place, leader: DistributorNimbus) -> tuple[Manifest, DistributorNimbus]:
    """Return the manifest of the code that the leader holds, and another nimbus that holds it, too."""
    manifest = leader.store.manifest("words-1-900")
    assert manifest is not None
    second = place.nimbus()
    with second.store.draft() as draft:
        second.distributor.download(manifest, draft)
        second.store.keep(draft, manifest)
    place.hold(second, manifest.topology)
    return manifest, second


class TestLocalCodeDistributor(CodeDistributorConformance):
    """Files over HTTP keep all promises."""

    @pytest.fixture
    def place(self, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
        with Place(zookeeper.hosts, tmp_path_factory.mktemp("stores")) as place:
            yield place

    def test_holder_that_has_lost_its_disk(self, place: Place, leader: DistributorNimbus, tmp_path: Path) -> None:
        """The next holder is asked, file by file; with no holder left, the error names all that were tried."""
        manifest, second = second_holder(place, leader)
        leader.store.remove(manifest.topology)
        third = place.nimbus()
        assert len(third.distributor.download(manifest, tmp_path)) == 3
        second.store.remove(manifest.topology)
        with pytest.raises(CodeUnavailable) as caught:
            third.distributor.download(manifest, tmp_path)
        assert leader.address in str(caught.value)
        assert second.address in str(caught.value)
        assert TOKEN not in str(caught.value)

    def test_holder_that_is_away(self, place: Place, leader: DistributorNimbus, tmp_path: Path) -> None:
        """It is not asked while one that is there has the code: it would take its time not to answer."""
        manifest = leader.store.manifest("words-1-900")
        assert manifest is not None
        with socket.create_server(("127.0.0.1", 0)) as away:
            place.state.hold(manifest.topology, f"127.0.0.1:{away.getsockname()[1]}")
            assert len(place.nimbus().distributor.download(manifest, tmp_path)) == 3
            away.setblocking(False)
            with pytest.raises(BlockingIOError):
                away.accept()

    def test_damaged_copy_beside_a_sound_one(self, place: Place, leader: DistributorNimbus, tmp_path: Path) -> None:
        """It does not hide the sound one, whichever is asked first; with no sound one, the error names all."""
        manifest, second = second_holder(place, leader)
        third = place.nimbus()
        for damaged, sound in ((leader, second), (second, leader)):
            path = damaged.store.path(manifest.topology) / manifest.files[0].name
            content = path.read_bytes()
            path.write_bytes(content[:-1] + b"?")
            folder = tmp_path / damaged.address
            folder.mkdir()
            assert third.distributor.download(manifest, folder)[0].read_bytes() == content, sound
            path.write_bytes(content)
        for each in (leader, second):
            (each.store.path(manifest.topology) / manifest.files[0].name).write_bytes(b"?")
        with pytest.raises(CodeUnavailable) as caught:
            third.distributor.download(manifest, tmp_path)
        assert all(each.address in str(caught.value) for each in (leader, second))


class TestSharedFolderCodeDistributor(CodeDistributorConformance):
    """A shared folder keeps all promises."""

    @pytest.fixture
    def place(self, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
        folder = tmp_path_factory.mktemp("stores")
        with Place(zookeeper.hosts, folder, folder / "shared") as place:
            yield place

    def test_newcomer_when_all_others_are_gone(self, place: Place, leader: DistributorNimbus, tmp_path: Path) -> None:
        """It fetches from the folder, whoever else is alive."""
        manifest = leader.store.manifest("words-1-900")
        assert manifest is not None
        leader.store.remove(manifest.topology)
        assert len(place.nimbus().distributor.download(manifest, tmp_path)) == 3


def test_folder_that_cannot_be_opened() -> None:
    """It is a mistake in the configuration."""
    with pytest.raises(ConfigError, match=r"nimbus\.code\.distributor\.folder"):
        SharedFolderCodeDistributor("nosuchscheme://bucket/code")


def test_endless_answer(tmp_path: Path) -> None:
    """A holder that sends more than was published is cut short, not written to disk until it is full."""
    sent = []

    def endless() -> Iterator[bytes]:
        while True:
            sent.append(1)
            yield b"x" * 1000

    with pytest.raises(CodeUnavailable, match="more than the 2500 bytes"):
        receive(CodeFile("code.zip", 2500, ""), tmp_path, endless())
    assert len(sent) == 3


def test_slow_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sends a byte now and then is given up, so that another one is asked; a slow network is not."""
    now = [0.0]
    monkeypatch.setattr(distribution.time, "monotonic", lambda: now[0])

    def chunks(size: int, secs: float) -> Iterator[bytes]:
        while True:
            now[0] += secs
            yield bytes(size)

    file = CodeFile("code.zip", 100 << 20, "")
    with pytest.raises(CodeUnavailable, match=r"code\.zip comes too slowly: \d+ of 104857600 bytes so far"):
        receive(file, tmp_path, chunks(1, 5.0))
    with pytest.raises(CodeUnavailable, match="more than the 104857600 bytes"):
        receive(file, tmp_path, chunks(100 << 10, 1.0))
