"""A plain client's view of what lies in ZooKeeper, for looking behind the store."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import attrs
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from tests.fencing.delta_log import TOPOLOGY
from tests.waiting import wait_for


@attrs.frozen
class Node:
    """A node's data and the transactions that made it and changed it last."""

    data: bytes
    made_zxid: int
    changed_zxid: int
    version: int


@attrs.frozen
class ZooKeeperView:
    """What lies below a root node.

    Args:
        client: a plain kazoo client.
        root: the node.
    """

    client: KazooClient
    root: str

    def tree(self) -> dict[str, Node]:
        """Return every node below the root."""
        found: dict[str, Node] = {}
        paths = [self.root]
        while paths:
            path = paths.pop()
            data, stat = self.client.get(path)
            found[path] = Node(data, stat.czxid, stat.mzxid, stat.version)
            paths += [f"{path}/{name}" for name in self.client.get_children(path)]
        return found

    def committed(self) -> int:
        """Return the last committed transaction, 0 before the first."""
        try:
            data, _ = self.client.get(f"{self.root}/values/{TOPOLOGY}/committed")
        except NoNodeError:
            return 0
        return int(json.loads(data)["txid"])

    def epoch(self) -> Node:
        """Return the node of the epoch."""
        data, stat = self.client.get(f"{self.root}/leads/{TOPOLOGY}")
        return Node(data, stat.czxid, stat.mzxid, stat.version)

    def leading_session(self) -> int | None:
        """Return the session that holds the lead, or None."""
        stat = self.client.exists(f"{self.root}/leads/{TOPOLOGY}/holder")
        return None if stat is None else stat.ephemeralOwner


@contextlib.contextmanager
def viewing(hosts: str, root: str) -> Iterator[ZooKeeperView]:
    """Open a view for the time of a ``with`` block."""
    client = _client(hosts)
    client.start()
    try:
        yield ZooKeeperView(client, root)
    finally:
        client.stop()
        client.close()


def end_session(view: ZooKeeperView, client: KazooClient) -> None:
    """End the session of a leader behind its back, for real: a second client joins the session, and closes it.

    The leader connects again as soon as it is cut off, which may cut off the second client before it has closed.
    """
    session, _ = client_id = client.client_id

    def has_ended() -> bool:
        second = _client(",".join(f"{host}:{port}" for host, port in client.hosts), client_id=client_id)
        with contextlib.suppress(KazooTimeoutError):
            second.start()
        second.stop()
        second.close()
        return view.leading_session() != session

    assert view.leading_session() == session
    wait_for("the session ends", has_ended)


def _client(hosts: str, **options: Any) -> KazooClient:
    """Return a client that connects again at once, and does not wait long for a server that starts."""
    retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.2)
    return KazooClient(",".join([hosts] * 5), connection_retry=retry, **options)
