"""The handshake lets in who knows the run's secret, and reads nothing of anybody else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from txtopo.workers import handshake
from txtopo.workers.handshake import HandshakeError, accept, connect

SECRET = b"s" * 32


class Listener:
    """Accepts one connection, and keeps what came of it."""

    def __init__(self, secret: bytes) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = self._socket.getsockname()
        self.error: Exception | None = None
        self.connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._accept, args=(secret,))
        self._thread.start()

    def _accept(self, secret: bytes) -> None:
        self.connection, _ = self._socket.accept()
        try:
            accept(self.connection, secret)
        except (HandshakeError, OSError) as error:
            self.error = error
            self.connection.close()

    def close(self) -> None:
        """Wait for the handshake, and close."""
        self._thread.join(10)
        self._socket.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A listener with the secret."""
    made = Listener(SECRET)
    yield made
    made.close()


def test_connector_with_another_secret(listener: Listener) -> None:
    """Who does not know the secret is refused by the listener, and learns nothing that it could use."""
    with pytest.raises(ConnectionError):
        connect(listener.address, b"x" * 32)
    listener.close()
    assert isinstance(listener.error, (HandshakeError, OSError))


def test_listener_with_another_secret() -> None:
    """A listener that is not of the run is not trusted, whatever it answers."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = server.accept()
        connection.sendall(b"n" * handshake.NONCE_BYTES)
        connection.recv(handshake.NONCE_BYTES + handshake.PROOF_BYTES)
        connection.sendall(b"p" * handshake.PROOF_BYTES)
        connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(HandshakeError, match="does not know the run's secret"):
        connect(server.getsockname(), SECRET)
    thread.join()
    server.close()


def overheard() -> tuple[bytes, bytes]:
    """Return what the connector and the listener of one handshake have said."""
    said: tuple[list[bytes], list[bytes]] = [], []
    inner = Listener(SECRET)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pass_on() -> None:
            outer, _ = server.accept()
            with outer, socket.create_connection(inner.address) as other:
                turns = ((other, outer, 1, 32), (outer, other, 0, 64), (other, outer, 1, 32))
                for source, target, who, count in turns:
                    said[who].append(handshake.read_exactly(source, count))
                    target.sendall(said[who][-1])

        thread = threading.Thread(target=pass_on)
        thread.start()
        connect(server.getsockname(), SECRET).close()
        thread.join()
    inner.close()
    assert inner.error is None
    return b"".join(said[0]), b"".join(said[1])


def test_a_connector_cannot_say_what_another_said(listener: Listener) -> None:
    """Its proof has the listener's nonce in it, which is another each time."""
    connector_said, _ = overheard()
    with socket.create_connection(listener.address) as connection:
        connection.sendall(connector_said)
        listener.close()
    assert isinstance(listener.error, HandshakeError)


@pytest.mark.parametrize("is_sent_back", [True, False])
def test_a_listener_cannot_say_what_another_said(is_sent_back: bool) -> None:
    """Nor what the connector has just said: its proof has the connector's nonce in it, and a word of its own."""
    _, listener_said = overheard()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(listener_said[: handshake.NONCE_BYTES])
                heard = handshake.read_exactly(connection, handshake.NONCE_BYTES + handshake.PROOF_BYTES)
                connection.sendall((heard if is_sent_back else listener_said)[handshake.NONCE_BYTES :])

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(HandshakeError):
            connect(server.getsockname(), SECRET)
        thread.join()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.0\r\n\r\n"], ids=["nothing", "too little"])
def test_silent_connector(listener: Listener, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """A listener does not wait for ever for who says too little."""
    monkeypatch.setattr(handshake, "TIMEOUT_SECS", 0.1)
    with socket.create_connection(listener.address) as connection:
        connection.sendall(said)
        listener.close()
    assert isinstance(listener.error, TimeoutError)


def test_silent_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connector does not wait for ever for who says nothing."""
    monkeypatch.setattr(handshake, "TIMEOUT_SECS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(TimeoutError):
        connect(server.getsockname(), SECRET)
