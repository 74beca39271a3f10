"""A cluster with credentials: its topologies run, and a client without them can neither read nor change its nodes."""

import contextlib
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError, NotEmptyError
from kazoo.security import make_digest_acl

from tests.cluster.nimbuses import next_root
from tests.cluster.supervisors import DriverCluster
from txtopo.cluster.state import ClusterState
from txtopo.errors import StopError
from txtopo.testing import ZooKeeperServer

USER, PASSWORD = "cluster", "a-word-that-nobody-knows"
CREDENTIALS = f"{USER}:{PASSWORD}"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_closed_nodes(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """With credentials a topology runs, and nobody else can read or change a node; no file shows the password."""
    with DriverCluster(zookeeper.hosts, next_root(), tmp_path, 1, storm_zookeeper_auth=CREDENTIALS) as cluster:
        cluster.start()
        topology = cluster.submit(total=1_000_000, pause=0.1)
        cluster.wait_until_committing()
        state = cluster.cluster.state
        nodes = list(_below(state.session.client, state.root))
        kinds = {node.removeprefix(state.root).split("/")[1] for node in nodes if node != state.root}
        assert kinds >= {"storms", "assignments", "workerbeats", "code-distributor", "supervisors", "leader", "state"}
        _try_without(zookeeper.hosts, nodes)
        for wrong in (None, f"{USER}:wrong", f"other:{PASSWORD}"):
            with pytest.raises(StopError, match="refuses access"):
                ClusterState(zookeeper.hosts, state.root, 10.0, wrong)
        _look_for_the_password(cluster, tmp_path)
        cluster.wait_until_committing()
        assert topology in state.topologies()
        cluster.end()


def _below(client: Any, node: str) -> Iterator[str]:
    yield node
    with contextlib.suppress(NoNodeError):
        for name in client.get_children(node):
            yield from _below(client, f"{node}/{name}")


def _try_without(hosts: str, nodes: list[str]) -> None:
    """See that a client that has not logged in is refused at every node, whatever it tries."""
    client = KazooClient(hosts=hosts)
    client.start(30.0)
    other = [make_digest_acl("other", "other", all=True)]
    try:
        for node in nodes:
            assert _is_refused(lambda node=node: client.get(node)), node
            assert _is_refused(lambda node=node: client.get_children(node)), node
            assert _is_refused(lambda node=node: client.set(node, b"changed")), node
            assert _is_refused(lambda node=node: client.create(f"{node}/mine", b"")), node
            assert _is_refused(lambda node=node: client.set_acls(node, other)), node
            # Whether a node may be deleted is its parent's business; the root's belongs to everybody.
            assert _is_refused(lambda node=node: client.delete(node)), node
    finally:
        client.stop()
        client.close()


def _is_refused(attempt: Callable[[], Any]) -> bool:
    """Whether it is refused; also if the node, an ephemeral one, is gone, or has nodes below it that are refused."""
    try:
        attempt()
    except (NoAuthError, NoNodeError, NotEmptyError):
        return True
    return False


def _look_for_the_password(cluster: DriverCluster, folder: Path) -> None:
    """See that it is in no file but those that only their owner can read, and in no answer."""
    for path in folder.rglob("*"):
        if path.is_file() and PASSWORD.encode() in path.read_bytes():
            assert path.name == "launch.json", path
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PASSWORD not in cluster.command("list", "--format", "json")
    for address in ("cluster/summary", "nimbus/summary", "supervisor/summary", "topology/summary", "topology/counting"):
        assert PASSWORD not in cluster.nimbus.client.get(f"/api/v1/{address}").text
