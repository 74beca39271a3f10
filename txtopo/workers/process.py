"""A worker's process: one thread that runs one loop around a :class:`Body`.

The loop waits in one place, for all of its sockets at once. A second thread sends heartbeats, even during a long call,
and names the busy task. So the driver can tell a slow bolt from a dead worker. If a C call stops that thread, too, the
:mod:`~txtopo.workers.watcher` reports for the worker. Only a process that is stopped or gone is silent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, assert_never

import attrs

from txtopo.errors import InternalError, TxtopoError
from txtopo.network.channel import Channel, ChannelClosed, WakeUp
from txtopo.workers import handshake, messages
from txtopo.workers.peer_connections import PeerConnections
from txtopo.workers.peer_directory import PeerDirectory
from txtopo.workers.peers import Peers
from txtopo.workers.watcher import Watcher

logger = logging.getLogger(__name__)

HEARTBEAT_SECS = 1.0
"""How often a worker sends a heartbeat."""

IDLE_HEARTBEAT_SECS = 0.05
"""The same while nothing is pending: the run may be able to end."""

BUSY_SECS = 2.0
"""A heartbeat names the busy task when a pass has taken this long."""

REACH_SECS = 60.0
"""How long a worker tries to reach a driver that has, for example, no file descriptor left."""

_RETRY_SECS = 0.2
"""The pause before the driver is tried again."""
_READ_AND_WRITE = selectors.EVENT_READ | selectors.EVENT_WRITE


@attrs.frozen
class WorkerJob:
    """What a worker is started with. It is the same if Spark starts the job's task again.

    If ``host`` is None, the worker listens on the address from which it reaches the driver. While one worker has more
    than ``watermark_bytes`` in its queues and unsent, no worker calls its spouts.
    """

    worker: int
    job: int
    secret: bytes = attrs.field(repr=False)
    driver: messages.Address
    host: str | None
    watermark_bytes: int


class Body(Protocol):
    """The work of one worker. All methods but ``busy_with`` are called in one thread."""

    def set_active(self, *, is_active: bool) -> None:
        """Activate or deactivate the spouts."""

    def set_throttled(self, *, is_throttled: bool) -> None:
        """Stop calling the spouts, or call them again; called before each pass."""

    def run_pass(self) -> bool:
        """Give every task a turn; return whether any did something."""

    def idle_secs(self) -> float:
        """Return for how long there is nothing to do unless a frame arrives."""

    def hear(self, message: Any) -> None:
        """Called with what the owner of the workers says."""

    def receive(self, frame: bytes) -> None:
        """Called with a frame of a peer."""

    def worker_replaced(self, worker: int, dead: int, successor: int) -> None:
        """Called when generation ``dead`` of a peer has died; ``successor`` follows."""

    def queued_bytes(self) -> int:
        """Return about how many bytes wait in queues."""

    def is_done(self) -> bool:
        """Return whether all spouts are exhausted, with nothing pending."""

    def is_idle(self) -> bool:
        """Return whether nothing waits to be executed or sent."""

    def pending(self) -> int:
        """Return how many roots are pending."""

    def acked(self) -> int:
        """Return how many roots were acked."""

    def busy_with(self) -> str:
        """Name the task that has its turn, for people; called in another thread."""

    def status(self) -> Any:
        """Return what reports say about the worker; it pickles."""

    def close(self) -> None:
        """Close the spouts, and clean the bolts up."""


@attrs.frozen
class Links:
    """The functions by which a body reaches what is outside."""

    send: Callable[[int, bytes], None]
    """Sends a frame to another worker."""
    tell: Callable[[Any], None]
    """Says something that pickles to the owner of the workers, in the driver."""
    record_task: Callable[[int], None]
    """Marks the task that has its turn, or :data:`~txtopo.workers.watcher.NO_TASK`."""


MakeBody = Callable[[messages.Welcome, Links], Body]
"""Makes the body of a worker, given the driver's welcome."""


def _record_nothing(task: int) -> None:
    """Stand in for the watcher's ``record_task`` where there is none."""


class DriverGone(Exception):
    """The driver has closed the control channel, or is gone, so the worker ends."""


def run_worker(job: WorkerJob, make_body: MakeBody) -> None:
    """Run a worker until the driver stops it.

    Raises:
        DriverGone: the driver is gone, or has refused this process.
        TxtopoError: the body has failed, and the driver was told.
    """
    connection = _reach(job)
    host = job.host or connection.getsockname()[0]
    with contextlib.closing(_Loop(job, Channel(connection), host, make_body)) as loop:
        loop.run()


