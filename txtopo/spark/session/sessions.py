"""Spark sessions: started quietly and quickly, with settings for many small jobs."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import pathlib
import pwd
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence

import attrs
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from txtopo.config import Config
from txtopo.errors import ConfigError, StopError
from txtopo.files.durable import is_shortage
from txtopo.spark.errors import line_that_matters
from txtopo.spark.session.delta import (
    check_delta,
    check_delta_came,
    check_delta_can_start,
    delta_settings,
    has_to_fetch_jars,
)
from txtopo.spark.session.properties_file import start_jvm
from txtopo.spark.session.shipping import is_here, is_local
from txtopo.spark.session.starting import StartOutput, why_it_did_not_start
from txtopo.spark.session.versions import check_installed_spark, check_java, check_jvm_version, check_python
from txtopo.text.secrecy import SecretFilter

_SETTINGS: Mapping[str, str] = {
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    "spark.locality.wait": "0s",
    "spark.driver.memory": "2g",
    "spark.cleaner.periodicGC.interval": "5min",
}

_JIT_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=40000 -XX:Tier4MinInvocationThreshold=5000 "
    "-XX:Tier4CompileThreshold=120000 -XX:Tier4BackEdgeThreshold=320000"
)
"""These raise the thresholds of the JVM's optimizing compiler to 8x the defaults. With the defaults it takes a third of
the CPU time of Spark's start, for code that is not needed later. Loops over data reach the new thresholds at once."""
_SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"

logger = logging.getLogger(__name__)
logger.addFilter(SecretFilter())  # what a JVM prints at its start may quote settings


@attrs.frozen
class DriverHost:
    """Where the driver listens: executors reach it at ``reached``, and it binds to ``bound``."""

    reached: str
    bound: str

    @classmethod
    def of(cls, context: SparkContext) -> DriverHost:
        """Return the addresses in Spark's settings, without the brackets that Spark wants round an IPv6 address."""
        settings = context.getConf()
        reached = settings.get("spark.driver.host", "") or "127.0.0.1"
        bound = settings.get("spark.driver.bindAddress", "") or reached
        return cls(reached.strip("[]"), bound.strip("[]"))


def is_spark_gone(context: SparkContext) -> bool:
    """Return whether no further job can run. Otherwise a dead JVM would look like one lost job after another."""
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())  # noqa: SLF001 - no other way
    except Py4JError:
        return True
    except OSError as error:  # a thread that asks for the first time needs a connection
        return not is_shortage(error)


def spark_is_gone(error: Exception) -> StopError:
    """Return the error that ends a run whose Spark is gone, as ``error`` has shown."""
    return StopError(
        "Spark is gone: its JVM has died, or its session was stopped; start the run again to continue where this one "
        f"stopped ({line_that_matters(str(error))})"
    )


def check_spark(config: Config, given: SparkSession | None = None, *, delta_users: Sequence[str] = ()) -> None:
    """Check the versions of Spark and Java, and Delta if needed, before a run writes anything.

    ``given`` is the session for the run, None for the active or a new one. ``delta_users`` are the components that read
    Delta tables through Spark.

    Raises:
        ConfigError: something is missing or unsupported; the message is one line with the remedy.
    """
    wants_delta = bool(delta_users) or config.spark_delta
    session = _running(given)
    if session is not None:
        check_jvm_version(session.version)
        if wants_delta:
            check_delta(session, delta_users)
        return
    check_installed_spark()
    check_java()
    if is_here(config.spark_master):
        check_python()
    if wants_delta:
        check_delta_can_start(config, delta_users)


@contextlib.contextmanager
def spark_session(
    config: Config, app_name: str, given: SparkSession | None = None, *, delta_users: Sequence[str] = ()
) -> Iterator[SparkSession]:
    """Yield a Spark session: the caller's, the active one, or a new one that is stopped at the end.

    Raises:
        ConfigError: the session or this machine lacks what the run needs, or Spark did not start.
    """
    check_spark(config, given, delta_users=delta_users)
    running = _running(given)
    if running is not None:
        _use_this_python(running)
        yield running
        return
    name_user()
    with_delta = bool(delta_users) or config.spark_delta
    with _changed_process(config):
        session = _start(config, app_name, with_delta=with_delta)
        try:
            if with_delta:
                check_delta_came(session, delta_users)
            yield session
        finally:
            with contextlib.suppress(Py4JError, OSError):  # the JVM may be gone already
                session.stop()


def _running(given: SparkSession | None) -> SparkSession | None:
    """Return the running session for a run: the caller's or the active one; None if a new one must be started.

    A ConfigError refuses a Spark Connect session, settings that would start one, and a given session that is stopped.
    """
    connect = next((name for name in _CONNECT if os.environ.get(name)), None)
    if given is None and connect is not None:
        raise ConfigError(f"{connect} is set, and asks for Spark Connect, which has no RDDs: unset it")
    active = given
    if active is None:
        active = SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001
    if active is not None and not hasattr(active, "_jsparkSession"):
        raise ConfigError("the session is a Spark Connect session, which has no RDDs: pass run() a classic session")
    if active is None or not is_spark_gone(active.sparkContext):
        return active
    if given is not None:
        raise ConfigError("the session that run() was passed is stopped: pass one that runs, or none to have one made")
    return None


