"""What a user's function raises in a task of Spark SQL is the user's error, by the text that comes back from there."""

import inspect

import pytest

from tests.spark.broken_frames import Divide, Take, topology
from tests.spark.delta_join import Sales
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.api.components.planned import NEVER
from txtopo.attempts import TransactionAttempt
from txtopo.errors import FailedException
from txtopo.spark.sql.dataframe_code import error_of_function
from txtopo.transactional.core.actions import AssignedAttempt
from txtopo.transactional.jobs.layout import Layout
from txtopo.transactional.jobs.stage_run import Job

FILE = inspect.getsourcefile(Divide)
LINE = inspect.getsourcelines(Divide)[1] + 6
SPARK = "/spark/pyspark.zip/pyspark/worker.py"


class TryAgainError(FailedException):
    """A user's own."""


def job(transactions: int = 1) -> Job:
    attempts = tuple(AssignedAttempt(TransactionAttempt(txid, 1), None, NEVER) for txid in range(7, 7 + transactions))
    return Job(1, attempts, None, 0, Layout(1, (), ()), "", 0)


def said(raised: str, *files: str, line: int = LINE) -> str:
    frames = "".join(f'  File "{file}", line {line}, in divide\n    …\n' for file in (SPARK, *files))
    return f"Job aborted: PythonException: Traceback (most recent call last):\n{frames}{raised}\n\n\tat java\n"


def test_names_component() -> None:
    """The only DataFrame component whose class holds the code is named, and the transaction of a job of one."""
    plan = topology().plan
    error = error_of_function(said("ZeroDivisionError: by zero", FILE), plan, job())
    assert error is not None
    assert (error.component, error.txid) == ("divide", 7)
    assert f"ZeroDivisionError: by zero ({FILE}, line {LINE}, in divide); raise FailedException" in str(error)
    error = error_of_function(said("ZeroDivisionError", FILE), plan, job(2))
    assert error is not None
    assert (error.component, error.txid) == ("divide", None)


def test_component_unknown() -> None:
    """Of a function outside the classes of several DataFrame components only the place is told."""
    error = error_of_function(said("ValueError: v", "/home/you/functions.py"), topology().plan, job())
    assert error is not None
    assert error.component is None
    assert "/home/you/functions.py" in str(error)
    builder = TransactionalTopologyBuilder("alone", "spout", Sales(), 1)
    builder.set_bolt("take", Take(), 1).fields_grouping("spout", Fields("item"))
    error = error_of_function(said("ValueError: v", "/home/you/functions.py"), builder.build().plan, job())
    assert error is not None
    assert error.component == "spout"


@pytest.mark.parametrize(
    "text",
    [
        said("txtopo.errors.FailedException: again", FILE),
        said("txtopo.errors.ReportedFailedException", FILE),
        said(f"{__name__}.TryAgainError: later", FILE),
        said("EOFError", FILE),
        said("ZeroDivisionError", FILE, SPARK),
        said("pyarrow.lib.ArrowInvalid: no", "/lib/txtopo/spark/frames.py"),
        "Job aborted: java.lang.OutOfMemoryError\n\tat java\n",
    ],
    ids=["FailedException", "reported", "own", "connection", "Spark", "txtopo", "Java"],
)
def test_lost(text: str) -> None:
    """A FailedException asks for a replay; what Spark, txtopo or Java has raised is a lost job."""
    assert error_of_function(text, topology().plan, job()) is None
