"""The threads of a simulated coordinator: work waits until the schedule has it done, events until it delivers them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import attrs

from txtopo.core.events import Event
from txtopo.engine.threads import Role, Threads


@attrs.define(eq=False)
class Clock:
    """The world's clock."""

    now_ms: int = 0


@attrs.define(eq=False)
class Delivery:
    """Events that were posted together and not delivered yet.

    ``order`` is None where letters may overtake each other; those of one order stay in it.
    """

    events: tuple[Event, ...]
    order: Role | None
    due_ms: int = 0


@attrs.define(eq=False)
class Work:
    """Work that was submitted and is not done yet."""

    role: Role
    do: Callable[[], None]


class SimulatedThreads(Threads):
    """Keeps work and letters until the schedule picks one.

    Args:
        clock: the world's clock.
        is_eager: whether work that is submitted now is done at once.
    """

    def __init__(self, clock: Clock, is_eager: Callable[[], bool]) -> None:
        self.works: list[Work] = []
        self.deliveries: list[Delivery] = []
        self._clock = clock
        self._is_eager = is_eager
        self._next: Delivery | None = None
        self._role: Role | None = None

    def now_secs(self) -> float:
        """Return the world's time."""
        return self._clock.now_ms / 1000

    def sleep(self, duration_secs: float) -> None:
        """Let the world's time pass."""
        self._clock.now_ms += int(duration_secs * 1000)

    def submit(self, role: Role, work: Callable[[], None]) -> None:
        """Keep work until it is its turn."""
        self.works.append(Work(role, work))
        if role is Role.JOB and self._is_eager():
            self.do(self.works[-1])

    def post(self, events: tuple[Event, ...]) -> None:
        """Keep events until they are delivered."""
        self.deliveries.append(Delivery(events, None if self._role is Role.JOB else self._role))

    def take(self, timeout_secs: float) -> tuple[Event, ...]:
        """Return the events that the schedule delivers now."""
        del timeout_secs
        delivery, self._next = self._next, None
        return delivery.events if delivery is not None else ()

    def commit_phases(self) -> AbstractContextManager[object]:
        """Return the context of commit phases, which are never abandoned here once they have begun."""
        return contextlib.nullcontext()

    def abandon_commit(self) -> int | None:
        """Abandon the commit work that waits, if some does: its thread stands still for ever."""
        waiting = [work for work in self.works if work.role is Role.COMMIT]
        self.works = [work for work in self.works if work.role is not Role.COMMIT]
        return 0 if waiting else None

    def shut_down(self, cancel_jobs: Callable[[], None]) -> None:
        """Drop what waits: a thread that has not begun its work never does."""
        self.works.clear()
        cancel_jobs()
        self.deliveries.clear()

    # What the schedule does.

    def doable(self) -> list[Work]:
        """Return the work that may be done now: of roles that work in order, the first."""
        seen: set[Role] = set()
        doable = []
        for work in self.works:
            if work.role is Role.JOB or work.role not in seen:
                doable.append(work)
            seen.add(work.role)
        return doable

    def do(self, work: Work) -> None:
        """Have work done to its end."""
        self.works.remove(work)
        before, self._role = self._role, work.role
        try:
            work.do()
        finally:
            self._role = before

    def deliverable(self) -> list[Delivery]:
        """Return the letters that may be delivered now."""
        seen: set[Role] = set()
        deliverable = []
        for delivery in self.deliveries:
            if delivery.order is None or delivery.order not in seen:
                deliverable.append(delivery)
            if delivery.order is not None:
                seen.add(delivery.order)
        return [delivery for delivery in deliverable if delivery.due_ms <= self._clock.now_ms]

    def deliver(self, delivery: Delivery) -> None:
        """Let the next :meth:`take` return a letter."""
        self.deliveries.remove(delivery)
        self._next = delivery
