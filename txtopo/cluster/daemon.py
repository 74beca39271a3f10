"""What all daemons share: their HTTP server, and their end.

A daemon that meets an error that it does not expect ends at once, with an exit status that says when: whatever
supervises it starts it again. SIGTERM and SIGINT end it in good order.
"""

from __future__ import annotations

import faulthandler
import importlib.metadata
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from txtopo.errors import ConfigError

EXIT_START = 13
"""The exit status of a daemon that fails at its start; Storm's."""

EXIT_FAILED = 20
"""The exit status of a daemon that an unexpected error ends; Storm's."""

_LOG = logging.getLogger(__name__)
_GRACE_SECS = 3


def fail(error: BaseException) -> None:
    """End the process: an error came that nothing expects."""
    _LOG.critical("ends on an unexpected error", exc_info=error)
    logging.shutdown()
    os._exit(EXIT_FAILED)


def version() -> str:
    """Return the version of txtopo."""
    try:
        return importlib.metadata.version("txtopo")
    except importlib.metadata.PackageNotFoundError:
        return "from sources"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, so that a port that is taken is found before anything is announced.

    Raises:
        ConfigError: the address cannot be used.
    """
    try:
        return socket.create_server((host, port), backlog=256)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; is the daemon running already?"
        ) from error


class _Server(uvicorn.Server):
    """Lets requests that wait know of a signal at once: the server ends only when they have."""

    begin_stop: Callable[[], None]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGTERM and SIGINT."""
        self.begin_stop()
        super().handle_exit(sig, frame)


def serve(app: Any, listener: socket.socket, begin_stop: Callable[[], None], stop: Callable[[], None]) -> None:
    """Serve an application until SIGTERM or SIGINT, then call ``stop``.

    Args:
        app: an ASGI application.
        listener: from :func:`listen`.
        begin_stop: called in the signal handler; lets requests that wait for something end.
        stop: ends the daemon in good order.
    """
    faulthandler.enable(sys.stderr)
    # The server raises the signal that ended it once more, for handlers that were there before it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_SECS,
        server_header=False,
    )
    try:
        server = _Server(config)
        server.begin_stop = begin_stop
        server.run(sockets=[listener])
    finally:
        stop()
