"""The pool as the owner of its workers: who waits for a job, and what the supervisor and the workers are told."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from typing import assert_never

import attrs

from txtopo.errors import InternalError, RuleError, StopError
from txtopo.transactional.jobs import pool
from txtopo.workers.control import Owner
from txtopo.workers.events import EndAsked, Event as WorkersEvent, TellAsked


@attrs.define(eq=False)
class Asker:
    """Who waits for a job, in a separate thread."""

    actions: queue.SimpleQueue[pool.Action | Exception] = attrs.field(factory=queue.SimpleQueue)
    on_progress: Callable[[], None] = attrs.field(default=lambda: None)

    def take(self, timeout_secs: float | None) -> pool.Action | None:
        """Wait for the next action; return None if none has come in time; StopError if the workers are gone."""
        try:
            action = self.actions.get(timeout=timeout_secs)
        except queue.Empty:
            return None
        if isinstance(action, Exception):
            raise action
        return action


class PoolOwner(Owner):
    """The pool, which any thread may ask, and the workers that it owns. One lock keeps the order of what they hear.

    ``post`` gives an event to the supervisor of the workers; ``clock`` returns the time, in seconds.
    """

    def __init__(self, post: Callable[[WorkersEvent], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.workers_lost = 0
        self.pool = pool.Pool()
        self._post = post
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._askers: dict[int, Asker] = {}
        self._error: Exception | None = None
        """Why no further job can run."""

    def ask(self, event_of: Callable[[int], pool.Event], asker: Asker) -> int:
        """Begin a job, whose actions go to the asker, and return its number; StopError if the workers are gone."""
        with self._lock:
            if self._error is not None:
                raise self._error
            number = next(self._numbers)  # under the lock: the pool wants them in order
            self._askers[number] = asker
            self.handle(event_of(number))
        return number

    def cancel(self, number: int) -> None:
        """Cancel a job if it has not ended."""
        with self._lock:
            self.handle(pool.Cancelled(number))

    def end_calls(self) -> None:
        """End the workers that are in a call, because the run ends."""
        with self._lock:
            for worker, generation in self.pool.at_work():
                self._post(EndAsked(worker, generation, "the run ends during a call"))

    def joined(self, worker: int, generation: int) -> None:
        """Let calls go to a worker."""
        with self._lock:
            self.handle(pool.Joined(worker, generation))

    def lost(self, worker: int, generation: int, error: str) -> bool:
        """Lose the calls of a worker, and return whether it had any."""
        with self._lock:
            self.workers_lost += 1
            was_at_work = self.pool.is_at_work(worker, generation)
            self.handle(pool.Lost(worker, generation, error))
        return was_at_work

    def heard(self, worker: int, generation: int, message: pool.FromBody) -> None:
        """Take an answer; what it holds of user objects is unpickled by the thread that waits for it."""
        with self._lock:
            self.handle(pool.Heard(worker, generation, message))

    def ticked(self) -> None:
        """Let time pass."""
        with self._lock:
            self.handle(pool.Ticked())

    def ended(self, error: Exception | None) -> None:
        """End all waiting for jobs: the workers are gone."""
        with self._lock:
            self._error = _why_over(error)
            for asker in self._askers.values():
                asker.actions.put(self._error)

    def handle(self, event: pool.Event) -> None:
        """Give an event to the pool under the lock, and carry out its actions."""
        for action in self.pool.handle(event, self._clock()):
            match action:
                case pool.Tell(worker, generation, message):
                    self._post(TellAsked(worker, generation, message))
                case pool.EndWorker(worker, generation, reason):
                    self._post(EndAsked(worker, generation, reason))
                case pool.Renew(number):
                    self._askers[number].on_progress()
                case pool.Answer() | pool.Lose():
                    self._askers[action.job].actions.put(action)
                case pool.EndJob():
                    self._askers.pop(action.job).actions.put(action)
                case _:
                    assert_never(action)


def _why_over(error: Exception | None) -> Exception:
    if error is None:
        return StopError("the workers have ended")
    if isinstance(error, (RuleError, StopError, InternalError)):
        return error
    return StopError(f"workers were lost again and again; the last one: {error}")
