"""Packs the code of a topology for a submission: a wheel as it is, or a zip of the topology's own modules.

A topology's own modules are the one that makes it, and all imported ones that are neither part of Python nor
installed. Whole top-level modules and packages go in, with the data files in them, but no hidden files and no
``__pycache__``. What they import besides must be installed where drivers run.
"""

from __future__ import annotations

import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from txtopo.errors import SubmissionError

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of all files, so that equal sources give equal archives."""
_FRAMEWORK = frozenset({"txtopo", "spouts", "committers", "state"})
"""Never packed: drivers have their own."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def pack_modules(main: str, path: Path) -> None:
    """Pack the imported module ``main``, and all imported modules that are not installed, into a zip file.

    Raises:
        SubmissionError: the module has no files.
    """
    top = main.partition(".")[0]
    files = dict(_files_of(top))
    if not files:
        raise SubmissionError(f"the module {main!r} has no files that could be submitted")
    for name in sorted(name for name in sys.modules if "." not in name and name not in {top, "__main__"}):
        if name not in _FRAMEWORK:
            files |= {inside: file for inside, file in _files_of(name) if not _is_installed(file, inside)}
    _write(files, path)


def pack_folder(folder: Path, path: Path) -> None:
    """Pack all files of a folder into a zip file."""
    files = {PurePosixPath(file.relative_to(folder).as_posix()): file for file in _walk(folder)}
    if not files:
        raise SubmissionError(f"there are no files in {folder}")
    _write(files, path)


def modules_in(folder: Path) -> list[str]:
    """Return the names of the top-level modules and packages in a folder."""
    packages = [each.name for each in folder.iterdir() if each.is_dir() and (each / "__init__.py").is_file()]
    modules = [each.stem for each in folder.glob("*.py")]
    return sorted(name for name in (*packages, *modules) if name.isidentifier() and name != "setup")


def top_of(names: Sequence[str], where: str) -> str:
    """Return the only name.

    Raises:
        SubmissionError: there are none, or several.
    """
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise SubmissionError(f"{where} must hold one module, or name it by --module; found: {found}")
    return names[0]


def _files_of(name: str) -> Iterator[tuple[PurePosixPath, Path]]:
    """Give (name in the zip file, path) of all files of an imported top-level module or package."""
    specification = getattr(sys.modules.get(name), "__spec__", None)
    if specification is None:
        return
    for folder in map(Path, specification.submodule_search_locations or ()):
        for file in _walk(folder):
            yield PurePosixPath(name, file.relative_to(folder).as_posix()), file
    if not specification.submodule_search_locations and specification.has_location:
        file = Path(specification.origin)
        if file.is_file():
            yield PurePosixPath(file.name), file


def _walk(folder: Path) -> Iterator[Path]:
    """Give the files in a folder that are neither hidden nor made by Python; links are followed to files only."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        elif path.is_file():
            yield path


def _is_installed(file: Path, inside: PurePosixPath) -> bool:
    """Whether a file is part of Python, or was installed."""
    root = file.parents[len(inside.parts) - 1]
    if not _INSTALLED.isdisjoint(root.parts) or any(root.glob("*.dist-info")):
        return True
    return any(root.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


def _write(files: dict[PurePosixPath, Path], path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, file in sorted(files.items()):
            entry = zipfile.ZipInfo(str(name), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with file.open("rb") as source, archive.open(entry, "w") as target:
                while chunk := source.read(1 << 20):
                    target.write(chunk)
