"""The driver's side: listens for workers, and carries out what supervision decides.

One thread, the control thread, decides everything. Spark's jobs run in separate threads and report to it.
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
from typing import Any, assert_never

from txtopo.errors import InternalError
from txtopo.network.channel import Channel, ChannelClosed, WakeUp
from txtopo.workers import actions, events, messages, watcher
from txtopo.workers.handshake import Listener
from txtopo.workers.supervisor import Supervisor

logger = logging.getLogger("txtopo.workers")

TICK_SECS = 0.5
"""How often the supervisor is told that time passes; what it waits for takes seconds."""
_BUSY_LOGGED_SECS = 10.0
"""A call that keeps a worker busy is logged after this long."""


class JobStarter(ABC):
    """Starts the jobs that workers run in."""

    @abstractmethod
    def start(self, worker: int, job: int, on_end: Callable[[Exception | None], None]) -> None:
        """Submit the job of a worker, the ``job``-th of that worker, and return at once.

        Call ``on_end`` once, in any thread, with the error that has ended the job, or None.
        """

    @abstractmethod
    def cancel(self, worker: int, job: int) -> None:
        """Cancel a job if it still runs, and return at once; ``on_end`` is called in either case."""


class Owner(ABC):
    """Gives the bodies of workers their work. All methods are called in the control thread, and must return soon."""

    @abstractmethod
    def joined(self, worker: int, generation: int) -> None:
        """Called when a generation has joined."""

    @abstractmethod
    def lost(self, worker: int, generation: int, error: str) -> bool:
        """Called when a generation is lost; return whether it was at the owner's work, which excuses it."""

    @abstractmethod
    def heard(self, worker: int, generation: int, message: Any) -> None:
        """Called with what the body of a generation says."""

    @abstractmethod
    def ticked(self) -> None:
        """Called about twice a second."""

    @abstractmethod
    def ended(self, error: Exception | None) -> None:
        """Called when no further worker follows, with the reason."""

    def report(self, news: actions.ReportJoined | actions.ReportLost | actions.Deliver) -> events.Excused | None:
        """Call the method for what supervision reports; return that a generation is excused, if it is."""
        match news:
            case actions.ReportJoined(worker, generation):
                self.joined(worker, generation)
            case actions.ReportLost(worker, generation, error):
                if self.lost(worker, generation, error):
                    return events.Excused(worker, generation)
            case actions.Deliver(worker, generation, message):
                self.heard(worker, generation, message)
            case _:
                assert_never(news)
        return None


