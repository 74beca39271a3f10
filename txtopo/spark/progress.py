"""Progress: executors tell the driver, by small datagrams, that a pack's work gets on.

A datagram may be lost, and then only a display lags and a timeout is renewed a little later. Spark's own
accumulators are told of when a task ends, which is too late for a timeout.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

from txtopo.phases.watch import Watch

_MESSAGE = struct.Struct("!16sQ")
_LOOK_SECS = 0.25


class ProgressListener:
    """Receives datagrams in the driver.

    Args:
        host: the address that executors reach the driver by.
        run_key: 16 bytes that tell this run's datagrams from any other's.
        bind_host: the address that it has here, where that is another one.
    """

    def __init__(self, host: str, run_key: bytes, bind_host: str | None = None) -> None:
        self._run_key = run_key
        self._socket = socket.socket(_family(bind_host or host), socket.SOCK_DGRAM)
        self._socket.bind((bind_host or host, 0))
        self.address: tuple[str, int] = (host, self._socket.getsockname()[1])
        self._listeners: dict[int, Callable[[], None]] = {}
        self._is_closed = False
        threading.Thread(target=self._listen, name="txtopo-progress", daemon=True).start()

    def listen(self, pack_id: int, on_progress: Callable[[], None]) -> None:
        """Call ``on_progress`` whenever a pack's work gets on."""
        self._listeners[pack_id] = on_progress

    def forget(self, pack_id: int) -> None:
        """Stop listening for a pack."""
        self._listeners.pop(pack_id, None)

    def close(self) -> None:
        """Stop."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.sendto(b"", self._socket.getsockname())

    def _listen(self) -> None:
        with self._socket:
            while not self._is_closed:
                message = self._socket.recv(256)
                if len(message) == _MESSAGE.size:
                    run_key, pack_id = _MESSAGE.unpack(message)
                    listener = self._listeners.get(pack_id)
                    if run_key == self._run_key and listener is not None:
                        listener()


class ProgressSender:
    """Looks at the watch of a Spark task four times a second, and tells the driver when it has moved.

    Args:
        address: where the driver listens.
        run_key: the run's 16 bytes.
        pack_id: the pack that is worked on.
        watch: shows where the work stands.
    """

    def __init__(self, address: tuple[str, int], run_key: bytes, pack_id: int, watch: Watch) -> None:
        self._address = address
        self._message = _MESSAGE.pack(run_key, pack_id)
        self._watch = watch
        self._begun_at = watch.position()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="txtopo-progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _look(self) -> None:
        with socket.socket(_family(self._address[0]), socket.SOCK_DGRAM) as out:
            position = self._begun_at
            while not self._is_over.wait(_LOOK_SECS):
                before, position = position, self._watch.position()
                if position != before:
                    with contextlib.suppress(OSError):
                        out.sendto(self._message, self._address)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
