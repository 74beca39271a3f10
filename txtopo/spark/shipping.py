"""Shipping: the executors of a cluster get the sources that a topology is made of, as one zip file.

A bolt travels as bytes that name its class by module, so whoever receives it must be able to import that module.
Executors on this machine, those of a local master, add the driver's search path to their own. Executors of a
cluster find none of its folders: they are shipped

- ``txtopo``, ``spouts``, ``committers`` and ``state``, as they are here, even where others are installed there;
- whatever else the driver has imported that is neither of Python itself nor installed (lies in a ``site-packages``
  folder, or where pip has put things): your own modules and packages, with those that they import at their top.

Sources only, ``.py``: data files, and packages with extension modules, which no zip file can hold, are left out. Not
shipped is what is installed: the executors' Python, which ``PYSPARK_PYTHON`` names, must be of this Python's minor
version and have attrs, cloudpickle, deltalake, kazoo, numpy and pyarrow, and whatever your bolts import.

Why so: ``SparkContext.addPyFile`` takes a zip file at any time, brings it to executors that come later too, and
lets it go before what is installed. ``spark.submit.pyFiles`` does the same, but before the session starts, so somebody
would have to make the file. ``spark.archives`` with venv-pack, conda-pack or PEX brings a whole Python: hundreds of
megabytes for one platform, unpacked by each executor, made by a tool of its own. It is the way to third-party
packages that a cluster does not have, and goes well with this one, which brings some hundred kilobytes.
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
"""Shipped although they may be installed here."""

_THEIRS = frozenset({"pyspark", "py4j", "sitecustomize", "usercustomize"})
"""Never shipped, wherever they lie: each Python has its own."""

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of all files in a zip file, so that the same sources make the same one."""

_shipping = threading.Lock()


def is_local(master: str) -> bool:
    """Whether a master's tasks run beside the driver, by the driver's own files."""
    return master == "local" or master.startswith("local[")


def make_importable(context: SparkContext) -> tuple[str, ...]:
    """See to it that tasks can import what the driver has imported: ship it, unless the master is local.

    Args:
        context: gives the file to all executors, those too that come later; keeps it until it is stopped.

    Returns:
        The paths that tasks are to search besides their own.
    """
    if is_local(context.master):
        return tuple(sys.path)
    zipped = zipped_sources()
    name = f"txtopo-{hashlib.sha256(zipped).hexdigest()[:16]}.zip"
    path = Path(context._temp_dir) / name  # noqa: SLF001 - a folder that lives as long as the context
    with _shipping:
        if not path.exists():
            path.write_bytes(zipped)
            context.addPyFile(str(path))
            with contextlib.suppress(ValueError):  # the driver goes on with the sources that it has begun with
                sys.path.remove(os.path.join(SparkFiles.getRootDirectory(), name))  # noqa: PTH118 - letter for letter
    return ()


def zipped_sources() -> bytes:
    """Return a zip file of all sources that are shipped."""
    files = {name: path for slot in _slots() for name, path in _sources(slot)}
    folders = {parent for name in files for parent in name.parents if parent.name}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for folder in sorted(folders):  # without which a package that has no __init__.py is not found
            zipped.writestr(zipfile.ZipInfo(f"{folder}/", _EPOCH), b"")
        for name, path in sorted(files.items()):
            entry = zipfile.ZipInfo(str(name), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(entry, path.read_bytes())
    return archive.getvalue()


def _slots() -> Iterator[Path]:
    """Yield where the top-level modules and packages lie that are shipped; a package may lie in several folders."""
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
    """Whether modules in a folder are Python's own, or were installed there."""
    if not _INSTALLED.isdisjoint(folder.parts) or any(folder.glob("*.dist-info")):
        return True
    return any(folder.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


def _sources(slot: Path) -> list[tuple[PurePosixPath, Path]]:
    """Return the sources of a module or package, with their names in the zip file; none if it can't be shipped."""
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
