"""Cancels jobs of Spark, again and again until they have ended.

Spark forgets a cancel of a group that has no job: one that comes just before the job is submitted is lost, and the job
keeps its slots for as long as it likes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import attrs
from py4j.protocol import Py4JError
from pyspark import SparkContext

from txtopo.errors import JobFailure

REPEAT_SECS = 0.5
"""How often a cancel is repeated."""


@attrs.frozen
class _Running:
    cancelled: threading.Event = attrs.field(factory=threading.Event)
    ended: threading.Event = attrs.field(factory=threading.Event)


class JobCanceller:
    """Cancels the jobs of one session by their groups. Any thread may call it."""

    def __init__(self, context: SparkContext, repeat_secs: float = REPEAT_SECS) -> None:
        self._context = context
        self._repeat_secs = repeat_secs
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._cancelled: set[str] = set()
        """Groups that were cancelled before they began."""

    @contextlib.contextmanager
    def running(self, group: str) -> Iterator[threading.Event]:
        """Let a group be cancelled within the context, in which its job is submitted and waited for.

        Yields:
            what is set when it is cancelled, for who waits with the job before Spark has it.

        Raises:
            JobFailure: it was cancelled before.
        """
        with self._lock:
            if group in self._cancelled:
                self._cancelled.discard(group)
                raise JobFailure("it was cancelled")
            running = self._running[group] = _Running()
        try:
            yield running.cancelled
        finally:
            with self._lock:
                del self._running[group]
            running.ended.set()

    def cancel(self, group: str) -> None:
        """Cancel the job of a group that runs or is about to, and return at once."""
        with self._lock:
            running = self._running.get(group)
            if running is None:
                self._cancelled.add(group)
                return
        running.cancelled.set()
        threading.Thread(target=self._cancel, args=(group, running.ended), name="txtopo-cancel", daemon=True).start()

    def _cancel(self, group: str, ended: threading.Event) -> None:
        while not ended.is_set() and self._context._jsc is not None:  # noqa: SLF001 - None once the session is stopped
            with contextlib.suppress(Py4JError, OSError):  # the JVM may be gone, and the job with it
                self._context.cancelJobGroup(group)
            ended.wait(self._repeat_secs)
