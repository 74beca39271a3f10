"""The handshake lets in who knows the run's secret, and reads nothing of anybody else."""

import queue
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.waiting import DEADLINE_SECS
from txtopo.network.channel import framed
from txtopo.workers import handshake
from txtopo.workers.handshake import INTRODUCTION_BYTES_MAX, NONCE_BYTES, PROOF_BYTES, HandshakeError, Listener, connect

SECRET = b"s" * 32

Taken = queue.Queue[tuple[socket.socket, bytes]]


@pytest.fixture
def taken() -> Iterator[Taken]:
    """The connections that were let in, with their introductions."""
    made: Taken = queue.Queue()
    yield made
    while not made.empty():
        made.get()[0].close()


@pytest.fixture
def listener(taken: Taken) -> Iterator[Listener]:
    """A listener with the secret."""
    made = Listener("127.0.0.1", SECRET)
    made.start(lambda connection, introduction: taken.put((connection, introduction)))
    yield made
    made.close()


def is_closed(connection: socket.socket) -> bool:
    """Read until the other side has closed the connection, and return True."""
    connection.settimeout(DEADLINE_SECS)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def test_both_know_the_secret(listener: Listener, taken: Taken) -> None:
    """Who knows it is let in, and what it says next is left to whoever takes the connection."""
    with connect(listener.address, SECRET) as connection:
        connection.sendall(b"next")
        mine, introduction = taken.get(timeout=DEADLINE_SECS)
        with mine:
            mine.settimeout(DEADLINE_SECS)
            assert (introduction, handshake.read_exactly(mine, 4)) == (b"", b"next")


def test_introduction(taken: Taken) -> None:
    """Where connectors introduce themselves, the listener reads that, in however many pieces, and no byte of the next."""
    listener = Listener("127.0.0.1", SECRET, is_introduced=True)
    listener.start(lambda connection, introduction: taken.put((connection, introduction)))
    with connect(listener.address, SECRET) as connection:
        for byte in framed(b"worker 3") + b"next":
            connection.sendall(bytes([byte]))
        mine, introduction = taken.get(timeout=DEADLINE_SECS)
        with mine:
            mine.settimeout(DEADLINE_SECS)
            assert (introduction, handshake.read_exactly(mine, 4)) == (b"worker 3", b"next")
    with connect(listener.address, SECRET) as connection:
        connection.sendall((INTRODUCTION_BYTES_MAX + 1).to_bytes(4, "big"))
        assert is_closed(connection)
    listener.close()


def test_one_that_cannot_be_taken_harms_no_other(taken: Taken) -> None:
    """Its connection is closed; the next one is taken."""

    def take(connection: socket.socket, introduction: bytes) -> None:
        if introduction == b"bad":
            raise ValueError("a bug")
        taken.put((connection, introduction))

    listener = Listener("127.0.0.1", SECRET, is_introduced=True)
    listener.start(take)
    with connect(listener.address, SECRET) as bad, connect(listener.address, SECRET) as good:
        bad.sendall(framed(b"bad"))
        assert is_closed(bad)
        good.sendall(framed(b"good"))
        assert taken.get(timeout=DEADLINE_SECS)[1] == b"good"
    listener.close()


def test_connector_with_another_secret(listener: Listener, taken: Taken) -> None:
    """Who does not know the secret is refused by the listener, and learns nothing that it could use."""
    with pytest.raises(ConnectionError):
        connect(listener.address, b"x" * 32)
    assert taken.empty()


def test_strangers_fill_no_log(listener: Listener, taken: Taken, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever finds the port may come again and again; the log says so a few times a minute."""
    for _ in range(25):
        with socket.create_connection(listener.address) as stranger:
            stranger.sendall(bytes(NONCE_BYTES + PROOF_BYTES))
            assert is_closed(stranger)
    assert taken.empty()
    assert len(caplog.records) == 20


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
    inner = Listener("127.0.0.1", SECRET)
    inner.start(lambda connection, _: connection.close())
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
    return b"".join(said[0]), b"".join(said[1])


def test_a_connector_cannot_say_what_another_said(listener: Listener, taken: Taken) -> None:
    """Its proof has the listener's nonce in it, which is another each time."""
    connector_said, _ = overheard()
    with socket.create_connection(listener.address) as connection:
        connection.sendall(connector_said)
        assert is_closed(connection)
    assert taken.empty()


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


@pytest.mark.slow
def test_silent_listener() -> None:
    """A connector does not wait for ever for who says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(TimeoutError):
        connect(server.getsockname(), SECRET, timeout_secs=0.1)
