"""The folder by which a driver is found again, and what is built from submitted code."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from tests.cluster.nimbuses import next_root, wait_for
from tests.cluster.relay import Relay
from txtopo.cluster.decisions.assignment import Assignment
from txtopo.cluster.decisions.lifecycle import Status, Topology
from txtopo.cluster.driver import DriverEnd, DriverFolder, Launch, _Pulse, build
from txtopo.cluster.state import ClusterState, LeaderWrites
from txtopo.cluster.submission import ARCHIVE_NAME, DESCRIPTION_NAME, Submission
from txtopo.engine.control import RunControl
from txtopo.errors import SubmissionError
from txtopo.testing import ZooKeeperServer

LAUNCH = Launch("l1", Assignment("words-1-1", 3, "s1", 2), "/code", "h:1", "/root", "user:secret")


def test_launch_is_found_again(tmp_path: Path) -> None:
    """What was written is read again; the file is for its owner only, and nothing prints the secret in it."""
    folder = DriverFolder(tmp_path / "0")
    os.close(folder.begin(LAUNCH))
    assert folder.launch() == LAUNCH
    assert stat.S_IMODE((tmp_path / "0" / "launch.json").stat().st_mode) == 0o600
    assert "secret" not in repr(LAUNCH)


def test_lock_lives_as_long_as_the_process(tmp_path: Path) -> None:
    """The process that inherits the lock holds it to its end, whoever else closes it."""
    folder = DriverFolder(tmp_path / "0")
    lock = folder.begin(LAUNCH)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    os.close(lock)
    try:
        assert folder.is_locked()
    finally:
        process.kill()
        process.communicate()
    assert not folder.is_locked()


def test_nothing_there(tmp_path: Path) -> None:
    """A folder without files, or with half of one, is that of no driver."""
    folder = DriverFolder(tmp_path / "0")
    assert (folder.launch(), folder.is_locked(), folder.pid(), folder.end()) == (None, False, None, None)
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "launch.json").write_text('{"id": ')
    assert folder.launch() is None


def test_end(tmp_path: Path) -> None:
    """How a driver ended is read by a supervisor that did not start it; a new launch forgets it."""
    folder = DriverFolder(tmp_path / "0")
    os.close(folder.begin(LAUNCH))
    folder.write_pid()
    folder.write_end(DriverEnd(65, "a bug"))
    assert (folder.pid(), folder.end()) == (os.getpid(), DriverEnd(65, "a bug"))
    os.close(folder.begin(LAUNCH))
    assert (folder.pid(), folder.end()) == (None, None)


CODE = """
from tests.cluster.submitted.counting import topology as counting

def topology(a: str = "", b: str = ""):
    return counting("out", name="global-count")
"""


def code_of(folder: Path, member: str = "words.py", **values: str) -> Path:
    """Write the code of a submission."""
    folder.mkdir()
    with zipfile.ZipFile(folder / ARCHIVE_NAME, "w") as archive:
        archive.writestr(member, CODE)
    submission = Submission("words", values.get("topology_id", "global-count"), "words", settings={"a": "1"})
    (folder / DESCRIPTION_NAME).write_bytes(submission.to_bytes())
    return folder


def test_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive is unpacked, and the topology built from there with the submitted settings, or others."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = code_of(tmp_path / "code")
    for name, settings, arguments in (("one", None, {"a": "1", "b": ""}), ("two", {"b": "2"}, {"a": "", "b": "2"})):
        target = build(code, tmp_path / name, settings)
        del sys.modules["words"]
        assert (target.topology.id, target.arguments) == ("global-count", arguments)
        assert target.module.__file__ == str(tmp_path / name / "words.py")
    other = code_of(tmp_path / "other", topology_id="another")
    with pytest.raises(SubmissionError, match="builds topology 'global-count', not 'another'"):
        build(other, tmp_path / "three")
    del sys.modules["words"]


def test_member_that_leaves_the_folder(tmp_path: Path) -> None:
    """It is refused before anything is unpacked."""
    code = code_of(tmp_path / "code", "../words.py")
    with pytest.raises(SubmissionError, match="leaves its folder"):
        build(code, tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()
    assert not (tmp_path / "words.py").exists()


HUNG = """
import sys, threading, time
from txtopo.cluster.decisions.assignment import Assignment
from txtopo.cluster.driver import Launch, _Pulse
from txtopo.cluster.state import ClusterState
from txtopo.engine.control import RunControl

