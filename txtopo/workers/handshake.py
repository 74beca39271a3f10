"""The handshake: both sides of a new connection prove that they know the run's secret before they read anything else.

What follows on the connection is unpickled, and a pickle can run code. So a process that merely finds the port must
not get that far::

    listener  → nonce L                       (32 bytes)
    connector → nonce C, HMAC(secret, "connect" L C)
    listener  → HMAC(secret, "listen" L C)

Each proof contains the other side's nonce, so it can't be replayed, and the side's own word, so it can't be sent back.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import secrets
import socket
import threading
from collections.abc import Callable

from txtopo.network.channel import address_family
from txtopo.workers.messages import Address

logger = logging.getLogger(__name__)

NONCE_BYTES = 32
PROOF_BYTES = 32
_BACKLOG = 128
TIMEOUT_SECS = 5.0
"""How long each read and write of the handshake may take."""


class HandshakeError(Exception):
    """The other side does not know the secret."""


def new_secret() -> bytes:
    """Return a random secret for a run."""
    return secrets.token_bytes(32)


def accept(connection: socket.socket, secret: bytes) -> None:
    """Do the listener's part on a connection that was just accepted.

    Raises:
        HandshakeError: the other side does not know the secret.
        OSError: the connection broke, or the other side took too long.
    """
    # The connector proves first: a stranger gets nothing that was computed from the secret.
    connection.settimeout(TIMEOUT_SECS)
    mine = secrets.token_bytes(NONCE_BYTES)
    connection.sendall(mine)
    theirs = read_exactly(connection, NONCE_BYTES)
    _check(read_exactly(connection, PROOF_BYTES), _proof(secret, b"connect", mine, theirs), "who has connected")
    connection.sendall(_proof(secret, b"listen", mine, theirs))


def connect(address: tuple[str, int], secret: bytes) -> socket.socket:
    """Connect to a listener and do the connector's part.

    Raises:
        HandshakeError: the listener does not know the secret.
        OSError: nobody listens there, or the other side took too long.
    """
    connection = socket.create_connection(address, TIMEOUT_SECS)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        theirs = read_exactly(connection, NONCE_BYTES)
        mine = secrets.token_bytes(NONCE_BYTES)
        connection.sendall(mine + _proof(secret, b"connect", theirs, mine))
        _check(
            read_exactly(connection, PROOF_BYTES), _proof(secret, b"listen", theirs, mine), f"{address[0]}:{address[1]}"
        )
    except BaseException:
        connection.close()
        raise
    return connection


def _check(proof: bytes, expected: bytes, who: str) -> None:
    if not hmac.compare_digest(proof, expected):
        raise HandshakeError(f"a connection was refused: {who} does not know the run's secret")


def _proof(secret: bytes, word: bytes, listener: bytes, connector: bytes) -> bytes:
    return hmac.digest(secret, word + listener + connector, "sha256")


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """Read ``count`` bytes and no more: what follows stays in the socket, for the channel.

    Raises:
        OSError: the connection was closed before, or the other side took too long.
    """
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the connection was closed during its handshake or introduction")
        data += part
    return data


class Listener:
    """Accepts connections in a thread, and hands over those that have proved to know the run's secret.

    It listens on ``host``, an IPv4 or IPv6 address or a name, on any free port. Each handshake has a thread of its own,
    so nobody waits for a stranger.
    """

    def __init__(self, host: str, secret: bytes) -> None:
        self._secret = secret
        self._socket = socket.create_server((host, 0), family=address_family(host), backlog=_BACKLOG)
        self.address: Address = (host, self._socket.getsockname()[1])
        """Where others connect."""

    def start(self, take: Callable[[socket.socket], None]) -> None:
        """Start to accept.

        ``take`` is called with each connection past its handshake, in that connection's thread. If it raises OSError,
        the connection is closed.
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
            accept(connection, self._secret)
            take(connection)
        except (OSError, HandshakeError) as error:
            logger.warning("%s", error)
            connection.close()