def _reach(job: WorkerJob) -> socket.socket:
    """Connect to the driver; while it listens and can take nobody in, try again."""
    end = time.monotonic() + REACH_SECS
    while True:
        try:
            return handshake.connect(job.driver, job.secret)
        except ConnectionRefusedError:  # nobody listens: the run is over
            raise
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(_RETRY_SECS)


class DriverListener(ABC):
    """What a worker does at the driver's messages, whatever they and its frames come by."""

    body: Body | None = None
    """None until the driver's welcome."""
    heard = 0
    """How often it was told whether the spouts are called, since the welcome."""

    @abstractmethod
    def _begin(self, welcome: messages.Welcome) -> Body:
        """Meet the peers that the welcome names, and return the body."""

    @abstractmethod
    def _end(self) -> None:
        """End in good order."""

    def obey(self, message: messages.ToWorker, peers: Peers | PeerDirectory) -> None:
        """Do what the driver says."""
        if isinstance(message, messages.Welcome) == (self.body is not None):
            raise InternalError(f"the driver said {message!r}; a worker is welcomed first, and only once")
        if isinstance(message, messages.Welcome):
            self.body = self._begin(message)
            if message.is_active:
                self.body.set_active(is_active=True)
            return
        assert self.body is not None, "checked above"
        match message:
            case messages.PeerJoined(peer):
                peers.join(peer)
            case messages.PeerReplaced(dead, successor):
                # In this order: what the body sends when it learns of the death is for the successor, and it must have
                # learned of it before a frame of the successor comes.
                peers.replace(dead, successor)
                self.body.worker_replaced(successor.worker, dead, successor.generation)
                peers.join(successor)
            case messages.SetActive(is_active):
                self.heard += 1
                self.body.set_active(is_active=is_active)
            case messages.BodyMessage(said):
                self.body.hear(said)
            case messages.Stop():
                self._end()
            case _:
                assert_never(message)


