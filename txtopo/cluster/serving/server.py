"""What all daemons share: their HTTP server, and their end.

A daemon ends at once on an unexpected error, and its exit status says whether that was at the start or later: whatever
supervises it starts it again. SIGTERM and SIGINT end it in good order.

A :class:`~txtopo.network.connections.Gate` bounds its connections, so that a client that opens many, with the token or
without, leaves file descriptors for ZooKeeper and places for others::

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
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from txtopo.cluster.logs import Reminder
from txtopo.errors import ConfigError
from txtopo.files.durable import is_shortage
from txtopo.network.connections import REQUEST_SECS, Connection, Gate, backlog, connections_max

EXIT_START = 13
"""The exit status of a daemon that fails at its start; Storm's."""

EXIT_FAILED = 20
"""The exit status of a daemon that an unexpected error ends; Storm's."""

_LOG = logging.getLogger(__name__)
_GRACE_SECS = 3


def fail(error: BaseException) -> None:
    """End the process on an unexpected error."""
    _LOG.critical("ends on an unexpected error", exc_info=error)
    logging.shutdown()
    os._exit(EXIT_FAILED)  # on any thread; sys.exit would end only the calling one


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket: a daemon must know that the port is free before it announces itself.

    Raises:
        ConfigError: the address cannot be used.
    """
    try:
        return socket.create_server((host, port), backlog=backlog())
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; is the daemon running already?"
        ) from error


class Patient(socket.socket):
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


class _Together:
    """A transport that holds one write back until the next, or until the event loop comes round.

    The head and the body of an answer are two writes. Sent one by one, the second system call and the reader's second
    wake-up are a quarter of what a small answer costs.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send what is held with this, or hold this."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held + data)
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Send what is held, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        held, self._held = self._held, b""
        if held:
            self._transport.write(held)


class _Protocol(H11Protocol):
    """A connection that tells the gate what it waits for."""

    def __init__(self, *arguments: Any, gate: Gate, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._gate = gate
        self._place: Connection | None = None
        self._is_idle = True
        self._is_writing_paused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = _Together(transport, self.loop)  # type: ignore[assignment]  # it passes the rest on
        # abort(), not close(): close() first waits until the peer has taken all data.
        self._place = self._gate.enter(self.client[0] if self.client else "", transport.abort)
        if self._place is None:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._place is not None:
            self._gate.leave(self._place)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._tell()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._tell()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._is_writing_paused = True
        self._tell()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_writing_paused = False
        self._tell()

    def _tell(self) -> None:
        if self._place is None:
            return
        was_idle, self._is_idle = self._is_idle, self.cycle is None or self.cycle.response_complete
        if not self._is_idle:
            wait = self._gate.awaits if self.cycle.more_body or self._is_writing_paused else self._gate.works
            wait(self._place)
        elif not was_idle:
            self._gate.idles(self._place)


class _Server(uvicorn.Server):
    """Sweeps connections, and on a signal tells waiting requests at once, because the server ends only after them."""

    begin_stop: Callable[[], None]
    gate: Gate
    reminder = Reminder(_LOG)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin; a shortage is told once a minute, not with a traceback every second."""
        asyncio.get_running_loop().set_exception_handler(self._on_error)
        await super().startup(sockets)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and is_shortage(error):
            self.reminder.warn("accept", "nobody is let in until this process can open files again: %s", error)
        else:
            loop.default_exception_handler(context)

    async def on_tick(self, counter: int) -> bool:
        """Look after connections, ten times a second; return whether to end."""
        self.gate.sweep()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.begin_stop()
        super().handle_exit(sig, frame)


def serve(app: Any, listener: socket.socket, begin_stop: Callable[[], None], stop: Callable[[], None]) -> None:
    """Serve an ASGI application until SIGTERM or SIGINT, then call ``stop``, which ends the daemon in good order.

    The signal handler calls ``begin_stop``, which must only set a flag: it ends requests that wait.
    """
    faulthandler.enable(sys.stderr)
    # After its end uvicorn raises the signal once more for the handlers before its own; the default one would kill the
    # process before ``stop``.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    gate = Gate(connections_max())
    config = uvicorn.Config(
        app,
        http=partial(_Protocol, gate=gate),  # type: ignore[arg-type]  # it is only called
        ws="none",
        backlog=backlog(),
        timeout_keep_alive=int(REQUEST_SECS),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_SECS,
        server_header=False,
    )
    try:
        server = _Server(config)
        server.begin_stop, server.gate = begin_stop, gate
        server.run(sockets=[Patient(listener)])
    finally:
        stop()
