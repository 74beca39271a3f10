"""List the files of a files spout: find, name and sort them, and check that they are readable, before anything runs.

A file's *name* is its path below the listing's root, with slashes. Metadata holds names, and files are sorted by name.
Empty files are not listed; when they get content, they count as new files.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import attrs

from spouts.files.packed import PACKED_SUFFIXES, suffix_of
from txtopo.errors import InputError
from txtopo.files.places import is_address, local_path

REFUSED_SUFFIXES = frozenset(
    {".7z", ".br", ".deflate", ".gzip", ".lz4", ".lzma", ".lzo", ".rar", ".snappy"}
    | {".tar", ".tbz", ".tbz2", ".tgz", ".txz", ".xz", ".z", ".zip"}
)
"""Suffixes of archives, and of compressed files that are not read."""

FILES_MAX = 1_000_000
"""The maximum number of files in a listing."""

_LEADS_NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""The errors for a missing name, and for a link that is broken, leads below a file, or is circular."""

_IS_NOWHERE = _LEADS_NOWHERE | {errno.ENAMETOOLONG}
"""The errors for what a pattern does not match."""

UNFINISHED_SUFFIXES = (".tmp", ".crc", "._COPYING_")
"""Suffixes of incomplete files in a growing folder, and of checksum files."""


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
    """Its modification time, in nanoseconds; of an object, a number that stands for its version."""
    modified_ns: int | None = attrs.field(default=None, eq=False)
    """When an object was put, in nanoseconds since 1970."""

    @property
    def arrival_ns(self) -> int:
        """About when it came, in nanoseconds since 1970."""
        return self.mtime_ns if self.modified_ns is None else self.modified_ns


@attrs.frozen
class FileRange:
    """One range of a transaction, as in its metadata: start, end, and the file's size and mtime when planned."""

    name: str
    start: int
    end: int
    size: int
    mtime_ns: int


@attrs.frozen
class Listing:
    """The non-empty files below a root, sorted by name."""

    root: str
    files: tuple[InputFile, ...]
    suffixes: frozenset[str]
    """The suffixes of their names, in lower case and without that of a compression; those of the empty files if there
    are no others."""


