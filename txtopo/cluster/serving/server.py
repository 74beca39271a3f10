"""What all daemons share: their HTTP server, and their end.

A daemon ends at once on an unexpected error, and its exit status says whether that was at the start or later: whatever
supervises it starts it again. SIGTERM and SIGINT end it in good order.

A :class:`~txtopo.network.connections.ConnectionLimit` bounds its connections, so that a client that opens many, with
the token or without, leaves file descriptors for ZooKeeper and places for others::

    connected ─▶ idle ──head of a request──▶ its body is awaited ──all of it──▶ it is worked on
                  ▲  10 s, or displaced         30 s without a byte             as long as it takes
                  └──────────────── answered ─── 30 s in which nothing of it is taken
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from txtopo.cluster.logs import RepeatedWarning
from txtopo.errors import ConfigError
from txtopo.files.durable import is_shortage
from txtopo.network.connections import REQUEST_SECS, Connection, ConnectionLimit, backlog, connections_max

EXIT_START = 13
"""The exit status of a daemon that fails at its start; Storm's."""

EXIT_FAILED = 20
"""The exit status of a daemon that an unexpected error ends; Storm's."""

_Receive = Callable[[], Awaitable[Any]]
_Send = Callable[[Any], Awaitable[None]]

_LOG = logging.getLogger(__name__)
_REMINDER = RepeatedWarning(_LOG)
_GRACE_SECS = 3
"""How long a daemon that ends lets requests finish."""
_PART_BYTES = 64 << 10
"""The most bytes of an answer that are handed on at once: uvicorn waits for the peer only before the next ones."""
_SWEEP_SECS = 0.1
"""How often slow connections are looked for."""


def fail(error: BaseException) -> None:
    """End the process on an unexpected error."""
    _LOG.critical("ends on an unexpected error", exc_info=error)
    logging.shutdown()
    os._exit(EXIT_FAILED)  # on any thread; sys.exit would end only the calling one


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, as a daemon must have its port before it announces itself; ConfigError if it can't."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=backlog())
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; is the daemon running already?"
        ) from error


