"""What Spark says is cut to the line that matters."""

import contextlib
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException, PySparkRuntimeError

from tests.processes import ran
from txtopo.spark.errors import LINE_MAX, line_that_matters, unhidden_errors

STACK = "\tat org.apache.spark.A.b(A.scala:1)\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 3.0 (TID 5) (127.0.0.1 executor driver): "
)
CALL = "An error occurred while calling o57.collectToPython.\n: org.apache.spark.SparkException: "
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1, in main\n    process()\n'
    '  File "/home/you/bolts.py", line 12, in halve\n    return n / 0\n'
    "           ~~^~~\n"
    "ZeroDivisionError: division by zero\n\n"
)
PYTHON = f"org.apache.spark.api.python.PythonException: {TRACEBACK}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            f"{CALL}{ABORTED}{PYTHON}{STACK}\nDriver stacktrace:\n{STACK}Caused by: {PYTHON}{STACK}\t... 1 more\n",
            "ZeroDivisionError: division by zero (/home/you/bolts.py, line 12, in halve)",
        ),
        (
            f"{CALL}{ABORTED}java.lang.OutOfMemoryError: Java heap space\n{STACK}\nDriver stacktrace:\n{STACK}",
            "java.lang.OutOfMemoryError: Java heap space",
        ),
        (
            f"{CALL}{ABORTED}ExecutorLostFailure (executor 1 exited) Reason: worker lost\nDriver stacktrace:\n{STACK}",
            "ExecutorLostFailure (executor 1 exited) Reason: worker lost",
        ),
        (
            f"{CALL}Writing job aborted\n{STACK}Caused by: java.io.IOException: No space left on device\n{STACK}",
            "java.io.IOException: No space left on device",
        ),
        (
            "[UNRESOLVED_COLUMN] No column `m`. SQLSTATE: 42703; line 1 pos 0;\n'Project ['m]\n+- Range (0, 3)\n",
            "[UNRESOLVED_COLUMN] No column `m`. SQLSTATE: 42703; line 1 pos 0",
        ),
        ("An error occurred while calling o9.isStopped", "An error occurred while calling o9.isStopped"),
        ("", "Spark gives no reason"),
    ],
    ids=["Python", "Java", "executor", "cause", "analysis", "call", "nothing"],
)
def test_line(text: str, line: str) -> None:
    """Of a task's exception its own words, with the place in the user's code; no scheduler, no stack."""
    assert line_that_matters(text) == line


def test_exception_while_handling() -> None:
    """Of exceptions that follow from each other, the last one."""
    second = TRACEBACK.replace("ZeroDivisionError: division by zero", "KeyError: 'k'").replace("line 12", "line 14")
    text = f"{TRACEBACK}During handling of the above exception, another exception occurred:\n\n{second}"
    assert line_that_matters(text) == "KeyError: 'k' (/home/you/bolts.py, line 14, in halve)"


def test_long_line() -> None:
    assert line_that_matters("x" * 10_000) == "x" * LINE_MAX + "…"


@pytest.mark.parametrize(
    "text",
    [
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure the provider name is correct",
        "An error occurred while calling o5.load.\n: java.lang.ClassNotFoundException: Failed to find data source: delta.",
        "[DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG] This Delta operation requires the SparkSession",
    ],
)
def test_no_delta(text: str) -> None:
    """A session without Delta is told with the remedy."""
    assert "uses_delta = True" in line_that_matters(text)


@pytest.mark.long
@pytest.mark.slow
def test_broken_function() -> None:
    """A function that raises in a task of Spark SQL ends the run at once, by one line with component and place.

    Nothing else comes of Spark, Java or the workers that Spark leaves.
    """
    done = ran("-m", "txtopo", "run", "tests.spark.broken_frames", COLUMNS="500")
    assert done.returncode == 1
    assert "component 'divide'" in done.stderr
    assert "ZeroDivisionError: division by zero (" in done.stderr
    assert "broken_frames.py, line 18, in divide); raise FailedException to have" in done.stderr
    for noise in ("\tat ", "Traceback", "org.apache.spark", "TaskSetManager", "Spark lost"):
        assert noise not in done.stderr


def test_no_descriptor_for_the_results() -> None:
    """A lost job says what was missing, not what pyspark met while it closed a socket that it had not opened."""

    @contextlib.contextmanager
    def as_pyspark() -> Iterator[None]:
        try:
            raise PySparkRuntimeError("[CANNOT_OPEN_SOCKET] Too many open files")
            yield
            sock = None
        finally:
            sock.close()

    with pytest.raises(PySparkException, match="Too many open files"), unhidden_errors(), as_pyspark():
        pass
    with pytest.raises(UnboundLocalError), unhidden_errors():
        raise UnboundLocalError("of our own")
