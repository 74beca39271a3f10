"""What the tests of stores share."""

from __future__ import annotations

import itertools

import pytest

from txtopo.testing.zookeeper import ZooKeeperServer, shared_zookeeper

pytest.register_assert_rewrite("txtopo.testing.stores")

_ROOTS = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper() -> ZooKeeperServer:
    """One running ZooKeeper server for the whole test session."""
    return shared_zookeeper()


@pytest.fixture
def root() -> str:
    """A root node that no other test uses."""
    return f"/state-{next(_ROOTS)}"
