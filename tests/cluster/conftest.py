"""Clusters of real nimbus processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.nimbuses import Cluster, NimbusProcess, next_root
from txtopo.testing import ZooKeeperServer

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


@pytest.fixture(scope="module")
def alone(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NimbusProcess]:
    """One nimbus for all tests that leave nothing there."""
    with Cluster(zookeeper.hosts, next_root(), tmp_path_factory.mktemp("alone"), 1) as cluster:
        yield cluster.start().nimbuses[0]
