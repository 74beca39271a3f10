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
from collections.abc import Callable
from typing import Any, Protocol, assert_never

import attrs

from txtopo.errors import InternalError, TxtopoError
from txtopo.network.channel import Backlog, Channel, ChannelClosed, WakeUp
from txtopo.workers import handshake
from txtopo.workers.messages import (
    Address,
    Failed,
    Health,
    Heartbeat,
    Hello,
    Peer,
    PeerJoined,
    PeerReplaced,
    SetActive,
    Stop,
    Stopped,
    Tell,
    Told,
    ToWorker,
    WatcherHello,
    Welcome,
    dump,
    load,
)
from txtopo.workers.peers import Incoming, Meetings, Outgoing
from txtopo.workers.roster import Arrival, Roster
from txtopo.workers.watcher import Watcher

logger = logging.getLogger(__name__)

HEARTBEAT_SECS = 1.0
"""How often a worker sends a heartbeat."""

SETTLED_HEARTBEAT_SECS = 0.05
"""The same while nothing is pending: the run may be able to end."""

BUSY_SECS = 2.0
"""A heartbeat names the busy task when a pass has taken this long."""

_READ_AND_WRITE = selectors.EVENT_READ | selectors.EVENT_WRITE
_FRAME = b"f"
_CONGESTED = b"c"
_FREE = b"u"


@attrs.frozen
class WorkerJob:
    """What a worker is started with. It is the same if Spark starts the job's task again.

    If ``host`` is None, the worker listens on the address from which it reaches the driver. While one worker has more
    than ``watermark_bytes`` in its queues and unsent, no worker calls its spouts.
    """

    worker: int
    job: int
    secret: bytes = attrs.field(repr=False)
    driver: Address
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

    def hear(self, data: bytes) -> None:
        """Take what the owner of the workers says."""

    def receive(self, frame: bytes) -> None:
        """Take a frame of a peer."""

    def worker_replaced(self, worker: int, dead: int, successor: int) -> None:
        """Learn that incarnation ``dead`` of a peer died, and that ``successor`` follows."""

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
    tell: Callable[[bytes], None]
    """Says something to the owner of the workers, in the driver."""
    mark: Callable[[int], None]
    """Marks the task that has its turn, or :data:`~txtopo.workers.watcher.NO_TASK`."""


MakeBody = Callable[[Welcome, Links], Body]
"""Makes the body of a worker, given the driver's welcome."""


def _mark_nothing(task: int) -> None:
    """Stand in for the mark of a watcher where there is none."""


class DriverGone(Exception):
    """The driver has closed the control channel, or is gone, so the worker ends."""


def run_worker(job: WorkerJob, make_body: MakeBody) -> None:
    """Run a worker until the driver stops it.

    Raises:
        DriverGone: the driver is gone, or has refused this process.
        TxtopoError: the body has failed, and the driver was told.
    """
    connection = handshake.connect(job.driver, job.secret)
    host = job.host or connection.getsockname()[0]
    with contextlib.closing(_Loop(job, Channel(connection), host, make_body)) as loop:
        loop.run()


class _Loop:
    def __init__(self, job: WorkerJob, control: Channel, host: str, make_body: MakeBody) -> None:
        self._job = job
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._wake_up = WakeUp()
        self._meetings = Meetings(host, job.secret, self._wake_up.wake)
        self._make_body = make_body
        self._body: Body | None = None
        self._watcher: Watcher | None = None
        self._roster = Roster()
        self._outgoing: dict[int, Channel] = {}
        self._unconnected: dict[int, Backlog] = {}
        """By worker, the messages that wait for its channel."""
        self._incoming: dict[int, Channel] = {}
        """By the incarnation of the sender."""
        self._early: list[Incoming] = []
        """Channels of incarnations that the driver has not announced yet."""
        self._is_congested = False
        self._activity = 0
        self._is_over = False
        self._health: Health | None = None
        self._look_at = 0.0
        self._heartbeat_secs = HEARTBEAT_SECS
        self._pass_began = time.monotonic()
        self._cpu_before = time.process_time()  # Spark uses its Python processes again
        self._has_ended = threading.Event()
        self._selector.register(control, selectors.EVENT_READ, self._hear_driver)
        self._selector.register(self._wake_up, selectors.EVENT_READ, self._take_ready)

    def run(self) -> None:
        hello = Hello(self._job.worker, self._job.job, f"{socket.gethostname()}:{os.getpid()}", self._meetings.address)
        self._control.send(dump(hello))
        threading.Thread(target=self._send_heartbeats, name="txtopo-heartbeat", daemon=True).start()
        try:
            while self._body is None:  # until the driver's welcome
                self._wait(None)
            has_worked = True
            while not self._is_over:
                self._wait(0.0 if has_worked else min(self._body.idle_secs(), self._heartbeat_secs))
                self._pass_began = time.monotonic()
                self._body.set_throttled(is_throttled=self._is_congested or bool(self._roster.congested))
                has_worked = self._body.run_pass()
                self._activity += has_worked
                self._weigh()
                self._look(has_worked=has_worked)
            self._body.close()  # before Stopped: if it raises, the driver is told Failed instead
            self._control.send(dump(Stopped(self._take_health())))
            self._drain_control()
        except ChannelClosed as error:
            raise DriverGone(str(error)) from None
        except Exception as error:
            told = error if isinstance(error, TxtopoError) else InternalError(f"{type(error).__name__}: {error}")
            with contextlib.suppress(Exception):  # the health asks the user's code, which may have failed
                self._health = self._take_health()
            with contextlib.suppress(ChannelClosed):  # the driver is gone; the error is raised here all the same
                self._control.send(dump(Failed(told, self._health)))
                self._drain_control()
            raise

    def close(self) -> None:
        self._has_ended.set()
        if self._watcher is not None:
            self._watcher.close()
        self._meetings.close()
        for channel in (*self._outgoing.values(), *self._incoming.values(), self._control):
            channel.close()
        for incoming in self._early:
            incoming.channel.close()
        for waiting in self._unconnected.values():
            waiting.close()
        self._selector.close()
        self._wake_up.close()

    # -- sockets

    def _wait(self, secs: float | None) -> None:
        for key, events in self._selector.select(secs):
            if events & selectors.EVENT_READ:
                key.data()
            if events & selectors.EVENT_WRITE and isinstance(key.fileobj, Channel):
                if key.fileobj is self._control:
                    self._flush_control()
                else:
                    self._flush(key.fileobj)

    def _tell(self, data: bytes) -> None:
        self._control.send(dump(Told(data)))
        if self._control.unsent_bytes:
            self._selector.modify(self._control, _READ_AND_WRITE, self._hear_driver)

    def _flush_control(self) -> None:
        if self._control.flush():
            self._selector.modify(self._control, selectors.EVENT_READ, self._hear_driver)

    def _hear_driver(self) -> None:
        for message in self._control.receive():
            self._obey(load(message))

    def _take_ready(self) -> None:
        self._wake_up.clear()
        for ready in self._meetings.take():
            if isinstance(ready, Outgoing):
                self._take_outgoing(ready)
            else:
                self._take_incoming(ready)

    # -- messages of the driver

    def _begin(self, welcome: Welcome) -> None:
        self._roster.welcome(welcome.incarnation, welcome.peers)
        self._watcher = self._watched(welcome.incarnation)
        mark = _mark_nothing if self._watcher is None else self._watcher.mark
        self._control.limit_memory(self._job.watermark_bytes)
        self._body = self._make_body(welcome, Links(self._send, self._tell, mark))
        for peer in welcome.peers:
            self._meet(peer)
        if welcome.is_active:
            self._body.set_active(is_active=True)

    def _watched(self, incarnation: int) -> Watcher | None:
        """Start a watcher, if possible. Without one, a process that can't send heartbeats counts as dead."""
        if not Watcher.can_watch():
            return None
        try:
            connection = handshake.connect(self._job.driver, self._job.secret)
            channel = Channel(connection)
            channel.send(dump(WatcherHello(self._job.worker, incarnation)))
            return Watcher(connection)
        except (OSError, ChannelClosed, handshake.HandshakeError) as error:
            logger.warning("worker %d has no watcher: %s", self._job.worker, error)
            return None

    def _obey(self, message: ToWorker) -> None:
        if isinstance(message, Welcome) == (self._body is not None):
            raise InternalError(f"the driver said {message!r}; a worker is welcomed first, and only once")
        if isinstance(message, Welcome):
            self._begin(message)
            return
        assert self._body is not None, "checked above"
        match message:
            case PeerJoined(peer):
                self._roster.join(peer)
                self._meet(peer)
            case PeerReplaced(dead, successor):
                # In this order: only the roster knows whose incarnation `dead` was, until it is replaced; and the body
                # must learn of the death before _meet lets frames of the successor in.
                self._part_from(dead)
                self._roster.replace(dead, successor)
                self._body.worker_replaced(successor.worker, dead, successor.incarnation)
                self._meet(successor)
            case SetActive(is_active):
                self._body.set_active(is_active=is_active)
            case Tell(data):
                self._body.hear(data)
            case Stop():
                self._is_over = True
            case _:
                assert_never(message)

    def _meet(self, peer: Peer) -> None:
        """Connect to a peer of the roster, and judge again the channels that came early."""
        if peer.address is not None:
            self._meetings.connect(peer, self._roster.incarnation)
        early, self._early = self._early, []
        for incoming in early:
            self._take_incoming(incoming)

    def _part_from(self, dead: int) -> None:
        """Drop the channels to and from a dead incarnation, and the messages that wait for it."""
        for peer in self._roster:
            if peer.incarnation == dead:
                self._unconnected.pop(peer.worker, Backlog()).close()
                channel = self._outgoing.pop(peer.worker, None)
                if channel is not None:
                    self._drop(channel)
        if dead in self._incoming:
            self._drop(self._incoming.pop(dead))

    def _drop(self, channel: Channel) -> None:
        with contextlib.suppress(KeyError, ValueError):  # not registered, or closed before
            self._selector.unregister(channel)
        channel.close()

    # -- channels to and from peers

    def _take_outgoing(self, ready: Outgoing) -> None:
        worker = ready.peer.worker
        if self._roster[worker] != ready.peer:  # it has died since
            ready.channel.close()
            return
        self._outgoing[worker] = ready.channel
        # If the peer closes this channel, it is gone or counts us as dead. The driver will say which.
        ready.channel.limit_memory(self._unsent_memory_max())
        waiting = self._unconnected.pop(worker, Backlog())
        while waiting:
            self._put(ready.channel, waiting.popleft())
        waiting.close()
        # _weigh has told only the peers that were connected then.
        if self._is_congested:
            self._put(ready.channel, _CONGESTED)

    def _take_incoming(self, incoming: Incoming) -> None:
        sender = incoming.introduction.sender
        match self._roster.judge(sender, incoming.introduction.receiver):
            case Arrival.READ:
                self._incoming[sender] = incoming.channel
                self._selector.register(
                    incoming.channel, selectors.EVENT_READ, lambda: self._hear_peer(sender, incoming.channel)
                )
            case Arrival.EARLY:  # not registered: its frames wait in the socket until _meet judges it again
                self._early.append(incoming)
            case Arrival.STALE:
                incoming.channel.close()
            case verdict:
                assert_never(verdict)

    def _hear_peer(self, sender: int, channel: Channel) -> None:
        assert self._body is not None, "frames are read after the welcome"
        try:
            messages = channel.receive()
        except ChannelClosed:  # not yet a death: the driver decides on that
            self._drop(channel)
            return
        for message in messages:
            kind = message[:1]
            if kind == _FRAME:
                self._roster.received[sender] += 1
                self._body.receive(message[1:])
            elif kind == _CONGESTED:
                self._roster.congested.add(sender)
            else:
                self._roster.congested.discard(sender)

    def _send(self, worker: int, frame: bytes) -> None:
        # Counted before it leaves: until the receiver has counted it, too, the driver does not end the run.
        self._roster.sent[self._roster[worker].incarnation] += 1
        message = _FRAME + frame
        channel = self._outgoing.get(worker)
        if channel is None:
            if worker not in self._unconnected:
                self._unconnected[worker] = Backlog(self._unsent_memory_max())
            self._unconnected[worker].append(message)
        else:
            self._put(channel, message)

    def _put(self, channel: Channel, message: bytes) -> None:
        try:
            channel.send(message)
        except ChannelClosed:
            return  # the peer has died, as the driver will say; the message is lost with it
        if channel.unsent_bytes:
            with contextlib.suppress(KeyError):  # it is registered already
                self._selector.register(channel, selectors.EVENT_WRITE, None)

    def _flush(self, channel: Channel) -> None:
        try:
            if not channel.flush():
                return
        except ChannelClosed:  # nothing more can be sent; the driver will say that the peer has died
            pass
        with contextlib.suppress(KeyError, ValueError):  # as in _drop
            self._selector.unregister(channel)

    # -- backpressure

    def _weigh(self) -> None:
        """Tell the peers when more than the watermark waits here, and when no more than half of it does.

        Two bounds, because with one a worker at the watermark would tell all peers in every pass.
        """
        assert self._body is not None, "welcomed before"
        unsent = sum(channel.unsent_bytes for channel in self._outgoing.values())
        unconnected = sum(waiting.bytes for waiting in self._unconnected.values())
        waiting = unsent + unconnected + self._body.queued_bytes()
        low = self._job.watermark_bytes // 2
        is_congested = waiting > (low if self._is_congested else self._job.watermark_bytes)
        if is_congested != self._is_congested:
            self._is_congested = is_congested
            for channel in self._outgoing.values():
                self._put(channel, _CONGESTED if is_congested else _FREE)

    def _unsent_memory_max(self) -> int:
        """Return how many bytes may wait in memory for one peer: all peers share the watermark."""
        return self._job.watermark_bytes // max(1, len(self._roster))

    # -- health

    def _look(self, *, has_worked: bool) -> None:
        """Note this worker's health. If nothing is pending, report it at once: the run may be able to end.

        A worker with tick tuples is quiet only between two ticks. So a look waits for a pass without work, but no
        longer than a heartbeat.
        """
        now = time.monotonic()
        if now < self._look_at + (HEARTBEAT_SECS if has_worked else 0.0) or self._body is None:
            return
        can_end = not has_worked and self._body.is_idle() and not self._body.pending()
        self._heartbeat_secs = SETTLED_HEARTBEAT_SECS if can_end else HEARTBEAT_SECS
        self._look_at = now + self._heartbeat_secs
        self._health = self._take_health()
        if can_end:
            self._control.send(dump(Heartbeat(self._health)))

    def _take_health(self) -> Health:
        body = self._body
        assert body is not None, "welcomed before"
        is_idle = body.is_idle() and not self._unconnected and not any(c.unsent_bytes for c in self._outgoing.values())
        return Health(
            is_done=body.is_done(),
            is_idle=is_idle,
            pending=body.pending(),
            acked=body.acked(),
            activity=self._activity,
            sent=dict(self._roster.sent),
            received=dict(self._roster.received),
            status=body.status(),
            cpu_secs=time.process_time() - self._cpu_before,
        )

    def _send_heartbeats(self) -> None:
        # In a thread of its own. The loop's thread takes the health, because tasks have no locks; it is sent once here.
        last: Health | None = None
        while not self._has_ended.wait(HEARTBEAT_SECS):
            if self._watcher is not None:
                self._watcher.beat()
            health, busy_secs = self._health, time.monotonic() - self._pass_began
            busy_with = self._body.busy_with() if self._body is not None and busy_secs > BUSY_SECS else ""
            with contextlib.suppress(ChannelClosed, OSError):  # the loop notices itself that the driver is gone
                self._control.send(dump(Heartbeat(None if health is last else health, busy_with, busy_secs)))
            last = health

    def _drain_control(self) -> None:
        """Wait a few seconds until all messages are sent: the process ends next, and loses what waits."""
        end = time.monotonic() + handshake.TIMEOUT_SECS
        while not self._control.flush() and time.monotonic() < end:
            with selectors.DefaultSelector() as selector:
                selector.register(self._control, selectors.EVENT_WRITE)
                selector.select(HEARTBEAT_SECS)
