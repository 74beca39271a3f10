"""Extracts the relevant line from Spark's error messages, and detects executors whose Python can't run tasks.

Spark prints 60 lines for one exception in a task: the scheduler's message, the Java stack, the same again as a cause,
and the Python traceback in each of them.

A lost job usually runs again, because most are lost with an executor. But if an executor can't start tasks at all, for
example because it can't import a module, every job would be lost. Then the run fails with a remedy.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import attrs
from pyspark.errors import PySparkException

from txtopo.errors import ConfigError

LINE_MAX = 400
"""The longest extracted line."""

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)$')
_SPARK = ("/pyspark/", "/py4j/", "pyspark.zip")
_LIBRARIES = (*_SPARK, "/cloudpickle/", "/pyarrow/", "<frozen ")
_CAUSE = "Caused by: "
_CALL = re.compile(r"^An error occurred while calling \S+$")
_SCHEDULER = re.compile(r"^.*?Job aborted due to stage failure: (?:.*?most recent failure: )?(?:Lost task .*?\): )?")
_WRAPPERS = (
    "org.apache.spark.SparkException: ",
    "org.apache.spark.api.python.PythonException: ",
    "org.apache.spark.sql.catalyst.ExtendedAnalysisException: ",
    "org.apache.spark.sql.AnalysisException: ",
    "java.util.concurrent.ExecutionException: ",
    "java.lang.RuntimeException: ",
)
_NO_DELTA = re.compile(
    r"ailed to find (?:the )?data source: `?delta\b|DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG"
    r"|io\.delta\.sql\.DeltaSparkSessionExtension"
)
_DELTA_REMEDY = (
    "this Spark session has no Delta: set uses_delta = True in the class of the component, or Config(spark_delta=True)"
)


@attrs.frozen
class Frame:
    """A frame of a traceback."""

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}, in {self.name}"


@attrs.frozen
class PythonError:
    """A Python exception in a task, parsed from Spark's message."""

    raised: str
    """The exception's line: its qualified name and its message."""
    frames: tuple[Frame, ...]
    """The frames of the traceback, the innermost last."""

    @property
    def is_of_spark(self) -> bool:
        """Whether Spark's Python code raised it."""
        return not self.frames or any(part in self.frames[-1].file for part in _SPARK)

    def __str__(self) -> str:
        """Return the exception in one line, with the innermost place outside of libraries."""
        places = [frame for frame in self.frames if not in_library(frame.file)]
        return f"{self.raised} ({places[-1]})" if places else self.raised


def line_that_matters(text: str) -> str:
    """Return the relevant line of the text of a Spark exception.

    Of a Python exception in a task, that is the last line of the traceback, with the place in user code; of a Java
    exception, it is the innermost cause.
    """
    if _NO_DELTA.search(text):
        return _DELTA_REMEDY
    error = python_error(text)
    return _cut(str(error) if error is not None else _of_java(text))


@contextlib.contextmanager
def unhidden_errors() -> Iterator[None]:
    """Raise pyspark's error where it hides one.

    If no descriptor is left for the socket that results come by, it fails again while it closes what it has not opened.
    """
    try:
        yield
    except UnboundLocalError as error:
        if isinstance(error.__context__, PySparkException):
            raise error.__context__ from None
        raise


def in_library(path: str) -> bool:
    """Return whether a source file belongs to Spark or to a library between Spark and user code."""
    return any(part in path for part in _LIBRARIES)


def python_error(text: str) -> PythonError | None:
    """Parse the Python exception of a task from the text of a Spark exception; None if it contains none."""
    _, separator, traceback_text = text.partition(_TRACEBACK)
    if not separator:
        return None
    frames, raised = [], None
    for line in traceback_text.splitlines():
        frame = _FRAME.match(line)
        if line.startswith(("\tat ", _CAUSE)):
            break
        if frame is not None:
            frames.append(Frame(frame["file"], int(frame["line"]), frame["name"]))
        elif raised is None and line and not line[0].isspace():
            raised = line
        elif line.startswith(_TRACEBACK):  # of another exception, raised while the first was handled
            raised = None
    return PythonError(raised, tuple(frames)) if raised is not None else None


def _of_java(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if not line.startswith(("\tat ", "\t..."))]
    lines = [line for line in lines if line]
    if len(lines) > 1 and _CALL.match(lines[0]):  # Py4J's line; the exception's is the next one
        del lines[0]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    line = causes[-1] if causes else next(iter(lines), "Spark gives no reason")
    line = _SCHEDULER.sub("", line.removeprefix(": "))
    for wrapper in _WRAPPERS:
        line = line.removeprefix(wrapper)
    return line.rstrip(";")  # the lines after it contain the query plan


def _cut(line: str) -> str:
    return line if len(line) <= LINE_MAX else f"{line[:LINE_MAX]}…"


@attrs.frozen
class _Symptom:
    """A pattern in an error, and its remedy, a format string for the pattern's groups."""

    pattern: re.Pattern[str]
    remedy: str


_SYMPTOMS = (
    _Symptom(
        re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'"),
        "the executors' Python can't import {0!r}: if it is an installed package, install it on the executors too, or "
        "ship it with spark.archives; if it is your own, it must be source files (.py), imported before the run",
    ),
    _Symptom(
        re.compile(r"PYTHON_VERSION_MISMATCH\D*(\d+\.\d+)\D+(\d+\.\d+)"),
        "the executors run Python {0}, but the driver runs {1}: set PYSPARK_PYTHON to a Python on the executors that "
        "has the driver's minor version",
    ),
    _Symptom(
        re.compile(r'Cannot run program "([^"]*)".*No such file'),
        "the executors have no Python at {0}: set PYSPARK_PYTHON to the path of theirs",
    ),
    _Symptom(
        re.compile(r'Cannot run program "([^"]*)".*error=\d+, ([\w ]+)'),
        "the executors can't run {0} ({1}): set PYSPARK_PYTHON to the path of their Python",
    ),
)


def error_of_python(text: str) -> ConfigError | None:
    """Return an error with a remedy if the text of a lost job shows that the executors' Python is wrong, else None."""
    for symptom in _SYMPTOMS:
        match = symptom.pattern.search(text)
        if match is not None:
            return ConfigError(symptom.remedy.format(*match.groups()))
    return None
