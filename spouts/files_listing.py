"""The files of a files spout: found, named, sorted, and checked to be readable, before anything runs.

A file's *name* is its path below the listing's root, with slashes; names are what metadata holds and what
files are sorted by. Empty files are not listed: they hold nothing, and once they do they are new files.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from txtopo.errors import InputError

COMPRESSED_SUFFIXES = (".bz2", ".gz", ".lz4", ".snappy", ".xz", ".zip", ".zst")
"""Endings of files that would have to be unpacked first."""

FILES_MAX = 1_000_000
"""The most files that a listing takes."""


@attrs.frozen
class InputFile:
    """One file of a listing."""

    name: str
    """Its path below the root, with slashes."""
    path: str
    """Its absolute path."""
    size: int
    """Its length in bytes."""
    mtime_ns: int
    """When it was last written, in nanoseconds."""


@attrs.frozen
class Listing:
    """The non-empty files below a root, sorted by name."""

    root: str
    files: tuple[InputFile, ...]
    suffixes: frozenset[str]
    """The endings of their names, in small letters; those of the empty files where there are no others."""


def absolute_paths(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the absolute form of one path or of several, which processes in other folders understand too.

    Raises:
        InputError: no path is given.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise InputError("no path is given; give a folder, a file, a glob, or a list of these")
    return tuple(os.path.abspath(one) for one in paths)  # noqa: PTH100 - Path.absolute keeps ".."


def list_files(paths: Sequence[str]) -> Listing:
    """List the files that the paths stand for: folders (all below them), files, globs.

    Names that begin with ``.`` or ``_`` are passed over, unless a path gives them whole.

    Args:
        paths: absolute paths.

    Raises:
        InputError: a path leads to no file, or a file cannot be read.
    """
    roots: list[str] = []
    found: dict[str, os.stat_result] = {}
    for path in paths:
        root, matches = _matches(path)
        roots.append(root)
        empty = True
        for match in matches:
            for file, status in _walk(match, ()):
                found[file] = status
                empty = False
                if len(found) > FILES_MAX:
                    raise InputError(f"{path} holds more than {FILES_MAX} files; give a narrower path")
        if empty:
            raise InputError(f"there is no file in {path}; put one there, or give another path")
    root = os.path.commonpath(roots)
    files = sorted(_named(root, found), key=lambda file: file.name)
    suffixes = frozenset(Path(path).suffix.lower() for path in ([file.path for file in files] or found))
    return Listing(root, tuple(files), suffixes)


def describe(file: InputFile) -> str:
    """Return what an error says of a file's state."""
    return f"{file.size} bytes, mtime_ns {file.mtime_ns}"


def _named(root: str, found: dict[str, os.stat_result]) -> Iterator[InputFile]:
    for path, status in found.items():
        name = Path(path).relative_to(root).as_posix()
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"the name of file {path!r} is not UTF-8; rename it") from error
        if status.st_size:
            yield InputFile(name, path, status.st_size, status.st_mtime_ns)


def _matches(path: str) -> tuple[str, list[str]]:
    """Return the root of a path, and the files and folders that it stands for."""
    if Path(path).is_dir():
        return path, [path]
    if Path(path).exists():
        return str(Path(path).parent), [path]
    parts = Path(path).parts
    fixed = next((index for index, part in enumerate(parts) if glob.has_magic(part)), None)
    if fixed is None:
        raise InputError(f"there is no file or folder {path}; check the path")
    root = str(Path(*parts[:fixed]))
    matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - Path.glob follows no links and hides no names
    shown = [match for match in map(Path, matches) if not any(map(_is_hidden, match.relative_to(root).parts))]
    return root, [str(match) for match in shown]


def _walk(path: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every file at or below ``path``; ``above`` are the folders that lead here."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", cause=str(error)) from error
    if stat.S_ISDIR(status.st_mode):
        here = (status.st_dev, status.st_ino)
        if here in above:
            raise InputError(f"folder {path} links to a folder that it is in; remove the link")
        for name in _names(path):
            below = Path(path) / name
            if not (below.is_symlink() and below.is_dir()):  # as os.walk: what it links to may be counted already
                yield from _walk(str(below), (*above, here))
        return
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is neither a file nor a folder; remove it, or give a narrower path")
    if path.lower().endswith(COMPRESSED_SUFFIXES):
        raise InputError(f"{path} is compressed; unpack it first (Parquet files have compression of their own)")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} cannot be read; grant the right to read it")
    yield path, status


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not _is_hidden(name))  # noqa: PTH208 - names only
    except OSError as error:
        raise InputError(f"folder {folder} cannot be read: {error.strerror}", cause=str(error)) from error


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))