hosts, root, topology = sys.argv[1:]
launch = Launch("l1", Assignment(topology, 1, "s1", 0), "/code", hosts, root, heartbeat_secs=0.1)
with _Pulse(ClusterState(hosts, root, 2.0), launch, RunControl()):
    print("it runs", flush=True)
    time.sleep(10_000)
"""


def test_run_that_does_not_end(zookeeper: ZooKeeperServer) -> None:
    """A driver whose topology is started elsewhere ends within its grace, though its run hangs and it beats on."""
    state = ClusterState(zookeeper.hosts, next_root(), 10.0)
    term = state.begin_term("127.0.0.1:1", state.epoch_version())
    assert term is not None
    writes = LeaderWrites(state, term)
    writes.start(WORDS)
    writes.assign(Assignment(WORDS.id, 1, "s1", 0))
    command = [sys.executable, "-c", HUNG, zookeeper.hosts, state.root, WORDS.id]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"it runs\n"
            writes.assign(Assignment(WORDS.id, 2, "s2", 0))
            assert process.wait(60.0) == 1
        finally:
            process.kill()
            state.close()


WORDS = Topology("words-1-900", "words", "word-counts", Status.ACTIVE, 900.0)


class Steered:
    """A leader, and the pulse of a driver that it steers; ZooKeeper can be cut off from the pulse."""

    def __init__(self, hosts: str, relay: Relay) -> None:
        self.state = ClusterState(hosts, next_root(), 2.0)
        term = self.state.begin_term("127.0.0.1:1", self.state.epoch_version())
        assert term is not None
        self.writes = LeaderWrites(self.state, term)
        self.writes.start(WORDS)
        assignment = Assignment(WORDS.id, 1, "s1", 0)
        self.writes.assign(assignment)
        self.control = RunControl()
        self.own_state = ClusterState(relay.address, self.state.root, 2.0)
        launch = Launch("l1", assignment, "/code", hosts, self.state.root, heartbeat_secs=0.1, isolation_secs=0.5)
        self.pulse = _Pulse(self.own_state, launch, self.control)

    def count(self) -> int:
        """Return the number of beats."""
        beat = self.state.heartbeat(WORDS.id, 1)
        return 0 if beat is None else beat.count


@pytest.fixture
def steered(zookeeper: ZooKeeperServer) -> Iterator[tuple[Steered, Relay]]:
    """A pulse that has begun."""
    relay = Relay(zookeeper.hosts)
    steered = Steered(zookeeper.hosts, relay)
    with steered.pulse:
        yield steered, relay
    relay.heal()
    steered.own_state.close()
    steered.state.close()
    relay.close()


def test_pulse_obeys_the_status(steered: tuple[Steered, Relay]) -> None:
    """It beats again and again; only while the topology is ACTIVE may transactions begin; KILLED is an orderly stop."""
    leader, _ = steered
    wait_for("it beats", lambda: leader.count() > 2)
    assert leader.control.is_active
    for status in (Status.INACTIVE, Status.REBALANCING):
        leader.writes.store(attrs.evolve(WORDS, status=status))
        wait_for("nothing begins", lambda: not leader.control.is_active)
        leader.writes.store(WORDS)
        wait_for("transactions begin", lambda: leader.control.is_active)
    assert not leader.control.is_stopping
    leader.writes.store(attrs.evolve(WORDS, status=Status.KILLED))
    wait_for("it stops", lambda: leader.control.is_stopping)


@pytest.mark.parametrize("what", ["moved", "taken away", "gone", "failed"])
def test_pulse_of_what_is_not_wanted(steered: tuple[Steered, Relay], what: str) -> None:
    """The run ends when the topology is assigned anew, or to nobody, or is gone, or has failed."""
    leader, _ = steered
    wait_for("it beats", lambda: leader.count() > 1)
    assert not leader.control.is_stopping
    match what:
        case "moved":
            leader.writes.assign(Assignment(WORDS.id, 2, "s2", 0))
        case "taken away":
            leader.writes.unassign(WORDS.id)
        case "gone":
            leader.writes.remove(WORDS.id)
        case _:
            leader.writes.store(attrs.evolve(WORDS, status=Status.FAILED))
    wait_for("it stops", lambda: leader.control.is_stopping)


def test_pulse_without_zookeeper(steered: tuple[Steered, Relay]) -> None:
    """The run ends after ``supervisor.isolation.secs`` without ZooKeeper, whether a supervisor is there or not."""
    leader, relay = steered
    wait_for("it beats", lambda: leader.count() > 1)
    relay.cut()
    wait_for("it stops", lambda: leader.control.is_stopping)
