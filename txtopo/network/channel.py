"""A channel sends and receives messages over a socket, and never waits for the other side.

If the other side does not read, its socket soon takes nothing more. Messages then wait here: in memory, and beyond a
bound in a file. Messages for a worker that has not started yet wait in the same way.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque

from txtopo.files.spill import SpillFile

_LENGTH = struct.Struct("!I")
LENGTH_BYTES = _LENGTH.size
"""The bytes in front of each message, which have its length, the highest first."""
_READ_BYTES = 1 << 18
"""About what a socket's buffer holds on Linux, so one read takes all that has come."""
SILENCE_SECS = 20
"""A receiver's channel ends after so long without a sign of the other side's kernel: a link may be away for some
seconds, and nobody should wait a minute for a machine that is gone."""

MESSAGE_BYTES_MAX = (1 << 32) - 1
"""The largest message: its length travels as four bytes."""


class ChannelClosed(Exception):
    """The other side has closed the channel, is gone, or has sent bytes that are not a message."""


def address_family(host: str) -> socket.AddressFamily:
    """Return the family of an address: IPv6 if it contains a colon."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def framed(message: bytes) -> bytes:
    """Return a message with its length in front; raise ValueError if it is longer than 4 GiB."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {len(message):,} bytes is too long; at most {MESSAGE_BYTES_MAX:,} can be sent")
    return _LENGTH.pack(len(message)) + message


class WakeUp:
    """Wakes a thread that waits in a selector, where this socket is registered."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def fileno(self) -> int:
        """Return the socket's number, for selectors."""
        return self._receiver.fileno()

    def wake(self) -> None:
        """Wake the thread; any thread may call this, even after the other one has ended."""
        with contextlib.suppress(OSError):  # closed, or full: then the thread wakes up anyway
            self._sender.send(b"w")

    def clear(self) -> None:
        """Take the wake-ups back. Call it before looking for work, or a wake-up in between is lost."""
        with contextlib.suppress(BlockingIOError):
            self._receiver.recv(4096)

    def close(self) -> None:
        """Close the sockets."""
        self._receiver.close()
        self._sender.close()


class Backlog:
    """Messages that wait, in order: the oldest in memory, and beyond ``memory_max`` bytes all others in a file.

    If ``memory_max`` is None, all messages stay in memory. No message may be empty.
    """

    def __init__(self, memory_max: int | None = None) -> None:
        self.memory_max = memory_max
        self.bytes = 0
        """Bytes that wait, in memory and in the file."""
        self._oldest: deque[bytes] = deque()
        self._file = SpillFile()

    def __bool__(self) -> bool:
        return self.bytes > 0

    @property
    def memory_bytes(self) -> int:
        """Bytes that wait in memory."""
        return self.bytes - self._file.bytes

    def append(self, message: bytes) -> None:
        """Add a message behind the others."""
        is_full = self.memory_max is not None and self.memory_bytes + len(message) > self.memory_max
        # While the file has messages, newer ones go there, too: in memory, they would overtake them.
        if self._file or is_full:
            self._file.put(message)
        else:
            self._oldest.append(message)
        self.bytes += len(message)

    def popleft(self) -> bytes:
        """Remove and return the oldest message; raise IndexError if there is none."""
        message = self._oldest.popleft() if self._oldest else self._file.take()
        self.bytes -= len(message)
        return message

    def close(self) -> None:
        """Drop all messages."""
        self._oldest.clear()
        self._file.close()
        self.bytes = 0


def _keep_alive(connection: socket.socket) -> None:
    """Let the kernel ask a silent other side whether it is there; its kernel answers, whatever its process does.

    The kernel does not ask while what it has sent is not acknowledged, which may last a quarter of an hour. So the
    receiver of a one-way stream notices. A bound on the sender (``TCP_USER_TIMEOUT``) would also end the channel to a
    process that is slow to read.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_SECS // 4)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENCE_SECS // 4)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


class Channel:
    """Sends and receives whole messages. What the socket does not take at once waits in a backlog.

    Any thread may send, only one may receive. The channel owns the connection, which is past its handshake. A message
    longer than ``message_bytes_max`` from the other side ends the channel, and so does a network that has not carried a
    byte for ``SILENCE_SECS``, even if neither side says anything.
    """

    def __init__(self, connection: socket.socket, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(connection)
        self._connection = connection
        self._message_bytes_max = message_bytes_max
        self._begun = memoryview(b"")
        """What is left of a message that the socket has taken a part of."""
        self._unsent = Backlog()
        self._received = bytearray()
        self._lock = threading.Lock()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._begun) + self._unsent.bytes

    def limit_memory(self, memory_max: int) -> None:
        """Keep at most ``memory_max`` unsent bytes in memory, and the rest in a file."""
        self._unsent.memory_max = memory_max

    def fileno(self) -> int:
        """Return the socket's number, for selectors."""
        return self._connection.fileno()

    def send(self, message: bytes) -> None:
        """Send a message, or keep it until :meth:`flush` can.

        Raises:
            ChannelClosed: the other side is gone.
            ValueError: the message is longer than 4 GiB.
        """
        data = framed(message)
        with self._lock:
            if self.unsent_bytes:  # earlier messages wait, and this one must not overtake them
                self._unsent.append(data)
            else:
                self._begun = memoryview(data)
            self._flush()

    def flush(self) -> bool:
        """Send as much as the socket takes; return whether that is all; ChannelClosed if the other side is gone."""
        with self._lock:
            self._flush()
            return not self.unsent_bytes

    def receive(self) -> list[bytes] | None:
        """Read once, and return the messages that are complete, perhaps none; None if nothing has arrived.

        Raises:
            ChannelClosed: the other side is gone, and all that it sent was returned before; or a message is too long.
        """
        # One read a call: a peer that sends without a pause does not keep the caller from its other sockets.
        try:
            data = self._connection.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not data:
            raise ChannelClosed("the other side has closed the connection")
        self._received += data
        return self._take_messages()

    def close(self) -> None:
        """Close the socket, and drop the messages that wait."""
        self._connection.close()
        with self._lock:
            self._unsent.close()

    def _take_messages(self) -> list[bytes]:
        messages, received, start = [], self._received, 0
        while len(received) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, start)
            if length > self._message_bytes_max:
                raise ChannelClosed(
                    f"a message of {length:,} bytes begins; at most {self._message_bytes_max:,} are read"
                )
            end = start + _LENGTH.size + length
            if len(received) < end:
                break
            messages.append(bytes(received[start + _LENGTH.size : end]))
            start = end
        del received[:start]
        return messages

    def _flush(self) -> None:
        partial = self._begun
        try:
            while partial or self._unsent.bytes:
                if not partial:
                    partial = memoryview(self._unsent.popleft())
                partial = partial[self._connection.send(partial) :]
        except (BlockingIOError, InterruptedError):
            pass  # the socket is full: the rest waits for the next flush
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        finally:
            self._begun = partial  # however the loop ends: a message sent twice in part would garble the stream
