"""Logs of daemons and drivers: one line for each record, as text or as JSON, in files that do not grow without bound.

A daemon rotates its file itself (:func:`log_to`), and says the same only so often: anybody who reaches its port can
provoke warnings, and shall not fill its disk. The log of a driver is open in several processes, Spark's JVM among them,
none of which rotates it: its supervisor copies and empties it (:func:`rotate`), and they go on at its new end.

What is not a record, such as the lines of the JVM, goes to the same file as it is. With JSON it goes through a thread
of the driver (:func:`lines_as_json`), so that each line of the file is an object.
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from txtopo.repeated import Repeated
from txtopo.secrecy import without_secrets
from txtopo.topology.output import PRINT, USER_LOGGER

_LOG_BYTES_MAX = 64 << 20
_LOGS_MAX = 5
_LINE_BYTES_MAX = 64 << 10
_REST_SECS = 1.0
_SAME_MAX = 20
_SAME_SECS = 60.0
_ORIGIN = ("component", "task", "txid", "attempt", "epoch", "source")
"""Attributes of records of user code."""


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
        content |= {name: value for name in _ORIGIN if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            content["exception"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(content)


class _Lines(logging.Formatter):
    """One line for each record; that of an error has its traceback in the same line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        return super().format(record).replace("\n", "\\n")


class Throttle(logging.Filter):
    """Lets at most 20 warnings or errors a minute of one line of code through; the next one says how many it left out.

    Args:
        clock: the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._repeated = Repeated(_SAME_SECS, _SAME_MAX, clock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        if not logging.WARNING <= record.levelno < logging.CRITICAL:
            return True
        left_out = self._repeated.due((record.pathname, record.lineno))
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out} times before, which was not logged)"
            record.args = ()
        return left_out is not None


class Reminder:
    """Warns of what lasts: at once, and then once a minute, however often it is found.

    Args:
        logger: where to.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._repeated = Repeated(_SAME_SECS)

    def warn(self, subject: str, message: str, *arguments: object) -> None:
        """Warn of something, unless that was done a moment ago."""
        if self._repeated.due(subject) is not None:
            self._logger.warning(message, *arguments)

    def over(self, subject: str) -> None:
        """Note that it is over: the next time, it is told at once."""
        self._repeated.over(subject)


class Discretion(logging.Filter):
    """Hides secrets in warnings and errors: their texts are others', which may quote settings.

    ``settings`` are a topology's; their secrets are hidden wherever they stand.
    """

    def __init__(self) -> None:
        super().__init__()
        self.settings: Mapping[str, object] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Hide the secrets of a record; return True."""
        if record.levelno >= logging.WARNING:
            record.msg, record.args = without_secrets(record.getMessage(), self.settings), ()
            if record.exc_info:
                traceback = logging.Formatter().formatException(record.exc_info)
                record.exc_text = without_secrets(traceback, self.settings)
        return True


def _formatter(log_format: str) -> logging.Formatter:
    return _JsonLines() if log_format == "json" else _Lines("%(asctime)s %(levelname)s %(name)s: %(message)s")


def log_to(path: Path | None, log_format: str) -> None:
    """Let a daemon log to standard error, or to a file that is rotated at 64 MiB; five old ones are kept.

    Args:
        path: the file; None: standard error.
        log_format: ``text`` or ``json``.
    """
    handler: logging.Handler = logging.StreamHandler()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES_MAX, backupCount=_LOGS_MAX)
    handler.addFilter(Throttle())
    handler.addFilter(Discretion())
    _use(handler, log_format)


@contextlib.contextmanager
def driver_log(log_format: str) -> Iterator[Discretion]:
    """Let a driver log to standard error, also what user code prints.

    Args:
        log_format: ``text`` or ``json``; with JSON, whatever else is written to standard output or error, by whatever
            process that the driver has started, becomes a record for each line.

    Yields:
        Where to put the topology's settings, once they are known.
    """
    discretion = Discretion()
    with contextlib.ExitStack() as stack:
        handler: logging.Handler = logging.StreamHandler()
        if log_format == "json":
            handler = stack.enter_context(lines_as_json())
        # py4j logs connections that a stop closes, with the root logger.
        handler.addFilter(lambda record: Path(record.pathname).parent.name != "py4j")
        handler.addFilter(discretion)
        _use(handler, log_format)
        logging.getLogger(USER_LOGGER).setLevel(PRINT)
        yield discretion


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
    """Turn what this process and its children write to standard output and error into JSON, a record for each line.

    Yields:
        A handler that writes to where standard error went before.
    """
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
            ended.wait(_REST_SECS)  # a child that lives on keeps the pipe open
            handler.setStream(sys.stderr)


def rotate(path: Path, bytes_max: int) -> None:
    """Copy a log to ``NAME.1`` and empty it if it is too large; the processes that write to it go on at its new end.

    Lines that are written between the two are lost.
    """
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > bytes_max:
            shutil.copyfile(path, path.with_name(f"{path.name}.1"))
            os.truncate(path, 0)
