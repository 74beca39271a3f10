"""Input for word counts: the files of a folder, or the sources of Python's standard library."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_NOT_SOURCES = {"__pycache__", "dist-packages", "idlelib", "site-packages", "test", "tests"}


def standard_library_sources() -> list[str]:
    """Return the source files of the running Python's standard library, without tests."""
    root = Path(sysconfig.get_path("stdlib"))
    return [str(path) for path in _walk(root, _NOT_SOURCES) if path.suffix == ".py" and _is_utf8(path)]


def all_files(folder: str) -> list[str]:
    """Return a folder and all files below it, whatever their names; if it is no folder, return the path alone.

    The spout skips names that begin with ``.`` or ``_`` unless they are listed explicitly. The folder itself is
    in the list so that files may be added to it between two runs.
    """
    return [folder, *(str(path) for path in _walk(Path(folder), set()))]


def _walk(root: Path, left_out: set[str]) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in left_out]
        for name in names:
            yield Path(folder) / name


def _is_utf8(path: Path) -> bool:
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    return True
