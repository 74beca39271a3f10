"""The threads and the clock of the run loop, behind an interface that a simulator can implement too."""

from __future__ import annotations

import concurrent.futures
import contextlib
import enum
import functools
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

from txtopo.errors import InternalError, StalledCommit
from txtopo.transactional.core.events import Event, Fenced

T = TypeVar("T")

STEPS_MAX = 8
"""How many steps of a group, such as writes of its tables, are made at the same time."""

_ASIDES_MAX = 1_000
"""The most that is done aside at a time: more than a topology has spouts. A thread is made when it is needed."""

_WAIT_SECS = 1.0
"""How often the end of a run asks which cancelled jobs are still there."""


class Role(enum.Enum):
    """A kind of work."""

    FEED = "feed"
    """Asks the spout; one at a time, in order."""
    JOB = "job"
    """Runs a job; several at a time."""
    COMMIT = "commit"
    """Commits groups; one at a time, in order."""


class Threads(ABC):
    """Runs work in threads and passes events to the run loop.

    *An implementation* runs each piece of work to its end, or not at all. *The run loop* posts events from any thread,
    and takes them in one.
    """

    @abstractmethod
    def now_secs(self) -> float:
        """Return seconds of a clock that never goes back."""

    @abstractmethod
    def wall_secs(self) -> float:
        """Return seconds since 1970, UTC, by a clock that people may set."""

    @abstractmethod
    def cpu_secs(self) -> float:
        """Return seconds of processor time of the calling thread."""

    @abstractmethod
    def sleep(self, duration_secs: float, until: Sequence[Future[None]] = ()) -> None:
        """Pause the calling work, no longer than ``until`` one of some has ended."""

    @abstractmethod
    def submit(self, role: Role, work: Callable[[], None]) -> None:
        """Queue work of a role."""

    def together(self, steps: Sequence[Callable[[], None]]) -> None:
        """Run the steps of a piece of work, at the same time if possible; raise the first error once all have ended."""
        for step in steps:
            step()

    def aside(self, work: Callable[[], None]) -> Future[None]:
        """Do work beside all that is submitted, if that is possible; its error is in what is returned."""
        return completed(work)

    def write(self, work: Callable[[], None]) -> Future[None]:
        """Make the writes of a group beside the commit work that asks for it, if that is possible."""
        return completed(work)

    def wait(self, writing: Future[None], secs: float) -> None:
        """Wait for writes, but not for longer."""

    def wait_in_phases(self, writing: Future[None]) -> None:
        """Wait in commit phases for writes; they can't be abandoned meanwhile."""

    @abstractmethod
    def post(self, events: tuple[Event, ...]) -> None:
        """Queue events for the run loop; safe in a signal handler."""

    @abstractmethod
    def take(self, timeout_secs: float) -> tuple[Event, ...]:
        """Return the next events that were posted together; an empty tuple if there are none within the timeout."""

    @abstractmethod
    def commit_phases(self) -> AbstractContextManager[object]:
        """Return the context for a group's commit phases; it raises StalledCommit at its end if it was abandoned."""

    @abstractmethod
    def abandon_commit(self) -> int | None:
        """Abandon the running commit phases, whose work ends without a write or never; return their thread's identity.

        Returns None, and does nothing, if no commit phases are running.
        """

    @abstractmethod
    def shut_down(self, cancel_jobs: Callable[[], None], while_waiting: Callable[[], None]) -> None:
        """Wait for the commit work unless abandoned, cancel the jobs, and wait for them, calling ``while_waiting``."""


def completed(work: Callable[[], T]) -> Future[T]:
    """Do work at once; return how it has ended."""
    ended: Future[T] = Future()
    try:
        ended.set_result(work())
    except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
        ended.set_exception(error)
    return ended


