"""A supervisor in this process, with real driver processes that never get as far as Spark."""

import contextlib
import itertools
import os
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest

from tests.cluster.nimbuses import QUICK, leading, next_root
from tests.full_disk import no_descriptor_left
from tests.harness.soak.processes import members
from tests.variants import variants
from tests.waiting import wait_for
from txtopo.cluster.code.submission import ARCHIVE_NAME, DESCRIPTION_NAME, Submission
from txtopo.cluster.code_store import describe
from txtopo.cluster.decisions.assignment import Assignment, Heartbeat
from txtopo.cluster.decisions.lifecycle import Status, Topology
from txtopo.cluster.decisions.slots import DriverExit, SlotLimits, SlotState
from txtopo.cluster.driver.folder import STARTING, DriverEnd, DriverFolder, DriverLaunch
from txtopo.cluster.settings import ClusterConfig
from txtopo.cluster.state import ClusterState
from txtopo.cluster.supervisor.api import SupervisorApi
from txtopo.cluster.supervisor.daemon import Supervisor
from txtopo.cluster.supervisor.pages import DriverPages
from txtopo.cluster.supervisor.slot import LocalSlot
from txtopo.errors import Unreachable
from txtopo.testing import ZooKeeperServer

FOR_EVER = "import time\n\ntime.sleep(10_000)\n"
"""A module whose import does not end: its driver beats, and starts no Spark."""