class _Loop(DriverListener):
    def __init__(self, job: WorkerJob, control: Channel, host: str, make_body: MakeBody) -> None:
        self._job = job
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._wake_up = WakeUp()
        self._connections = PeerConnections(host, job.secret, self._wake_up.wake)
        self._peers = Peers(self._connections, self._selector, job.watermark_bytes, self._receive, self._tell_broken)
        self._make_body = make_body
        self._watcher: Watcher | None = None
        self._activity = 0
        self._is_over = False
        self._health: messages.Health | None = None
        self._health_at = 0.0
        self._heartbeat_secs = HEARTBEAT_SECS
        self._pass_began = time.monotonic()
        self._cpu_before = time.process_time()  # Spark uses its Python processes again
        self._has_ended = threading.Event()
        self._selector.register(control, selectors.EVENT_READ, self._hear_driver)
        self._selector.register(self._wake_up, selectors.EVENT_READ, self._take_ready)

    def run(self) -> None:
        hello = messages.Hello(
            self._job.worker, self._job.job, f"{socket.gethostname()}:{os.getpid()}", self._connections.address
        )
        self._control.send(messages.dump(hello))
        threading.Thread(target=self._send_heartbeats, name="txtopo-heartbeat", daemon=True).start()
        try:
            while self.body is None:  # until the driver's welcome
                self._wait(None)
            has_worked = True
            while not self._is_over:
                self._wait(0.0 if has_worked else min(self.body.idle_secs(), self._heartbeat_secs))
                self._pass_began = time.monotonic()
                self.body.set_throttled(is_throttled=self._peers.is_congested)
                has_worked = self.body.run_pass()
                self._activity += has_worked
                self._peers.weigh(self.body.queued_bytes())
                self._record_health(has_worked=has_worked)
            self.body.close()  # before Stopped: if it raises, the driver is told Failed instead
            self._control.send(messages.dump(messages.Stopped(self._take_health())))
            self._drain_control()
        except ChannelClosed as error:
            raise DriverGone(str(error)) from None
        except Exception as error:
            reported = error if isinstance(error, TxtopoError) else InternalError(f"{type(error).__name__}: {error}")
            with contextlib.suppress(Exception):  # the health asks the user's code, which may have failed
                self._health = self._take_health()
            with contextlib.suppress(ChannelClosed):  # the driver is gone; the error is raised here all the same
                self._control.send(messages.dump(messages.Failed(reported, self._health)))
                self._drain_control()
            raise

    def close(self) -> None:
        self._has_ended.set()
        if self._watcher is not None:
            self._watcher.close()
        self._peers.close()
        self._control.close()
        self._selector.close()
        self._wake_up.close()

    # -- sockets

    def _wait(self, secs: float | None) -> None:
        for key, events in self._selector.select(secs):
            if key.fileobj is not self._control:
                key.data()  # registered for one kind of event
                continue
            if events & selectors.EVENT_READ:
                self._hear_driver()
            if events & selectors.EVENT_WRITE:
                self._flush_control()

    def _tell(self, message: Any) -> None:
        self._say(messages.BodyMessage(message))

    def _tell_broken(self, peer: int, why: str) -> None:
        self._say(messages.LinkBroken(peer, why))

    def _say(self, message: messages.BodyMessage | messages.LinkBroken) -> None:
        self._control.send(messages.dump(message))
        if self._control.unsent_bytes:
            self._selector.modify(self._control, _READ_AND_WRITE, self._hear_driver)

    def _flush_control(self) -> None:
        if self._control.flush():
            self._selector.modify(self._control, selectors.EVENT_READ, self._hear_driver)

    def _hear_driver(self) -> None:
        for message in self._control.receive() or ():
            self.obey(messages.load(message), self._peers)

    def _take_ready(self) -> None:
        self._wake_up.clear()
        self._peers.take_ready()

    def _receive(self, frame: bytes) -> None:
        assert self.body is not None, "frames are read after the welcome"
        self.body.receive(frame)

    # -- messages of the driver

    def _begin(self, welcome: messages.Welcome) -> Body:
        self._watcher = self._watched(welcome.generation)
        record_task = _record_nothing if self._watcher is None else self._watcher.record_task
        self._control.limit_memory(self._job.watermark_bytes)
        body = self._make_body(welcome, Links(self._peers.send, self._tell, record_task))
        self._peers.welcome(welcome)
        return body

    def _watched(self, generation: int) -> Watcher | None:
        """Start a watcher, if possible. Without one, a process that can't send heartbeats counts as dead."""
        if not Watcher.can_watch():
            return None
        try:
            connection = handshake.connect(self._job.driver, self._job.secret)
            channel = Channel(connection)
            channel.send(messages.dump(messages.WatcherHello(self._job.worker, generation)))
            return Watcher(connection)
        except (OSError, ChannelClosed, handshake.HandshakeError) as error:
            logger.warning("worker %d has no watcher: %s", self._job.worker, error)
            return None

    def _end(self) -> None:
        self._is_over = True

    # -- health

    def _record_health(self, *, has_worked: bool) -> None:
        """Note this worker's health. If nothing is pending, report it at once: the run may be able to end.

        A worker with tick tuples is quiet only between two ticks. So a look waits for a pass without work, but no
        longer than a heartbeat.
        """
        now = time.monotonic()
        if now < self._health_at + (HEARTBEAT_SECS if has_worked else 0.0) or self.body is None:
            return
        can_end = not has_worked and self.body.is_idle() and not self.body.pending()
        self._heartbeat_secs = IDLE_HEARTBEAT_SECS if can_end else HEARTBEAT_SECS
        self._health_at = now + self._heartbeat_secs
        self._health = self._take_health()
        if can_end:
            # If the socket is full, it waits for the next look or heartbeat, which flushes it: one is never long away.
            self._control.send(messages.dump(messages.Heartbeat(self._health)))

    def _take_health(self) -> messages.Health:
        body = self.body
        assert body is not None, "welcomed before"
        return messages.Health(
            is_done=body.is_done(),
            is_idle=body.is_idle() and not self._peers.unsent_bytes,
            pending=body.pending(),
            acked=body.acked(),
            activity=self._activity,
            sent=dict(self._peers.sent),
            received=dict(self._peers.received),
            status=body.status(),
            cpu_secs=time.process_time() - self._cpu_before,
            heard=self.heard,
        )

    def _send_heartbeats(self) -> None:
        # In a separate thread, which must not touch the selector: what a full socket leaves, the next heartbeat
        # flushes. The loop's thread takes the health, because tasks have no locks; it is sent once here, because two
        # equal ones in a row would tell the driver that the worker is quiet.
        last: messages.Health | None = None
        while not self._has_ended.wait(HEARTBEAT_SECS):
            if self._watcher is not None:
                self._watcher.beat()
            health, busy_secs = self._health, time.monotonic() - self._pass_began
            busy_with = self.body.busy_with() if self.body is not None and busy_secs > BUSY_SECS else ""
            with contextlib.suppress(ChannelClosed, OSError):  # the loop notices itself that the driver is gone
                self._control.send(
                    messages.dump(messages.Heartbeat(None if health is last else health, busy_with, busy_secs))
                )
            last = health

    def _drain_control(self) -> None:
        """Wait a few seconds until all messages are sent: the process ends next, and loses what waits."""
        # With a separate selector: in the loop's, peers that still send would end each wait at once.
        end = time.monotonic() + handshake.TIMEOUT_SECS
        while not self._control.flush() and time.monotonic() < end:
            with selectors.DefaultSelector() as selector:
                selector.register(self._control, selectors.EVENT_WRITE)
                selector.select(HEARTBEAT_SECS)
