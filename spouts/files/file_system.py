"""Where a files spout's files are: on a disk, as here, or in a bucket (:mod:`spouts.files.bucket`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import attrs

from spouts.files.listing import (
    FileRange,
    InputFile,
    Listing,
    check_complete,
    check_unchanged,
    folders_of,
    list_files,
    look_at,
    scan_names,
)


@attrs.frozen
class Scan:
    """The names of what may be complete files, by their paths, as of one moment.

    ``look_at`` returns what a name stands for now, or stood for then; None: for no file, or an empty one.
    """

    paths: Mapping[str, str]
    look_at: Callable[[str], InputFile | None]

    def __contains__(self, name: str) -> bool:
        return name in self.paths


class FileSystem(Protocol):
    """What the spout asks for. Paths are absolute; names are relative to a root. All methods may raise OSError."""

    def absolute(self, path: str) -> str:
        """Return a path as an absolute one."""

    def folders_of(self, paths: Sequence[str]) -> list[str]:
        """Return the folder of each path; see :func:`~spouts.files.listing.folders_of`."""

    def root_of(self, folders: Sequence[str]) -> str:
        """Return the folder that all folders are in."""

    def list_files(self, paths: Sequence[str]) -> Listing:
        """List files without ``watch``; see :func:`~spouts.files.listing.list_files`."""

    def scan(self, paths: Sequence[str], root: str) -> Scan:
        """List files with ``watch``; see :func:`~spouts.files.listing.scan_names`."""

    def look_at(self, name: str, path: str) -> InputFile | None:
        """Return the current file of a name; None if it is not a file, or an empty one."""

    def is_there(self, path: str) -> bool:
        """Whether anything has a path, be it an empty file or a link that leads nowhere."""

    def is_file(self, path: str) -> bool:
        """Whether a file has a path."""

    def is_folder(self, path: str) -> bool:
        """Whether a folder has a path, and can be listed."""

    def is_mounted(self, folder: str) -> bool:
        """Whether names that a listing of a folder lacks are missing, rather than all of it away."""

    def identity_of(self, folder: str) -> int:
        """Return a number that another folder by the same path does not have."""

    def check_complete(self, file: InputFile) -> None:
        """Raise InputError if a complete file can't be read."""

    def opening(self, path: str, piece: FileRange) -> Callable[[], IO[bytes]]:
        """Begin to open a file, maybe before it is asked for; see :meth:`open`."""

    def open(self, path: str, planned: FileRange | InputFile | None = None) -> IO[bytes]:
        """Open a file; raise FileChangedError unless it is the one that was planned."""

    def check_unchanged(self, path: str, piece: FileRange, handle: IO[bytes]) -> None:
        """Raise FileChangedError if what was read may not be what was planned, or another attempt would refuse it."""

    def for_arrow(self, handle: IO[bytes], path: str) -> Any:
        """Return what Arrow reads an open file by."""


@attrs.frozen
class Disk:
    """The file system of the machine."""

    def absolute(self, path: str) -> str:
        """See :class:`FileSystem`."""
        return os.path.abspath(path)  # noqa: PTH100 - Path.absolute keeps ".."

    def folders_of(self, paths: Sequence[str]) -> list[str]:
        """See :class:`FileSystem`."""
        return folders_of(paths)

    def root_of(self, folders: Sequence[str]) -> str:
        """See :class:`FileSystem`."""
        return os.path.commonpath(folders)

    def list_files(self, paths: Sequence[str]) -> Listing:
        """See :class:`FileSystem`."""
        return list_files(paths)

    def scan(self, paths: Sequence[str], root: str) -> Scan:
        """See :class:`FileSystem`."""
        paths_by_name = scan_names(paths, root)
        return Scan(paths_by_name, lambda name: look_at(name, os.path.join(root, name)))  # noqa: PTH118 - of 100,000 names

    def look_at(self, name: str, path: str) -> InputFile | None:
        """See :class:`FileSystem`."""
        return look_at(name, path)

    def is_there(self, path: str) -> bool:
        """See :class:`FileSystem`."""
        return os.path.lexists(path)

    def is_file(self, path: str) -> bool:
        """See :class:`FileSystem`."""
        return Path(path).is_file()

    def is_folder(self, path: str) -> bool:
        """See :class:`FileSystem`."""
        return Path(path).is_dir()

    def is_mounted(self, folder: str) -> bool:
        """See :class:`FileSystem`."""
        return Path(folder).is_dir()

    def identity_of(self, folder: str) -> int:
        """See :class:`FileSystem`."""
        return Path(folder).stat().st_ino

    def check_complete(self, file: InputFile) -> None:
        """See :class:`FileSystem`."""
        check_complete(file)

    def opening(self, path: str, piece: FileRange) -> Callable[[], IO[bytes]]:
        """See :class:`FileSystem`."""
        return lambda: self.open(path, piece)

    def open(self, path: str, planned: FileRange | InputFile | None = None) -> IO[bytes]:
        """See :class:`FileSystem`."""
        if planned is None:
            return Path(path).open("rb")
        check_unchanged(path, planned)  # before it is opened, too: the error then says what it was
        handle = Path(path).open("rb")  # noqa: SIM115 - the caller closes it
        try:
            check_unchanged(path, planned, handle)
        except BaseException:
            handle.close()
            raise
        return handle

    def check_unchanged(self, path: str, piece: FileRange, handle: IO[bytes]) -> None:
        """See :class:`FileSystem`."""
        for file in (handle, None):  # the open file, and the file that another attempt would open
            check_unchanged(path, piece, file)

    def for_arrow(self, handle: IO[bytes], path: str) -> Any:
        """Return a path to an open file, even if another file has its name now; without ``/proc``, its former path."""
        # Arrow opens files by path only, and reads them without the GIL.
        path_of_handle = f"/proc/self/fd/{handle.fileno()}"
        return path_of_handle if os.path.exists(path_of_handle) else path  # noqa: PTH110 - a str, as everywhere here


DISK = Disk()
