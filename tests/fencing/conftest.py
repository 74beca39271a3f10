"""What the tests of fencing share: a ZooKeeper server whose sessions may last some seconds."""

import itertools
from collections.abc import Iterator

import pytest

from tests.harness.soak.changes.story import Undisturbed
from txtopo.servers.zookeeper import ZooKeeperServer, running_zookeeper

TICK_TIME_MS = 300
_ROOTS = itertools.count(1)


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server that these tests have for themselves; it may be stopped and started, and runs again afterwards."""
    with running_zookeeper(tmp_path_factory.mktemp("server"), tick_time_ms=TICK_TIME_MS) as running:
        yield running


@pytest.fixture
def root() -> str:
    """A root node that no other test uses."""
    return f"/fencing-{next(_ROOTS)}"


@pytest.fixture(scope="package")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A topology that nothing happens to."""
    undisturbed = Undisturbed(tmp_path_factory.mktemp("undisturbed"))
    undisturbed.run()
    return undisturbed
