"""A channel sends and receives whole messages, and waits for nothing."""

import os
import socket
from collections.abc import Iterator

import pytest

from txtopo.network.channel import SILENCE_SECS, Backlog, Channel, ChannelClosed


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    """The two ends of a connection."""
    server = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(server.getsockname())
    other, _ = server.accept()
    server.close()
    channels = Channel(one), Channel(other)
    yield channels
    for channel in channels:
        channel.close()


def receive(channel: Channel, count: int) -> list[bytes]:
    """Return so many messages."""
    messages: list[bytes] = []
    for _ in range(1_000_000):
        messages += channel.receive() or ()
        if len(messages) >= count:
            return messages
    raise AssertionError(f"{len(messages)} messages have come, not {count}")


def test_messages_are_whole(pair: tuple[Channel, Channel]) -> None:
    """Messages arrive as they were sent, in order, however the network cuts them; empty ones, too."""
    one, other = pair
    sent = [b"", b"a", b"b" * 100_000, b"\0\0\0\5", b"c", b""]
    for message in sent:
        one.send(message)
    assert receive(other, len(sent)) == sent


def test_part_of_a_message(pair: tuple[Channel, Channel]) -> None:
    """It has arrived, and is no message yet: whoever reads all that is there goes on; None says that nothing is."""
    one, other = pair
    assert other.receive() is None
    one.send(b"x" * (1 << 19))
    assert other.receive() == []
    assert receive(other, 1) == [b"x" * (1 << 19)]
    assert other.receive() is None


def test_nobody_waits(pair: tuple[Channel, Channel]) -> None:
    """What a receiver does not take stays with the sender, counted, and nobody is blocked; later all of it arrives."""
    one, other = pair
    message = b"x" * 1_000_000
    for _ in range(30):
        one.send(message)
    assert one.unsent_bytes > 1_000_000
    taken = 0
    while taken < 30:
        one.flush()
        taken += len(other.receive() or ())
    assert one.flush()
    assert one.unsent_bytes == 0
    assert other.receive() is None


def test_memory_is_bounded(pair: tuple[Channel, Channel]) -> None:
    """Beyond its bound a channel keeps in a file what the receiver does not take; all of it arrives, in order."""
    one, other = pair
    one.limit_memory(1_000_000)
    sent = [bytes([number]) * 300_000 for number in range(60)]
    for message in sent:
        one.send(message)
        assert one._unsent.memory_bytes <= 1_000_000
    assert one._unsent.bytes > 5_000_000
    received: list[bytes] = []
    while len(received) < len(sent):
        one.flush()
        received += other.receive() or ()
    assert received == sent
    assert one.unsent_bytes == 0


def test_backlog() -> None:
    """Messages come out in their order, those from the file among them, and later ones do not overtake these."""
    backlog = Backlog(memory_max=10)
    for message in (b"a" * 6, b"b" * 6, b"c"):
        backlog.append(message)
    assert (backlog.bytes, backlog.memory_bytes) == (13, 6)
    assert backlog.popleft() == b"a" * 6
    backlog.append(b"d")
    assert [backlog.popleft() for _ in range(3)] == [b"b" * 6, b"c", b"d"]
    assert (bool(backlog), backlog.bytes) == (False, 0)
    backlog.append(b"e")
    assert backlog.memory_bytes == 1
    backlog.close()


def test_end(pair: tuple[Channel, Channel]) -> None:
    """What was sent before the end arrives; then the end is an error."""
    one, other = pair
    one.send(b"last")
    one.close()
    assert receive(other, 1) == [b"last"]
    with pytest.raises(ChannelClosed):
        receive(other, 1)


def test_send_to_nobody(pair: tuple[Channel, Channel]) -> None:
    """Sending to a side that is gone is an error, sooner or later, and never a signal."""
    one, other = pair
    other.close()
    with pytest.raises(ChannelClosed):
        for _ in range(1_000):
            one.send(b"x" * 10_000)


def test_silence(pair: tuple[Channel, Channel]) -> None:
    """The kernel asks a silent other side, so that a network that has gone away ends the channel; and it does not end
    that of a process that reads nothing.
    """
    for channel in pair:
        with socket.socket(fileno=os.dup(channel.fileno())) as same:
            assert same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            idle, every, count = (
                same.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + every * count <= SILENCE_SECS
            assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
