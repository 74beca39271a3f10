"""Spark sessions: started quiet and quick, with settings that fit many small jobs."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from txtopo.config import Config
from txtopo.errors import ConfigError

JAVA_RELEASE_MIN = 17
"""The oldest Java that Spark 4 runs on."""

_CHATTER = (
    b"Using incubator modules",
    b"Using Spark's default log4j profile",
    b"Setting Spark log level",
    b"Setting default log level",
    b"To adjust logging level",
)
"""What a JVM says when Spark starts in it, and nobody needs."""

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


@contextlib.contextmanager
def spark_session(config: Config, app_name: str, given: SparkSession | None = None) -> Iterator[SparkSession]:
    """Give a Spark session: the caller's own, one that is active, or a new one that is stopped at the end.

    Raises:
        ConfigError: there is no Java, or too old a one.
    """
    active = given or SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001
    if active is not None and active._jsc is not None and not active.sparkContext._jsc.sc().isStopped():  # noqa: SLF001
        _use_this_python(active)
        yield active
        return
    check_java()
    session = _start(config, app_name)
    try:
        yield session
    finally:
        with contextlib.suppress(Py4JError, OSError):  # the JVM may be gone already
            session.stop()


def _use_this_python(session: SparkSession) -> None:
    """Let tasks on this machine run in this interpreter, which has what the topology imports.

    A session that was started without PYSPARK_PYTHON takes whichever python3 is first on the path.
    """
    context = session.sparkContext
    if context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


def check_java() -> None:
    """Refuse a machine without a Java that Spark runs on.

    Raises:
        ConfigError: one line that says which package to install.
    """
    remedy = "install Java 17, for example with 'apt-get install openjdk-17-jre-headless', or set JAVA_HOME"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(pathlib.Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise ConfigError(f"Spark needs Java {JAVA_RELEASE_MIN}, and there is none: {remedy}")
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    release = version.partition('"')[2].partition('"')[0].split(".")
    number = release[1] if release[0] == "1" and len(release) > 1 else release[0]
    if not number.isdigit() or int(number) < JAVA_RELEASE_MIN:
        raise ConfigError(
            f"Spark needs Java {JAVA_RELEASE_MIN}, and {java} is {'.'.join(release) or 'broken'}: {remedy}"
        )


def _start(config: Config, app_name: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = config.spark_master or "local[*]"
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    builder = SparkSession.builder.master(master).appName(app_name)
    settings = {
        **_SETTINGS,
        "spark.log.level": config.spark_log_level,
        **_java_options(config),
        **config.spark,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _quiet(config), _signals_as_they_were():
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel(config.spark_log_level)
    return session


def _java_options(config: Config) -> dict[str, str]:
    """Return the options that keep Spark's start quiet: a log configuration that says errors only."""
    if config.spark_log_level != "ERROR":
        return {}
    spec = importlib.util.find_spec("txtopo.spark")
    assert spec is not None, "this package is installed"
    assert spec.origin is not None, "this package has a folder"
    logging_file = pathlib.Path(spec.origin).with_name("log4j2.properties")
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging_file.as_uri()}"}


@contextlib.contextmanager
def _quiet(config: Config) -> Iterator[None]:
    """Give the JVM a standard error that leaves out the chatter of its start, unless logs are asked for."""
    if config.spark_log_level != "ERROR":
        yield
        return
    reading, writing = os.pipe()
    saved = os.dup(2)
    threading.Thread(target=_copy_lines, args=(reading, os.dup(saved)), name="txtopo-stderr", daemon=True).start()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


@contextlib.contextmanager
def _signals_as_they_were() -> Iterator[None]:
    """Keep the caller's SIGINT handler: a Spark context puts its own in its place when it starts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _copy_lines(reading: int, writing: int) -> None:
    with os.fdopen(reading, "rb") as lines, os.fdopen(writing, "wb", buffering=0) as out:
        for line in lines:
            if not any(noise in line for noise in _CHATTER):
                out.write(line)
