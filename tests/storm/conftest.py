"""What the tests that were Storm's own share."""

from __future__ import annotations

import itertools

import pytest

from txtopo.testing.zookeeper import ZooKeeperServer, shared_zookeeper

_ROOTS = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper() -> ZooKeeperServer:
    """One running ZooKeeper server for the whole test session."""
    return shared_zookeeper()


@pytest.fixture
def root() -> str:
    """A root node that no other test uses."""
    return f"/storm-{next(_ROOTS)}"
