"""A channel: messages over a socket that is never waited for, in either direction."""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque

_LENGTH = struct.Struct("!I")
_READ_BYTES = 1 << 18
MESSAGE_BYTES_MAX = (1 << 32) - 1
"""The largest message: its length travels as four bytes."""


class ChannelClosed(Exception):
    """The other side has closed the channel, or is gone."""


class Channel:
    """Sends and receives whole messages; what the socket does not take at once waits in memory.

    Sending is for any thread, receiving for one.

    Args:
        connection: a connected socket, past its handshake; the channel owns it from here on.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()
        self._lock = threading.Lock()
        self.unsent_bytes = 0
        """Bytes that wait to be sent."""

    def fileno(self) -> int:
        """Return the socket's number, for selectors."""
        return self._connection.fileno()

    def send(self, message: bytes) -> None:
        """Send a message, or keep it until :meth:`flush` can.

        Raises:
            ChannelClosed: the other side is gone.
            ValueError: the message is longer than 4 GiB.
        """
        if len(message) > MESSAGE_BYTES_MAX:
            raise ValueError(
                f"a message of {len(message):,} bytes is too long; at most {MESSAGE_BYTES_MAX:,} can be sent"
            )
        with self._lock:
            self._unsent.append(memoryview(_LENGTH.pack(len(message)) + message))
            self.unsent_bytes += _LENGTH.size + len(message)
            self._flush()

    def flush(self) -> bool:
        """Send what waits, as much as the socket takes; return whether all of it is sent.

        Raises:
            ChannelClosed: the other side is gone.
        """
        with self._lock:
            self._flush()
            return not self._unsent

    def receive(self) -> list[bytes]:
        """Return the messages that have come.

        Raises:
            ChannelClosed: the other side is gone, and everything it had sent was returned before.
        """
        try:
            data = self._connection.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not data:
            raise ChannelClosed("the other side has closed the connection")
        self._received += data
        return self._take_messages()

    def close(self) -> None:
        """Close the socket; what waits is dropped."""
        self._connection.close()

    def _take_messages(self) -> list[bytes]:
        messages, received, start = [], self._received, 0
        while len(received) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, start)
            end = start + _LENGTH.size + length
            if len(received) < end:
                break
            messages.append(bytes(received[start + _LENGTH.size : end]))
            start = end
        del received[:start]
        return messages

    def _flush(self) -> None:
        while self._unsent:
            first = self._unsent[0]
            try:
                sent = self._connection.send(first)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            self.unsent_bytes -= sent
            if sent == len(first):
                self._unsent.popleft()
            else:
                self._unsent[0] = first[sent:]