def absolute_paths(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return one or several paths as absolute ones, which are valid in processes with other working directories.

    Addresses such as ``s3://bucket/folder`` stay what they are.

    Raises:
        InputError: no path is given, or one is an address and another is not.
        ConfigError: an address has lost a slash as a path.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise InputError("no path is given; give a folder, a file, a glob, or a list of these")
    addresses = [os.fspath(each).rstrip("/") for each in paths if is_address(each)]
    if addresses and len(addresses) < len(paths):
        raise InputError(f"{addresses[0]} is in an object store, and another path is not; read them by two topologies")
    return tuple(addresses) or tuple(str(local_path(each)) for each in paths)


def folder_of_all(paths: Sequence[str]) -> str:
    """Return the folder that all of some paths are in, or the path if it is one without a wildcard."""
    common = os.path.commonprefix([path.split("/") for path in paths])  # noqa: RUF071 - it compares lists of names
    return "/".join(itertools.takewhile(lambda part: not glob.has_magic(part), common)) or "/"


def list_files(paths: Sequence[str]) -> Listing:
    """List the files of folders (with all subfolders), files and globs.

    Names that begin with ``.`` or ``_`` are skipped, unless a path, which is absolute, names them explicitly.

    Raises:
        InputError: a path matches no file, or a file cannot be read.
    """
    roots: list[str] = []
    statuses: dict[str, os.stat_result] = {}
    for path in paths:
        try:
            root, matches = _matches(path)
        except OSError as error:
            raise InputError(f"{error.filename or path} cannot be read: {error.strerror}", cause=str(error)) from error
        roots.append(root)
        empty = True
        for match in matches:
            for file, status in _walk(match, ()):
                statuses[file] = status
                empty = False
                if len(statuses) > FILES_MAX:
                    raise InputError(f"{path} has more than {FILES_MAX} files; give a narrower path")
        if empty:
            raise InputError(f"there is no file in {path}; put one there, or give another path")
    root = os.path.commonpath(roots)
    files = sorted(_named(root, statuses), key=lambda file: file.name)
    suffixes = frozenset(map(suffix_of, [file.path for file in files] or statuses))
    return Listing(root, tuple(files), suffixes)


def folders_of(paths: Sequence[str]) -> list[str]:
    """Return each path's folder: itself, that of a file, or a glob's fixed part; InputError if it does not exist."""
    folders = [_root(path)[0] for path in paths]
    for path, folder in zip(paths, folders, strict=True):
        if not Path(folder).is_dir():
            raise InputError(f"there is no folder {folder} for the path {path}; create it, or check the path")
    return folders


def scan_names(paths: Sequence[str], root: str) -> dict[str, str]:
    """Return the path of each name that may be a complete file, without calling stat on the files.

    Hidden names, unfinished ones and ``_temporary`` folders are skipped, as in Spark. The result includes linked files
    and linked folders; :func:`look_at` distinguishes them.

    Args:
        paths: absolute paths of folders, files and globs.
        root: the folder that the names are relative to.

    Raises:
        OSError: a folder cannot be read. A folder that disappears meanwhile is skipped unless it is one of ``paths``.
        InputError: there are too many files.
    """
    start = len(os.path.join(root, ""))  # noqa: PTH118 - no Path for each of 100,000 names
    paths_by_name: dict[str, str] = {}
    for path in paths:
        for match in _matches_now(path):
            if os.path.isdir(match):  # noqa: PTH112 - as above
                paths_by_name.update((file[start:], file) for file in _scan_folder(match, is_given=match == path))
            elif match == path or not is_unfinished(Path(match).name):
                paths_by_name[match[start:]] = match
        if len(paths_by_name) > FILES_MAX:
            raise InputError(f"{path} has more than {FILES_MAX} files; give a narrower path, or move old files away")
    return paths_by_name


def _scan_folder(top: str, *, is_given: bool) -> Iterator[str]:
    folders = [top]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if is_unfinished(entry.name):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        yield entry.path
        except FileNotFoundError:  # somebody removed it after it was listed
            if is_given and folder == top:
                raise


def look_at(name: str, path: str) -> InputFile | None:
    """Return the current file of a name in a growing folder; None if it is not a file, or an empty one."""
    try:
        status = os.stat(path)  # noqa: PTH116 - no Path for each of 100,000 names
    except OSError as error:
        if error.errno in _LEADS_NOWHERE:
            return None
        raise
    if stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and not status.st_size):
        return None
    return InputFile(name, path, status.st_size, status.st_mtime_ns)


def check_complete(file: InputFile) -> None:
    """Raise InputError if a complete file of a growing folder can't be read."""
    _check_readable(file.path, os.stat(file.path))  # noqa: PTH116 - as above
    _check_name(file.name, file.path)


