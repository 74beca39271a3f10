"""A listening socket that only ``close`` ends, and a bound on those who have come in and are nobody yet.

Whoever merely finds the port may connect, say nothing, and do so a thousand times; and a process may run out of file
descriptors for any reason. Neither may end a loop that accepts, nor make it spin, nor keep the processes of a run out:

- While ``accept`` fails, the listening socket is left alone for ``PAUSE_SECS``: it stays ready, so a loop that waits
  for it would spin.
- A newcomer has ``REQUEST_SECS`` to prove who it is, however many pieces that comes in. A
  :class:`~txtopo.network.connections.ConnectionLimit` bounds how many try at once, by peer and in all.
- Who has proved it is *admitted*, and no longer bounded here.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable

from txtopo.network.channel import address_family
from txtopo.network.connections import Connection, ConnectionLimit, backlog, connections_max

PAUSE_SECS = 0.2
"""For how long nobody is accepted after an ``accept`` that has failed."""

SWEEP_SECS = 1.0
"""How often a loop must call :meth:`Acceptor.run_timers`."""


class Acceptor:
    """Listens on any free port of ``host``, an IPv4 or IPv6 address or a name, in the selector of its caller's loop.

    *You* must call :meth:`accept` when it is ready, and :meth:`run_timers` every ``SWEEP_SECS``, all in one thread.
    ``drop`` is called in that thread, with what stands for a newcomer, when its place is taken from it; it must close
    it.
    """

    def __init__(self, host: str, selector: selectors.BaseSelector, drop: Callable[[socket.socket], None]) -> None:
        self._socket = socket.create_server((host, 0), family=address_family(host), backlog=backlog())
        # Whatever socket.setdefaulttimeout says: others use this Python process, too.
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._selector = selector
        self._drop = drop
        self._limit = ConnectionLimit(
            max(2, connections_max() // 2)
        )  # a process has two acceptors, and admits others besides
        self._places: dict[socket.socket, Connection] = {}
        """By newcomer that is not admitted yet."""
        self._shut_until: float | None = None
        """While nobody is accepted, until when."""
        selector.register(self, selectors.EVENT_READ)

    def fileno(self) -> int:
        """Return the socket's number, for selectors."""
        return self._socket.fileno()

    def accept(self) -> socket.socket | None:
        """Return a newcomer's connection, which does not block; None if there is none, or no place for it."""
        try:
            connection, peer = self._socket.accept()
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:  # no descriptors or no memory are left, or the newcomer has gone: it is tried again
            self._selector.unregister(self)
            self._shut_until = time.monotonic() + PAUSE_SECS
            return None
        connection.setblocking(False)
        place = self._limit.enter(peer[0], lambda: self._displace(connection))
        if place is None:
            connection.close()
            return None
        self._places[connection] = place
        return connection

    def leave(self, connection: socket.socket) -> None:
        """Free the place of a newcomer that is admitted, or closed."""
        place = self._places.pop(connection, None)
        if place is not None:
            self._limit.leave(place)

    def run_timers(self) -> None:
        """Drop the newcomers whose time is over, and accept again after a pause."""
        self._limit.sweep()
        if self._shut_until is not None and time.monotonic() >= self._shut_until:
            self._shut_until = None
            self._selector.register(self, selectors.EVENT_READ)

    @property
    def wait_secs(self) -> float | None:
        """For how long a loop may wait before the next look."""
        return PAUSE_SECS if self._shut_until is not None else SWEEP_SECS if self._places else None

    def close(self) -> None:
        """Stop listening, and drop all newcomers."""
        if self._shut_until is None:
            self._selector.unregister(self)
        self._socket.close()
        for connection in list(self._places):
            self._displace(connection)

    def _displace(self, connection: socket.socket) -> None:
        self.leave(connection)
        self._drop(connection)
