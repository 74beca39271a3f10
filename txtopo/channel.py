"""A channel: messages over a socket, in both directions, without ever waiting for the other side.

If the other side reads nothing, its socket soon takes nothing more. Then messages wait here: in memory, and beyond a
bound in a file. Messages for a worker that has not started yet wait in the same way.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque

from txtopo.spill import SpillFile

_LENGTH = struct.Struct("!I")
_READ_BYTES = 1 << 18
MESSAGE_BYTES_MAX = (1 << 32) - 1
"""The largest message: its length travels as four bytes."""


class ChannelClosed(Exception):
    """The other side has closed the channel, is gone, or says something that is no message."""


def address_family(host: str) -> socket.AddressFamily:
    """Return the family of an address: IPv6 if it contains a colon."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def framed(message: bytes) -> bytes:
    """Return a message as a channel sends it: behind its length.

    Raises:
        ValueError: it is longer than 4 GiB.
    """
    if len(message) > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {len(message):,} bytes is too long; at most {MESSAGE_BYTES_MAX:,} can be sent")
    return _LENGTH.pack(len(message)) + message


class WakeUp:
    """Wakes up a thread that waits for sockets, this one among them."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def fileno(self) -> int:
        """Return the socket's number, for selectors."""
        return self._receiver.fileno()

    def wake(self) -> None:
        """Wake the thread up; from any thread, and also when it has ended."""
        with contextlib.suppress(OSError):  # closed; or full, so the thread wakes up anyway
            self._sender.send(b"w")

    def clear(self) -> None:
        """Forget that it was woken up; call it before looking for work."""
        with contextlib.suppress(BlockingIOError):
            self._receiver.recv(4096)

    def close(self) -> None:
        """Close the sockets."""
        self._receiver.close()
        self._sender.close()


class Backlog:
    """Messages that wait, in order: the oldest in memory, and beyond a bound all others in a file. None may be empty.

    Args:
        memory_max: the bound, in bytes; None: all of them stay in memory.
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
        if self._file or is_full:
            self._file.put(message)
        else:
            self._oldest.append(message)
        self.bytes += len(message)

    def popleft(self) -> bytes:
        """Remove and return the oldest message.

        Raises:
            IndexError: there is none.
        """
        message = self._oldest.popleft() if self._oldest else self._file.take()
        self.bytes -= len(message)
        return message

    def close(self) -> None:
        """Drop all messages."""
        self._oldest.clear()
        self._file.close()
        self.bytes = 0


class Channel:
    """Sends and receives whole messages. What the socket does not take at once waits in a backlog.

    Any thread may send, only one may receive.

    Args:
        connection: a connected socket, past its handshake; the channel owns it from here on.
        message_bytes_max: the longest message that the other side may send.
    """

    def __init__(self, connection: socket.socket, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._message_bytes_max = message_bytes_max
        self._begun = memoryview(b"")
        """The rest of a message of which the socket has taken a part."""
        self._unsent = Backlog()
        self._received = bytearray()
        self._lock = threading.Lock()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._begun) + self._unsent.bytes

    def limit_memory(self, memory_max: int) -> None:
        """Keep at most so many bytes in memory that wait to be sent, and the others in a file."""
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
            if self.unsent_bytes:
                self._unsent.append(data)
            else:
                self._begun = memoryview(data)
            self._flush()

    def flush(self) -> bool:
        """Send as much as the socket takes of what waits; return whether that is all.

        Raises:
            ChannelClosed: the other side is gone.
        """
        with self._lock:
            self._flush()
            return not self.unsent_bytes

    def receive(self) -> list[bytes]:
        """Return the messages that have come.

        Raises:
            ChannelClosed: the other side is gone, and everything it had sent was returned before; or a message is too
                long.
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
        """Close the socket, and drop what waits."""
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
        begun = self._begun
        try:
            while begun or self._unsent.bytes:
                if not begun:
                    begun = memoryview(self._unsent.popleft())
                begun = begun[self._connection.send(begun) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        finally:
            self._begun = begun
