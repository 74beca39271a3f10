"""The driver's side: listens for workers, and carries out what supervision decides.

Everything is decided in one thread, the control thread. Spark's jobs run in threads of their own and report to it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import selectors
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import assert_never

from txtopo.channel import Channel, ChannelClosed, WakeUp
from txtopo.errors import InternalError
from txtopo.plain.loop import watcher
from txtopo.plain.supervision.supervision import (
    Action,
    ByeTold,
    CancelJob,
    ChannelLost,
    Close,
    ErrorTold,
    Event,
    Finish,
    Greeted,
    Heard,
    Held,
    JobEnded,
    KeepVitals,
    Send,
    StartJob,
    Supervisor,
    Ticked,
    Warn,
)
from txtopo.plain.transport.listener import Listener
from txtopo.plain.transport.messages import Beat, Bye, Erred, Hello, Vitals, Watching, dump, load

logger = logging.getLogger("txtopo.plain.transport")

TICK_SECS = 0.5
_BUSY_WORTH_SECS = 10.0
"""From when on it is said that a worker has been in one call for long."""


class JobStarter(ABC):
    """Starts the jobs that workers run in."""

    @abstractmethod
    def start(self, worker: int, job: int, on_end: Callable[[Exception | None], None]) -> None:
        """Submit the job of a worker and return at once.

        Args:
            worker: the worker's number.
            job: the job's, among those of the worker.
            on_end: is called once, in any thread, when the job has ended: with its error, or None.
        """

    @abstractmethod
    def cancel(self, worker: int, job: int) -> None:
        """Cancel a job, if it runs still; ``on_end`` is called all the same."""


class ControlServer:
    """Runs the workers of one run.

    Args:
        supervisor: decides.
        jobs: starts workers.
        listener: where workers connect; it is closed at the end.
        on_lost: is given what a lost worker said last.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        jobs: JobStarter,
        listener: Listener,
        on_lost: Callable[[Vitals], None] = lambda _vitals: None,
    ) -> None:
        self._supervisor = supervisor
        self._jobs = jobs
        self._listener = listener
        self._on_lost = on_lost
        self._events: queue.SimpleQueue[Event | tuple[int, Channel]] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._wake_up = WakeUp()
        self._channels: dict[int, Channel] = {}
        self._watched: dict[int, Watching] = {}
        """By the channel of a watcher, whom it watches."""
        self._numbers = itertools.count(1)
        self._busy_said: dict[int, str] = {}
        self._is_over = threading.Event()
        self.error: Exception | None = None
        """Why the run has failed; None if it has not."""
        self._thread = threading.Thread(target=self._run, name="txtopo-control", daemon=True)

    def start(self) -> None:
        """Begin: submit the jobs, and listen."""
        self._listener.start(self._take)
        self._thread.start()

    def post(self, event: Event) -> None:
        """Give an event to supervision; from any thread."""
        self._events.put(event)
        self._wake_up.wake()

    def join(self, timeout_secs: float | None = None) -> bool:
        """Wait until the run is over, and return whether it is."""
        return self._is_over.wait(timeout_secs)

    def _run(self) -> None:
        try:
            self._selector.register(self._wake_up, selectors.EVENT_READ)
            self._carry_out(self._supervisor.begin())
            ticked_at = time.monotonic()
            while not self._is_over.is_set():
                self._wait()
                if time.monotonic() - ticked_at >= TICK_SECS:
                    ticked_at = time.monotonic()
                    self._handle(Ticked())
        except Exception as error:
            logger.debug("the control thread has failed", exc_info=error)
            self.error = InternalError(f"the control thread has failed: {type(error).__name__}: {error}")
        finally:
            self._close()

    def _wait(self) -> None:
        for key, _ in self._selector.select(TICK_SECS):
            if key.fileobj is self._wake_up:
                self._wake_up.clear()
            else:
                self._hear(key.data)
        with contextlib.suppress(queue.Empty):
            while not self._is_over.is_set():
                event = self._events.get_nowait()
                if isinstance(event, tuple):
                    number, channel = event
                    self._channels[number] = channel
                    self._selector.register(channel, selectors.EVENT_READ, number)
                else:
                    if isinstance(event, JobEnded):
                        self._hear_all()
                    self._handle(event)

    def _hear_all(self) -> None:
        """Read what has come on every channel: a worker's last words count before the end of its job.

        1. A worker says bye, or why it fails, and returns; its words are in the channel.
        2. Spark reports the end of its job to another thread, which wakes this one up before it has read the channel.
        3. The worker would count as dead without a reason, and its last figures would be lost.
        """
        for number in list(self._channels):
            self._hear(number)

    def _hear(self, number: int) -> None:
        channel = self._channels.get(number)
        if channel is None:  # closed by what was heard just before
            return
        try:
            messages = channel.receive()
        except ChannelClosed:
            self._drop(number)
            self._handle(ChannelLost(number))
            return
        for data in messages:
            if number in self._watched:
                watched = self._watched[number]
                self._handle(Held(watched.worker, watched.epoch, *watcher.unpack(data)))
                continue
            message = load(data)
            match message:
                case Hello():
                    logger.debug("worker %d: %s says hello", message.worker, message.process)
                    self._handle(Greeted(number, message))
                case Beat(vitals, busy_with, busy_secs):
                    self._say_busy(number, busy_with, busy_secs)
                    self._handle(Heard(number, vitals))
                case Watching():
                    self._watched[number] = message
                case Erred(error, vitals):
                    self._handle(ErrorTold(number, error, vitals))
                case Bye(vitals):
                    self._handle(ByeTold(number, vitals))
                case _:
                    raise InternalError(f"a worker said {message!r}")

    def _say_busy(self, number: int, busy_with: str, busy_secs: float) -> None:
        """Say once of each long call that it is one; nobody is killed for it."""
        if not busy_with:
            self._busy_said.pop(number, None)
        elif busy_secs > _BUSY_WORTH_SECS and self._busy_said.get(number) != busy_with:
            self._busy_said[number] = busy_with
            logger.warning("%s has not returned for %.0f s; its worker waits for it", busy_with, busy_secs)

    def _handle(self, event: Event) -> None:
        self._carry_out(self._supervisor.handle(event, time.monotonic()))

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case StartJob(worker, job):
                    self._start_job(worker, job)
                case CancelJob(worker, job):
                    threading.Thread(target=self._jobs.cancel, args=(worker, job), daemon=True).start()
                case Send(channel, message):
                    if channel in self._channels:
                        with contextlib.suppress(ChannelClosed):  # its end is seen when it is read
                            self._channels[channel].send(dump(message))
                case Close(channel):
                    self._drop(channel)
                case Warn(text):
                    logger.warning("%s", text)
                case KeepVitals(vitals):
                    self._on_lost(vitals)
                case Finish(error):
                    self.error = error
                    self._is_over.set()
                case _:
                    assert_never(action)

    def _start_job(self, worker: int, job: int) -> None:
        self._jobs.start(worker, job, lambda error: self.post(JobEnded(worker, job, error)))

    def _take(self, connection: socket.socket) -> None:
        self._events.put((next(self._numbers), Channel(connection)))
        self._wake_up.wake()

    def _drop(self, number: int) -> None:
        self._watched.pop(number, None)
        channel = self._channels.pop(number, None)
        if channel is not None:
            self._selector.unregister(channel)
            channel.close()

    def _close(self) -> None:
        self._is_over.set()
        for number in list(self._channels):
            self._drop(number)
        self._listener.close()
        self._selector.close()
        self._wake_up.close()
