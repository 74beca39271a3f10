"""Clusters of real nimbus processes."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.cluster.nimbuses import Cluster, NimbusProcess, next_root
from tests.cluster.supervisors import DriverCluster
from txtopo.testing import ZooKeeperServer

Make = Callable[..., Cluster]
MakeCluster = Callable[..., DriverCluster]


@pytest.fixture
def make(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Make]:
    """Make clusters of nimbuses, and end them after the test."""
    with contextlib.ExitStack() as made:

        def make_(size: int = 1, **settings: object) -> Cluster:
            root = next_root()
            return made.enter_context(Cluster(zookeeper.hosts, root, tmp_path / root.strip("/"), size, **settings))

        yield make_


@pytest.fixture
def make_cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[MakeCluster]:
    """Make a cluster that runs drivers, start it, and end it after the test."""
    with contextlib.ExitStack() as made:

        def make(supervisors: int = 1, options: Sequence[str] = (), **settings: object) -> DriverCluster:
            cluster = made.enter_context(DriverCluster(zookeeper.hosts, next_root(), tmp_path, supervisors, **settings))
            for supervisor in cluster.supervisors:
                supervisor.options = list(options)
            return cluster.start()

        yield make


@pytest.fixture(scope="module")
def alone(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NimbusProcess]:
    """One nimbus for all tests that leave nothing there."""
    with Cluster(zookeeper.hosts, next_root(), tmp_path_factory.mktemp("alone"), 1) as cluster:
        yield cluster.start().nimbuses[0]
