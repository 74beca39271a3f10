"""The user's modules: the imported ones that are neither part of Python nor installed.

Another machine lacks them. Spark's executors get their sources (``txtopo.spark.session.shipping``), and the drivers of
a cluster all their files (``txtopo.cluster.packaging``). None of them may have the name of a module of txtopo, of
Python or of an installed package: only one of the two can be imported, and elsewhere it may be the other one.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from txtopo.errors import ConfigError

FRAMEWORK = ("txtopo", "spouts", "committers", "state")
"""The packages that txtopo consists of."""

EXAMPLES = "examples"
"""Installed beside them; nothing of txtopo needs it, so it may be another project's."""

_ROOT = Path(__file__).parents[3]

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of all files in an archive, so that equal files give equal archives."""

_OF_SPARK = frozenset({"pyspark", "py4j"})
_OF_EACH_PYTHON = _OF_SPARK | {"sitecustomize", "usercustomize"}
"""Modules that each Python has of its own, wherever it finds them."""

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def paths_of(name: str) -> list[Path]:
    """Return the file of an imported top-level module, or the folders of a package, which may have several."""
    specification = getattr(sys.modules.get(name), "__spec__", None)
    if specification is None:
        return []
    module_file = [specification.origin] if specification.has_location else []
    return [Path(path) for path in specification.submodule_search_locations or module_file]


def user_modules() -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of the user's top-level modules and packages, in the order of their names."""
    for name in sorted(sys.modules):
        if "." not in name and not name.startswith("__") and name not in _OF_EACH_PYTHON:
            for path in paths_of(name):
                if not _is_installed(path.parent):
                    yield name, path


def refuse_twins(folder: Path | None = None) -> None:
    """Refuse modules and packages in a folder that is first on the search path, if others have their names.

    Args:
        folder: None: the first one of ``sys.path``.

    Raises:
        ConfigError: there is one; the error names both files.
    """
    folder = Path(sys.path[0] if sys.path else "") if folder is None else folder
    try:
        with os.scandir(folder) as entries:
            names = {entry.name for entry in entries}
    except OSError:  # a zip file, or it is gone
        return
    if names.issuperset(FRAMEWORK):
        return  # a checkout of txtopo, whatever is installed
    # The folder may hold many files of data: only those whose names are taken are looked at.
    imported = {*FRAMEWORK, *_OF_SPARK, *sys.modules}
    for theirs in (folder / each for each in sorted(names) if each.removesuffix(".py") in imported):
        name = theirs.name.removesuffix(".py")
        is_importable = theirs.suffix == ".py" or (theirs / "__init__.py").is_file()
        if not name.isidentifier() or not is_importable:
            continue
        if name in FRAMEWORK:
            _refuse(theirs, _ROOT / name, "a package of txtopo")
        if name in _OF_SPARK:
            _refuse_before_spark(theirs, name)
        for twin in paths_of(name):
            if name in sys.stdlib_module_names:
                _refuse(theirs, twin, "a module of Python, which Spark's workers import")
            elif _is_installed(twin.parent):
                _refuse(theirs, twin, "which is installed, and which the run imports")


def refuse_hiding() -> None:
    """Raise ConfigError, naming both files, if an import failed for a user's module that hides one of Python."""
    for name, theirs in user_modules():
        hidden = _beside(theirs, name) if name in sys.stdlib_module_names else None
        if hidden is not None and hidden.origin is not None:
            _refuse(theirs, Path(hidden.origin), "a module of Python, which txtopo imports")


def _refuse_before_spark(theirs: Path, name: str) -> None:
    """Refuse a module if an installed one of Spark, which is imported only later, has its name."""
    spec = _beside(theirs, name)
    for twin in () if spec is None else spec.submodule_search_locations or ():
        if _is_installed(Path(twin).parent):
            _refuse(theirs, Path(twin), "which is installed, and which the run imports")


def _beside(theirs: Path, name: str) -> ModuleSpec | None:
    """Find the module of a name that would be imported if the user's were not there."""
    return PathFinder.find_spec(name, [each for each in sys.path if Path(each).resolve() != theirs.parent.resolve()])


def _refuse(theirs: Path, twin: Path, kind: str) -> None:
    if theirs.resolve() != twin.resolve():
        raise ConfigError(
            f"{theirs.absolute()} has the name of {twin}, {kind}: only one of them can be imported; rename yours"
        )


def why_hidden(name: str, folder: Path) -> str:
    """Say that a module is missing because a package of txtopo hides the user's, or the other way round; else ""."""
    top = name.partition(".")[0]
    theirs, ours = (folder / top).absolute(), _ROOT / top
    if top not in {*FRAMEWORK, EXAMPLES} or not theirs.is_dir() or theirs.resolve() == ours.resolve():
        return ""
    if theirs in paths_of(top):
        return f"; {theirs} hides {ours}, a package of txtopo: rename yours"
    return f"; {ours}, a package of txtopo, hides {theirs}: rename yours"


def _is_installed(folder: Path) -> bool:
    """Whether modules in a folder are part of Python or were installed."""
    # pip install --target puts packages, with their .dist-info, into a folder of any name.
    if not _INSTALLED.isdisjoint(folder.parts) or any(folder.glob("*.dist-info")):
        return True
    return any(folder.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