class Place:
    """A cluster with this test as its leader, and one supervisor after another on the same folder."""

    def __init__(self, hosts: str, folder: Path) -> None:
        self.state = ClusterState(hosts, next_root(), 10.0)
        self.writes = leading(self.state)
        self.failures: list[BaseException] = []
        self._numbers = itertools.count(1)
        self._folder = folder
        self._hosts = hosts
        self.supervisor = self._made()

    def _made(self, **settings: object) -> Supervisor:
        values = {
            **QUICK,
            "storm.zookeeper.servers": self._hosts,
            "storm.zookeeper.root": self.state.root,
            "storm.local.dir": str(self._folder / "local"),
            "supervisor.work.dir": str(self._folder),
            "supervisor.worker.shutdown.sleep.secs": 0.5,
            "supervisor.slots": 2,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        return Supervisor(ClusterConfig(values), "127.0.0.1:2", "token", "1", self.failures.append)

    def again(self, **settings: object) -> Supervisor:
        """End the supervisor, and make another one; its drivers live on."""
        self.supervisor.stop()
        self.supervisor = self._made(**settings)
        self.supervisor.start()
        return self.supervisor

    def run(
        self, name: str, slot: int = 0, text: str = FOR_EVER, status: Status = Status.ACTIVE, **settings: str
    ) -> str:
        """Submit a topology of one module, and assign it to a slot."""
        id_ = f"{name}-{next(self._numbers)}-900"
        topology = Topology(id_, name, name, status, 900.0, settings=settings)
        with self.supervisor.store.draft() as draft:
            with zipfile.ZipFile(draft / ARCHIVE_NAME, "w") as archive:
                archive.writestr("words.py", text)
            (draft / DESCRIPTION_NAME).write_bytes(Submission(name, name, "words").to_bytes())
            manifest = describe(topology.id, draft)
            self.writes.publish(manifest)  # before it is here: a supervisor removes what is not published
            self.supervisor.store.keep(draft, manifest)
        self.writes.start(topology)
        self.writes.assign(Assignment(topology.id, 1, self.supervisor.id, slot))
        return topology.id

    def driver(self, slot: int = 0) -> int:
        """Return the process of a slot's driver; 0 if none lives, or it does not beat yet."""
        [found] = [each for each in self.supervisor.slots() if each.number == slot] or [None]
        folder = DriverFolder(self.supervisor._folder / "drivers" / str(slot))
        if found is None or found.assignment is None or not folder.is_locked():
            return 0
        beat = self.state.heartbeat(found.assignment.topology, found.assignment.number)
        return beat.pid if beat is not None and beat.pid == folder.pid() else 0

    def detail(self, topology: str) -> str:
        """Return what the driver's heartbeat says in detail."""
        beat = self.state.heartbeat(topology, 1)
        return "" if beat is None else beat.detail

    def close(self) -> None:
        """End all drivers, the supervisor and the session."""
        self.supervisor.stop()
        for path in self.supervisor._folder.glob("drivers/*"):
            pid = DriverFolder(path).pid()
            if pid is not None and DriverFolder(path).is_locked():
                os.killpg(pid, signal.SIGKILL)
        self.state.close()
        assert not self.failures


@pytest.fixture
def place(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Place]:
    """A place with a supervisor that is started."""
    place = Place(zookeeper.hosts, tmp_path)
    place.supervisor.start()
    yield place
    place.close()


@pytest.mark.slow
def test_supervisor_that_is_started_again(place: Place) -> None:
    """It adopts the driver that runs: the same process, in the same slot; and ends it when it is not wanted."""
    topology = place.run("words")
    pid = wait_for("it beats", place.driver)
    place.again()
    wait_for("it has looked", lambda: len(place.supervisor.slots()) == 2)
    slot = place.supervisor.slots()[0]
    assert (slot.state, slot.assignment and slot.assignment.topology) == (SlotState.STARTING, topology)
    assert place.driver() == pid
    place.writes.unassign(topology)
    wait_for("it has ended", lambda: place.supervisor.slots()[0].state is SlotState.EMPTY)
    wait_for("nothing of it is left: a driver's lock is free a moment before", lambda: not members(pid))


@pytest.mark.slow
@pytest.mark.parametrize("is_adopted", variants(True, slow=[False]))
def test_death_is_noticed_at_once(place: Place, is_adopted: bool) -> None:
    """The kernel tells of it: a driver is started again long before the supervisor would look by itself."""
    place.again(supervisor_monitor_frequency_secs=10_000)
    place.run("words")
    pid = wait_for("it beats", place.driver)
    if is_adopted:
        place.again(supervisor_monitor_frequency_secs=10_000)
    os.kill(pid, signal.SIGKILL)
    wait_for("another one beats", lambda: place.driver() not in {0, pid})


@pytest.mark.slow
def test_code_that_is_damaged_meanwhile(place: Place) -> None:
    """A driver is started from sound code only: a damaged copy is fetched again, and the topology does not fail."""
    topology = place.run("words")
    pid = wait_for("it beats", place.driver)
    archive = place.supervisor.store.path(topology) / ARCHIVE_NAME
    content = archive.read_bytes()
    archive.write_bytes(b"?" * len(content))
    os.kill(pid, signal.SIGKILL)
    wait_for("it is fetched", lambda: place.supervisor.slots()[0].state is SlotState.FETCHING)
    assert place.state.ending(topology, 1) is None
    assert not archive.exists()


@pytest.mark.slow
def test_code_that_comes_while_it_tidies(zookeeper: ZooKeeperServer, tmp_path: Path, monkeypatch) -> None:
    """Code that is published and kept after a supervisor has asked what is published is not taken for nobody's."""
    with contextlib.closing(Place(zookeeper.hosts, tmp_path)) as place:
        supervisor, asked = place.supervisor, []
        published = supervisor.state.manifests

        def published_before() -> object:
            found = published()
            asked.append(found)
            if len(asked) == 2:  # the first time it starts: nobody can ask it for code yet
                place.run("words")
            return found

        monkeypatch.setattr(supervisor.state, "manifests", published_before)
        supervisor.start()
        wait_for("it beats", place.driver)


@pytest.mark.slow
def test_driver_that_hangs(place: Place) -> None:
    """One that is stopped, and so hears no SIGTERM, is ended by SIGKILL when it is not wanted."""
    topology = place.run("words")
    pid = wait_for("it beats", place.driver)
    os.kill(pid, signal.SIGSTOP)
    place.writes.unassign(topology)
    wait_for("it has ended", lambda: place.supervisor.slots()[0].state is SlotState.EMPTY)
    wait_for("nothing of it is left: a driver's lock is free a moment before", lambda: not members(pid))


@pytest.mark.slow
def test_no_descriptor_is_left(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Drivers go on, though theirs were for ever; one that ends meanwhile is started again when there are some."""
    place.run("words")
    place.run("others", slot=1)
    pid, other = wait_for("it beats", place.driver), wait_for("it beats", lambda: place.driver(1))
    with no_descriptor_left():
        os.killpg(pid, signal.SIGKILL)
        wait_for("it would be started", lambda: place.failures or "slot 0 is looked at again" in caplog.text)
        assert place.supervisor.state.session.is_connected
    assert not place.failures
    assert wait_for("another one beats", place.driver) != pid
    assert place.driver(1) == other


@pytest.mark.slow
def test_killed_topology_gets_no_driver(place: Place) -> None:
    """Nothing is started for it, though its assignment is still there; the next slot's topology gets its driver."""
    place.run("killed", 0, status=Status.KILLED)
    place.run("words", 1)
    wait_for("the other one beats", lambda: place.driver(1))
    assert place.supervisor.slots()[0].state is SlotState.EMPTY
    assert place.driver(0) == 0


@pytest.mark.slow
def test_code_for_others(place: Place) -> None:
    """A supervisor gives the code that it has to those with the token, and none that is damaged."""
    topology = place.run("words")
    wait_for("it beats", place.driver)
    path = place.supervisor.store.path(topology) / ARCHIVE_NAME
    content = path.read_bytes()

    def get(file: str, token: str = "token") -> httpx.Response:
        async def ask() -> httpx.Response:
            pages = DriverPages(place.supervisor.logs.place, place.supervisor.topologies)
            transport = httpx.ASGITransport(SupervisorApi(place.supervisor, "token", pages).app)
            async with httpx.AsyncClient(transport=transport, base_url="http://supervisor") as client:
                return await client.get(f"/api/v1/code/{file}", headers={"Authorization": f"Bearer {token}"})

        return anyio.run(ask)

    assert get(f"{topology}/{ARCHIVE_NAME}", "another").status_code == 401
    assert get(f"{topology}/{ARCHIVE_NAME}").content == content
    assert get(f"{topology}/other").status_code == 404
    assert get(f"other-1-9/{ARCHIVE_NAME}").json()["error"] == "HTTPException"
    path.write_bytes(b"?" * len(content))
    assert get(f"{topology}/{ARCHIVE_NAME}").status_code == 404
    assert not path.exists()


@pytest.mark.slow
def test_driver_whose_start_takes_too_long(place: Place) -> None:
    """While it starts, its heartbeat says at what; stopped, the reason is told, and its log says where it hung."""
    # Half of it is left for a process to begin, on however busy a machine.
    place.again(supervisor_worker_start_timeout_secs=20, supervisor_worker_start_retries=2)
    topology = place.run("words")
    wait_for("it says at what it is", lambda: "building the topology" in place.detail(topology))
    wait_for("it says what came before", lambda: "did not run within" in place.detail(topology))
    ending = wait_for("it is reported", lambda: place.state.ending(topology, 1))
    assert "did not run within supervisor.worker.start.timeout.secs, 20 s" in ending.reason
    assert "its last stage was: building the topology, for " in ending.reason
    log = place.supervisor.logs.path(topology)
    assert log is not None
    assert "the topology does not run after " in log.read_text()
    assert "words.py" in log.read_text(), "the line that hangs"


@pytest.mark.slow
def test_secrets_in_what_a_driver_says(place: Place) -> None:
    """Its last words are shown without the token, so they quote no secret; nor does its log."""
    text = "raise ValueError('open sesame is wrong for jdbc:postgresql://shop:hunter2@db/shop')\n"
    topology = place.run("words", text=text, shop_password="open sesame")
    ending = wait_for("it keeps failing", lambda: place.state.ending(topology, 1))
    log = place.supervisor.logs.path(topology)
    assert log is not None
    for told in (ending.reason, log.read_text()):
        assert "… is wrong for jdbc:postgresql://…@db/shop" in told
        assert "open sesame" not in told
        assert "hunter2" not in told


@pytest.mark.parametrize("is_wanted", [True, False])
def test_end_that_zookeeper_is_not_told(tmp_path: Path, *, is_wanted: bool) -> None:
    """Its folder stays until ZooKeeper knows: a supervisor that is started again would start what has finished."""
    folder, assignment = DriverFolder(tmp_path / "0"), Assignment("words-1-900", 1, "s1", 0)
    os.close(folder.begin(launch := DriverLaunch("first", assignment, "/code", "h:1", "/root")))
    folder.write_end(DriverEnd(DriverExit.FINISHED))
    slot = LocalSlot(0, folder.path, lambda: None)
    slot.adopt(launch, {})
    reports: list[object] = []

    def report(*said: object) -> None:
        reports.append(said)
        if len(reports) == 1:
            raise Unreachable("ZooKeeper does not answer")

    supervisor: Any = Supervisor.__new__(Supervisor)
    supervisor._limits = SlotLimits()
    supervisor.state = SimpleNamespace(report=report)
    supervisor.store = SimpleNamespace(has=lambda _: True, is_sound=lambda _: True)
    supervisor._wanted = SimpleNamespace(to_start=lambda _, is_new: assignment)
    supervisor._step(slot, 0.0)
    assert (slot.now.state, slot.unsent is None, folder.end() is None) == (SlotState.ENDED, False, False)
    if is_wanted:
        supervisor._report(slot, *slot.unsent)
    else:
        supervisor._wanted = SimpleNamespace(to_start=lambda _, is_new: None)
        supervisor._step(slot, 0.0)
        assert slot.now.state is SlotState.EMPTY
    assert (slot.unsent, folder.path.exists(), len(reports)) == (None, False, 1 + is_wanted)


def test_beat_of_an_earlier_launch(tmp_path: Path) -> None:
    """It says nothing of the driver that was launched after it: neither that it lives, nor that it has run."""
    slot = LocalSlot(0, tmp_path / "0", lambda: None)
    assignment = Assignment("words-1-900", 1, "s1", 0)
    os.close(DriverFolder(tmp_path / "0").begin(launch := DriverLaunch("second", assignment, "/code", "h:1", "/root")))
    slot.adopt(launch, {"words-1-900": Heartbeat("first", 9, "running")})
    assert (slot.has_run, slot.beat_age_secs(), slot.now.state) == (False, None, SlotState.STARTING)
    slot.take_beat({"words-1-900": Heartbeat("second", 1, STARTING)}, 5.0, is_new_time=False)
    assert slot.has_run is False
    assert slot.beat_age_secs() is not None
    slot.take_beat({"words-1-900": Heartbeat("second", 2, "running")}, 6.0, is_new_time=False)
    assert slot.has_run is True
