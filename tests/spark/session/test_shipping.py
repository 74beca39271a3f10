"""Shipping: what a driver has imported is imported from the zip file alone, and what is installed stays out of it."""

import importlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from txtopo.spark.session.shipping import is_here, is_local, make_importable, zipped_sources

SOURCES = {
    "ship_lone.py": "import ship_helper\nNAME = ship_helper.NAME",
    "ship_helper.py": "NAME = 'helper'",
    "ship_package/__init__.py": "",
    "ship_package/below/__init__.py": "NAME = 'below'",
    "ship_package/below/notes.txt": "no source",
    "ship_package/out-put/part.py": "of no package",
    "ship_spaces/inner/module.py": "NAME = 'without __init__.py'",
    "ship_compiled/__init__.py": "",
    f"ship_compiled/fast{EXTENSION_SUFFIXES[0]}": "",
    "site-packages/ship_installed.py": "",
    "target/ship_targeted.py": "",
    "target/ship_targeted-1.0.dist-info/METADATA": "",
}

IMPORTED = {
    "ship_lone": "helper",
    "ship_package.below": "below",
    "ship_spaces.inner.module": "without __init__.py",
}
"""The modules that must come out of the zip file, with their NAME."""

LEFT_OUT = ("ship_compiled", "ship_installed", "ship_targeted")


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The names in the zip file of a driver that has imported modules from several folders."""
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in ("", "site-packages", "target"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    for name in (*IMPORTED, *LEFT_OUT):
        importlib.import_module(name)
    zipped = zipped_sources()
    (tmp_path / "shipped.zip").write_bytes(zipped)
    yield set(zipfile.ZipFile(io.BytesIO(zipped)).namelist())
    for name in [name for name in sys.modules if name.startswith("ship_")]:
        del sys.modules[name]


@pytest.mark.slow
def test_imported_from_the_file_alone(names: set[str], tmp_path: Path) -> None:
    """Lone modules, those that they import, packages, and packages without __init__.py are found in the zip file."""
    code = "import importlib, sys; sys.path.insert(0, sys.argv[1])\n"
    code += "for name in sys.argv[2:]: print(importlib.import_module(name).NAME)"
    command = [sys.executable, "-I", "-c", code, str(tmp_path / "shipped.zip"), *IMPORTED]
    done = subprocess.run(command, cwd=tmp_path / "target", capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(IMPORTED.values())


@pytest.mark.slow
def test_own_sources_only(names: set[str]) -> None:
    """Packages that are installed or compiled, the standard library, and what is no source stay out."""
    assert {name.partition("/")[0].removesuffix(".py") for name in names}.isdisjoint(
        {*LEFT_OUT, "pyspark", "py4j", "pyarrow", "attr", "json", "pytest"}
    )
    assert "ship_package/below/notes.txt" not in names
    assert "ship_package/out-put/part.py" not in names
    assert {
        "txtopo/spark/tasks/worker.py",
        "spouts/memory.py",
        "committers/reduce.py",
        "state/delta/keyed/state.py",
    } <= names


@pytest.mark.slow
def test_same_sources_same_file() -> None:
    """The same sources make the same bytes, so that a second run in a session ships nothing."""
    assert zipped_sources() == zipped_sources()


def test_nothing_for_a_local_master(spark: SparkSession) -> None:
    """On a local master nothing is shipped: tasks take the driver's search path."""
    before = list(spark.sparkContext._python_includes)
    assert make_importable(spark.sparkContext) == tuple(sys.path)
    assert spark.sparkContext._python_includes == before


@pytest.mark.parametrize(
    ("master", "here", "local"),
    [
        ("local", True, True),
        ("local[2]", True, True),
        ("local[*, 4]", True, True),
        ("local-cluster[2,1,1024]", True, False),
        ("yarn", False, False),
    ],
)
def test_which_masters_are_local(master: str, here: bool, local: bool) -> None:
    """Masters whose tasks run in the driver's JVM are local; other processes on this machine are here alone."""
    assert (is_here(master), is_local(master)) == (here, local)


def test_no_master_is_here() -> None:
    """Without a master Spark runs here."""
    assert is_here(None)
