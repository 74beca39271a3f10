"""Logs of daemons and drivers: one line for each record, as text or as JSON, in files that do not grow without bound.

A daemon rotates its file itself (:func:`log_to`), and limits repeated warnings: anybody who reaches its port can
provoke them, and must not fill its disk. Several processes write a driver's log, Spark's JVM among them, and none of
them can rotate it. So its supervisor copies and truncates it (:func:`rotate`), and they continue at its new end.

Output that is not a record, such as the JVM's lines, goes to the same file unchanged. With JSON a thread of the driver
turns each such line into an object (:func:`lines_as_json`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from txtopo.text.printable import escaped
from txtopo.text.repeated import LOGGED_MAX, LOGGED_SECS, Repeated
from txtopo.text.secrecy import SecretFilter
from txtopo.topology.user_code.output import PRINT, USER_LOGGER

_LOG_BYTES_MAX = 64 << 20
"""A daemon keeps at most this much of its log six times: 384 MiB."""
_LOGS_MAX = 5
"""Files beside the one that is written: each daemon and each driver has as many, on the same disk."""
_LINE_BYTES_MAX = 64 << 10
"""A longer line of a driver is cut into several."""
_REST_SECS = 1.0
"""How long the end waits for the last lines in the pipe."""
_ORIGIN = ("component", "task", "txid", "attempt", "epoch", "source")
"""Attributes of records of user code."""


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        content = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        content |= {name: value for name in _ORIGIN if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            content["exception"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(content)


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record), keep="\t")


class Throttle(logging.Filter):
    """Lets through at most 20 warnings or errors a minute of one line of code; the next says how many it left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._repeated = Repeated(LOGGED_SECS, LOGGED_MAX, clock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        # A CRITICAL record is the last of its process, and INFO records tell of decisions: strangers provoke neither.
        if not logging.WARNING <= record.levelno < logging.CRITICAL:
            return True
        left_out = self._repeated.due((record.pathname, record.lineno))
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out} times before, which was not logged)"
            record.args = ()
        return left_out is not None


class RepeatedWarning:
    """Warns of a lasting fault at once, and then once a minute, however often it is found."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._repeated = Repeated(LOGGED_SECS)

    def warn(self, subject: str, message: str, *arguments: object) -> None:
        """Warn, unless the last warning about the subject is less than a minute old."""
        if self._repeated.due(subject) is not None:
            self._logger.warning(message, *arguments)

    def clear(self, subject: str) -> None:
        """Record that the fault is over: if it comes back, warn at once."""
        self._repeated.clear(subject)


def _formatter(log_format: str) -> logging.Formatter:
    return _JsonLines() if log_format == "json" else _Lines("%(asctime)s %(levelname)s %(name)s: %(message)s")


def log_to(path: Path | None, log_format: str) -> None:
    """Let a daemon log ``text`` or ``json`` to standard error, or to a file that rotates at 64 MiB (5 old ones)."""
    handler: logging.Handler = logging.StreamHandler()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES_MAX, backupCount=_LOGS_MAX)
    handler.addFilter(Throttle())
    handler.addFilter(SecretFilter())
    _use(handler, log_format)


@contextlib.contextmanager
def driver_log(log_format: str) -> Iterator[SecretFilter]:
    """Let a driver log to standard error, with the output of user code; see :func:`lines_as_json` for ``json``.

    Yields:
        The filter whose ``settings`` are to be set once the topology's are known.
    """
    secret_filter = SecretFilter()
    with contextlib.ExitStack() as stack:
        handler: logging.Handler = logging.StreamHandler()
        if log_format == "json":
            handler = stack.enter_context(lines_as_json())
        # py4j logs connections that a stop closes, with the root logger.
        handler.addFilter(lambda record: Path(record.pathname).parent.name != "py4j")
        handler.addFilter(secret_filter)
        _use(handler, log_format)
        logging.getLogger(USER_LOGGER).setLevel(PRINT)
        yield secret_filter


def _use(handler: logging.Handler, log_format: str) -> None:
    handler.setFormatter(_formatter(log_format))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("txtopo").setLevel(logging.INFO)
    # kazoo warns of each attempt to connect, and its debug lines would show credentials.
    logging.getLogger("kazoo").setLevel(logging.ERROR)


@contextlib.contextmanager
def lines_as_json() -> Iterator[logging.Handler]:
    """Turn standard output and error of this process and its children into JSON, a record for each line.

    Yields:
        A handler that writes to the former standard error.
    """
    # The descriptors, not sys.stdout: the JVM inherits them. What Python still buffers belongs to the old ones.
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    before = [os.dup(descriptor) for descriptor in (1, 2)]
    for descriptor in (1, 2):
        os.dup2(write, descriptor)
    os.close(write)
    with os.fdopen(os.dup(before[1]), "w", buffering=1) as out:
        handler: logging.StreamHandler[Any] = logging.StreamHandler(out)
        handler.setFormatter(_formatter("json"))
        ended = threading.Event()

        def pass_on() -> None:
            with os.fdopen(read, "rb") as lines:
                while line := lines.readline(_LINE_BYTES_MAX):
                    text = line.decode(errors="replace").rstrip()
                    if text:
                        handler.handle(logging.LogRecord("output", logging.INFO, "", 0, text, None, None))
            ended.set()

        threading.Thread(target=pass_on, name="output", daemon=True).start()
        try:
            yield handler
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, original in enumerate(before, 1):
                os.dup2(original, descriptor)
                os.close(original)
            ended.wait(_REST_SECS)  # bounded: a child that lives on, such as a JVM, keeps the pipe open
            handler.setStream(sys.stderr)


def rotate(path: Path, bytes_max: int) -> None:
    """Copy a log that is too large to ``NAME.1``, and truncate it: what is written in between is lost."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > bytes_max:
            shutil.copyfile(path, path.with_name(f"{path.name}.1"))
            os.truncate(path, 0)
