"""Nimbus processes on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.nimbuses import Cluster, next_root, wait_for
from txtopo.testing import ZooKeeperServer

pytestmark = pytest.mark.slow

Make = Callable[..., Cluster]


@pytest.fixture
def make(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Make]:
    """Make clusters, and end them after the test."""
    made: list[Cluster] = []

    def make_(size: int = 1, **settings: object) -> Cluster:
        made.append(Cluster(zookeeper.hosts, next_root(), tmp_path / str(len(made)), size, **settings))
        return made[-1]

    yield make_
    for cluster in made:
        cluster.close()


def test_life_of_a_topology(make: Make) -> None:
    """Submit, deactivate, activate, rebalance, kill: each shows in the summary, and killed it is gone with its code."""
    [nimbus] = make().start().nimbuses
    answer = nimbus.submit("words", wait_secs=0.5)
    assert answer.status_code == 201, answer.text
    topology = answer.json()
    assert (topology["name"], topology["status"], topology["replicationCount"]) == ("words", "ACTIVE", 1)
    assert topology["note"] == "no live supervisor could check the code"
    assert nimbus.codes() == [topology["id"]]
    assert nimbus.post("/words/deactivate").json()["topology"]["status"] == "INACTIVE"
    assert nimbus.post("/words/activate").json()["status"] == "success"
    answer = nimbus.post("/words/rebalance/0.2", json={"settings": {"shop.discount": 3}})
    assert answer.json()["topology"]["status"] == "REBALANCING"
    wait_for("it is active again", lambda: nimbus.get("/api/v1/topology/words")["status"] == "ACTIVE")
    assert nimbus.get("/api/v1/topology/words")["settings"] == {"shop.discount": "3"}
    assert nimbus.post("/words/kill").json()["topology"]["status"] == "KILLED"
    wait_for("it is gone", lambda: nimbus.get("/api/v1/topology/summary") == {"topologies": []})
    wait_for("its code is gone", lambda: nimbus.codes() == [])
    assert nimbus.post("/words/kill").status_code == 404
