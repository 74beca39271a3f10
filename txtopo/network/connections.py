"""Which connections a server keeps: bounded in number, by peer and in all, and in time.

A connection costs a file descriptor, and a process without any fails in everything else it does. So a server limits the
connections of every client:

1. A peer holds half of all places, and says nothing on any of them.
2. One more connection of that peer comes. The limit closes the one of this peer that has been idle for longest. So a
   client on the same machine that sends its request at once is served, and so is every other peer.
3. The limit closes a connection that has sent no whole request in time, whether anybody needs its place or not.

The limit never closes a request under way for a newcomer: if such requests hold all places, it refuses the newcomer.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterable, Mapping

import attrs

CONNECTIONS_MAX = 512
"""The most connections of a server, even if its process may have more file descriptors."""

REQUEST_SECS = 10.0
"""How long a connection may take to send the head of a request, from its start or from the last answer."""

STALLED_SECS = 30.0
"""How long the peer of a request under way may send no more of it, or take no more of the answer."""


@attrs.define(eq=False)
class Connection:
    """A connection that was let in.

    Args:
        peer: the address of the other side, without the port.
        close: closes it at once; may be called on any thread.
        since: when the server began to wait for the peer; None while it does not wait.
        wait_secs: how long it waits.
        is_idle: whether the peer has asked for nothing that is still to be done.
    """

    peer: str
    close: Callable[[], object]
    since: float | None
    wait_secs: float = REQUEST_SECS
    is_idle: bool = True


class ConnectionLimit:
    """Lets connections in, and closes idle ones. Safe to use from several threads.

    A peer may have half of ``connections_max``; ``clock`` returns seconds.
    """

    def __init__(self, connections_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._connections_max = connections_max
        self._peer_max = max(1, connections_max // 2)
        self._clock = clock
        self._by_peer: dict[str, dict[Connection, None]] = {}
        self._lock = threading.Lock()

    def enter(self, peer: str, close: Callable[[], object]) -> Connection | None:
        """Let a connection in, if need be in place of an idle one; None: there is no place."""
        with self._lock:
            of_peer = self._by_peer.get(peer, {})
            displaced: Connection | None = None
            if len(of_peer) >= self._peer_max:
                displaced = _most_silent([of_peer])
            elif sum(map(len, self._by_peer.values())) >= self._connections_max:
                # Of the peer that has most connections.
                displaced = _most_silent(sorted(self._by_peer.values(), key=len, reverse=True))
            else:
                return self._entered(peer, close)
            if displaced is None:
                return None
            self._remove(displaced)
            entered = self._entered(peer, close)
        displaced.close()  # outside the lock, for it may call leave()
        return entered

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed; a second call does nothing."""
        with self._lock:
            self._remove(connection)

    def idles(self, connection: Connection) -> None:
        """Wait for the next request on a connection. Pieces of its head do not renew the time."""
        with self._lock:
            connection.since, connection.wait_secs, connection.is_idle = self._clock(), REQUEST_SECS, True

    def awaits(self, connection: Connection) -> None:
        """Wait for the peer of a request under way to send more, or to take more of the answer."""
        with self._lock:
            connection.since, connection.wait_secs, connection.is_idle = self._clock(), STALLED_SECS, False

    def works(self, connection: Connection) -> None:
        """Stop waiting: the server works on the request, for however long."""
        with self._lock:
            connection.since, connection.is_idle = None, False

    def sweep(self) -> None:
        """Close the connections whose time is over. *You* must call it about every second."""
        now = self._clock()
        with self._lock:
            overdue = [
                connection
                for connections in self._by_peer.values()
                for connection in connections
                if connection.since is not None and now - connection.since > connection.wait_secs
            ]
            for connection in overdue:
                self._remove(connection)
        for connection in overdue:
            connection.close()

    def _entered(self, peer: str, close: Callable[[], object]) -> Connection:
        entered = Connection(peer, close, self._clock())
        self._by_peer.setdefault(peer, {})[entered] = None
        return entered

    def _remove(self, connection: Connection) -> None:
        of_peer = self._by_peer.get(connection.peer, {})
        of_peer.pop(connection, None)
        if not of_peer:  # or peers that come and go would fill the memory
            self._by_peer.pop(connection.peer, None)


def _most_silent(peers: Iterable[Mapping[Connection, None]]) -> Connection | None:
    """Return the connection idle for longest, of the first peer that has an idle one."""
    for connections in peers:
        idle = [connection for connection in connections if connection.is_idle and connection.since is not None]
        if idle:
            return min(idle, key=lambda connection: connection.since or 0.0)
    return None


def connections_max() -> int:
    """Return the most connections of a server: half of the process' file descriptors, at most ``CONNECTIONS_MAX``."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else max(2, min(CONNECTIONS_MAX, soft // 2))


def backlog() -> int:
    """Return the length of the kernel's queue: so many connections may come on top before the limit sees them."""
    return max(1, connections_max() // 4)
