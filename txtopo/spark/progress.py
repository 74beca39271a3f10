"""Progress: executors tell the driver, by small datagrams, that a job's work gets on.

A datagram may be lost, and then only a display lags and a timeout is renewed a little later. Spark's own
accumulators are told of when a task ends, which is too late for a timeout.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable

from txtopo.errors import RuleError, UserCodeError
from txtopo.tasks.progress_probe import ProgressProbe

_MESSAGE = struct.Struct("!16sQ")
_LOOK_SECS = 0.25
_LATE_BYTES_MAX = 8_192


class ProgressListener:
    """Receives datagrams in the driver.

    Args:
        host: the address that executors reach the driver by.
        run_key: 16 bytes that tell this run's datagrams from any other's.
        bind_host: the address that it has here, where that is another one.
    """

    def __init__(self, host: str, run_key: bytes, bind_host: str | None = None) -> None:
        self._run_key = run_key
        self._socket = socket.socket(address_family(bind_host or host), socket.SOCK_DGRAM)
        self._socket.bind((bind_host or host, 0))
        self.address: tuple[str, int] = (host, self._socket.getsockname()[1])
        self._listeners: dict[int, Callable[[], None]] = {}
        self._late: deque[RuleError] = deque()
        self._is_closed = False
        threading.Thread(target=self._listen, name="txtopo-progress", daemon=True).start()

    def listen(self, job_id: int, on_progress: Callable[[], None]) -> None:
        """Call ``on_progress`` whenever a job's work gets on."""
        self._listeners[job_id] = on_progress

    def forget(self, job_id: int) -> None:
        """Stop listening for a job."""
        self._listeners.pop(job_id, None)

    def take_late(self) -> RuleError | None:
        """Return what an executor has told of that was done when its batch was over; None if nothing new."""
        return self._late.popleft() if self._late else None

    def close(self) -> None:
        """Stop."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.sendto(b"", self._socket.getsockname())

    def _listen(self) -> None:
        with self._socket:
            while not self._is_closed:
                message = self._socket.recv(_LATE_BYTES_MAX)
                if len(message) > _MESSAGE.size and message.startswith(self._run_key):
                    self._take_in_late(message[len(self._run_key) :])
                elif len(message) == _MESSAGE.size:
                    run_key, job_id = _MESSAGE.unpack(message)
                    listener = self._listeners.get(job_id)
                    if run_key == self._run_key and listener is not None:
                        listener()

    def _take_in_late(self, told: bytes) -> None:
        with contextlib.suppress(ValueError, TypeError):
            self._late.append(UserCodeError(**json.loads(told)))


def send_late(address: tuple[str, int], run_key: bytes, error: RuleError) -> None:
    """Tell the driver what a component has done when its batch was over; from a thread of the user's.

    Args:
        address: where the driver listens.
        run_key: the run's 16 bytes.
        error: what was done; its message is short.
    """
    names = ("message", "component", "txid", "attempt")
    told = run_key + json.dumps({name: getattr(error, name) for name in names}).encode()
    with contextlib.suppress(OSError), socket.socket(address_family(address[0]), socket.SOCK_DGRAM) as out:
        out.sendto(told[:_LATE_BYTES_MAX], address)


class ProgressSender:
    """Looks at the progress probe of a Spark task four times a second, and tells the driver when it has moved.

    Args:
        address: where the driver listens.
        run_key: the run's 16 bytes.
        job_id: the job that is worked on.
        probe: shows where the work stands.
    """

    def __init__(self, address: tuple[str, int], run_key: bytes, job_id: int, probe: ProgressProbe) -> None:
        self._address = address
        self._message = _MESSAGE.pack(run_key, job_id)
        self._probe = probe
        self._begun_at = probe.position()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="txtopo-progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _look(self) -> None:
        with socket.socket(address_family(self._address[0]), socket.SOCK_DGRAM) as out:
            position = self._begun_at
            while not self._is_over.wait(_LOOK_SECS):
                before, position = position, self._probe.position()
                if position != before:
                    with contextlib.suppress(OSError):
                        out.sendto(self._message, self._address)


def address_family(host: str) -> socket.AddressFamily:
    """Return the family of an address, by its spelling."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET
