"""Workers as threads of this process, over real sockets: they meet, exchange frames, are replaced, and end in good order."""

import contextlib
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

import attrs
import pytest

from tests.waiting import DEADLINE_SECS, wait_for
from tests.workers.holding import Idle
from txtopo.errors import UserCodeError
from txtopo.network.channel import Channel
from txtopo.workers import peer_connections
from txtopo.workers.control import ControlServer, JobStarter
from txtopo.workers.handshake import Listener, new_secret
from txtopo.workers.messages import Peer, Welcome
from txtopo.workers.peer_connections import Incoming, Outgoing, PeerConnections, UnreachablePeer
from txtopo.workers.process import WorkerJob, run_worker
from txtopo.workers.supervisor import Supervisor

FRAMES = 200


@attrs.define(eq=False)
class Record:
    """What the bodies of a run have done."""

    received: Counter[tuple[int, int]] = attrs.field(factory=Counter)
    """By receiver and number of the frame, how often it has come."""
    begun: Counter[int] = attrs.field(factory=Counter)
    closed: Counter[int] = attrs.field(factory=Counter)
    replaced: list[tuple[int, int, int]] = attrs.field(factory=list)


class Exchange(Idle):
    """A body that sends numbered frames to all peers, and is done when it has those of all."""

    def __init__(
        self, number: int, workers: int, record: Record, send: Callable[[int, bytes], None], failing: Mapping[int, int]
    ) -> None:
        self.number = number
        self.record = record
        self.send = send
        self.peers = [other for other in range(workers) if other != number]
        self.sent = 0
        self.got: Counter[int] = Counter()
        self.is_active = self.is_throttled = False
        record.begun[number] += 1
        self.fails_at = FRAMES // 2 if record.begun[number] <= failing.get(number, 0) else -1

    def set_active(self, *, is_active: bool) -> None:
        self.is_active = is_active

    def set_throttled(self, *, is_throttled: bool) -> None:
        self.is_throttled = is_throttled

    def run_pass(self) -> bool:
        if 0 <= self.fails_at <= self.sent and self.got:  # a peer has begun, too
            raise UserCodeError("a bug", component="exchange")
        if not self.is_active or self.sent == FRAMES:
            return False
        for peer in self.peers:
            self.send(peer, b"%d %d " % (self.number, self.sent) + bytes(1_000 * (self.sent % 50)))
        self.sent += 1
        return True

    def receive(self, frame: bytes) -> None:
        sender, number, _ = frame.split(b" ", 2)
        self.record.received[self.number, int(number)] += 1
        self.got[int(sender)] += 1

    def worker_replaced(self, worker: int, dead: int, successor: int) -> None:
        self.record.replaced.append((worker, dead, successor))
        self.got[worker] = 0
        self.sent = 0 if self.fails_at < 0 else self.sent  # the successor has seen nothing

    def is_done(self) -> bool:
        return self.sent == FRAMES

    def is_idle(self) -> bool:
        return not self.is_active or self.sent == FRAMES

    def close(self) -> None:
        self.record.closed[self.number] += 1


class Congested(Exchange):
    """Worker 1 is congested until it is let go or dies; the others say once whether they may begin anything."""

    let_go: threading.Event
    """Set by a test: from now on nothing waits in worker 1."""
    dies: threading.Event
    """Set by a test: the first worker 1 dies."""
    late_joins: threading.Event
    """Set by a test: worker 2 says hello only now."""
    throttled: dict[int, bool]
    """By worker, whether it is throttled, as it was last told."""
    is_over: threading.Event

    @classmethod
    def anew(cls) -> None:
        """Forget the last run."""
        cls.let_go, cls.dies, cls.late_joins, cls.is_over = (threading.Event() for _ in range(4))
        cls.throttled = {}

    def set_throttled(self, *, is_throttled: bool) -> None:
        self.throttled[self.number] = is_throttled

    def run_pass(self) -> bool:
        if self.number == 1 and self.dies.is_set() and self.record.begun[1] == 1:
            raise UserCodeError("a bug", component="exchange")
        return False

    def idle_secs(self) -> float:
        return 0.01

    def queued_bytes(self) -> int:
        return 0 if self.let_go.is_set() or self.number != 1 or self.record.begun[1] > 1 else 2 << 20

    def is_done(self) -> bool:
        return self.is_over.is_set()

    def is_idle(self) -> bool:
        return True


