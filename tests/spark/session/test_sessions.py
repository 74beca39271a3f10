"""Sessions: a machine without Java is told what to install."""

import os
import pathlib
import pwd
import subprocess
import tempfile
from types import SimpleNamespace

import pytest

from tests.processes import ran
from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.spark.session.sessions import DriverHost, _java_options, check_spark, name_user
from txtopo.spark.session.versions import check_java


@pytest.mark.parametrize(
    ("given", "reached", "bound"),
    [
        ({}, "127.0.0.1", "127.0.0.1"),
        ({"spark.driver.host": "driver.example"}, "driver.example", "driver.example"),
        ({"spark.driver.host": "10.0.0.1", "spark.driver.bindAddress": "0.0.0.0"}, "10.0.0.1", "0.0.0.0"),
        ({"spark.driver.host": "[::1]", "spark.driver.bindAddress": ""}, "::1", "::1"),
    ],
)
def test_where_the_driver_listens(given: dict[str, str], reached: str, bound: str) -> None:
    """It binds to Spark's bind address, or else to the one by which it is reached."""

    class Context:
        """As much of Spark's as is asked."""

        def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
            return given

    assert DriverHost.of(Context()) == DriverHost(reached, bound)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_settings_of_spark_connect(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """PySpark would start another kind of session, or end in an error of its own."""
    monkeypatch.setenv(name, "sc://127.0.0.1")
    with pytest.raises(ConfigError, match=f"{name} is set, and asks for Spark Connect"):
        check_spark(Config())


def test_a_session_of_spark_connect() -> None:
    """One that was given, as on Databricks' shared compute, is refused by name when a run starts."""

    class Session:
        """Has no session of a JVM, as that of Connect."""

    with pytest.raises(ConfigError, match="is a Spark Connect session, which has no RDDs: pass run"):
        check_spark(Config(), Session())  # type: ignore[arg-type]


def test_a_session_that_is_stopped() -> None:
    """One that was given is refused; of another one nothing is taken."""

    class Session:
        """As much of Spark's as is asked."""

        _jsparkSession = _jsc = object()  # noqa: N815 - Spark's name
        sparkContext = SimpleNamespace(_jsc=None)  # noqa: N815

    with pytest.raises(ConfigError, match="is stopped: pass one that runs"):
        check_spark(Config(), Session())  # type: ignore[arg-type]


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Without Java: one line that says which package to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="openjdk-17-jre-headless") as raised:
        check_java()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("level", ["ERROR", "INFO"])
def test_the_jvm_takes_the_options_of_its_start(level: str) -> None:
    """Java says nothing of the options that shorten Spark's start, whichever log level is asked for."""
    options = _java_options(Config(spark_log_level=level))["spark.driver.extraJavaOptions"].split()
    done = subprocess.run(["java", *options, "-version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "warning" not in done.stderr.lower()
    assert any("log4j2" in option for option in options) == (level == "ERROR")


PROGRAM = """
import gc, logging, os, signal, sys
from spouts import MemoryTransactionalSpout
from state import MemoryState
from committers import Count, ReduceCommitter
from txtopo import Fields, TransactionalTopologyBuilder, run

def process():
    levels = {name: logging.getLogger(name).level for name in ("", "py4j", "txtopo", "txtopo.user", *LOGGERS)}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    collected = gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > FROZEN
    return dict(os.environ), levels, handlers, collected, sys.stdout, sys.stderr, list(logging.getLogger().handlers)

LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
FROZEN = gc.get_freeze_count()
builder = TransactionalTopologyBuilder("words", "words", MemoryTransactionalSpout(["a", "b"], Fields("word: string"), 1))
builder.set_bolt("count", ReduceCommitter("n", key="word", values={"n": Count()})).fields_grouping("words", Fields("word"))
builder.set_state("n", MemoryState(value=Fields("n: long")))
before = process()
run(builder.build())
after = process()
print([one == other for one, other in zip(before, after)])
"""


@pytest.mark.slow
def test_a_run_leaves_its_process_as_it_was(tmp_path: pathlib.Path) -> None:
    """Environment, log levels, signal handlers, garbage collection, streams and log handlers are the caller's again."""
    done = ran("-c", PROGRAM, cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == [str([True] * 7)], done.stderr


def test_a_user_without_an_entry_gets_a_name_and_a_home() -> None:
    """Java and Hadoop find them; what somebody has set stays, and so does all of a user with an entry."""
    unknown = next(uid for uid in range(54_321, 60_000) if uid not in {each.pw_uid for each in pwd.getpwall()})
    variables: dict[str, str] = {}
    name_user(variables, unknown)
    name, home = f"user-{unknown}", tempfile.gettempdir()
    assert variables == {
        "HADOOP_USER_NAME": name,
        "SPARK_USER": name,
        "HOME": home,
        "SPARK_SUBMIT_OPTS": f"-Duser.home={home}",
    }
    before = dict(variables)
    name_user(variables, unknown)
    assert variables == before
    given = {"SPARK_USER": "shop", "HOME": "/h", "SPARK_SUBMIT_OPTS": "-Dx=1"}
    name_user(given, unknown)
    assert given == {
        "SPARK_USER": "shop",
        "HADOOP_USER_NAME": name,
        "HOME": "/h",
        "SPARK_SUBMIT_OPTS": "-Dx=1 -Duser.home=/h",
    }
    known: dict[str, str] = {}
    name_user(known, os.getuid())
    assert known == {}
