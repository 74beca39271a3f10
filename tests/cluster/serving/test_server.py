"""What daemons share: sockets, and what their server bears."""

import asyncio
import contextlib
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest

from tests.full_disk import no_descriptor_left
from tests.processes import python
from tests.variants import variants
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.cluster.serving.server import PausingListener, Places, listen
from txtopo.errors import ConfigError
from txtopo.network.connections import REQUEST_SECS, STALLED_SECS, ConnectionLimit


def test_port_that_is_taken() -> None:
    """The error says so, before anything is announced."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_ipv6_address() -> None:
    """A daemon listens on it, as seeds may name it."""
    with listen("::1", 0) as listener, socket.create_connection(listener.getsockname()[:2]):
        assert listener.family is socket.AF_INET6


@attrs.frozen
class Served:
    """A server with 256 file descriptors in a process of its own."""

    process: subprocess.Popen[str]
    port: int
    log: Path

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Connect, and send something."""
        connection = socket.create_connection(("127.0.0.1", self.port), DEADLINE_SECS)
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        return connection

    def open_files(self) -> int:
        """Return how many file descriptors it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server, ended after the test."""
    log = tmp_path / "log"
    with log.open("w") as errors:
        process = python("-m", "tests.cluster.serving.attacked", "256", stderr=errors)
    assert process.stdout is not None
    try:
        served = Served(process, int(process.stdout.readline()), log)
        assert (
            httpx.get(f"{served.url}/files", trust_env=False, timeout=DEADLINE_SECS).text == "opened"
        )  # now its own files are open
        yield served
    finally:
        process.kill()
        process.communicate()


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed a connection."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass
    return True


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [b"", b"GET /files HTT", b"POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"]
)
def test_many_connections(served: Served, sent: bytes) -> None:
    """With many that say nothing or half a request, others are answered, files can be opened, and the log is short."""
    with contextlib.ExitStack() as stack:
        for number in range(400):
            stack.enter_context(served.connect(sent))
            if number % 100 == 99:
                assert httpx.get(f"{served.url}/files", trust_env=False, timeout=DEADLINE_SECS).text == "opened"
                assert served.open_files() < 256 - 40
        for _ in range(5):
            assert httpx.get(f"{served.url}/files", trust_env=False, timeout=DEADLINE_SECS).text == "opened"
    assert served.log.stat().st_size < 10_000


@pytest.mark.slow
@pytest.mark.parametrize("sent", variants(b"GET /files HTT", long=[b"", b"GET /files HTTP/1.1\r\nHost: a\r\n\r\n"]))
def test_silent_connection(served: Served, sent: bytes) -> None:
    """It is closed after some seconds, though bytes of a head still come, one by one."""
    with served.connect(sent) as connection:
        connection.settimeout(0.5)

        def is_over() -> bool:
            with contextlib.suppress(TimeoutError):
                return is_closed(connection)
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"x" if sent else b"")
            return False

        wait_for("it is closed", is_over, 3 * REQUEST_SECS)


def test_what_is_waited_for() -> None:
    """Time runs while more of a request must come or an answer be taken, not while it is worked on, and then until the next."""
    waits: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()

    async def wait(*_: Any) -> Any:
        waits.put_nowait(future := asyncio.get_running_loop().create_future())
        return await future

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await receive()  # the end of the connection, as beside the work
        await send({})

    async def seen() -> list[float | None]:
        places, found = Places(app, ConnectionLimit(2)), []
        place = places.enter(("10.0.0.1", 7), lambda: None)
        assert place is not None
        request = asyncio.ensure_future(places({"client": ("10.0.0.1", 7)}, wait, wait))
        for answer in ({"more_body": True}, {"more_body": False}, {}, None):
            future = await waits.get()
            found.append(None if place.since is None else place.wait_secs)
            future.set_result(answer)
        await request
        return [*found, place.wait_secs]

    assert asyncio.run(seen()) == [STALLED_SECS, STALLED_SECS, None, STALLED_SECS, REQUEST_SECS]


def test_an_answer_is_handed_on_in_parts() -> None:
    """Each one that the peer takes renews the time: in one piece, a slow peer was taken for one that asks for nothing."""
    start = {"type": "http.response.start", "status": 200}
    large, last = b"0123456789" * 30_000, b"the end"
    sent: list[Any] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(start)
        await send({"type": "http.response.body", "body": large, "more_body": True})
        await send({"type": "http.response.body", "body": large})
        await send({"type": "http.response.body", "body": last})

    async def keep(message: Any) -> None:
        sent.append(message)

    async def answered() -> None:
        places = Places(app, ConnectionLimit(2))
        places.enter(("10.0.0.1", 7), lambda: None)
        await places({"client": ("10.0.0.1", 7)}, lambda: asyncio.sleep(0), keep)

    asyncio.run(answered())
    bodies = [message["body"] for message in sent[1:]]
    assert sent[0] is start
    assert b"".join(bodies) == large + large + last
    assert max(map(len, bodies)) <= 64 << 10
    assert [message.get("more_body", False) for message in sent[1:]] == [*([True] * 5), *([True] * 4), False, False]


@pytest.mark.slow
def test_no_descriptor_is_left(served: Served) -> None:
    """Whoever comes waits, and is served when there is one again; meanwhile the server tries once a second."""
    limits = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (3, 256))
    with served.connect(b"GET /files HTTP/1.1\r\nHost: a\r\n\r\n") as connection:
        wait_for("it has tried", lambda: "nobody is let in" in served.log.read_text())
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, limits)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
    assert served.log.read_text().count("\n") == 1


def test_accept_without_a_descriptor() -> None:
    """asyncio tries as often as the queue is long: it learns of the shortage once, and then that nobody is there."""
    with listen("127.0.0.1", 0) as listener, PausingListener(listener) as server:
        with socket.create_connection(server.getsockname()), no_descriptor_left():
            for _ in range(2):
                with pytest.raises(OSError, match="Too many open files"):
                    server.accept()
                with pytest.raises(BlockingIOError):
                    server.accept()
        server.accept()[0].close()


@pytest.mark.slow
def test_requests_that_are_none(served: Served) -> None:
    """Each is refused; a thousand of them leave a few lines in the log."""
    for _ in range(1000):
        with served.connect(b"\x16\x03\x01 no HTTP\r\n\r\n") as connection:
            assert is_closed(connection)
    assert len(served.log.read_text().splitlines()) < 50
