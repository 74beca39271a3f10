"""Progress: executors tell the driver, by small datagrams, that a pack's work gets on.

A datagram may be lost, and then only a display lags and a timeout is renewed a little later. Spark's own
accumulators are told of when a task ends, which is too late for a timeout.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

_MESSAGE = struct.Struct("!16sQQ")
_SEND_SECS = 0.25


class ProgressListener:
    """Receives datagrams in the driver.

    Args:
        host: the address that executors reach the driver by.
        run_key: 16 bytes that tell this run's datagrams from any other's.
    """

    def __init__(self, host: str, run_key: bytes) -> None:
        self._run_key = run_key
        self._socket = socket.socket(_family(host), socket.SOCK_DGRAM)
        self._socket.bind((host, 0))
        self.address: tuple[str, int] = (host, self._socket.getsockname()[1])
        self._listeners: dict[int, Callable[[int], None]] = {}
        self._is_closed = False
        threading.Thread(target=self._listen, name="txtopo-progress", daemon=True).start()

    def listen(self, pack_id: int, on_progress: Callable[[int], None]) -> None:
        """Hand tuples of a pack on as they are taken."""
        self._listeners[pack_id] = on_progress

    def forget(self, pack_id: int) -> None:
        """Stop listening for a pack."""
        self._listeners.pop(pack_id, None)

    def close(self) -> None:
        """Stop."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.sendto(b"", self.address)

    def _listen(self) -> None:
        with self._socket:
            while not self._is_closed:
                message = self._socket.recv(256)
                if len(message) == _MESSAGE.size:
                    run_key, pack_id, tuples = _MESSAGE.unpack(message)
                    listener = self._listeners.get(pack_id)
                    if run_key == self._run_key and listener is not None:
                        listener(tuples)


class ProgressSender:
    """Sends datagrams from one Spark task, at most four a second."""

    def __init__(self, address: tuple[str, int], run_key: bytes, pack_id: int) -> None:
        self._address = address
        self._run_key = run_key
        self._pack_id = pack_id
        self._socket = socket.socket(_family(address[0]), socket.SOCK_DGRAM)
        self._tuples = 0
        self._sent_at = time.monotonic()

    def add(self, tuples: int) -> None:
        """Count tuples that were taken."""
        self._tuples += tuples
        now = time.monotonic()
        if now - self._sent_at >= _SEND_SECS:
            with contextlib.suppress(OSError):
                self._socket.sendto(_MESSAGE.pack(self._run_key, self._pack_id, self._tuples), self._address)
            self._sent_at, self._tuples = now, 0

    def close(self) -> None:
        """Stop."""
        self._socket.close()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
