"""The executors' Python: a run that can't go on for it ends, and says what to do."""

import sys
import types
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spouts import MemoryTransactionalSpout
from tests.acceptance.topologies import Identity
from txtopo import Fields, Topology, TransactionalTopologyBuilder, run
from txtopo.errors import ConfigError
from txtopo.spark.errors import error_of_python

NOWHERE = "a_module_of_the_driver_alone"


@pytest.fixture
def homeless() -> Iterator[type[Identity]]:
    """A bolt of a module that no executor can import."""
    module = types.ModuleType(NOWHERE)
    sys.modules[NOWHERE] = module
    bolt = type("Homeless", (Identity,), {"__module__": NOWHERE})
    module.Homeless = bolt
    yield bolt
    del sys.modules[NOWHERE]


def topology_of(bolt: type[Identity]) -> Topology:
    builder = TransactionalTopologyBuilder("words", "spout", MemoryTransactionalSpout(["cat"], Fields("word"), 1), 1)
    builder.set_bolt("bolt", bolt(), 1).shuffle_grouping("spout")
    return builder.build()


def test_missing_module(spark: SparkSession, homeless: type[Identity]) -> None:
    """A module that executors can't import is named, at the first job, with what to do."""
    with pytest.raises(ConfigError, match=rf"can't import '{NOWHERE}': if it is an installed package"):
        run(topology_of(homeless))


def test_no_python(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that executors don't have is named, with the variable that leads to another one."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    with pytest.raises(ConfigError, match="no Python at /nowhere/python: set PYSPARK_PYTHON"):
        run(topology_of(Identity))


def test_other_version() -> None:
    """A Python of another minor version is told with both versions, as PySpark tells it."""
    text = (
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark "
        "cannot run with different minor versions."
    )
    assert str(error_of_python(text)).startswith("the executors run Python 3.12, but the driver runs 3.11")


def test_a_python_that_is_no_program() -> None:
    """One that executors may not run is named."""
    text = 'java.io.IOException: Cannot run program "/opt/python": error=13, Permission denied\n\tat java.base/x'
    assert str(error_of_python(text)).startswith("the executors can't run /opt/python (Permission denied): set PYSPARK")


def test_other_losses() -> None:
    """A job that was lost for any other reason says nothing of the Python: it is run again."""
    assert error_of_python("ExecutorLostFailure (executor 0 exited caused by one of the running tasks)") is None