class Threads(JobStarter):
    """Runs workers in threads."""

    def __init__(self, make: Callable[[int, int, Callable[[int, bytes], None]], Exchange], secret: bytes) -> None:
        self.make = make
        self.secret = secret
        self.driver = ("", 0)
        self.starts_when: dict[int, threading.Event] = {}
        """By worker, what its first job waits for."""

    def start(self, worker: int, job: int, on_end: Callable[[Exception | None], None]) -> None:
        def run() -> None:
            error: Exception | None = None
            if worker in self.starts_when:
                self.starts_when[worker].wait(DEADLINE_SECS)
            try:
                run_worker(
                    WorkerJob(worker, job, self.secret, self.driver, None, 1 << 20),
                    lambda welcome, links: self.body(worker, welcome, links.send),
                )
            except Exception as raised:  # noqa: BLE001 - as Spark would report it
                error = raised
            on_end(error)

        threading.Thread(target=run, daemon=True).start()

    def body(self, worker: int, welcome: Welcome, send: Callable[[int, bytes], None]) -> Exchange:
        return self.make(worker, len(welcome.peers) + 1, send)

    def cancel(self, worker: int, job: int) -> None:
        pass


def begin(
    workers: int,
    record: Record,
    failing: Mapping[int, int],
    restarts_max: int = 10,
    body: type[Exchange] = Exchange,
    host: str = "127.0.0.1",
    starts_when: Mapping[int, threading.Event] | None = None,
) -> ControlServer:
    """Start a run.

    Args:
        workers: how many there are.
        record: takes what they do.
        failing: how many starts of a worker fail half-way.
        restarts_max: how many restarts are allowed.
        body: what a worker does.
        host: where the driver listens.
        starts_when: by worker, what it waits for before it says hello.
    """
    secret = new_secret()
    jobs = Threads(lambda number, count, send: body(number, count, record, send, failing), secret)
    listener = Listener(host, secret)
    jobs.driver = listener.address
    jobs.starts_when.update(starts_when or {})
    supervisor = Supervisor(workers, restarts_max=restarts_max, period_secs=60.0, is_active=True, now=time.monotonic())
    server = ControlServer(supervisor, jobs, listener)
    server.start()
    return server


@pytest.mark.slow
def test_exchange() -> None:
    """Three workers meet in any order, each frame arrives once, and the run ends by itself."""
    record = Record()
    server = begin(3, record, {})
    assert server.join(DEADLINE_SECS)
    assert server.error is None
    assert record.received == {(worker, number): 2 for worker in range(3) for number in range(FRAMES)}
    assert record.closed == {0: 1, 1: 1, 2: 1}


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_exchange_by_ipv6() -> None:
    """A driver that is reached by IPv6 has workers that reach each other by it."""
    record = Record()
    server = begin(2, record, {}, host="::1")
    assert server.join(DEADLINE_SECS)
    assert server.error is None
    assert len(record.received) == 2 * FRAMES


def test_congestion_ends_with_its_worker() -> None:
    """Spouts that wait for a congested peer go on when it dies; its successor is not congested."""
    Congested.anew()
    server = begin(2, Record(), {}, body=Congested)
    wait_for("congestion", lambda: Congested.throttled == {0: True, 1: True})
    Congested.dies.set()
    wait_for("end of the congestion", lambda: Congested.throttled == {0: False, 1: False})
    Congested.is_over.set()
    assert server.join(DEADLINE_SECS)


def test_late_and_restarted_peers_wait_too() -> None:
    """A worker that joins while another one is congested learns of it, and of the congestion's end."""
    Congested.anew()
    server = begin(3, Record(), {}, body=Congested, starts_when={2: Congested.late_joins})
    wait_for("congestion", lambda: Congested.throttled == {0: True, 1: True})
    Congested.late_joins.set()
    wait_for("news of the congestion in the late worker", lambda: Congested.throttled.get(2, False))
    Congested.let_go.set()
    wait_for("end of the congestion", lambda: not any(Congested.throttled.values()))
    Congested.is_over.set()
    assert server.join(DEADLINE_SECS)


