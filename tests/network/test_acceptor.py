"""Acceptors: only ``close`` ends a loop that accepts, and strangers neither fill it nor keep others out."""

import contextlib
import functools
import queue
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.network import acceptor
from txtopo.network.acceptor import Acceptor
from txtopo.network.channel import framed
from txtopo.network.connections import REQUEST_SECS, ConnectionLimit
from txtopo.spark.tasks.progress import ProgressListener
from txtopo.spark.tasks.user_lines import LineListener
from txtopo.topology.user_code.output import PRINT, Line
from txtopo.workers.handshake import Listener, connect

SECRET = KEY = b"s" * 16


@attrs.define(eq=False)
class Place:
    """Where processes of a run come in.

    Args:
        port: where it listens.
        comes_in: comes in by a connection that has just been made, as a process of the run does; raises if it can't.
        close: ends it.
    """

    port: int
    comes_in: Callable[[socket.socket], object]
    close: Callable[[], object]


def of_workers() -> Place:
    """Return the place where workers come in."""
    taken: queue.Queue[socket.socket] = queue.Queue()
    inside: list[socket.socket] = []
    listener = Listener("127.0.0.1", SECRET)
    listener.start(lambda connection, _: taken.put(connection))

    def comes_in(connection: socket.socket) -> None:
        connection.settimeout(DEADLINE_SECS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "create_connection", lambda *_: connection)
            connect(listener.address, SECRET)
        inside.append(taken.get(timeout=DEADLINE_SECS))

    def close() -> None:
        listener.close()
        for connection in inside:
            connection.close()

    return Place(listener.address[1], comes_in, close)


def of_lines() -> Place:
    """Return the place where the output of user code comes in."""
    taken: queue.Queue[Line] = queue.Queue()
    listener = LineListener("127.0.0.1", KEY, take=taken.put)

    def comes_in(connection: socket.socket) -> None:
        connection.settimeout(DEADLINE_SECS)
        connection.sendall(framed(KEY) + framed(b'[%d, "text", "stdout"]' % PRINT))
        assert taken.get(timeout=DEADLINE_SECS).text == "text"

    return Place(listener.port, comes_in, listener.close)


@pytest.fixture(params=[of_workers, of_lines])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[], Place]]:
    """Makes a place, which is closed at the end."""
    with contextlib.ExitStack() as stack:

        def made() -> Place:
            place: Place = request.param()
            stack.callback(place.close)
            return place

        yield made


@pytest.fixture
def accepts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each ``accept`` of an acceptor has returned."""
    returned: list[Any] = []
    accept = Acceptor.accept

    def noted(self: Acceptor) -> Any:
        returned.append(accept(self))
        return returned[-1]

    monkeypatch.setattr(Acceptor, "accept", noted)
    return returned


def comes_in(place: Place) -> None:
    """Come in by a new connection."""
    with socket.create_connection(("127.0.0.1", place.port), DEADLINE_SECS) as connection:
        place.comes_in(connection)


def test_descriptors_run_out(make: Callable[[], Place], accepts: list[Any]) -> None:
    """Without a descriptor nobody is accepted, the loop does not spin, and whoever waits comes in afterwards."""
    place = make()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as waiting:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            waiting.connect(("127.0.0.1", place.port))
            wait_for("three tries to accept", lambda: len(accepts) >= 3)
            assert set(accepts) == {None}
            assert len(accepts) < 50
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        place.comes_in(waiting)
    comes_in(place)


@pytest.mark.parametrize("secs", [1e-6, 0.01, 60.0])
def test_changed_default_timeout(make: Callable[[], Place], secs: float) -> None:
    """Other code in the same Python process may set it before or after: it ends no loop, and no connection."""
    try:
        socket.setdefaulttimeout(secs)
        place = make()
        with socket.create_connection(("127.0.0.1", place.port), DEADLINE_SECS) as connection:
            place.comes_in(connection)
        socket.setdefaulttimeout(None)
        comes_in(place)
    finally:
        socket.setdefaulttimeout(None)


def test_silent_strangers(make: Callable[[], Place], monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 that say nothing take neither a thread each nor all descriptors, and keep nobody out."""
    monkeypatch.setattr(acceptor, "connections_max", lambda: 64)
    place = make()
    threads = threading.active_count()
    with contextlib.ExitStack() as strangers:
        for number in range(1_000):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", place.port), DEADLINE_SECS))
            if number % 100 == 0:
                comes_in(place)
                assert threading.active_count() <= threads
            if number % 3 == 0:  # a few bytes more change nothing
                with contextlib.suppress(OSError):
                    stranger.sendall(b"x")
        comes_in(place)
        # 32 places, of which one address has half.
        assert threading.active_count() <= threads


def test_time_of_a_newcomer(make: Callable[[], Place], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not prove in time who it is, is closed, pieces or not; one that has proved it may be silent."""
    now = [0.0]
    monkeypatch.setattr(acceptor, "ConnectionLimit", functools.partial(ConnectionLimit, clock=lambda: now[0]))
    place = make()
    with (
        socket.create_connection(("127.0.0.1", place.port), DEADLINE_SECS) as silent,
        socket.create_connection(("127.0.0.1", place.port), DEADLINE_SECS) as known,
    ):
        silent.sendall(b"\0")
        place.comes_in(known)
        now[0] += REQUEST_SECS + 1
        with contextlib.suppress(ConnectionResetError):
            while silent.recv(64):
                pass
        known.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            assert known.recv(1) != b"", "closed"


def test_progress_outlives_a_default_timeout() -> None:
    """The thread that hears of progress is ended by no timeout, either."""
    told: queue.Queue[None] = queue.Queue()
    try:
        socket.setdefaulttimeout(1e-6)
        listener = ProgressListener("127.0.0.1", KEY)
    finally:
        socket.setdefaulttimeout(None)
    listener.listen(1, lambda: told.put(None))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(KEY + (1).to_bytes(8, "big"), listener.address)
    told.get(timeout=DEADLINE_SECS)
    listener.close()
