"""Delta through Spark: the extension and the JARs that ``spark.read.format("delta")`` needs in a DataFrame.

txtopo's tables need neither, because delta-rs reads and writes them in Python. Spark downloads the JARs from Maven
when it starts, so txtopo requests them only if a component has ``uses_delta = True`` or the configuration has
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
from txtopo.files.durable import paths_in
from txtopo.text.extras import how_to_install

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_EXTENSIONS = "spark.sql.extensions"
_CATALOG = "spark.sql.catalog.spark_catalog"
_PACKAGES = "spark.jars.packages"
_IVY = "spark.jars.ivy"
_SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_SNAPSHOT_PARTITIONS_HERE = "4"
"""The number of tasks in which Delta reads a table's log on this machine; Delta's default of 50 is for clusters."""

_DELTA_PACKAGE = re.compile(r"io\.delta:(?P<artifact>delta-spark_[^:,]+):(?P<version>[^:,\s]+)")


def delta_settings(settings: Mapping[str, str], *, is_here: bool = True) -> dict[str, str]:
    """Return the settings to add for Delta; the session's own win. ``is_here``: its tasks run on this machine."""
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
        added[_PACKAGES] = builder._options[_PACKAGES]  # noqa: SLF001 - for the installed Spark and delta-spark
    return added


def has_to_fetch_jars(settings: Mapping[str, str]) -> bool:
    """Return whether Spark must download Delta's JARs from Maven when it starts; it keeps them for later starts."""
    package = _DELTA_PACKAGE.search(settings.get(_PACKAGES, ""))
    if package is None:
        return False
    home = pathlib.Path.home()
    # Spark 4 has a separate folder, .ivy2.5.2.
    folders = [pathlib.Path(settings[_IVY])] if _IVY in settings else [home / ".ivy2", home / ".ivy2.5.2"]
    name = f"io.delta_{package['artifact']}-{package['version']}.jar"
    return not any((folder / "jars" / name).exists() for folder in folders)


def check_delta_can_start(config: Config, users: Sequence[str]) -> None:
    """Raise a ConfigError of one line if no JARs for Delta are known: no delta-spark, and none in the configuration."""
    if _has_jars(config.spark):
        return
    try:
        importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            f"{_who(users)}, but delta-spark, which names the JARs for Spark {pyspark.__version__}, is not installed: "
            f"{how_to_install('spark-delta')}, which also installs a Spark that goes with it; or name the JARs in "
            f"{_PACKAGES} or spark.jars"
        ) from None


def check_delta(session: SparkSession, users: Sequence[str]) -> None:
    """Raise a ConfigError of one line if a running session has no Delta: extensions are fixed at its start."""
    # The parser shows an extension that was set in another way than by this setting.
    extensions = session.sparkContext.getConf().get(_EXTENSIONS, "") or ""
    parser = session._jsparkSession.sessionState().sqlParser().getClass().getName()  # noqa: SLF001 - no other way
    if EXTENSION not in extensions and "delta" not in parser.lower():
        raise ConfigError(
            f"{_who(users)}, but the running session has no Delta: start it with delta's "
            f"configure_spark_with_delta_pip, {_EXTENSIONS}={EXTENSION} and {_CATALOG}={CATALOG}, or let run() start it"
        )
    if not _knows_class(session, EXTENSION):
        raise ConfigError(
            f"{_who(users)}, but the running session has only Delta's settings, not its JARs: start it with delta's "
            f"configure_spark_with_delta_pip, or with {_PACKAGES}"
        )


def check_delta_came(session: SparkSession, users: Sequence[str]) -> None:
    """Raise a ConfigError if a session started for Delta lacks its JARs, which a JVM can't load later."""
    if not _knows_class(session, EXTENSION):
        raise ConfigError(
            f"{_who(users)}, but an earlier session of this process has started the JVM without Delta's JARs: "
            "start a new process, or start that session with Delta (topology.spark.delta)"
        )


def _who(users: Sequence[str]) -> str:
    if not users:
        return "topology.spark.delta requires Delta through Spark"
    verb = "uses" if len(users) == 1 else "use"
    return f"{', '.join(map(repr, users))} {verb} Delta through Spark (uses_delta)"


def _has_jars(settings: Mapping[str, str]) -> bool:
    """Return whether the settings name Delta's JARs, or Spark's folder contains them."""
    if any(
        "delta" in settings.get(name, "").lower() for name in (_PACKAGES, "spark.jars", "spark.driver.extraClassPath")
    ):
        return True
    homes = (os.environ.get("SPARK_HOME"), pathlib.Path(pyspark.__file__).parent)
    home = next(pathlib.Path(home) for home in homes if home)
    return bool(paths_in(home / "jars", "delta-spark*.jar"))


def _knows_class(session: SparkSession, name: str) -> bool:
    jvm = session.sparkContext._jvm  # noqa: SLF001 - no other way
    assert jvm is not None, "a running session has a JVM"
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JError:
        return False
    return True
