"""The scenario of Storm's design of Nimbus HA: the leader and its disk are lost, and nobody else has all code.

1. Four topologies are active, replication factor 2. The leader has the code of all, the second nimbus that of 1 and 2,
   the third that of 3 and 4.
2. The leader is killed, and its disk removed.
3. Second and third stand for election, see that they lack code, give up, and fetch from each other.
4. One that has all four leads. Until then nobody does, and submissions are refused. No driver is moved.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Self

import attrs
import httpx

from tests.cluster.nimbuses import Cluster, NimbusProcess, next_root, submitted, wait_for
from txtopo.cluster.assignment import Heartbeat, Supervisor

NAMES = ("one", "two", "three", "four")


@attrs.frozen
class Outcome:
    """What one round came to."""

    leader_after_secs: float
    """From the death of the old leader to the first moment in which another one says that it leads."""
    refused: int
    """Submissions that were refused meanwhile."""


class Drivers:
    """Beats as the drivers of all assigned topologies do, until it is closed."""

    def __init__(self, cluster: Cluster) -> None:
        self._state = cluster.state
        self._stop = threading.Event()
        self.counts: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            for topology, assignment in self._state.assignments().items():
                self.counts[topology] = self.counts.get(topology, 0) + 1
                self._state.beat(topology, assignment.number, Heartbeat("launch", self.counts[topology], "running"))


def play(hosts: str, folder: Path) -> Outcome:
    """Play one round, and check everything that must hold."""
    with (
        Cluster(hosts, next_root(), folder, 3, topology_min_replication_count=2) as cluster,
        Drivers(cluster) as drivers,
    ):
        return _Round(cluster, drivers).play()


class _Round:
    def __init__(self, cluster: Cluster, drivers: Drivers) -> None:
        self._cluster = cluster
        self._drivers = drivers
        self._ids: list[str] = []

    def play(self) -> Outcome:
        leader, *others = self._cluster.nimbuses
        self._prepare(leader, others)
        before = self._cluster.state.assignments()
        epoch = self._epoch()
        leader.kill()
        killed = time.monotonic()
        leader.lose_disk()
        for nimbus in others:
            nimbus.start()
        refused = 0
        while not (leaders := [each for each in others if each.leads]):
            assert time.monotonic() < killed + 60.0, "nobody leads"
            refused += self._is_refused(others)
        leader_after_secs = time.monotonic() - killed
        assert len(leaders) == 1
        assert leaders[0].codes() == self._ids, "a nimbus leads that does not hold all code"
        assert self._epoch() == epoch + 1, "more than one has led"
        assert sorted(self._cluster.state.topologies()) == self._ids
        assert leaders[0].submit("five").status_code == 201
        counts = dict(self._drivers.counts)
        wait_for("all drivers beat on", lambda: all(self._drivers.counts[each] > counts[each] for each in self._ids))
        after = self._cluster.state.assignments()
        assert {each: after[each] for each in before} == before, "a driver was moved"
        return Outcome(leader_after_secs, refused)

    def _prepare(self, leader: NimbusProcess, others: list[NimbusProcess]) -> None:
        """Leave the leader with all code, and each of the others with one half of it."""
        state = self._cluster.state
        leader.start().wait_until_up()
        wait_for("it leads", lambda: leader.leads)
        state.announce_supervisor(Supervisor("s1", "127.0.0.1:1", 8))
        for nimbus in others:
            nimbus.start().wait_until_up()
        self._ids = sorted(submitted(leader, *NAMES))
        for nimbus, lost in zip(others, (NAMES[2:], NAMES[:2]), strict=True):
            wait_for("it has all code", lambda nimbus=nimbus: nimbus.codes() == self._ids)
            wait_for("it says so", lambda nimbus=nimbus: self._holds_all(nimbus))
            nimbus.kill()
            for topology in self._ids:
                if topology.startswith(lost):
                    next(nimbus.folder.glob(f"nimbus/*/code/{topology}")).rename(nimbus.folder / f"lost-{topology}")
                    state.drop(topology, nimbus.address)
        wait_for("all are assigned", lambda: len(state.assignments()) == len(NAMES))
        wait_for("all beat", lambda: len(self._drivers.counts) == len(NAMES))

    def _holds_all(self, nimbus: NimbusProcess) -> bool:
        return all(nimbus.address in holders for holders in self._cluster.state.holders().values())

    def _epoch(self) -> int:
        found = self._cluster.state.session.data(self._cluster.state.node("epoch"))
        assert found is not None
        return int(found[0])

    def _is_refused(self, others: list[NimbusProcess]) -> bool:
        try:
            answer = others[0].submit("five")
        except httpx.TransportError:
            return False  # it is still starting
        if answer.status_code == 201:
            assert others[0].leads
            others[0].post("/five/kill/0")
            wait_for("it is gone", lambda: "five" not in self._cluster.statuses())
            return False
        assert answer.status_code in {421, 503}, answer.text
        return True
