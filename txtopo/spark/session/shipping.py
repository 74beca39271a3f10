"""Shipping: sends the source files that a topology needs to a cluster's executors, as one zip file.

A pickled bolt names its class by module, so the receiver must be able to import that module. Executors of a local
master add the driver's search path to their own. Executors of a cluster do not have the driver's folders, so the driver
ships to them:

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
import threading
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path, PurePosixPath

from pyspark import SparkContext, SparkFiles

from txtopo.topology.user_code.modules import EPOCH, EXAMPLES, FRAMEWORK, paths_of, user_modules

_OURS = (*FRAMEWORK, EXAMPLES)
"""Shipped even if they are installed in the driver's Python."""

_shipping = threading.Lock()


def is_here(master: str | None) -> bool:
    """Return whether a master's executors run on this machine: those of no master do, and of a local cluster."""
    return (master or "local").startswith("local")


def is_local(master: str) -> bool:
    """Return whether a master's tasks run on the driver's machine and see its files."""
    return master == "local" or master.startswith("local[")


def make_importable(context: SparkContext) -> tuple[str, ...]:
    """Make the driver's modules importable in tasks, shipped unless local; return what to add to their search path."""
    if is_local(context.master):
        return tuple(sys.path)
    zipped = zipped_sources()
    name = f"txtopo-{hashlib.sha256(zipped).hexdigest()[:16]}.zip"
    path = Path(context._temp_dir) / name  # noqa: SLF001 - a folder that exists as long as the context
    with _shipping:  # two runs in one session may ship the same file
        if not path.exists():
            path.write_bytes(zipped)
            context.addPyFile(str(path))
            with contextlib.suppress(ValueError):  # the driver itself keeps importing from the original files
                sys.path.remove(os.path.join(SparkFiles.getRootDirectory(), name))  # noqa: PTH118 - pyspark's spelling
    return ()


def zipped_sources() -> bytes:
    """Return a zip file of all source files to ship."""
    for package in FRAMEWORK:
        importlib.import_module(package)
    ours = (path for name in _OURS for path in paths_of(name))
    yours = (path for _, path in user_modules())
    files = dict(source for found in (*ours, *yours) for source in _sources(found))
    folders = {parent for name in files for parent in name.parents if parent.name}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for folder in sorted(folders):  # zipimport finds packages without __init__.py only by folder entries
            zipped.writestr(zipfile.ZipInfo(f"{folder}/", EPOCH), b"")
        for name, path in sorted(files.items()):
            entry = zipfile.ZipInfo(str(name), EPOCH)  # a fixed time: equal sources give the same file, shipped once
            entry.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(entry, path.read_bytes())
    return archive.getvalue()


def _sources(root: Path) -> list[tuple[PurePosixPath, Path]]:
    """Return (name in the zip file, path) of each source of a module or package; none if it can't be shipped."""
    if root.is_file() and root.suffix == ".py":
        return [(PurePosixPath(root.name), root)]
    sources = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name.isidentifier() and name != "__pycache__"]
        if any(name.endswith(tuple(EXTENSION_SUFFIXES)) for name in names):
            return []
        paths = [Path(folder) / name for name in names if name.endswith(".py")]
        sources += [(PurePosixPath(path.relative_to(root.parent).as_posix()), path) for path in paths]
    return sources
