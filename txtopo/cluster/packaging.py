"""Packs the code of a topology for a submission: a wheel as it is, or a zip of the topology's modules.

A topology's modules are the one that makes it, and all imported ones that are neither part of Python nor
installed. The zip holds whole top-level modules and packages with their data files, without hidden files and
``__pycache__``. Everything else that they import must be installed where drivers run.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from txtopo.errors import SubmissionError
from txtopo.files.durable import paths_in
from txtopo.topology.user_code.modules import EPOCH, FRAMEWORK, paths_of, user_modules


def pack_modules(main: str, path: Path) -> None:
    """Pack ``main`` and all imported modules that are not installed into a zip file; SubmissionError without files."""
    top = main.partition(".")[0]
    # A driver imports txtopo's packages of its own installation.
    modules = [path for name, path in user_modules() if name not in {*FRAMEWORK, top}]
    files = {inside: file for path in paths_of(top) for inside, file in _files_of(path)}
    if not files:
        raise SubmissionError(f"the module {main!r} has no files that could be submitted")
    files |= {inside: file for path in modules for inside, file in _files_of(path)}
    _write(files, path)


def pack_folder(folder: Path, path: Path) -> None:
    """Pack all files of a folder into a zip file."""
    files = {PurePosixPath(file.relative_to(folder).as_posix()): file for file in _walk(folder)}
    if not files:
        raise SubmissionError(f"there are no files in {folder}")
    _write(files, path)


def modules_in(folder: Path) -> list[str]:
    """Return the names of the top-level modules and packages in a folder."""
    packages = [path.name for path in folder.iterdir() if path.is_dir() and (path / "__init__.py").is_file()]
    modules = [path.stem for path in paths_in(folder, "*.py")]
    return sorted(name for name in (*packages, *modules) if name.isidentifier() and name != "setup")


def top_of(names: Sequence[str], where: str) -> str:
    """Return the only name; raise SubmissionError if there are none, or several."""
    if len(names) != 1:
        names_text = ", ".join(names) or "none"
        raise SubmissionError(f"{where} must hold one module, or name it by --module; found: {names_text}")
    return names[0]


def _files_of(path: Path) -> Iterator[tuple[PurePosixPath, Path]]:
    files = _walk(path) if path.is_dir() else [path] if path.is_file() else []
    for file in files:
        yield PurePosixPath(file.relative_to(path.parent).as_posix()), file


def _walk(folder: Path) -> Iterator[Path]:
    """Yield a folder's files, but no hidden ones; follow no link to a folder, for it may lead round in a circle."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        elif path.is_file():
            yield path


def _write(files: dict[PurePosixPath, Path], path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, file in sorted(files.items()):
            # One time and one mode for all, in order of name: the same modules always make the same bytes.
            entry = zipfile.ZipInfo(str(name), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with file.open("rb") as source, archive.open(entry, "w") as target:
                while chunk := source.read(1 << 20):
                    target.write(chunk)
