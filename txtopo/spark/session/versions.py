"""Checks for the supported versions of Spark and Java."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import attrs
import pyspark

from txtopo.errors import ConfigError
from txtopo.files.durable import paths_in

OLDEST_SPARK = (3, 5, 1)
"""The oldest Spark that runs every kind of component."""

SPARKS_SUPPORTED = "Spark 3.5.1 to 4.x"

_TOO_NEW_SPARK = (5, 0, 0)

_RELEASE = re.compile(r'version "([^"]*)"')
"""The version in the output of ``java -version``, which may start with lines about picked-up options."""


@attrs.frozen
class _Javas:
    """The Java releases that a version of Spark supports."""

    oldest: int
    newest: int
    advised: int


@attrs.frozen
class _Java:
    path: str
    version: str

    @property
    def release(self) -> int | None:
        """8 for 1.8.0_292, 17 for 17.0.15; None if unknown."""
        match = re.match(r"(?:1\.)?(\d+)", self.version)
        return int(match[1]) if match is not None else None


def check_version(version: str, where: str = "this is") -> None:
    """Raise a ConfigError of one line, with ``where`` in front of "Spark 3.4.0", if a version is not supported."""
    if not OLDEST_SPARK <= _parts(version) < _TOO_NEW_SPARK:
        raise ConfigError(
            f"txtopo supports {SPARKS_SUPPORTED}, but {where} Spark {version}: install a supported one, for example "
            "with pip install 'pyspark>=3.5.1,<5'"
        )


def check_jvm_version(version: str) -> None:
    """Raise a ConfigError if a running Spark is not supported, or has another minor version than the Python package."""
    check_version(version, "the session is of")
    if _parts(version)[:2] != _parts(pyspark.__version__)[:2]:
        raise ConfigError(
            f"the session is of Spark {version}, but the Python package pyspark here is {pyspark.__version__}: "
            f"pip install 'pyspark=={version}', or unset SPARK_HOME if it names the wrong Spark"
        )


def check_installed_spark() -> None:
    """Raise a ConfigError if installed Spark or ``SPARK_HOME`` is not supported, or they do not match."""
    check_version(pyspark.__version__, "the Python package pyspark here is")
    if _parts(pyspark.__version__) < (4, 0, 0) and importlib.util.find_spec("distutils") is None:
        raise ConfigError(
            f"Spark {pyspark.__version__} uses the module distutils, which Python contains up to 3.11: "
            "pip install setuptools, which provides it, or use an older Python or Spark 4"
        )
    home = os.environ.get("SPARK_HOME")
    if not home:
        return
    version = _version_in(pathlib.Path(home))
    if version is None:
        raise ConfigError(f"SPARK_HOME is {home}, but there is no Spark: set it to Spark's folder, or unset it")
    check_version(version, f"SPARK_HOME ({home}) is")
    if _parts(version)[:2] != _parts(pyspark.__version__)[:2]:
        raise ConfigError(
            f"SPARK_HOME ({home}) is Spark {version}, but the Python package pyspark here is {pyspark.__version__}: "
            f"unset SPARK_HOME, or pip install 'pyspark=={version}'"
        )


def check_java() -> None:
    """Raise a ConfigError of one line, with the package to install, if no Java here is one that Spark supports."""
    javas = _javas_for(pyspark.__version__)
    remedy = f"install Java {javas.advised} (apt-get install openjdk-{javas.advised}-jre-headless), or set JAVA_HOME"
    spark = f"Spark {pyspark.__version__} needs Java {javas.oldest} to {javas.newest}"
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(pathlib.Path(home) / "bin")) if home else shutil.which("java")
    if path is None:
        where = f"there is no bin/java in JAVA_HOME, {home}" if home else "there is no Java"
        raise ConfigError(f"{spark}, but {where}: {remedy}")
    java = _java_at(path)
    if java.release is None or not javas.oldest <= java.release <= javas.newest:
        named = f" (JAVA_HOME is {home})" if home else ""
        raise ConfigError(f"{spark}, but {path} is {java.version or 'broken'}{named}: {remedy}")


def check_python() -> None:
    """Raise a ConfigError if ``PYSPARK_PYTHON``, the Python of tasks here, is none of this version."""
    python = os.environ.get("PYSPARK_PYTHON")
    if not python or python == sys.executable:
        return
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [python, "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - as Spark would
        text = f"Python {run.stdout.strip()}" if re.fullmatch(r"\d+\.\d+\s*", run.stdout) else "no Python that runs"
    except (OSError, ValueError) as error:
        text = f"no program that can be run ({getattr(error, 'strerror', None) or error})"
    if text != f"Python {ours}":
        raise ConfigError(
            f"PYSPARK_PYTHON is {python}, which is {text}, but the driver runs {ours}: set it to a Python that has the "
            "driver's minor version, or unset it"
        )


def _javas_for(spark: str) -> _Javas:
    if _parts(spark) < (4, 0, 0):
        return _Javas(8, 17, 17)
    if _parts(spark) < (4, 2, 0):
        return _Javas(17, 21, 17)
    return _Javas(17, 25, 17)


def _java_at(path: str) -> _Java:
    """Return a Java with its version, from its ``release`` file if possible: that is faster than starting it."""
    notes = pathlib.Path(path).resolve().parent.parent / "release"
    try:
        match = re.search(r'^JAVA_VERSION="([^"]*)"', notes.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        match = None
    if match is None:
        try:
            result = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
        except OSError:
            return _Java(path, "")
        match = _RELEASE.search(result.stderr)
    return _Java(path, match[1] if match is not None else "")


def _version_in(home: pathlib.Path) -> str | None:
    """Return the version of the Spark in a folder, from the name of its core JAR; None if there is no Spark."""
    for jar in paths_in(home / "jars", "spark-core_*.jar"):
        return jar.stem.rpartition("-")[2]
    return None


def _parts(version: str) -> tuple[int, int, int]:
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match is not None else (0, 0, 0)