class ThreadPools(Threads):
    """The threads of a real run; with one step at a time, a group's writes come in the order of its states."""

    def __init__(self, jobs_max: int, steps_max: int = STEPS_MAX, wall_secs: Callable[[], float] = time.time) -> None:
        self._wall_secs = wall_secs
        self._events: queue.SimpleQueue[tuple[Event, ...]] = queue.SimpleQueue()
        self._commit = _CommitThread()
        self._threads = {
            Role.FEED: ThreadPoolExecutor(1, "txtopo-feed"),
            Role.JOB: ThreadPoolExecutor(jobs_max, "txtopo-job"),
        }
        self._steps = ThreadPoolExecutor(steps_max - 1, "txtopo-write") if steps_max > 1 else None
        self._writer = ThreadPoolExecutor(1, "txtopo-writer")
        self._asides = ThreadPoolExecutor(_ASIDES_MAX, "txtopo-aside")
        self._jobs: set[Future[None]] = set()
        """The jobs that have not ended."""

    def now_secs(self) -> float:
        """Return seconds of the system's monotonic clock."""
        return time.monotonic()

    def wall_secs(self) -> float:
        """Return seconds of the system's clock, or of the one that was given."""
        return self._wall_secs()

    def cpu_secs(self) -> float:
        """Return the processor time of the calling thread, by the system."""
        return time.thread_time()

    def sleep(self, duration_secs: float, until: Sequence[Future[None]] = ()) -> None:
        """Pause the calling thread."""
        if until:
            concurrent.futures.wait(until, duration_secs, concurrent.futures.FIRST_COMPLETED)
        else:
            time.sleep(duration_secs)

    def submit(self, role: Role, work: Callable[[], None]) -> None:
        """Queue work for one of the role's threads."""
        task = functools.partial(self._in_thread, work)
        if role is Role.COMMIT:
            self._commit.submit(task)
            return
        submitted = self._threads[role].submit(task)
        if role is Role.JOB:
            self._jobs.add(submitted)
            submitted.add_done_callback(self._jobs.discard)

    def _in_thread(self, work: Callable[[], None]) -> None:
        """Do work; an exception that would end the thread silently stops the run with an error."""
        try:
            work()
        except BaseException as error:
            bug = InternalError(f"a thread of the run ended with {type(error).__name__}: {error}")
            bug.__cause__ = error
            self.post((Fenced(bug),))
            raise

    def together(self, steps: Sequence[Callable[[], None]]) -> None:
        """Run steps in threads, the last one in the calling thread."""
        if self._steps is None or len(steps) <= 1:
            super().together(steps)
            return
        futures = [self._steps.submit(step) for step in steps[:-1]]
        try:
            steps[-1]()
        finally:
            concurrent.futures.wait(futures)
        for future in futures:
            future.result()

    def aside(self, work: Callable[[], None]) -> Future[None]:
        """Do work in a separate thread."""
        return self._asides.submit(work)

    def write(self, work: Callable[[], None]) -> Future[None]:
        """Make the writes of a group in a thread for that."""
        return self._writer.submit(work)

    def wait(self, writing: Future[None], secs: float) -> None:
        """Wait for writes, but not for longer."""
        concurrent.futures.wait([writing], secs)

    def wait_in_phases(self, writing: Future[None]) -> None:
        """Wait in commit phases for writes."""
        with self._commit.waiting():
            concurrent.futures.wait([writing])

    def post(self, events: tuple[Event, ...]) -> None:
        """Queue events for the run loop."""
        self._events.put(events)

    def take(self, timeout_secs: float) -> tuple[Event, ...]:
        """Return the next events that were posted together; an empty tuple after the timeout."""
        with contextlib.suppress(queue.Empty):
            return self._events.get(timeout=timeout_secs)
        return ()

    @contextlib.contextmanager
    def commit_phases(self) -> Iterator[None]:
        """Return the context for commit phases in the commit thread."""
        self._commit.enter()
        try:
            yield
        finally:
            self._commit.leave()

    def abandon_commit(self) -> int | None:
        """Abandon the commit phases that are running in the commit thread."""
        return self._commit.abandon()

    def shut_down(self, cancel_jobs: Callable[[], None], while_waiting: Callable[[], None]) -> None:
        """End all threads."""
        # Queued work is dropped first. Jobs are cancelled before their threads are joined, which would otherwise take
        # as long as the jobs run.
        for pool in self._threads.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._commit.shut_down()
        self._writer.shutdown()  # what is begun is made, also if the phases beside it were abandoned
        if self._steps is not None:
            self._steps.shutdown(wait=False)
        cancel_jobs()
        while concurrent.futures.wait(list(self._jobs), _WAIT_SECS).not_done:
            while_waiting()
        for pool in (*self._threads.values(), self._asides):  # last, for the feed's last request may need it
            pool.shutdown(wait=True)


class _CommitThread:
    """The thread that commits groups.

    A commit phase may never return: then it is abandoned, and its thread outlives the run. So it is a daemon thread and
    not one of a ThreadPoolExecutor, whose threads Python joins when the process ends.

    The lock decides between the end of commit phases and their abandonment:

    1. The commit phases make no progress, and the run loop calls ``abandon``.
    2. If ``leave`` came first, nothing is abandoned, and the writes go on.
    3. If ``abandon`` came first, ``leave`` raises should the phases end after all, and nothing is written.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_in_phases = False
        self._waits = 0
        """How many threads wait in phases for writes: bolts may have some of their own."""
        self._is_abandoned = False
        self._is_over = False
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="txtopo-commit", daemon=True)
            self._thread.start()
        self._work.put(work)

    def enter(self) -> None:
        with self._lock:
            self._is_in_phases = True

    def leave(self) -> None:
        """End commit phases; raise StalledCommit if they were abandoned."""
        with self._lock:
            self._is_in_phases = False
            if self._is_abandoned:
                raise StalledCommit("these commit phases were abandoned")

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait in commit phases, which can't be abandoned meanwhile."""
        with self._lock:
            self._waits += 1
        try:
            yield
        finally:
            with self._lock:
                self._waits -= 1

    def abandon(self) -> int | None:
        with self._lock:
            if not self._is_in_phases or self._waits or self._thread is None:
                return None
            self._is_abandoned = True
            return self._thread.ident

    def shut_down(self) -> None:
        """Wait for the current work unless it was abandoned; drop queued work."""
        self._is_over = True
        self._work.put(None)
        if self._thread is not None and not self._is_abandoned:
            self._thread.join()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            if work is None or self._is_over:
                return
            with contextlib.suppress(BaseException):  # the run loop has been informed
                work()
