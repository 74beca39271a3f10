"""Writes files whole, and syncs files and folders to disk, so that they survive a power failure."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import functools
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

DESCRIPTOR_SECS = 300.0
"""How long work waits for a file descriptor before it is tried without one, and fails."""

_THREADS_MAX = 64
"""The most threads for what goes on beside; a few of them may wait for others."""

_DESCRIPTOR_PAUSE_SECS = 0.5
"""Others close files at their own pace: asking more often helps nobody."""
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})

_SHORTAGES = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM},
)

NO_FOLDER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
"""The errors of a folder that does not exist, as none has a name that is longer than a file system takes."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

logger = logging.getLogger("txtopo")

T = TypeVar("T")


FULL, READ_ONLY = "the disk is full", "the file system is read-only"
"""What may be wrong with a disk."""


def why_not_written(error: Exception) -> str | None:
    """Return what is wrong with the disk, or with what the user may have of it, if an error says so."""
    if getattr(error, "errno", None) in _FULL or os.strerror(errno.ENOSPC) in str(error):
        return FULL
    is_read_only = getattr(error, "errno", None) == errno.EROFS or os.strerror(errno.EROFS) in str(error)
    return READ_ONLY if is_read_only else None


def is_read_only(folder: Path) -> bool:
    """Whether nothing can be written to the file system of a folder, also if only its kernel knows since an error."""
    try:
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return True
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600))  # it never has a name
    except OSError as error:
        return error.errno == errno.EROFS
    return False


def sync_path(path: str | Path) -> None:
    """Sync the content of a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def in_background(work: Callable[[], T]) -> Callable[[], T]:
    """Begin work that is over soon in another thread; return what waits for its end, and returns or raises the same.

    Two syncs at the same time take the disk as long as one: a data file and its name 3 ms, and not 6, on a busy disk.
    """
    return _threads().submit(work).result


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """The threads, which stay: to start one takes until it runs, 6 ms on a busy machine."""
    return ThreadPoolExecutor(_THREADS_MAX, "txtopo-background")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a child has none of its parent's threads


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file that a reader sees whole or not at all. It is not synced: a power failure may leave less.

    A crash before the rename leaves a draft, which the next write replaces; an error leaves none. One writer at a time.
    """
    draft = path.with_name(f".draft-{path.name}")
    with removed_on_error(draft):
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
        draft.replace(path)


@contextlib.contextmanager
def removed_on_error(draft: Path) -> Iterator[None]:
    """Remove a draft if what the block does to it fails: whoever tries again each second would fill the disk."""
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def is_shortage(error: OSError) -> bool:
    """Whether this machine lacks disk space, memory or file descriptors for now: a reason to try again, not to end."""
    return error.errno in _SHORTAGES


def has_descriptor() -> bool:
    """Whether this process can open a file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in _NO_DESCRIPTOR
    return True


def wait_for_descriptor(sleep: Callable[[float], None]) -> None:
    """Wait while this process can open no file, at most :data:`DESCRIPTOR_SECS`; whoever goes on may still fail."""
    for waited in range(int(DESCRIPTOR_SECS / _DESCRIPTOR_PAUSE_SECS)):
        if has_descriptor():
            return
        if not waited:
            logger.warning("no file descriptor is left (ulimit -n): work waits until this process can open files again")
        sleep(_DESCRIPTOR_PAUSE_SECS)


def remedy(error: OSError) -> str:
    """Return what to do before the next try at writing a file."""
    if error.errno in _NO_DESCRIPTOR:
        return "Let the process open more files (ulimit -n)"
    if why_not_written(error) == READ_ONLY:
        return "Make the file system writable"
    return "Free some disk space"


def is_folder(path: Path) -> bool:
    """Whether there is a folder; none has a name that is longer than a file system takes."""
    try:
        return path.is_dir()
    except OSError:
        return False


def paths_in(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the paths in a folder whose names match a pattern, sorted; none if there is no such folder.

    Raises:
        OSError: it can't be read, for example without a file descriptor; ``Path.glob`` says that nothing is there.
    """
    return [folder / name for name in sorted(fnmatch.filter(names_in(folder), pattern))]


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, in any order; see :func:`paths_in`."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names only
    except OSError as error:
        if error.errno in NO_FOLDER:
            return []
        raise


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and sync the names of the new ones."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_path(folder.parent)
