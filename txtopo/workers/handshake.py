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
import selectors
import socket
import threading
from collections.abc import Callable, Iterator

import attrs

from txtopo.network.acceptor import Acceptor
from txtopo.network.channel import LENGTH_BYTES, WakeUp
from txtopo.text.repeated import LOGGED_MAX, LOGGED_SECS, Repeated
from txtopo.workers.messages import Address

logger = logging.getLogger(__name__)

NONCE_BYTES = 32
PROOF_BYTES = 32
INTRODUCTION_BYTES_MAX = 4_096
"""The longest introduction."""
TIMEOUT_SECS = 5.0
"""How long each read and write of the connector's part may take."""


class HandshakeError(Exception):
    """The other side does not know the secret."""


def new_secret() -> bytes:
    """Return a random secret for a run."""
    return secrets.token_bytes(32)


def connect(address: tuple[str, int], secret: bytes, timeout_secs: float = TIMEOUT_SECS) -> socket.socket:
    """Connect to a listener and do the connector's part.

    Raises:
        HandshakeError: the listener does not know the secret.
        OSError: nobody listens there, or the other side took too long.
    """
    connection = socket.create_connection(address, timeout_secs)
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
    """Read ``count`` bytes and no more, since what follows is the channel's; OSError if it ends or takes too long."""
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the connection was closed during its handshake or introduction")
        data += part
    return data


@attrs.define(eq=False)
class _Newcomer:
    connection: socket.socket
    needed: int
    """How many bytes the step wants."""
    step: Callable[[_Newcomer, bytes], None]
    nonce: bytes = attrs.field(factory=lambda: secrets.token_bytes(NONCE_BYTES))
    read: bytes = b""


Take = Callable[[socket.socket, bytes], None]
"""Takes a connection past its handshake, and its introduction, in the listener's thread; must return soon."""


class Listener:
    """Accepts connections in one thread, and hands over those that have proved to know the run's secret.

    It listens on ``host``, an IPv4 or IPv6 address or a name, on any free port. Only :meth:`close` ends it; see
    :mod:`~txtopo.network.acceptor`. If ``is_introduced``, each connector sends a message before it is handed over.
    """

    def __init__(self, host: str, secret: bytes, *, is_introduced: bool = False) -> None:
        self._secret = secret
        self._is_introduced = is_introduced
        self._selector = selectors.DefaultSelector()
        self._acceptor = Acceptor(host, self._selector, self._drop)
        self.address: Address = (host, self._acceptor.port)
        """Where others connect."""
        self._repeated = Repeated(LOGGED_SECS, LOGGED_MAX)
        self._closing = WakeUp()
        self._selector.register(self._closing, selectors.EVENT_READ)
        self._take: Take = lambda connection, _: connection.close()
        self._thread = threading.Thread(target=self._listen, name="txtopo-accept", daemon=True)

    def start(self, take: Take) -> None:
        """Start to accept. If ``take`` raises, the connection is closed."""
        self._take = take
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        if self._thread.ident is None:
            self._end()
            return
        self._closing.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(TIMEOUT_SECS)

    def _listen(self) -> None:
        while True:
            ready = self._selector.select(self._acceptor.wait_secs)
            if any(key.fileobj is self._closing for key, _ in ready):
                self._end()
                return
            for key, _ in ready:
                if key.fileobj is self._acceptor:
                    self._accept()
                elif key.fileobj in self._selector.get_map():  # else it was displaced just before
                    self._hear(key.data)
            self._acceptor.run_timers()

    def _accept(self) -> None:
        connection = self._acceptor.accept()
        if connection is None:
            return
        newcomer = _Newcomer(connection, NONCE_BYTES + PROOF_BYTES, self._prove)
        self._selector.register(connection, selectors.EVENT_READ, newcomer)
        # The connector proves first: a stranger gets nothing that was computed from the secret.
        with self._refused(newcomer):
            _send(connection, newcomer.nonce)

    def _hear(self, newcomer: _Newcomer) -> None:
        with self._refused(newcomer):
            try:
                part = newcomer.connection.recv(newcomer.needed - len(newcomer.read))
            except (BlockingIOError, InterruptedError):
                return
            if not part:
                raise ConnectionError("the connection was closed during its handshake or introduction")
            newcomer.read += part
            if len(newcomer.read) == newcomer.needed:
                read, newcomer.read = newcomer.read, b""
                newcomer.step(newcomer, read)

    def _prove(self, newcomer: _Newcomer, read: bytes) -> None:
        theirs, proof = read[:NONCE_BYTES], read[NONCE_BYTES:]
        _check(proof, _proof(self._secret, b"connect", newcomer.nonce, theirs), "who has connected")
        _send(newcomer.connection, _proof(self._secret, b"listen", newcomer.nonce, theirs))
        if self._is_introduced:
            newcomer.needed, newcomer.step = LENGTH_BYTES, self._measure
        else:
            self._admit(newcomer, b"")

    def _measure(self, newcomer: _Newcomer, read: bytes) -> None:
        length = int.from_bytes(read, "big")
        if not 0 < length <= INTRODUCTION_BYTES_MAX:
            raise HandshakeError(f"an introduction of {length:,} bytes is refused")
        newcomer.needed, newcomer.step = length, self._admit

    def _admit(self, newcomer: _Newcomer, introduction: bytes) -> None:
        self._acceptor.leave(newcomer.connection)
        self._selector.unregister(newcomer.connection)
        self._take(newcomer.connection, introduction)

    @contextlib.contextmanager
    def _refused(self, newcomer: _Newcomer) -> Iterator[None]:
        """Close a connection whatever fails in it: nobody else's connection, and not the listener."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - as above
            text = self._repeated.shown(f"a connection is closed: {error}")
            if text is not None:
                logger.warning("%s", text)
            self._acceptor.leave(newcomer.connection)
            self._drop(newcomer.connection)

    def _drop(self, connection: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):  # admitted already
            self._selector.unregister(connection)
        connection.close()

    def _end(self) -> None:
        self._acceptor.close()
        self._selector.close()
        self._closing.close()


def _send(connection: socket.socket, data: bytes) -> None:
    """Send a few bytes on a connection that has room for them; raise OSError if it has none."""
    if connection.send(data) < len(data):
        raise ConnectionError("the connection takes nothing")