def test_worker_that_fails_is_replaced() -> None:
    """The others are told of its generation's death; the successor is another generation and gets frames of its own."""
    record = Record()
    server = begin(2, record, {1: 1})
    assert server.join(DEADLINE_SECS)
    assert server.error is None
    assert record.begun == {0: 1, 1: 2}
    assert record.replaced == [(1, 1, 2)]
    assert all(record.received[0, number] >= 1 for number in range(FRAMES))


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], dict[type, Channel]]:
    """By sender and receiver, both generations, the two ends of each channel between workers."""
    found: dict[tuple[int, int], dict[type, Channel]] = {}
    senders: dict[PeerConnections, int] = {}
    connect, take = PeerConnections.connect, PeerConnections.take

    def noting(self: PeerConnections, peer: Peer, generation: int) -> None:
        senders[self] = generation
        connect(self, peer, generation)

    def taking(self: PeerConnections) -> list[Incoming | Outgoing | UnreachablePeer]:
        taken = take(self)
        for ready in taken:
            if isinstance(ready, Outgoing):
                found.setdefault((senders[self], ready.peer.generation), {})[Outgoing] = ready.channel
            elif isinstance(ready, Incoming):
                ends = ready.introduction.sender, ready.introduction.receiver
                found.setdefault(ends, {})[Incoming] = ready.channel
        return taken

    monkeypatch.setattr(PeerConnections, "connect", noting)
    monkeypatch.setattr(PeerConnections, "take", taking)
    return found


def cut(*channels: Channel) -> None:
    """End connections under both of their processes, as ``ss -K`` does."""
    # Held first: whoever learns of the end of one may close the others.
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket(fileno=os.dup(channel.fileno()))) for channel in channels]
        for same in held:
            with contextlib.suppress(OSError):  # its other end is closed already
                same.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
@pytest.mark.parametrize("end", [Incoming, Outgoing])
@pytest.mark.parametrize("ways", [[(0, 1)], [(1, 0)], [(0, 1), (1, 0)]])
def test_broken_link(links: dict[tuple[int, int], dict[type, Channel]], end: type, ways: list[tuple[int, int]]) -> None:
    """One end starts again, everything is sent to it again, nobody else is ended, and the run ends by itself."""
    record = Record()
    held = threading.Event()

    class Held(Exchange):
        """Sends half of all frames before the links are cut."""

        def run_pass(self) -> bool:
            return (self.sent < FRAMES // 2 or held.is_set()) and super().run_pass()

        def idle_secs(self) -> float:
            return 0.01

    server = begin(3, record, {}, body=Held)
    wait_for("half of the frames", lambda: sum(record.received.values()) >= 3 * FRAMES)
    cut(*(links[way][end] for way in ways))
    held.set()
    assert server.join(DEADLINE_SECS)
    assert server.error is None
    assert record.begun == {0: 1, 1: 2, 2: 1}
    assert sorted(record.replaced) == [(1, 1, 3), (1, 1, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("way", [(1, 0), (0, 1)])
def test_congestion_ends_with_its_link(links: dict[tuple[int, int], dict[type, Channel]], way: tuple[int, int]) -> None:
    """A worker that has told of its congestion, and can't take it back, pauses nobody for ever."""
    Congested.anew()
    server = begin(2, Record(), {}, body=Congested)
    wait_for("congestion", lambda: Congested.throttled == {0: True, 1: True})
    wait_for("the link", lambda: Incoming in links.get(way, {}))  # the news needs only one of the two
    cut(links[way][Incoming])
    wait_for("end of the congestion", lambda: Congested.throttled == {0: False, 1: False})
    Congested.is_over.set()
    assert server.join(DEADLINE_SECS)


@pytest.mark.slow
def test_peer_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody dials for ever: the worker tells, one of the two starts again, and that one is reached."""
    monkeypatch.setattr(peer_connections, "REACH_SECS", 0.5)
    connect = peer_connections.handshake.connect
    lost: list[tuple[str, int]] = []
    choosing = threading.Lock()

    def refused(address: tuple[str, int], secret: bytes) -> socket.socket:
        if threading.current_thread().name == "txtopo-connect":
            with choosing:  # one address: both dial at the same time
                lost[:] = lost or [address]
            if address in lost:
                raise ConnectionRefusedError("nobody there")
        return connect(address, secret)

    monkeypatch.setattr(peer_connections.handshake, "connect", refused)
    record = Record()
    server = begin(2, record, {})
    assert server.join(DEADLINE_SECS)
    assert server.error is None
    assert sum(record.begun.values()) <= 4
    wait_for("ends of all threads", lambda: all(each.name != "txtopo-connect" for each in threading.enumerate()))
