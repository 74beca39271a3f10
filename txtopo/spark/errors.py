"""What Spark says when something fails, cut to the line that matters.

Spark prints sixty lines for one exception of a task: in the words of the scheduler, with the stack of Java, once
more as a cause, and with the traceback of Python in each of them.

What a lost job tells of the executors' Python counts when no other job could do better. A job that is lost is run
again, for most are lost with an executor. One whose tasks can't even start is lost for ever: there the run ends, and
says what to do.
"""

from __future__ import annotations

import re

import attrs

from txtopo.errors import ConfigError

LINE_MAX = 400
"""Characters of a line that is shown."""

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
    "this Spark session has no Delta: write uses_delta = True in the class of the component, or "
    "Config(spark_delta=True); see docs/guides/dataframes.md"
)


@attrs.frozen
class Frame:
    """A frame of a traceback."""

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        """Return the place in words."""
        return f"{self.file}, line {self.line}, in {self.name}"


@attrs.frozen
class PythonError:
    """What Python has raised in a task, as Spark prints it.

    Args:
        raised: the exception's own line: its name, with its module's, and its message.
        frames: those of the traceback, the innermost last.
    """

    raised: str
    frames: tuple[Frame, ...]

    @property
    def is_of_spark(self) -> bool:
        """Whether Spark's own Python has raised it, whoever had called it."""
        return not self.frames or any(part in self.frames[-1].file for part in _SPARK)

    def __str__(self) -> str:
        """Return it in one line, with the innermost place that is no library's."""
        slots = [frame for frame in self.frames if not in_library(frame.file)]
        return f"{self.raised} ({slots[-1]})" if slots else self.raised


def line_that_matters(text: str) -> str:
    """Return what went wrong, in one line, out of the text of an exception of Spark's.

    Of Python's exceptions in a task it is the last line of the traceback, with the place in your code; of Java's the
    innermost cause.

    Args:
        text: ``str()`` of the exception.
    """
    if _NO_DELTA.search(text):
        return _DELTA_REMEDY
    error = python_error(text)
    return _cut(str(error) if error is not None else _of_java(text))


def in_library(path: str) -> bool:
    """Whether a source file is of Spark, or of what Spark calls Python by."""
    return any(part in path for part in _LIBRARIES)


def python_error(text: str) -> PythonError | None:
    """Return what Python has raised in a task, out of the text of an exception of Spark's; None if that was Java.

    Args:
        text: ``str()`` of the exception.
    """
    _, found, rest = text.partition(_TRACEBACK)
    if not found:
        return None
    frames, raised = [], None
    for line in rest.splitlines():
        frame = _FRAME.match(line)
        if line.startswith(("\tat ", _CAUSE)):
            break
        if frame is not None:
            frames.append(Frame(frame["file"], int(frame["line"]), frame["name"]))
        elif raised is None and line and not line[0].isspace():
            raised = line
        elif line.startswith(_TRACEBACK):  # of an exception that was raised while this one was handled
            raised = None
    return PythonError(raised, tuple(frames)) if raised is not None else None


def _of_java(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if not line.startswith(("\tat ", "\t..."))]
    lines = [line for line in lines if line]
    if len(lines) > 1 and _CALL.match(lines[0]):
        del lines[0]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    line = causes[-1] if causes else next(iter(lines), "Spark does not say what")
    line = _SCHEDULER.sub("", line.removeprefix(": "))
    for wrapper in _WRAPPERS:
        line = line.removeprefix(wrapper)
    return line.rstrip(";")  # a plan follows in further lines


def _cut(line: str) -> str:
    return line if len(line) <= LINE_MAX else f"{line[:LINE_MAX]}…"


@attrs.frozen
class _Symptom:
    """What tells of a cause, and what to say then, with what the pattern's groups have found."""

    pattern: re.Pattern[str]
    remedy: str


_SYMPTOMS = (
    _Symptom(
        re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'"),
        "the executors' Python can't import {0!r}: if it is a package that is installed here, install it there, or "
        "bring it with spark.archives; if it is your own, it must be sources (.py) that are imported before the run",
    ),
    _Symptom(
        re.compile(r"PYTHON_VERSION_MISMATCH\D*(\d+\.\d+)\D+(\d+\.\d+)"),
        "the executors run Python {0}, and the driver {1}: set PYSPARK_PYTHON to a Python of the driver's minor "
        "version that the executors have",
    ),
    _Symptom(
        re.compile(r'Cannot run program "([^"]*)".*No such file'),
        "the executors have no Python at {0}: set PYSPARK_PYTHON to where they have one",
    ),
)


def error_of_python(text: str) -> ConfigError | None:
    """Return what is wrong with the executors' Python, if the text of a lost job tells so."""
    for symptom in _SYMPTOMS:
        found = symptom.pattern.search(text)
        if found is not None:
            return ConfigError(symptom.remedy.format(*found.groups()))
    return None
