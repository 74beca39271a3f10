"""The executors' Python: it has all that is installed here except txtopo."""

import sys
import sysconfig
import venv
from collections.abc import Iterable
from pathlib import Path

HIDDEN = ("txtopo", "spouts", "committers", "state", "examples", "tests")
"""The packages that it cannot import."""


def make_bare_python(folder: Path) -> Path:
    """Make a virtual environment that links to what is installed here, and return its interpreter.

    Everything that ``pip install`` has made of txtopo stays out: packages and the ``.pth`` files that lead to them.
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
