"""The threads and the clock of the run loop, behind one interface, so that a simulator can stand in for them."""

from __future__ import annotations

import contextlib
import enum
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

from txtopo.core.events import Event, Fenced
from txtopo.engine.interrupts import Interruptible
from txtopo.errors import InternalError


class Role(enum.Enum):
    """Whose work it is."""

    __hash__ = object.__hash__  # members are looked up often, and Enum's own is a Python function

    SOURCE = "source"
    """Asks the spout; one at a time, in order."""
    JOB = "job"
    """Runs a job; several at a time."""
    COMMIT = "commit"
    """Commits groups; one at a time, in order."""


class Threads(ABC):
    """What the run loop gives work to, and takes events from.

    *An implementation* runs each work to its end, or not at all. *The run loop* posts from any thread, and takes
    in one.
    """

    @abstractmethod
    def now_secs(self) -> float:
        """Return seconds of a clock that never goes back."""

    @abstractmethod
    def sleep(self, duration_secs: float) -> None:
        """Pause the work that calls it."""

    @abstractmethod
    def submit(self, role: Role, work: Callable[[], None]) -> None:
        """Have work done soon."""

    @abstractmethod
    def post(self, events: tuple[Event, ...]) -> None:
        """Leave events for the run loop; safe in a signal handler."""

    @abstractmethod
    def take(self, timeout_secs: float) -> tuple[Event, ...]:
        """Return events that were posted together, waiting for them so long; none if there are none."""

    @abstractmethod
    def interruptible(self) -> AbstractContextManager[object]:
        """Return a context in which :meth:`interrupt` raises a TimeoutFailure."""

    @abstractmethod
    def interrupt(self) -> None:
        """Interrupt the work that is in its interruptible context, if one is."""

    @abstractmethod
    def shut_down(self, cancel_jobs: Callable[[], None]) -> None:
        """End: let the commit work end, cancel the jobs, and wait for them."""


class ThreadPools(Threads):
    """The threads of a real run.

    Args:
        jobs_max: jobs in flight, at most.
    """

    def __init__(self, jobs_max: int) -> None:
        self._events: queue.SimpleQueue[tuple[Event, ...]] = queue.SimpleQueue()
        self._threads = {
            Role.SOURCE: ThreadPoolExecutor(1, "txtopo-source"),
            Role.JOB: ThreadPoolExecutor(jobs_max + 1, "txtopo-job"),
            Role.COMMIT: ThreadPoolExecutor(1, "txtopo-commit"),
        }
        self._interruptible = Interruptible()

    def now_secs(self) -> float:
        """Return seconds of the system's monotonic clock."""
        return time.monotonic()

    def sleep(self, duration_secs: float) -> None:
        """Pause the calling thread."""
        time.sleep(duration_secs)

    def submit(self, role: Role, work: Callable[[], None]) -> None:
        """Have work done in one of the role's threads."""
        self._threads[role].submit(self._in_thread, work)

    def _in_thread(self, work: Callable[[], None]) -> None:
        """Do work; what would end a thread without a word ends the run with one."""
        try:
            work()
        except BaseException as error:
            bug = InternalError(f"a thread of the run was ended by {type(error).__name__}: {error}")
            bug.__cause__ = error
            self.post((Fenced(bug),))
            raise

    def post(self, events: tuple[Event, ...]) -> None:
        """Leave events for the run loop."""
        self._events.put(events)

    def take(self, timeout_secs: float) -> tuple[Event, ...]:
        """Return events that were posted together; none after so long."""
        with contextlib.suppress(queue.Empty):
            return self._events.get(timeout=timeout_secs)
        return ()

    def interruptible(self) -> AbstractContextManager[object]:
        """Return the context of the commit thread."""
        return self._interruptible

    def interrupt(self) -> None:
        """Raise a TimeoutFailure in the commit thread."""
        self._interruptible.interrupt()

    def shut_down(self, cancel_jobs: Callable[[], None]) -> None:
        """End all threads."""
        others = [self._threads[Role.SOURCE], self._threads[Role.JOB]]
        for pool in others:
            pool.shutdown(wait=False, cancel_futures=True)
        self._threads[Role.COMMIT].shutdown(wait=True, cancel_futures=True)
        cancel_jobs()
        for pool in others:
            pool.shutdown(wait=True)
