"""Delta through Spark: the extension and the JARs with which ``spark.read.format("delta")`` works in a frame.

txtopo's own tables need neither: they are read and written by delta-rs, in Python. So the JARs, which Spark fetches
from Maven when it starts, are fetched only where a component says ``uses_delta = True`` or the configuration
``topology.spark.delta``.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

import pyspark
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from txtopo.config import Config
from txtopo.errors import ConfigError

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_EXTENSIONS = "spark.sql.extensions"
_CATALOG = "spark.sql.catalog.spark_catalog"
_PACKAGES = "spark.jars.packages"
_IVY = "spark.jars.ivy"
_SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_SNAPSHOT_PARTITIONS_HERE = "4"
"""Into how many tasks Delta shares out the log of each table that is read, on this machine: Delta's own 50 are for
clusters."""

_REMEDY = "pip install 'txtopo[spark-delta]' brings a delta-spark and a Spark that go together"

_DELTA_PACKAGE = re.compile(r"io\.delta:(?P<artifact>delta-spark_[^:,]+):(?P<version>[^:,\s]+)")


def delta_settings(settings: Mapping[str, str], *, is_here: bool = True) -> dict[str, str]:
    """Return the settings that give a new session Delta, beside those that it has: the caller's own are kept.

    Args:
        settings: of the session.
        is_here: whether its tasks run on this machine.
    """
    extensions = [name.strip() for name in settings.get(_EXTENSIONS, "").split(",") if name.strip()]
    added = {_EXTENSIONS: ",".join(dict.fromkeys([*extensions, EXTENSION]))}
    if _CATALOG not in settings:
        added[_CATALOG] = CATALOG
    if is_here and _SNAPSHOT_PARTITIONS not in settings:
        added[_SNAPSHOT_PARTITIONS] = _SNAPSHOT_PARTITIONS_HERE
    if not _has_jars(settings):
        from delta import configure_spark_with_delta_pip  # noqa: PLC0415 - an extra of the installation

        packages = [name.strip() for name in settings.get(_PACKAGES, "").split(",") if name.strip()]
        builder = configure_spark_with_delta_pip(SparkSession.Builder(), packages)
        added[_PACKAGES] = builder._options[_PACKAGES]  # noqa: SLF001 - by the Spark and delta-spark that are installed
    return added


def has_to_fetch_jars(settings: Mapping[str, str]) -> bool:
    """Whether Spark fetches Delta's JARs from Maven when it starts with such settings: it keeps them for the next time.

    Args:
        settings: of a session that is to have Delta, with those of :func:`delta_settings`.
    """
    found = _DELTA_PACKAGE.search(settings.get(_PACKAGES, ""))
    if found is None:
        return False
    home = pathlib.Path.home()
    folders = [pathlib.Path(settings[_IVY])] if _IVY in settings else [home / ".ivy2", home / ".ivy2.5.2"]
    name = f"io.delta_{found['artifact']}-{found['version']}.jar"
    return not any((folder / "jars" / name).exists() for folder in folders)


def check_delta_can_start(config: Config, users: Sequence[str]) -> None:
    """Refuse to start a session with Delta whose JARs nobody could name.

    Raises:
        ConfigError: delta-spark is not installed, and the configuration brings no JARs; one line.
    """
    if _has_jars(config.spark):
        return
    try:
        importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            f"{_who(users)}, and delta-spark, which knows the JARs for Spark {pyspark.__version__}, is not installed: "
            f"{_REMEDY}; or name them in {_PACKAGES} or spark.jars"
        ) from None


def check_delta(session: SparkSession, users: Sequence[str]) -> None:
    """Refuse a running session without Delta: an extension comes with a session's start, or never.

    Raises:
        ConfigError: its extension or JARs are missing; one line.
    """
    extensions = session.sparkContext.getConf().get(_EXTENSIONS, "") or ""
    parser = session._jsparkSession.sessionState().sqlParser().getClass().getName()  # noqa: SLF001 - no other way
    if EXTENSION not in extensions and "delta" not in parser.lower():
        raise ConfigError(
            f"{_who(users)}, and the session that runs has no Delta: start it with delta's "
            f"configure_spark_with_delta_pip, {_EXTENSIONS}={EXTENSION} and {_CATALOG}={CATALOG}, or let run() start it"
        )
    if not _knows_class(session, EXTENSION):
        raise ConfigError(
            f"{_who(users)}, and the session that runs has Delta's settings, but not its JARs: start it with delta's "
            f"configure_spark_with_delta_pip, or with {_PACKAGES}"
        )


def check_delta_came(session: SparkSession, users: Sequence[str]) -> None:
    """Refuse a session that was started with Delta and has not got it: a JVM takes JARs when it starts, or never.

    Raises:
        ConfigError: another session has run in this process before; one line.
    """
    if not _knows_class(session, EXTENSION):
        raise ConfigError(
            f"{_who(users)}, and the Spark of this process was started without Delta's JARs by an earlier session: "
            "start a new process, or give that session Delta (topology.spark.delta)"
        )


def _who(users: Sequence[str]) -> str:
    """Return who wants Delta, in words."""
    if not users:
        return "topology.spark.delta asks for Delta through Spark"
    verb = "uses" if len(users) == 1 else "use"
    return f"{', '.join(map(repr, users))} {verb} Delta through Spark (uses_delta)"


def _has_jars(settings: Mapping[str, str]) -> bool:
    """Whether Delta's JARs come with the settings, or lie among Spark's own."""
    if any(
        "delta" in settings.get(name, "").lower() for name in (_PACKAGES, "spark.jars", "spark.driver.extraClassPath")
    ):
        return True
    homes = (os.environ.get("SPARK_HOME"), pathlib.Path(pyspark.__file__).parent)
    home = next(pathlib.Path(home) for home in homes if home)
    return any((home / "jars").glob("delta-spark*.jar"))


def _knows_class(session: SparkSession, name: str) -> bool:
    jvm = session.sparkContext._jvm  # noqa: SLF001 - no other way
    assert jvm is not None, "a session that runs has its JVM"
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JError:
        return False
    return True
