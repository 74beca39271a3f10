"""Holds back the output of Spark's JVM while it starts, and finds out why it did not start."""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator

from py4j.protocol import Py4JJavaError

from txtopo.spark.errors import line_that_matters
from txtopo.text.secrecy import SecretFilter

logger = logging.getLogger(__name__)
logger.addFilter(SecretFilter())  # as of the session's

_LINES_MAX = 400
"""The most lines of a start that are kept."""

_LINES_SHOWN = 10
"""How many of the last lines of a dead JVM the error shows."""

_OUTPUT_ENDS_SECS = 1.0
"""How long to wait for the last output of a dead JVM."""

_HINTS = (
    (r"heap|[Mm]emory|enough space", "see spark.driver.memory, which takes for example 2g"),
    (r"VM option|Unrecognized option|agent library", "see spark.driver.extraJavaOptions and JAVA_TOOL_OPTIONS"),
    (
        r"unresolved dependency|download failed",
        (
            "at its first start Spark downloads packages, such as Delta's, from Maven: allow access to Maven Central, "
            "or to the repository in spark.jars.ivySettings, or name the JARs in spark.jars"
        ),
    ),
    (
        r"BindException|UnknownHost|UnresolvedAddress|sparkDriver",
        "see SPARK_LOCAL_IP, spark.driver.host, spark.driver.bindAddress and spark.driver.port",
    ),
    (r"UnsupportedClassVersion|getSubject|main class", "see JAVA_HOME, SPARK_HOME and the version of Java"),
)
"""Hints by patterns in the error and in the JVM's last lines."""


class StartOutput:
    """Holds back the JVM's standard error while Spark starts, if ``is_silent``: nobody needs it if Spark starts."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent
        self._lines: collections.deque[bytes] = collections.deque(maxlen=_LINES_MAX)
        self._is_starting = True
        self._lock = threading.Lock()
        self._out = 2
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Capture the standard error of a JVM that starts within the context, for the rest of its life."""
        if not self._is_silent:
            yield
            return
        # The JVM inherits descriptor 2 when it is forked, so only the descriptor itself can be replaced. What this
        # process writes meanwhile goes the same way.
        reading, writing = os.pipe()
        saved = os.dup(2)
        self._out = os.dup(saved)
        self._thread = threading.Thread(target=self._copy_lines, args=(reading,), name="txtopo-stderr", daemon=True)
        self._thread.start()
        os.dup2(writing, 2)
        os.close(writing)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)

    def release(self) -> None:
        """Let the output pass from now on, after the start has succeeded."""
        logger.debug("Spark has started\n%s", self._captured())

    def text(self) -> str:
        """Return the output held back, after the start has failed; if the JVM still runs, its output passes now."""
        if self._thread is not None:
            self._thread.join(_OUTPUT_ENDS_SECS)
        return self._captured()

    def _captured(self) -> str:
        with self._lock:
            self._is_starting = False
            text = b"".join(self._lines).decode(errors="replace")
            self._lines.clear()
            return text

    def _copy_lines(self, reading: int) -> None:
        words = TracebackFilter()
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                with self._lock:
                    if self._is_starting:
                        self._lines.append(line)
                    else:
                        self._write(words.without(line))
            self._write(words.lines_held())

    def _write(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            os.write(self._out, line)


def why_it_did_not_start(error: Exception, output: str) -> str:
    """Return why Spark did not start, with a hint; if its JVM died, the JVM's last lines follow."""
    cause, advice = line_that_matters(str(error)), ""
    if not isinstance(error, Py4JJavaError):  # the JVM died before it could report an error to Python
        output, _, _ = output.partition(_HEADER.decode())
        lines = [line.rstrip() for line in output.splitlines() if line.strip() and not line.startswith("\tat ")]
        advice = "".join(f"\n  {line}" for line in lines[-_LINES_SHOWN:])
    hints = [hint for pattern, hint in _HINTS if re.search(pattern, cause + advice)]
    return "; ".join([f"Spark did not start: {cause}", *hints[:1]]) + advice


_HEADER = b"Traceback (most recent call last):"
_PARTING = re.compile(
    rb'Traceback \(most recent call last\):|  File "[^"]*(?:/pyspark/|pyspark\.zip)|    '
    rb"|(?:EOFError|BrokenPipeError|ConnectionResetError)\b"
)
_WAITING_LINES_MAX = 400
"""The most lines that are held back while tracebacks are incomplete."""


class TracebackFilter:
    """Removes from lines the useless tracebacks that Python workers print when Spark closes their connections.

    A lost or cancelled job leaves running tasks behind. Spark closes their connections, and each worker prints a
    traceback of Spark's code. Several workers print at once, so the lines of their tracebacks are interleaved. All
    other tracebacks stay whole.
    """

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._open = 0
        """The number of incomplete tracebacks."""

    def without(self, line: bytes) -> list[bytes]:
        """Take the next line; return the lines to print now."""
        if line.startswith(_HEADER):
            self._open += 1
        elif not self._open:
            return [line]
        elif not line[:1].isspace():
            self._open -= 1
        self._waiting.append(line)
        if self._open and len(self._waiting) < _WAITING_LINES_MAX:
            return []
        is_parting = all(_PARTING.match(lines) for lines in self._waiting)
        lines = self.lines_held()
        return [] if is_parting else lines

    def lines_held(self) -> list[bytes]:
        """Return the lines that are lines back; call this after the last line."""
        lines, self._waiting, self._open = self._waiting, [], 0
        return lines
