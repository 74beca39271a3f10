"""A Spark that does not start: why, in one line, out of what its JVM has said before it died."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import threading
from collections.abc import Iterable, Iterator

from py4j.protocol import Py4JJavaError

from txtopo.spark.errors import line_that_matters

_CHATTER = re.compile(
    rb"Using incubator modules|Using Spark's default log4j profile|Setting Spark log level|Setting default log level"
    rb"|To adjust logging level|^:: |^Ivy Default Cache|^The jars for the packages"
    rb"|^[\w.-]+#[\w.-]+ added as a dependency|^\t(?:[\w.-]+#[\w.-]+;|confs|found|\[SUCCESSFUL|---|\||:: )"
    rb"|^downloading |^\s*\d+ artifacts copied|^\s*$|jars/ivy-"
    rb"|^\s*:::: WARNINGS|^\s*(?:Host \S+ not found|Server access error)"  # a repository that others stood in for
)
"""What a JVM says when Spark starts in it and fetches packages, and nobody needs."""

_LINES_MAX = 400
"""Lines of a start that are kept."""

_OUTPUT_ENDS_SECS = 1.0
"""How long to wait for the last words of a JVM that has died."""


def _line(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"^(?P<what>.*(?:{pattern}).*)$", re.MULTILINE)


_CAUSES = (
    re.compile(r"(?P<what>unresolved dependency: [^\],]*)"),
    _line("heap size|Unrecognized (?:VM )?option|Could not find or load main class"),
    _line("insufficient memory|Could not reserve enough space|Cannot allocate memory"),
    _line("UnsupportedClassVersionError"),
    re.compile(r"Error occurred during initialization of VM\s+(?P<what>.+)"),
    re.compile(r'Exception in thread "main" (?P<what>.+)'),
    _line("[Ee]rror: |No such file or directory|Permission denied"),
)
"""What tells why a JVM has died before Python could talk to it; the first that is found."""

_HINTS = (
    (r"heap|[Mm]emory|enough space", "see spark.driver.memory, which takes for example 2g"),
    (r"VM option|Unrecognized option|agent library", "see spark.driver.extraJavaOptions and JAVA_TOOL_OPTIONS"),
    (
        r"unresolved dependency|download failed",
        (
            "Spark fetches packages, Delta's too, from Maven at its first start with them: let it reach Maven Central, "
            "or what spark.jars.ivySettings names, or give the JARs by spark.jars"
        ),
    ),
    (
        r"BindException|UnknownHost|UnresolvedAddress|sparkDriver",
        "see SPARK_LOCAL_IP, spark.driver.host, spark.driver.bindAddress and spark.driver.port",
    ),
    (r"UnsupportedClassVersion|getSubject|main class", "see JAVA_HOME, SPARK_HOME and the version of Java"),
)
"""What to look at, by what the cause says."""


class StartOutput:
    """What a JVM writes to standard error: held back while Spark starts in it, for a start that fails is one line.

    Args:
        is_held: whether it is held back, and its chatter left out; otherwise it goes where it went.
    """

    def __init__(self, *, is_held: bool) -> None:
        self._is_held = is_held
        self._lines: collections.deque[bytes] = collections.deque(maxlen=_LINES_MAX)
        self._is_starting = True
        self._lock = threading.Lock()
        self._out = 2
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Give the JVM that starts within a standard error that comes by here, for as long as it lives."""
        if not self._is_held:
            yield
            return
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
        """Write what was held back: the start has succeeded."""
        with self._lock:
            self._is_starting = False
            self._write(self._lines)
            self._lines.clear()

    def text(self) -> str:
        """Return what was held back: the start has failed. A JVM that lives nevertheless may print again."""
        if self._thread is not None:
            self._thread.join(_OUTPUT_ENDS_SECS)
        with self._lock:
            self._is_starting = False
            return b"".join(self._lines).decode(errors="replace")

    def _copy_lines(self, reading: int) -> None:
        words = PartingWords()
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                with self._lock:
                    if is_chatter(line):
                        continue
                    if self._is_starting:
                        self._lines.append(line)
                    else:
                        self._write(words.without(line))
            self._write(words.rest())

    def _write(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            os.write(self._out, line)


def is_chatter(line: bytes) -> bool:
    """Whether a line of a JVM that starts is one that nobody needs."""
    return _CHATTER.search(line) is not None


def why_it_did_not_start(error: Exception, output: str) -> str:
    """Return in one line why Spark did not start, and what to look at.

    Args:
        error: what Python was told.
        output: what the JVM has written.
    """
    said = str(error)
    cause = line_that_matters(said)
    if not isinstance(error, Py4JJavaError):  # the JVM has died before it could tell
        found = (pattern.search(output) for pattern in _CAUSES)
        cause = next((match["what"].strip() for match in found if match is not None), cause)
    hints = [hint for pattern, hint in _HINTS if re.search(pattern, cause)]
    return "; ".join([f"Spark did not start: {cause}", *hints[:1]])


_HEADER = b"Traceback (most recent call last):"
_PARTING = re.compile(
    rb'Traceback \(most recent call last\):|  File "[^"]*(?:/pyspark/|pyspark\.zip)|    '
    rb"|(?:EOFError|BrokenPipeError|ConnectionResetError)\b"
)
_HELD_LINES_MAX = 400
"""Lines that are held back while tracebacks are not at their ends."""


class PartingWords:
    """Leaves out of lines what Python workers print when Spark leaves them; other tracebacks stay whole.

    A job that is lost or cancelled leaves tasks of its own behind. Spark closes their connections, and their workers
    print how they have found out, several at once: lines of their tracebacks come in turns. They are of Spark's own
    code, and tell nobody anything.
    """

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._open = 0
        """Tracebacks that have begun and not ended."""

    def without(self, line: bytes) -> list[bytes]:
        """Return what is to be printed now that this line has come."""
        if line.startswith(_HEADER):
            self._open += 1
        elif not self._open:
            return [line]
        elif not line[:1].isspace():
            self._open -= 1
        self._held.append(line)
        if self._open and len(self._held) < _HELD_LINES_MAX:
            return []
        is_parting = all(_PARTING.match(held) for held in self._held)
        held = self.rest()
        return [] if is_parting else held

    def rest(self) -> list[bytes]:
        """Return what is held back, at the end of all lines."""
        held, self._held, self._open = self._held, [], 0
        return held
