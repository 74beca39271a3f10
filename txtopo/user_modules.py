"""The user's own modules: the imported ones that are neither part of Python nor installed.

Another machine lacks them. Spark's executors get their sources (``txtopo.spark.shipping``), and the drivers of a
cluster all their files (``txtopo.cluster.packaging``).
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of all files in an archive, so that equal files give equal archives."""

_OF_EACH_PYTHON = frozenset({"pyspark", "py4j", "sitecustomize", "usercustomize"})
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
    """Yield (name, path) of the user's own top-level modules and packages, in the order of their names."""
    for name in sorted(sys.modules):
        if "." not in name and not name.startswith("__") and name not in _OF_EACH_PYTHON:
            for path in paths_of(name):
                if not _is_installed(path.parent):
                    yield name, path


def _is_installed(folder: Path) -> bool:
    """Whether modules in a folder are part of Python or were installed."""
    # pip install --target puts packages, with their .dist-info, into a folder of any name.
    if not _INSTALLED.isdisjoint(folder.parts) or any(folder.glob("*.dist-info")):
        return True
    return any(folder.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
