"""A channel sends and receives whole messages, and waits for nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from txtopo.workers.channel import Channel, ChannelClosed


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
        messages += channel.receive()
        if len(messages) >= count:
            return messages
    raise AssertionError(f"{len(messages)} messages have come, not {count}")


def test_messages_are_whole(pair: tuple[Channel, Channel]) -> None:
    """Messages arrive as they were sent, in order, however the network cuts them; empty ones, too."""
    one, other = pair
    sent = [b"", b"a", b"b" * 100_000, b"\0\0\0\5", b"c"]
    for message in sent:
        one.send(message)
    assert receive(other, len(sent)) == sent


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
        taken += len(other.receive())
    assert one.flush()
    assert one.unsent_bytes == 0
    assert other.receive() == []


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