_CONNECT = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""What makes PySpark use Spark Connect."""


def _use_this_python(session: SparkSession) -> None:
    """Run tasks on this machine in this interpreter, not the first python3 on the path: it has the modules."""
    context = session.sparkContext
    if is_here(context.master) and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


_OF_PYSPARK = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")
"""Environment variables that PySpark sets for each context."""


@contextlib.contextmanager
def _changed_process(config: Config) -> Iterator[None]:
    """Set what a session of ours wants of its process, and take it back at the end.

    Tasks run in this interpreter, a local Spark listens on this machine alone, and pyspark keeps the errors of
    DataFrames, which it prints as JSON, and what it says to the JVM to itself: the run reports them.
    """
    python_variables = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_here(config.spark_master):
        python_variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    variables = {name: value for name, value in python_variables.items() if name not in os.environ}
    removed = [name for name in (*python_variables, *_OF_PYSPARK) if name not in os.environ]
    quiet = {logging.getLogger("py4j"): logging.WARNING}
    with contextlib.suppress(ImportError):
        from pyspark.logger import PySparkLogger  # noqa: PLC0415 - not in Spark 3.5

        # pyspark must create these loggers, because they have methods of their own.
        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
            quiet[PySparkLogger.getLogger(name)] = logging.CRITICAL + 1
    levels = {logger: logger.level for logger in quiet}
    os.environ.update(variables)
    for logger, level in quiet.items():
        logger.setLevel(level)
    try:
        yield
    finally:
        for name in removed:
            os.environ.pop(name, None)
        for logger, level in levels.items():
            logger.setLevel(level)


def _start(config: Config, app_name: str, *, with_delta: bool) -> SparkSession:
    master = config.spark_master or "local[*]"
    builder = SparkSession.builder.master(master).appName(app_name)
    settings = {**_SETTINGS, "spark.log.level": config.spark_log_level, **config.spark, **_java_options(config)}
    if with_delta:
        settings |= delta_settings(settings, is_here=is_local(master))
        if has_to_fetch_jars(settings):
            logger.warning("Spark downloads Delta's JARs from Maven before its first start, about 90 MB")
    for name, value in settings.items():
        builder = builder.config(name, value)
    output = StartOutput(is_silent=config.spark_log_level == "ERROR")
    try:
        with output.caught(), _signals_as_they_were():
            start_jvm({"spark.master": master, "spark.app.name": app_name, **settings})
            if is_local(master):  # with a context only: the workers start while the session is made
                _warm_up(
                    SparkContext.getOrCreate(
                        SparkConf().setMaster(master).setAppName(app_name).setAll(settings.items())
                    )
                )
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel(config.spark_log_level)
    except Exception as error:
        text = output.text()
        logger.debug("Spark did not start\n%s", text, exc_info=error)
        raise ConfigError(why_it_did_not_start(error, text)) from error
    output.release()
    return session


def _warm_up(context: SparkContext) -> None:
    """Start the Python workers in the background: their imports take 1 s."""
    paths = tuple(sys.path)

    def prepare(_: Iterable[object]) -> Iterable[object]:
        sys.path.extend(path for path in paths if path not in sys.path)
        import txtopo.spark.tasks.worker  # noqa: F401, PLC0415 - in the worker, where this function runs

        return ()

    def run() -> None:
        # If this fails, the first job fails, too, and reports why. The session may also be stopped in the meantime.
        with contextlib.suppress(Py4JError, PySparkException, OSError, EOFError, AttributeError):
            workers = context.defaultParallelism
            context.parallelize(range(workers), workers).mapPartitions(prepare).collect()

    threading.Thread(target=run, name="txtopo-warm-up", daemon=True).start()


def _java_options(config: Config) -> dict[str, str]:
    """Return JVM options for a fast and quiet start, followed by the caller's own.

    By default a JVM that dies at once prints the reason to standard output; here it goes to standard error.
    """
    options = [_JIT_OPTIONS]
    if config.spark_log_level == "ERROR":
        spec = importlib.util.find_spec("txtopo.spark.session")
        assert spec is not None, "this package is installed"
        assert spec.origin is not None, "this package has a folder"
        logging_file = pathlib.Path(spec.origin).with_name("log4j2.properties")
        options += ["-XX:+DisplayVMOutputToStderr", f"-Dlog4j2.configurationFile={logging_file.as_uri()}"]
    name = "spark.driver.extraJavaOptions"
    if name in config.spark:
        options.append(config.spark[name])
    return {name: " ".join(options)}


@contextlib.contextmanager
def _signals_as_they_were() -> Iterator[None]:
    """Restore the caller's SIGINT handler at the end: a Spark context replaces it when it starts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def name_user(variables: MutableMapping[str, str] = os.environ, uid: int | None = None) -> None:
    """Give a user without an entry in ``/etc/passwd``, as containers have, a name and a home for the next JVM.

    Without a name, Hadoop ends Spark's start with "invalid null input: name"; without a home, Java's is ``?``, where
    Spark can't keep packages. What is set already stays.

    Args:
        variables: of this process.
        uid: the user's number; None: that of this process.
    """
    uid = os.getuid() if uid is None else uid
    try:
        pwd.getpwuid(uid)
    except KeyError:
        for name in ("HADOOP_USER_NAME", "SPARK_USER"):
            variables.setdefault(name, f"user-{uid}")
        home = variables.setdefault("HOME", tempfile.gettempdir())
        options = variables.get(_SUBMIT_OPTIONS, "")
        if "-Duser.home=" not in options:
            variables[_SUBMIT_OPTIONS] = f"{options} -Duser.home={home}".strip()