class PausingListener(socket.socket):
    """A listening socket, in place of another one, that spares asyncio an endless effort.

    After an ``accept`` for which no file descriptor is left, asyncio pauses for a second. But first it tries as often
    as the queue is long, and each time it starts a timer and calls the exception handler.
    """

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(fileno=listener.detach())
        self._has_failed = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; after one that failed, say once that nobody is there."""
        if self._has_failed:
            self._has_failed = False
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as error:
            self._has_failed = is_shortage(error)
            raise


class _CoalescedWrites:
    """A transport that holds one write back until the next, or until the event loop comes round.

    The head and the body of an answer are two writes. Sent one by one, the second system call and the reader's second
    wake-up are a quarter of what a small answer costs.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unread = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send what waits with this, or let this wait."""
        if self._unread:
            waiting, self._unread = self._unread, b""
            self._transport.write(waiting + data)
        elif data:
            self._unread = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Send what waits, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        waiting, self._unread = self._unread, b""
        if waiting:
            self._transport.write(waiting)


class Places:
    """What the limit knows of each connection, told from both sides of uvicorn.

    The protocol below it sees connections come and go, and the application above it what is waited for, as ASGI says:
    ``receive`` waits for more of a request, ``send`` until the peer takes more of the answer.
    """

    def __init__(self, app: Any, limit: ConnectionLimit) -> None:
        self._app = app
        self._limit = limit
        self._by_client: dict[tuple[str, int], Connection] = {}
        """By the address and port of the other side."""

    def enter(self, client: Sequence[Any] | None, close: Callable[[], object]) -> Connection | None:
        """Let a connection in; None: there is no place, or the other side is gone already."""
        if client is None:
            return None
        place = self._limit.enter(client[0], close)
        if place is not None:
            self._by_client[client[0], client[1]] = place
        return place

    def leave(self, place: Connection) -> None:
        """Forget a connection that is closed."""
        self._limit.leave(place)
        self._by_client = {
            client: connection for client, connection in self._by_client.items() if connection is not place
        }

    async def __call__(self, scope: Any, receive: _Receive, send: _Send) -> None:
        """Answer a request."""
        place = self._by_client.get(scope["client"])
        if place is None:  # it is closed already
            await self._app(scope, receive, send)
            return
        limit, has_more = self._limit, True

        async def receive_and_tell() -> Any:
            nonlocal has_more
            if not has_more:  # now only the end of the connection is waited for, beside the work
                return await receive()
            limit.awaits(place)
            message = await receive()
            has_more = message.get("more_body", False)
            limit.works(place)
            return message

        async def send_and_tell(message: Any) -> None:
            for part in _parts(message):
                limit.awaits(place)
                await send(part)
                limit.works(place)

        limit.works(place)
        try:
            await self._app(scope, receive_and_tell, send_and_tell)
        finally:
            limit.idles(place)


def _parts(message: Any) -> Iterator[Any]:
    """Divide a large body: in one piece it would count as taken at once, and its peer as idle while it takes it."""
    body = message.get("body", b"")
    last = max(0, len(body) - 1) // _PART_BYTES * _PART_BYTES
    for start in range(0, last, _PART_BYTES):
        yield {**message, "body": body[start : start + _PART_BYTES], "more_body": True}
    yield {**message, "body": body[last:]} if last else message


class _LimitedConnection(asyncio.Protocol):
    def __init__(self, inner: asyncio.Protocol, places: Places) -> None:
        self._inner = inner
        self._places = places
        self._place: Connection | None = None
        self.data_received = inner.data_received  # type: ignore[method-assign]  # passed on as they are
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let a connection in, or abort it."""
        assert isinstance(transport, asyncio.Transport), "a TCP connection's"
        self._inner.connection_made(_CoalescedWrites(transport, asyncio.get_running_loop()))  # type: ignore[arg-type]  # it passes the rest on
        # abort(), not close(): close() first waits until the peer has taken all data.
        self._place = self._places.enter(transport.get_extra_info("peername"), transport.abort)
        if self._place is None:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place away."""
        if self._place is not None:
            self._places.leave(self._place)
        self._inner.connection_lost(exc)


def serve(app: Any, listener: socket.socket, begin_stop: Callable[[], None], stop: Callable[[], None]) -> None:
    """Serve an ASGI application until SIGTERM or SIGINT, then call ``stop``, which ends the daemon in good order.

    On a signal ``begin_stop`` is called on the server's thread: it ends requests that wait.
    """
    faulthandler.enable(sys.stderr)
    # After its end uvicorn raises the signal once more for the handlers before its own; the default one would kill the
    # process before ``stop``.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    limit = ConnectionLimit(connections_max())
    places = Places(app, limit)
    config = uvicorn.Config(
        places,
        http=lambda **given: _LimitedConnection(H11Protocol(**given), places),  # type: ignore[arg-type]  # it is only called
        ws="none",
        backlog=backlog(),
        timeout_keep_alive=int(REQUEST_SECS),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_SECS,
        server_header=False,
        proxy_headers=False,
    )
    try:
        asyncio.run(_serve(uvicorn.Server(config), PausingListener(listener), limit, begin_stop))
    finally:
        stop()


async def _serve(
    server: uvicorn.Server, listener: socket.socket, limit: ConnectionLimit, begin_stop: Callable[[], None]
) -> None:
    asyncio.get_running_loop().set_exception_handler(_on_error)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.should_exit and not serving.done():
        limit.sweep()
        await asyncio.wait([serving], timeout=_SWEEP_SECS)
    begin_stop()  # at once, because the server ends only after requests that wait
    await serving


def _on_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell a shortage once a minute, not with a traceback every second."""
    error = context.get("exception")
    if isinstance(error, OSError) and is_shortage(error):
        _REMINDER.warn("accept", "nobody is let in until this process can open files again: %s", error)
    else:
        loop.default_exception_handler(context)
