"""Versions: a Spark or a Java that txtopo can't run on is refused by name, before anything is written."""

import pathlib
import sys

import pyspark
import pytest

from tests.acceptance.test_errors import topology
from txtopo import run
from txtopo.errors import ConfigError
from txtopo.spark.session.versions import check_installed_spark, check_java, check_jvm_version, check_python


def java_of(folder: pathlib.Path, version: str, *, has_notes: bool) -> pathlib.Path:
    """A folder to be JAVA_HOME: a Java that says its version in its notes, or when it is run."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    said = f'Picked up JAVA_TOOL_OPTIONS: -Dx="y"\nopenjdk version "{version}" 2021'
    java.write_text("#!/bin/sh\nexit 1\n" if has_notes else f"#!/bin/sh\ncat >&2 <<END\n{said}\nEND\n")
    java.chmod(0o755)
    if has_notes:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize("has_notes", [True, False], ids=["release file", "java -version"])
@pytest.mark.parametrize(
    ("spark", "java", "is_fine"),
    [
        ("3.5.9", "1.8.0_292", True),
        ("3.5.9", "17.0.15", True),
        ("3.5.9", "21.0.1", False),
        ("4.0.0", "11.0.2", False),
        ("4.0.0", "17", True),
        ("4.1.4", "21.0.1", True),
        ("4.1.4", "25.0.3", False),
        ("4.2.0", "25.0.3", True),
        ("4.3.0", "26", False),
    ],
)
def test_java_of_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, spark: str, java: str, is_fine: bool, has_notes: bool
) -> None:
    """Each Spark has its Javas; another is refused with both versions, and with where it was found."""
    home = java_of(tmp_path / "java", java, has_notes=has_notes)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(pyspark, "__version__", spark)
    if is_fine:
        check_java()
        return
    with pytest.raises(ConfigError, match=f"Spark {spark} needs Java .*{java}.*JAVA_HOME is {home}") as raised:
        check_java()
    assert "\n" not in str(raised.value)


def test_java_home_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """A JAVA_HOME that is wrong is named, though there is a Java on the path."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=f"there is no bin/java in JAVA_HOME, {tmp_path}"):
        check_java()


@pytest.mark.parametrize("version", ["3.4.4", "3.5.0", "5.0.0"])
def test_spark_that_is_not_supported(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A Spark that is too old or too new is refused with its version and those that are supported."""
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(ConfigError, match=rf"Spark 3.5.1 to 4.x, but .*{version}"):
        check_installed_spark()
    with pytest.raises(ConfigError, match=rf"Spark 3.5.1 to 4.x, but the session is of Spark {version}"):
        check_jvm_version(version)


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "4.9.9", "4.2.0.dev1"])
def test_spark_that_is_supported(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # Spark 3.5 needs distutils, until Python 3.11
    monkeypatch.delenv("SPARK_HOME", raising=False)
    check_installed_spark()
    check_jvm_version(version)


def test_no_distutils(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark 3.5 on a Python without distutils is refused with the remedy; Spark 4 is not."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(pyspark, "__version__", "4.0.0")
    check_installed_spark()
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    with pytest.raises(ConfigError, match=r"3\.5\.9 uses .*distutils.*pip install setuptools"):
        check_installed_spark()


def test_another_spark_in_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of another minor version than the Python package's is refused with both."""
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    check_jvm_version("4.1.0")
    with pytest.raises(ConfigError, match=r"of Spark 4.0.5, but the Python package pyspark here is 4.1.4"):
        check_jvm_version("4.0.5")


def test_spark_home(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """A SPARK_HOME without Spark, or of another one than the package's, is refused before it starts."""
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no Spark"):
        check_installed_spark()
    (tmp_path / "jars").mkdir()
    jar = tmp_path / "jars" / "spark-core_2.13-4.1.0.jar"
    jar.touch()
    check_installed_spark()
    jar.rename(jar.with_name("spark-core_2.12-3.5.6.jar"))
    with pytest.raises(ConfigError, match=r"is Spark 3\.5\.6, but the Python package pyspark here is 4.1.4"):
        check_installed_spark()


@pytest.mark.parametrize(
    ("script", "what"),
    [
        (None, r"no program that can be run \(No such file or directory\)"),
        ("no program", r"no program that can be run \((Permission denied|Exec format error)\)"),
        ("#!/bin/sh\nexit 3\n", "no Python that runs"),
        ("#!/bin/sh\necho 3.9\n", "Python 3.9"),
        ("#!/bin/sh\necho Welcome; echo 3.9\n", "no Python that runs"),
    ],
)
def test_python_of_tasks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, script: str | None, what: str
) -> None:
    """Spark's words on a Python that does not run, or is another one, name neither it nor the variable."""
    python = tmp_path / "python"
    if script is not None:
        python.write_text(script)
        python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    with pytest.raises(ConfigError, match=f"PYSPARK_PYTHON is {python}, which is {what}, but the driver runs 3"):
        check_python()


def test_the_same_python_by_another_name(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    for python in (sys.executable, tmp_path / "python", ""):
        monkeypatch.setenv("PYSPARK_PYTHON", str(python))
        check_python()


def test_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Promise 17: a run on a Spark that is not supported leaves no file behind."""
    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    monkeypatch.setattr("txtopo.spark.session.sessions._running", lambda given: None)
    with pytest.raises(ConfigError, match=r"3\.4\.4"):
        run(topology(tmp_path))
    assert list(tmp_path.iterdir()) == []
