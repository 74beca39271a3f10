"""The rounds of a leader, and of one that has lost its lead without knowing it."""

import contextlib
import threading
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from tests.cluster.nimbuses import leading, next_root
from txtopo.cluster.code.distribution import LocalCodeDistributor
from txtopo.cluster.code_store import Manifest
from txtopo.cluster.decisions.lifecycle import Event, Request, Status, Topology
from txtopo.cluster.nimbus.lead import Lead
from txtopo.cluster.nimbus.monitor import Monitor
from txtopo.cluster.settings import ClusterConfig
from txtopo.cluster.state import ClusterState, LeaderWrites
from txtopo.errors import NotLeader
from txtopo.testing import ZooKeeperServer


class Distributor(LocalCodeDistributor):
    """Records whose files were removed."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def cleanup(self, topology: str) -> None:
        self.removed.append(topology)


def test_lost_lead_removes_no_files(zookeeper: ZooKeeperServer) -> None:
    """No transaction fences the distributor: a nimbus that led until just now leaves the next leader's code alone.

    1. The first leader begins a round; its connection breaks for longer than its session lasts.
    2. The second one leads, and publishes the code of a submission, whose record will follow.
    3. The first one goes on with its round, and reads that code of no topology is published.
    """
    distributor = Distributor()
    with contextlib.closing(ClusterState(zookeeper.hosts, next_root(), 10.0)) as state:

        def monitor(writes: LeaderWrites) -> Monitor:
            leadership: Any = SimpleNamespace(current=lambda: Lead(writes, distributor), decisions=threading.RLock())
            connection: Any = SimpleNamespace(state=state, distributor=distributor)
            return Monitor(ClusterConfig(), connection, leadership, under_way=set(), on_change=lambda: None)

        first = leading(state)
        state.end_term(first.term)
        second = leading(state)
        second.publish(Manifest("words-1-900", ()))
        monitor(first).step()
        killed = Topology("words-1-900", "words", "words", Status.ACTIVE, 900.0)
        with pytest.raises(NotLeader):
            Lead(first, distributor).apply(attrs.evolve(killed, status=Status.KILLED), Request(Event.REMOVE))
        assert distributor.removed == []
        monitor(second).step()
        assert distributor.removed == ["words-1-900"]
        assert state.manifests() == {}