def is_unfinished(name: str) -> bool:
    """Whether a name in a growing folder is skipped, as in Spark's file source: hidden, or not complete."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith(UNFINISHED_SUFFIXES)


def describe(file: InputFile) -> str:
    """Return a file's size and mtime, or an object's size and version, for an error."""
    return f"{file.size} bytes, {'version' if is_address(file.path) else 'mtime_ns'} {file.mtime_ns}"


class FileChangedError(InputError):
    """A file has changed since it was planned, or is missing."""


def check_version(path: str, planned: FileRange | InputFile, now: InputFile | None) -> None:
    """Raise FileChangedError if a file is missing (None), or not the one that it was when it was planned."""
    before = InputFile(planned.name, path, planned.size, planned.mtime_ns)
    if now is None:
        raise FileChangedError(
            f"{path} is missing; it had {describe(before)} when its transaction was planned; put it back"
        )
    if now != before:
        raise FileChangedError(
            f"{path} has changed since its transaction was planned: it had {describe(before)}, now it has "
            f"{describe(now)}; put the original file back, and put new data in a new file",
        )


def check_unchanged(path: str, planned: FileRange | InputFile, handle: IO[bytes] | None = None) -> None:
    """Raise FileChangedError if a file, without a handle that at the path, is not there as it was planned."""
    now = None
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(path if handle is None else handle.fileno())  # noqa: PTH116 - the same call on a handle
        now = InputFile(planned.name, path, status.st_size, status.st_mtime_ns)
    check_version(path, planned, now)


def _named(root: str, statuses: dict[str, os.stat_result]) -> Iterator[InputFile]:
    for path, status in statuses.items():
        name = Path(path).relative_to(root).as_posix()
        _check_name(name, path)
        if status.st_size:
            yield InputFile(name, path, status.st_size, status.st_mtime_ns)


def _matches_now(path: str) -> list[str]:
    if not glob.has_magic(path) and not os.path.exists(path):  # noqa: PTH110 - a str, as everywhere here
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return _matches(path)[1]


def _matches(path: str) -> tuple[str, list[str]]:
    """Return a path's root, and the files and folders that it matches; raise OSError if a folder can't be read."""
    root, is_glob = _root(path)
    if not is_glob:
        return root, [path]
    top = Path(root)
    tail = Path(path).relative_to(top).parts
    skips_links = "**" in tail[:-1]
    shown = [
        match
        for match in _glob([top], tail)
        if not any(map(is_hidden, match.relative_to(top).parts))
        and not (skips_links and match.is_symlink() and match.is_dir())
    ]
    return root, sorted(map(str, shown))


def _glob(tops: Sequence[Path], parts: Sequence[str]) -> set[Path]:
    """Return the paths below some folders that the parts of a pattern match; ``**`` does not follow links to folders.

    A linked folder would give its files a second name, and a link to one of its own parents would give them 40 names.
    """
    folders = {*tops}
    for index, part in enumerate(parts):
        if part == "**":
            folders = {below for top in folders for below in _folders(top)} if index + 1 < len(parts) else folders
        elif glob.has_magic(part):
            folders = {top / name for top in folders for name in fnmatch.filter(_entries(top), part)}
        else:
            folders = {top / part for top in folders if _is_there(top / part)}
    return folders


def _folders(top: Path) -> Iterator[Path]:
    """Yield a folder and those below it, but those of links."""
    yield top
    for name in _entries(top):
        below = top / name
        if not below.is_symlink() and below.is_dir():
            yield from _folders(below)


def _entries(folder: Path) -> list[str]:
    """Return the names in a folder that are not hidden; none if there is no such folder."""
    try:
        return [name for name in os.listdir(folder) if not is_hidden(name)]  # noqa: PTH208 - names only
    except OSError as error:
        if error.errno in _IS_NOWHERE:
            return []
        raise


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except OSError as error:
        if error.errno in _IS_NOWHERE:
            return False
        raise
    return True


def _root(path: str) -> tuple[str, bool]:
    """Return the folder of a path, and whether the path is a glob."""
    try:
        is_folder = stat.S_ISDIR(Path(path).stat().st_mode)
    except OSError as error:
        return _root_of_pattern(path, error), True
    return (path if is_folder else str(Path(path).parent)), False


def _root_of_pattern(path: str, why: OSError) -> str:
    """Return the folder above the first pattern in a path, which can't be read itself."""
    parts = Path(path).parts
    fixed = next((index for index, part in enumerate(parts) if glob.has_magic(part)), None)
    if fixed is not None:
        return str(Path(*parts[:fixed]))
    if why.errno in _LEADS_NOWHERE:
        raise InputError(f"there is no file or folder {path}; check the path")
    raise InputError(f"{path} cannot be read: {why.strerror}", cause=str(why)) from why


def _walk(path: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every file at or below ``path``; ``above`` are device and inode of the parent folders."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", cause=str(error)) from error
    if stat.S_ISDIR(status.st_mode):
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            raise InputError(f"folder {path} links to one of its own parents; remove the link")
        for name in _names(path):
            below = Path(path) / name
            if not (below.is_symlink() and below.is_dir()):  # as os.walk: its files may be listed already
                yield from _walk(str(below), (*above, identity))
        return
    _check_readable(path, status)
    yield path, status


def _check_readable(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is neither a file nor a folder; remove it, or give a narrower path")
    check_suffix(path)
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} cannot be read; grant read permission")


def check_suffix(path: str) -> None:
    """Raise InputError for an archive, and for a compressed file that is not read."""
    if not REFUSED_SUFFIXES.isdisjoint({suffix_of(path), Path(path).suffix.lower()}):
        raise InputError(
            f"{path} is compressed, or an archive, in a way that is not read; unpack it, or compress its files as "
            f"{', '.join(PACKED_SUFFIXES)} (Parquet files have compression of their own)"
        )


def _check_name(name: str, path: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the name of file {path!r} is not UTF-8; rename it") from error


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not is_hidden(name))  # noqa: PTH208 - names only
    except OSError as error:
        raise InputError(f"folder {folder} cannot be read: {error.strerror}", cause=str(error)) from error


def is_hidden(name: str) -> bool:
    """Whether a name is skipped in a listing without ``watch``."""
    return name.startswith((".", "_"))
