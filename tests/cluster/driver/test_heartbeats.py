"""What a driver obeys, and what it does when it cannot."""

import os
import time
from collections.abc import Iterator

import attrs
import pytest

from tests.cluster.nimbuses import leading, next_root
from tests.cluster.relay import Relay
from tests.processes import python
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.cluster.decisions.assignment import Assignment
from txtopo.cluster.decisions.lifecycle import Status, Topology
from txtopo.cluster.driver.folder import DriverLaunch
from txtopo.cluster.driver.heartbeats import HeartbeatWriter
from txtopo.cluster.state import ClusterState
from txtopo.engine.control import RunControl
from txtopo.testing import ZooKeeperServer

HUNG = """
import sys, threading, time
from txtopo.cluster.decisions.assignment import Assignment
from txtopo.cluster.driver.folder import DriverLaunch
from txtopo.cluster.driver.heartbeats import HeartbeatWriter
from txtopo.cluster.state import ClusterState
from txtopo.engine.control import RunControl

hosts, root, topology = sys.argv[1:]
launch = DriverLaunch("l1", Assignment(topology, 1, "s1", 0), "/code", hosts, root, heartbeat_secs=0.1)
with HeartbeatWriter(ClusterState(hosts, root, 10.0), launch, RunControl()):
    print("it runs", flush=True)
    time.sleep(10_000)
"""


@pytest.mark.long
def test_run_that_does_not_end(zookeeper: ZooKeeperServer) -> None:
    """A driver whose topology is started elsewhere ends within its grace, though its run hangs and it beats on."""
    state = ClusterState(zookeeper.hosts, next_root(), 10.0)
    writes = leading(state)
    writes.start(WORDS)
    writes.assign(Assignment(WORDS.id, 1, "s1", 0))
    with python("-c", HUNG, zookeeper.hosts, state.root, WORDS.id) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "it runs\n"
            writes.assign(Assignment(WORDS.id, 2, "s2", 0))
            assert process.wait(DEADLINE_SECS) == 1
        finally:
            process.kill()
            state.close()


ISOLATION_SECS, SHUTDOWN_SECS = 2.0, 1.0
NEVER_SECS = 600.0
"""Longer than a test lasts."""
WORDS = Topology("words-1-900", "words", "word-counts", Status.ACTIVE, 900.0)


class Steered:
    """A leader, and the heartbeats of a driver that it steers; ZooKeeper can be cut off from their writer.

    Args:
        hosts: of ZooKeeper.
        relay: by which their writer reaches it.
        isolation_secs: after which time without ZooKeeper the run is stopped.
        shutdown_secs: after which time from then on the process ends: this one.
    """

    def __init__(self, hosts: str, relay: Relay, isolation_secs: float, shutdown_secs: float) -> None:
        self.state = ClusterState(hosts, next_root(), 10.0)
        self.writes = leading(self.state)
        self.writes.start(WORDS)
        assignment = Assignment(WORDS.id, 1, "s1", 0)
        self.writes.assign(assignment)
        self.control = RunControl()
        self.own_state = ClusterState(relay.address, self.state.root, 10.0)
        secs = {"heartbeat_secs": 0.1, "isolation_secs": isolation_secs, "shutdown_secs": shutdown_secs}
        launch = DriverLaunch("l1", assignment, "/code", hosts, self.state.root, **secs)
        self.writer = HeartbeatWriter(self.own_state, launch, self.control, grace_secs=NEVER_SECS)

    def count(self) -> int:
        """Return the number of beats."""
        beat = self.state.heartbeat(WORDS.id, 1)
        return 0 if beat is None else beat.count


@pytest.fixture
def steered(request: pytest.FixtureRequest, zookeeper: ZooKeeperServer) -> Iterator[tuple[Steered, Relay]]:
    """A writer that has begun; a test may say after which times it gives up."""
    relay = Relay(zookeeper.hosts)
    steered = Steered(zookeeper.hosts, relay, *getattr(request, "param", (NEVER_SECS, NEVER_SECS)))
    with steered.writer:
        yield steered, relay
    relay.heal()
    steered.own_state.close()
    steered.state.close()
    relay.close()


@pytest.mark.slow
def test_driver_obeys_the_status(steered: tuple[Steered, Relay]) -> None:
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
    waits: list[float | None] = []
    with leader.control.steering(lambda *, is_active: None, waits.append):
        # The leader's clock is behind this driver's.
        leader.writes.store(attrs.evolve(WORDS, status=Status.KILLED, deadline=time.time() - 500.0))
        wait_for("it stops", lambda: waits)
        assert waits == [None], "it waits for what is pending until the leader finds that the kill's wait is over"
        leader.writes.remove(WORDS.id)
        wait_for("the wait is over", lambda: waits[1:])
    assert waits == [None, 0.0]


@pytest.mark.slow
def test_driver_that_a_rebalance_replaces(steered: tuple[Steered, Relay]) -> None:
    """It begins nothing more with the old settings, though the topology is ACTIVE before its successor is assigned."""
    leader, _ = steered
    leader.writes.store(attrs.evolve(WORDS, status=Status.REBALANCING))
    wait_for("nothing begins", lambda: not leader.control.is_active)
    leader.writes.store(attrs.evolve(WORDS, revision=1))
    before = leader.count()
    wait_for("it has seen that", lambda: leader.count() > before + 1)
    assert not leader.control.is_active


@pytest.mark.parametrize("what", ["moved", "taken away", "gone", "failed"])
def test_heartbeats_of_what_is_not_wanted(steered: tuple[Steered, Relay], what: str) -> None:
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


@pytest.mark.parametrize("steered", [(ISOLATION_SECS, SHUTDOWN_SECS)], indirect=True)
def test_process_without_zookeeper_ends(steered: tuple[Steered, Relay], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that does not end is ended with its process, after ``supervisor.worker.shutdown.sleep.secs``."""
    leader, relay = steered
    ended: list[int] = []

    def end(status: int) -> None:
        ended.append(status)
        leader.writer._closed.set()

    monkeypatch.setattr(os, "_exit", end)
    wait_for("it beats", lambda: leader.count() > 1)
    relay.cut()
    wait_for("the end of the process", lambda: ended)
    assert leader.control.is_stopping


@pytest.mark.parametrize("steered", [(ISOLATION_SECS, NEVER_SECS)], indirect=True)
def test_heartbeats_without_zookeeper(steered: tuple[Steered, Relay]) -> None:
    """The run ends after ``supervisor.isolation.secs`` without ZooKeeper, whether a supervisor is there or not."""
    leader, relay = steered
    wait_for("it beats", lambda: leader.count() > 1)
    relay.cut()
    wait_for("it stops", lambda: leader.control.is_stopping)
