"""Progress: executors report to the driver, in small datagrams, that a job makes progress, and what it is busy with.

If a datagram is lost, a display lags and a timeout is renewed slightly later. Spark's accumulators are no alternative:
Spark updates them when a task ends, which is too late for a timeout.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence

from txtopo.attempts import TransactionAttempt
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.network.channel import address_family
from txtopo.topology.user_code.output import OutputOrigin

_MESSAGE = struct.Struct("!16sQ")
_POLL_SECS = 0.25
"""How often an executor tells of its progress: timeouts are of seconds."""
_BYTES_MAX = 8_192
"""The longest message; a longer one is cut, and nobody sends that."""

BEGUN_REPORTS = 3
"""How often a task reports that it has begun a job."""


class ProgressListener:
    """Receives datagrams in the driver.

    Executors reach it at ``host``; it binds to ``bind_host`` if that differs. It ignores datagrams without the 16 bytes
    of ``run_key``.
    """

    def __init__(self, host: str, run_key: bytes, bind_host: str | None = None) -> None:
        self._run_key = run_key
        self._socket = socket.socket(address_family(bind_host or host), socket.SOCK_DGRAM)
        self._socket.settimeout(None)  # whatever socket.setdefaulttimeout says: only close() ends the thread
        self._socket.bind((bind_host or host, 0))
        self.address: tuple[str, int] = (host, self._socket.getsockname()[1])
        self._listeners: dict[int, Callable[[], None]] = {}
        self._at_work: dict[int, dict[object, tuple[TransactionAttempt, str]]] = {}
        """By job and sender, the attempt and the component that it is busy with."""
        self._is_closed = False
        threading.Thread(target=self._listen, name="txtopo-progress", daemon=True).start()

    def listen(self, job_id: int, on_progress: Callable[[], None]) -> None:
        """Call ``on_progress`` whenever a job makes progress."""
        self._listeners[job_id] = on_progress

    def forget(self, job_id: int) -> None:
        """Stop listening for a job."""
        self._listeners.pop(job_id, None)
        self._at_work.pop(job_id, None)

    def at_work(self) -> dict[TransactionAttempt, str]:
        """Return the component that each attempt has been in for a while, if executors have reported one."""
        return {
            attempt: component
            for senders in self._at_work.copy().values()  # copies, because the listening thread changes them
            for attempt, component in senders.copy().values()
        }

    def close(self) -> None:
        """Stop listening."""
        self._is_closed = True
        with contextlib.suppress(OSError):  # an empty datagram wakes recvfrom() up
            self._socket.sendto(b"", self._socket.getsockname())

    def _listen(self) -> None:
        with self._socket:
            while not self._is_closed:
                message, sender = self._socket.recvfrom(_BYTES_MAX)
                if len(message) > _MESSAGE.size and message.startswith(self._run_key):
                    self._take_in(message[len(self._run_key) :], sender)
                elif len(message) == _MESSAGE.size:
                    run_key, job_id = _MESSAGE.unpack(message)
                    listener = self._listeners.get(job_id)
                    if run_key == self._run_key and listener is not None:
                        listener()

    def _take_in(self, content: bytes, sender: object) -> None:
        with contextlib.suppress(ValueError, TypeError, KeyError):  # not a report
            report = json.loads(content)
            job_id = report["job"]
            if job_id in self._listeners:
                senders = self._at_work.setdefault(job_id, {})
                senders.pop(sender, None)
                if report["component"] is not None:
                    senders[sender] = TransactionAttempt(report["txid"], report["attempt"]), report["component"]


class ProgressSender:
    """Reads the progress probe of a Spark task 4 times a second, and reports changes to the driver.

    ``jobs`` returns the ids of the jobs that the task works for: those make progress, and it is busy with the first.
    It reports each of its first looks at a job as well: what was begun can time out, and a datagram may be lost.
    """

    def __init__(
        self, address: tuple[str, int], run_key: bytes, jobs: Callable[[], Sequence[int]], probe: ProgressProbe
    ) -> None:
        self._address = address
        self._probe = probe
        self._begun_at = probe.position()
        self._run_key = run_key
        self._jobs = jobs
        self._worker = threading.get_ident()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="txtopo-progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _poll(self) -> None:
        with socket.socket(address_family(self._address[0]), socket.SOCK_DGRAM) as out:
            position = self._begun_at
            rows_reported: dict[int, int] = {}
            """By job, how often it was reported as begun."""
            last_origin: OutputOrigin | None = None
            reported = b""
            while not self._is_over.wait(_POLL_SECS):
                before, position, jobs = position, self._probe.position(), self._jobs()
                # Most calls are short. Only a call that lasts from one look to the next is worth a report.
                last_origin, seen_before = OutputOrigin.running.get(self._worker), last_origin
                where = self._where(last_origin if last_origin is seen_before else None, jobs)
                with contextlib.suppress(OSError):  # as if the datagram were lost; see the module
                    for job_id in jobs:
                        if position != before or rows_reported.get(job_id, 0) < BEGUN_REPORTS:
                            out.sendto(_MESSAGE.pack(self._run_key, job_id), self._address)
                    if where != reported and (where or reported) and jobs:
                        out.sendto(where or self._report(job=jobs[0], component=None), self._address)
                        reported = where
                rows_reported = {job_id: rows_reported.get(job_id, 0) + 1 for job_id in jobs}

    def _where(self, origin: OutputOrigin | None, jobs: Sequence[int]) -> bytes:
        """Return the report of what the task is busy with; empty if there is no attempt to name."""
        if origin is None or origin.attempt is None or not jobs:
            return b""
        attempt = origin.attempt
        return self._report(job=jobs[0], component=origin.component, txid=attempt.txid, attempt=attempt.attempt)

    def _report(self, **content: object) -> bytes:
        return self._run_key + json.dumps(content).encode()
