"""The scenario of Storm's design of Nimbus HA: the leader and its disk are lost, and nobody else has all code.

1. Four topologies are active, replication factor 2. The leader has the code of all, the second nimbus that of 1 and 2,
   the third that of 3 and 4; both are in the queue. A cut network keeps them from fetching the rest.
2. The leader is killed, and its disk removed. Second and third can reach each other again.
3. They become leader-elect, see that they lack code, give up, and fetch from each other.
4. One that has all four leads. Until then nobody does, and submissions are refused. No driver is moved.
"""

import threading
import time
from pathlib import Path
from typing import Self

import attrs
import httpx

from tests.cluster.nimbuses import Cluster, NimbusProcess, next_root, submitted
from tests.cluster.relay import Relay
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.cluster.decisions.assignment import Heartbeat

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
        self._relays = [Relay(nimbus.address) for nimbus in cluster.nimbuses]
        """By which the nimbuses fetch code from each other."""
        for relay in self._relays:
            cluster.callback(relay.close)

    def play(self) -> Outcome:
        leader, *others = self._cluster.nimbuses
        self._prepare(leader, others)
        before = self._cluster.state.assignments()
        epoch = self._epoch()
        leader.kill()
        killed = time.monotonic()
        leader.lose_disk()
        # While they can't fetch: otherwise the next one may have all code before the session of the killed one ends.
        queue = self._cluster.state.node("leader-queue")
        wait_for(
            "the others leave the queue",
            lambda: not self._cluster.state.session.children(queue) or any(other.leads for other in others),
        )
        assert not any(other.leads for other in others), "a nimbus leads that lacks half of the code"
        for relay in self._relays:
            relay.heal()
        refused = 0
        while not (leaders := [other for other in others if other.leads]):
            assert time.monotonic() < killed + DEADLINE_SECS, "nobody leads"
            refused += self._is_refused(others)
        leader_after_secs = time.monotonic() - killed
        assert len(leaders) == 1
        # Beside these it may hold the code of a submission that it took once it led, and that is gone by now.
        missing = set(self._ids).difference(leaders[0].codes())
        assert not missing, f"a nimbus leads that does not hold the code of {missing}"
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
        self._cluster.add_supervisor("s1", 8)
        for place, (nimbus, relay) in enumerate(zip(self._cluster.nimbuses, self._relays, strict=True), start=1):
            nimbus.start(nimbus_address=relay.address).wait_until_up()
            wait_for(
                "it is queued", lambda place=place: len(state.session.children(state.node("leader-queue"))) == place
            )
        wait_for("the first one leads", lambda: leader.leads)
        self._ids = sorted(submitted(leader, *NAMES))
        wait_for("all hold all code", lambda: {len(holder) for holder in state.holders().values()} == {3})
        for relay in self._relays:
            relay.cut()
        for nimbus, relay, lost in zip(others, self._relays[1:], (NAMES[2:], NAMES[:2]), strict=True):
            gone = {topology for topology in self._ids if topology.startswith(lost)}
            for topology in gone:
                next(nimbus.folder.glob(f"nimbus/*/code/{topology}")).rename(nimbus.folder / f"lost-{topology}")
            wait_for("it holds the other half", lambda relay=relay, gone=gone: self._lacks(relay.address) == gone)
        wait_for("all are assigned", lambda: len(state.assignments()) == len(NAMES))
        wait_for("all beat", lambda: len(self._drivers.counts) == len(NAMES))

    def _lacks(self, address: str) -> set[str]:
        return {topology for topology, holders in self._cluster.state.holders().items() if address not in holders}

    def _epoch(self) -> int:
        found = self._cluster.state.session.data(self._cluster.state.node("epoch"))
        assert found is not None
        return int(found[0])

    def _is_refused(self, others: list[NimbusProcess]) -> bool:
        try:
            answer = others[0].submit("five")
        except httpx.TransportError as error:
            raise AssertionError(f"{others[0].address} does not answer") from error
        if answer.status_code == 201:
            assert others[0].leads
            others[0].post("/five/kill/0")
            wait_for("it is gone", lambda: "five" not in self._cluster.statuses())
            return False
        assert answer.status_code in {421, 503}, answer.text
        return True
