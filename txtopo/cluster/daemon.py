"""What all daemons share: their log, their HTTP server, and their end.

A daemon that meets an error that it does not expect ends at once, with an exit status that says when: whatever
supervises it starts it again. SIGTERM and SIGINT end it in good order.
"""

from __future__ import annotations

import faulthandler
import importlib.metadata
import json
import logging
import logging.handlers
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from txtopo.errors import ConfigError

EXIT_START = 13
"""The exit status of a daemon that fails at its start; Storm's."""

EXIT_FAILED = 20
"""The exit status of a daemon that an unexpected error ends; Storm's."""

_LOG = logging.getLogger(__name__)
_LOG_BYTES_MAX = 64 << 20
_LOGS_MAX = 5
_GRACE_SECS = 3


class _JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        content = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content)


class _Lines(logging.Formatter):
    """One line for each record; that of an error has its traceback in the same line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        return super().format(record).replace("\n", "\\n")


def log_to(path: Path | None, log_format: str) -> None:
    """Log to standard error, or to a file that is rotated at 64 MiB; five old ones are kept.

    Args:
        path: the file; None: standard error.
        log_format: ``text`` or ``json``.
    """
    handler: logging.Handler = logging.StreamHandler()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES_MAX, backupCount=_LOGS_MAX)
    formatter = _JsonLines() if log_format == "json" else _Lines("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("txtopo").setLevel(logging.INFO)
    # kazoo warns of each attempt to connect, and its debug lines would show credentials.
    logging.getLogger("kazoo").setLevel(logging.ERROR)


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
