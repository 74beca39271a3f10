"""Shipping: sends the source files that a topology needs to a cluster's executors, as one zip file.

A pickled bolt names its class by module, so the receiver must be able to import that module. Executors of a local
master add the driver's search path to their own. Executors of a cluster do not have the driver's folders, so the driver
ships to them

- ``txtopo``, ``spouts``, ``committers`` and ``state`` in the driver's version, even if another version is installed;
- all other modules that the driver has imported and that are neither part of Python nor installed (in a
  ``site-packages`` folder, or where pip installs): your own modules and packages, with their top-level imports.

Only source files (``.py``) are shipped, no data files, and no packages with extension modules, which can't be imported
from a zip file. Installed packages are not shipped: the executors' Python, which ``PYSPARK_PYTHON`` names, must have
this Python's minor version and contain attrs, cloudpickle, deltalake, kazoo, numpy, pyarrow and your bolts' imports.

Alternatives: ``SparkContext.addPyFile``, used here, accepts a zip file at any time, sends it to later executors too,
and gives it precedence over installed packages. ``spark.submit.pyFiles`` does the same, but needs the file before the
session starts. ``spark.archives`` with venv-pack, conda-pack or PEX ships a whole Python: hundreds of megabytes for one
platform, unpacked by each executor, built by a separate tool. Use it for third-party packages that a cluster does not
have, together with this mechanism, which ships a few hundred kilobytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path, PurePosixPath

from pyspark import SparkContext, SparkFiles

_FRAMEWORK = ("txtopo", "spouts", "committers", "state")
_OURS = frozenset({*_FRAMEWORK, "examples"})
"""Shipped even if they are installed in the driver's Python."""

_THEIRS = frozenset({"pyspark", "py4j", "sitecustomize", "usercustomize"})
"""Never shipped, because each Python has its own."""

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of all files in the zip file, so that equal sources give equal zip files."""

_shipping = threading.Lock()


def is_local(master: str) -> bool:
    """Return whether a master's tasks run on the driver's machine and see its files."""
    return master == "local" or master.startswith("local[")


def make_importable(context: SparkContext) -> tuple[str, ...]:
    """Make the driver's imported modules importable in tasks; ship them unless the master is local.

    Args:
        context: the Spark context, which sends the file to all current and later executors.

    Returns:
        Paths for tasks to add to their search path.
    """
    if is_local(context.master):
        return tuple(sys.path)
    zipped = zipped_sources()
    name = f"txtopo-{hashlib.sha256(zipped).hexdigest()[:16]}.zip"
    path = Path(context._temp_dir) / name  # noqa: SLF001 - a folder that exists as long as the context
    with _shipping:
        if not path.exists():
            path.write_bytes(zipped)
            context.addPyFile(str(path))
            with contextlib.suppress(ValueError):  # the driver itself keeps importing from the original files
                sys.path.remove(os.path.join(SparkFiles.getRootDirectory(), name))  # noqa: PTH118 - pyspark's spelling
    return ()


def zipped_sources() -> bytes:
    """Return a zip file of all source files to ship."""
    files = {name: path for slot in _slots() for name, path in _sources(slot)}
    folders = {parent for name in files for parent in name.parents if parent.name}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for folder in sorted(folders):  # zipimport finds packages without __init__.py only by folder entries
            zipped.writestr(zipfile.ZipInfo(f"{folder}/", _EPOCH), b"")
        for name, path in sorted(files.items()):
            entry = zipfile.ZipInfo(str(name), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(entry, path.read_bytes())
    return archive.getvalue()


def _slots() -> Iterator[Path]:
    """Yield the paths of the top-level modules and packages to ship; a package may have several folders."""
    for name in _FRAMEWORK:
        importlib.import_module(name)
    for name, module in sorted(sys.modules.items()):
        specification = getattr(module, "__spec__", None)
        if "." in name or name.startswith("__") or name in _THEIRS or specification is None:
            continue
        module_file = [specification.origin] if specification.has_location else []
        for slot in map(Path, specification.submodule_search_locations or module_file):
            if name in _OURS or not _is_installed(slot.parent):
                yield slot


def _is_installed(folder: Path) -> bool:
    """Return whether modules in a folder are part of Python or were installed."""
    if not _INSTALLED.isdisjoint(folder.parts) or any(folder.glob("*.dist-info")):
        return True
    return any(folder.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


def _sources(slot: Path) -> list[tuple[PurePosixPath, Path]]:
    """Return (name in the zip file, path) of a module's or package's sources; an empty list if it can't be shipped."""
    if slot.is_file() and slot.suffix == ".py":
        return [(PurePosixPath(slot.name), slot)]
    found = []
    for folder, subfolders, names in os.walk(slot):
        subfolders[:] = [name for name in subfolders if name.isidentifier() and name != "__pycache__"]
        if any(name.endswith(tuple(EXTENSION_SUFFIXES)) for name in names):
            return []
        paths = [Path(folder) / name for name in names if name.endswith(".py")]
        found += [(PurePosixPath(path.relative_to(slot.parent).as_posix()), path) for path in paths]
    return found
