"""A Python that has all that is installed here but txtopo: the one that executors run."""

from __future__ import annotations

import sys
import sysconfig
import venv
from collections.abc import Iterable
from pathlib import Path

HIDDEN = ("txtopo", "spouts", "committers", "state", "examples", "tests")
"""What it cannot import."""


def make_bare_python(folder: Path) -> Path:
    """Make a virtual environment that links to what is installed here, and return its interpreter.

    Whatever ``pip install`` has left of txtopo stays out, be it the packages or a ``.pth`` file that leads to them.
    """
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for installed in _installed():
        link = packages / installed.name
        is_ours = installed.name.partition("-")[0] in HIDDEN or installed.name.startswith(("__editable__", "_txtopo"))
        if not is_ours and installed.suffix != ".pth" and not link.exists():
            link.symlink_to(installed)
    return folder / "bin" / "python"


def _installed() -> Iterable[Path]:
    for folder in map(Path, sys.path):
        if folder.name in {"site-packages", "dist-packages"} and folder.is_dir():
            yield from folder.iterdir()
