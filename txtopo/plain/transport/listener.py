"""A listener: accepts connections, and hands over those that have shown the run's secret."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from txtopo.channel import address_family
from txtopo.plain.transport import handshake
from txtopo.plain.transport.messages import Address

logger = logging.getLogger(__name__)

_BACKLOG = 128


class Listener:
    """Listens in a thread; each connection has its handshake in another one, so that nobody waits for a stranger.

    Args:
        host: where to listen: an IPv4 or IPv6 address, or a name.
        secret: the run's.
    """

    def __init__(self, host: str, secret: bytes) -> None:
        self._secret = secret
        self._socket = socket.create_server((host, 0), family=address_family(host), backlog=_BACKLOG)
        self.address: Address = (host, self._socket.getsockname()[1])
        """Where others connect."""

    def start(self, take: Callable[[socket.socket], None]) -> None:
        """Begin to accept.

        Args:
            take: is given each connection past its handshake, in a thread of its own. If it raises OSError, the
                connection is closed.
        """
        threading.Thread(target=self._accept, args=(take,), name="txtopo-accept", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept() up
        self._socket.close()

    def _accept(self, take: Callable[[socket.socket], None]) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._meet, args=(connection, take), name="txtopo-meet", daemon=True).start()

    def _meet(self, connection: socket.socket, take: Callable[[socket.socket], None]) -> None:
        try:
            handshake.accept(connection, self._secret)
            take(connection)
        except (OSError, handshake.HandshakeError) as error:
            logger.warning("%s", error)
            connection.close()
