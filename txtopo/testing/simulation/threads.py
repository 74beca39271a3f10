"""The threads of a simulated coordinator: the schedule decides when work is done and when events are delivered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from typing import Any

import attrs

from txtopo.assembly.threads import Role, Threads
from txtopo.transactional.core.events import Event

WALL_FROM_SECS = 4_102_444_800
"""When a schedule begins, in seconds since 1970: in the year 2100, so that no event time is too far ahead."""

UNTIMED_SECS = 34_567_890
"""How much later it begins, in seconds, unless the tables depend on the time: 400 days, 2 hours and some minutes."""


@attrs.define(eq=False)
class Clock:
    """The world's clock."""

    stands_still: bool = False
    """Whether the one on the wall does, because the tables depend on it."""
    now_ms: int = 0
    aged_secs: int = 0
    """How much time has passed where much does at once."""
    _asked: int = 0
    """How often the time on the wall was asked for."""

    def wall_secs(self) -> float:
        """Return the time that transactions are stamped with, in seconds since 1970."""
        if self.stands_still:
            return WALL_FROM_SECS
        # At another time of another day, and never one moment twice: so a run tells whether the tables depend on it.
        self._asked += 1
        return WALL_FROM_SECS + UNTIMED_SECS + self.aged_secs + (self.now_ms + self._asked) / 1000

    def follow(self, origin: Clock) -> None:
        """Show what another clock shows now."""
        self.now_ms, self.aged_secs, self._asked = origin.now_ms, origin.aged_secs, origin._asked


@attrs.define(eq=False)
class Delivery:
    """Events that were posted together and not delivered yet.

    Deliveries with the same ``order`` arrive in the order in which they were posted; None: they may overtake others.
    """

    events: tuple[Event, ...]
    order: Role | None
    due_ms: int = 0


@attrs.define(eq=False)
class Work:
    """Work that was submitted and not done yet."""

    role: Role | None
    """None: a separate thread does it, beside all others."""
    do: Callable[[], None]
    is_lost: bool = False
    """Whether the executor has died that was to do it."""