class ControlServer:
    """Runs the workers of one run; ``on_lost`` is told, in the control thread, the last health of a dead one."""

    def __init__(
        self,
        supervisor: Supervisor,
        jobs: JobStarter,
        listener: Listener,
        on_lost: Callable[[messages.Health], None] = lambda _health: None,
        owner: Owner | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._jobs = jobs
        self._listener = listener
        self._on_lost = on_lost
        self._owner = owner
        self._events: queue.SimpleQueue[events.Event | tuple[int, Channel]] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._wake_up = WakeUp()
        self._channels: dict[int, Channel] = {}
        self._watched: dict[int, messages.WatcherHello] = {}
        """By channel, the worker that its watcher watches."""
        self._numbers = itertools.count(1)
        self._busy_logged: dict[int, str] = {}
        self._is_over = threading.Event()
        self.error: Exception | None = None
        """Why the run has failed; None if it has not failed."""
        self._thread = threading.Thread(target=self._run, name="txtopo-control", daemon=True)

    def start(self) -> None:
        """Submit the jobs, and listen."""
        self._listener.start(self._take)
        self._thread.start()

    def post(self, event: events.Event) -> None:
        """Give an event to the supervisor; any thread may."""
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
                    self._handle(events.Ticked())
                    if self._owner is not None:
                        self._owner.ticked()
        except Exception as error:
            logger.debug("the control thread has failed", exc_info=error)
            self.error = InternalError(f"the control thread has failed: {type(error).__name__}: {error}")
        finally:
            self._close()

    def _wait(self) -> None:
        for key, ready in self._selector.select(TICK_SECS):
            if key.fileobj is self._wake_up:
                self._wake_up.clear()
                continue
            if ready & selectors.EVENT_WRITE:
                self._flush(key.data)
            if ready & selectors.EVENT_READ:
                self._hear(key.data)
        with contextlib.suppress(queue.Empty):
            while not self._is_over.is_set():
                event = self._events.get_nowait()
                if isinstance(event, tuple):
                    number, channel = event
                    self._channels[number] = channel
                    self._selector.register(channel, selectors.EVENT_READ, number)
                else:
                    if isinstance(event, events.JobEnded):
                        self._hear_all()
                    self._handle(event)

    def _hear_all(self) -> None:
        """Read every channel: what a worker has sent counts before the end of its job.

        1. A worker sends why it ends, and ends.
        2. Spark reports the end of its job in another thread, before this one has read the worker's channel.
        3. If the end of the job counted first, the worker would be dead without a reason, and its last counts be lost.
        """
        for number in list(self._channels):
            while self._hear(number):
                pass

    def _hear(self, number: int) -> bool:
        """Take what has arrived on a channel; return whether anything has: a part of a large message counts, too."""
        channel = self._channels.get(number)
        if channel is None:  # closed by what was heard just before
            return False
        try:
            received = channel.receive()
        except ChannelClosed:
            self._drop(number)
            self._handle(events.ChannelLost(number))
            return False
        for data in received or ():
            if number in self._watched:
                watched = self._watched[number]
                self._handle(events.Stalled(watched.worker, watched.generation, *watcher.unpack(data)))
                continue
            message = messages.load(data)
            if isinstance(message, messages.WatcherHello):
                self._watched[number] = message
                continue
            logger.debug("channel %d: %s", number, message)
            if isinstance(message, messages.Heartbeat):
                self._log_busy(number, message)
            self._handle(events.Received(number, message))
        return received is not None

    def _log_busy(self, number: int, beat: messages.Heartbeat) -> None:
        """Log each long call once; no worker is ended for it."""
        if not beat.busy_with:
            self._busy_logged.pop(number, None)
        elif beat.busy_secs > _BUSY_LOGGED_SECS and self._busy_logged.get(number) != beat.busy_with:
            self._busy_logged[number] = beat.busy_with
            logger.warning("%s has not returned for %.0f s; its worker waits for it", beat.busy_with, beat.busy_secs)

    def _handle(self, event: events.Event) -> None:
        self._carry_out(self._supervisor.handle(event, time.monotonic()))

    def _carry_out(self, decided: list[actions.Action]) -> None:
        for action in decided:
            match action:
                case actions.StartJob(worker, job):
                    self._start_job(worker, job)
                case actions.CancelJob(worker, job):
                    self._jobs.cancel(worker, job)
                case actions.Send(channel, message):
                    self._send(channel, messages.dump(message))
                case actions.Close(channel):
                    self._drop(channel)
                case actions.Warn(text):
                    logger.warning("%s", text)
                case actions.KeepLast(health):
                    self._on_lost(health)
                case actions.ReportJoined() | actions.ReportLost() | actions.Deliver():
                    self._report(action)
                case actions.Finish(error):
                    self.error = error  # before the event: whoever waits for the end reads the error next
                    self._is_over.set()
                case _:
                    assert_never(action)

    def _report(self, news: actions.ReportJoined | actions.ReportLost | actions.Deliver) -> None:
        assert self._owner is not None, "the supervisor reports to an owner only"
        excused = self._owner.report(news)
        if excused is not None:
            self._handle(excused)

    def _send(self, number: int, data: bytes) -> None:
        channel = self._channels.get(number)
        if channel is not None:
            with contextlib.suppress(ChannelClosed):  # its end is seen when it is read
                channel.send(data)
            if channel.unsent_bytes:
                self._selector.modify(channel, selectors.EVENT_READ | selectors.EVENT_WRITE, number)

    def _flush(self, number: int) -> None:
        channel = self._channels.get(number)
        if channel is not None:
            with contextlib.suppress(ChannelClosed):  # as above
                if not channel.flush():
                    return
            self._selector.modify(channel, selectors.EVENT_READ, number)

    def _start_job(self, worker: int, job: int) -> None:
        self._jobs.start(worker, job, lambda error: self.post(events.JobEnded(worker, job, error)))

    def _take(self, connection: socket.socket, _introduction: bytes) -> None:
        # In the listener's thread. Only the control thread touches the channels and the selector.
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
        if self._owner is not None:
            self._owner.ended(self.error)
        for number in list(self._channels):
            self._drop(number)
        self._listener.close()
        self._selector.close()
        self._wake_up.close()