class SimulatedThreads(Threads):
    """Keeps work and deliveries until the schedule picks one; a job for which ``is_eager`` holds runs at once."""

    def __init__(self, clock: Clock, is_eager: Callable[[], bool]) -> None:
        self.works: list[Work] = []
        self.deliveries: list[Delivery] = []
        self._clock = clock
        self._is_eager = is_eager
        self._next: Delivery | None = None
        self._role: Role | None = None
        self.is_lost = False
        """Whether the work is lost that is being done."""

    def now_secs(self) -> float:
        """Return the world's time."""
        return self._clock.now_ms / 1000

    def wall_secs(self) -> float:
        """Return the time at which what is planned now is planned."""
        return self._clock.wall_secs()

    def cpu_secs(self) -> float:
        """Return the world's time, in which nothing is computed."""
        return self.now_secs()

    def sleep(self, duration_secs: float, until: Sequence[Future[None]] = ()) -> None:
        """Advance the world's clock."""
        if not until:  # what is done aside has ended already
            self._clock.now_ms += max(1, round(duration_secs * 1000))

    def submit(self, role: Role, work: Callable[[], None]) -> None:
        """Keep work until the schedule picks it."""
        self.works.append(Work(role, work))
        if role is Role.JOB and self._is_eager():
            self.do(self.works[-1])

    def post(self, events: tuple[Event, ...]) -> None:
        """Keep events until the schedule delivers them."""
        # Jobs have several threads, so their events may overtake each other. Other roles have one thread each.
        self.deliveries.append(Delivery(events, None if self._role is Role.JOB else self._role))

    def take(self, timeout_secs: float) -> tuple[Event, ...]:
        """Return the events that the schedule delivers now."""
        del timeout_secs  # nothing waits on simulated time
        delivery, self._next = self._next, None
        return delivery.events if delivery is not None else ()

    def write(self, work: Callable[[], None]) -> Future[None]:
        """Make writes when the schedule says so, or when somebody waits for them."""
        return Writes(work, self._is_eager)

    def wait(self, writing: Future[None], secs: float) -> None:
        """Let writes be made: meanwhile nothing else happens."""
        del secs
        writing.exception()

    def wait_in_phases(self, writing: Future[None]) -> None:
        """Let writes be made, which commit phases wait for."""
        writing.exception()

    def commit_phases(self) -> AbstractContextManager[object]:
        """Return the context of commit phases; in the simulation they are never abandoned after they have begun."""
        return contextlib.nullcontext()

    def abandon_commit(self) -> int | None:
        """Drop waiting commit work, as if its thread hung forever; return None if there is none."""
        waiting = [work for work in self.works if work.role is Role.COMMIT]
        self.works = [work for work in self.works if work.role is not Role.COMMIT]
        return 0 if waiting else None

    def shut_down(self, cancel_jobs: Callable[[], None], while_waiting: Callable[[], None]) -> None:
        """Drop waiting work and events: a thread that has not begun its work never does."""
        del while_waiting
        self.works.clear()
        cancel_jobs()
        self.deliveries.clear()

    def beside(self) -> Executor:
        """Return a thread that works beside all others."""
        return _ScheduledExecutor(self)

    # Called by the schedule:

    def doable(self) -> list[Work]:
        """Return the work that may be done now: every job, and for each other role its first work."""
        seen: set[Role | None] = set()
        doable = []
        for work in self.works:
            if work.role in {None, Role.JOB} or work.role not in seen:
                doable.append(work)
            seen.add(work.role)
        return doable

    def do(self, work: Work) -> None:
        """Run work to its end."""
        self.works.remove(work)
        before = self._role, self.is_lost
        self._role, self.is_lost = work.role, work.is_lost
        try:
            work.do()
        finally:
            self._role, self.is_lost = before

    def lose_jobs(self) -> None:
        """Lose all jobs that wait to be done."""
        for work in self.works:
            work.is_lost = work.role is Role.JOB

    def deliverable(self) -> list[Delivery]:
        """Return the deliveries that may be made now."""
        seen: set[Role] = set()
        deliverable = []
        for delivery in self.deliveries:
            if delivery.order is None or delivery.order not in seen:
                deliverable.append(delivery)
            if delivery.order is not None:
                seen.add(delivery.order)
        return [delivery for delivery in deliverable if delivery.due_ms <= self._clock.now_ms]

    def deliver(self, delivery: Delivery) -> None:
        """Let the next :meth:`take` return the events of a delivery."""
        self.deliveries.remove(delivery)
        self._next = delivery


class Writes(Future[None]):
    """The writes of a group, which are made at the latest when somebody wants their end."""

    def __init__(self, work: Callable[[], None], is_due: Callable[[], bool]) -> None:
        super().__init__()
        self._work = work
        self._is_due = is_due

    def done(self) -> bool:
        """Whether they are made: they may be, each time that somebody asks."""
        if not super().done() and self._is_due():
            self._make()
        return super().done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return their error, once they are made."""
        self._make()
        return super().exception(timeout)

    def result(self, timeout: float | None = None) -> None:
        """Raise their error, if there is one, once they are made."""
        self._make()
        super().result(timeout)

    def _make(self) -> None:
        if super().done():
            return
        try:
            self._work()
            self.set_result(None)
        except Exception as error:  # noqa: BLE001 - whoever asks for the result raises it
            self.set_exception(error)


class _ScheduledExecutor(Executor):
    """Keeps work among that of a coordinator until the schedule picks it."""

    def __init__(self, threads: SimulatedThreads) -> None:
        self._threads = threads

    def submit(self, do: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Keep work; what it raises is the future's, unless the process dies of it."""
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(do(*args, **options))
            except Exception as error:  # noqa: BLE001 - whoever asks for the result raises it
                future.set_exception(error)

        self._threads.works.append(Work(None, work))
        return future

    def shutdown(self, *_: Any, **_options: Any) -> None:
        """Do nothing: what has not begun never does."""
