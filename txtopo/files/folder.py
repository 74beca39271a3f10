"""A folder of files that survive a power failure: the one way to what lies beside, and in, the tables.

Everything that is written through it is durable when the call returns, and no reader ever sees a part of a put. An
object store has the same operations, so this is the seam behind which a table may lie elsewhere.
"""

from __future__ import annotations

import builtins
import errno
import functools
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Protocol

import attrs

from txtopo.errors import ConfigError
from txtopo.failpoints import reach
from txtopo.files.durable import NO_FOLDER, in_background, make_folder, names_in, paths_in, removed_on_error, sync_path

Content = bytes | memoryview | Callable[[IO[bytes]], None]
"""What a new file is to have, or what writes it to the file: so it need not be in memory at once."""

_DRAFT = ".draft-"
"""Begins the name of a file that is being written: hidden from Spark, delta-rs and vacuum, and before all versions of
a log."""

_NO_FILE = {errno.ENOENT, errno.ELOOP}
"""The errors of a name that was removed since it was listed, and of a link that leads round in a circle."""

_NOT_LINKED = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""Why a file has to be copied: it would be on another file system, or the file system has no further link to it."""

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write_content(content: Content, file: IO[bytes]) -> None:
    """Write to an open file what it is to have."""
    if callable(content):
        content(file)
    else:
        file.write(content)


@attrs.frozen
class Item:
    """A file in a folder.

    Args:
        path: relative to the folder, with ``/``.
        size: in bytes.
        modified_secs: when it was last written, in seconds since 1970, by the clock of whoever keeps it.
        tag: what an object store says of its version; empty on a disk.
    """

    path: str
    size: int
    modified_secs: float
    tag: str = ""


class Growing(Protocol):
    """A file that one writer makes longer; made by :meth:`Folder.begin`."""

    @property
    def size(self) -> int:
        """Its length in bytes."""

    @property
    def bytes_max(self) -> int:
        """A file that is longer is dear to make longer still, so its writer begins another one."""

    def append(self, content: bytes) -> bool:
        """Add to the end of the file; return whether it was, durable if so.

        Nothing is written if somebody else has changed the file, or if it is gone. A crash before the return may leave
        a part of the content.
        """

    def is_in_place(self) -> bool:
        """Whether the file is there, and as it was left by its writer."""


class Folder(Protocol):
    """Files by path, relative to the folder and with ``/``. As text, it is the place where it lies.

    All methods raise OSError if the folder cannot be reached.
    """

    @property
    def name(self) -> str:
        """The last part of the place where it lies."""

    @property
    def parent(self) -> Folder:
        """The folder that this one is in."""

    def below(self, path: str) -> Folder:
        """Return a folder in this one, which may not exist."""

    def put(self, path: str, content: bytes | memoryview, *, is_durable: bool = True) -> None:
        """Write a file, or replace it whole; durable on return.

        A crash before the return leaves the old file or the new one. A file that need not outlive a power failure may
        be written without waiting for the disk.
        """

    def put_new(self, path: str, content: Content, meanwhile: Callable[[int], None] = lambda _size: None) -> None:
        """Write a file by a name that nobody has used or knows; durable on return.

        A crash before the return may leave a part of it. ``meanwhile`` is called with its size, in bytes, while it
        becomes durable.
        """

    def put_if_absent(self, path: str, content: bytes | memoryview) -> bool:
        """Write a file unless there is one; return whether it was written, durable if so.

        Of several writers of one path exactly one is told True. A crash before the return leaves no file or a whole
        one.
        """

    def begin(self, path: str, content: bytes) -> Growing | None:
        """Write a file that is to be made longer, as :meth:`put_if_absent`; return None if there is one."""

    def get(self, path: str) -> bytes:
        """Return a file's content.

        Raises:
            FileNotFoundError: there is no such file.
        """

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes of a file from ``start`` on, fewer at its end; see :meth:`get`."""

    def list(self, below: str = "", after: str = "") -> Iterator[Item]:
        """Yield the files in the folder ``below`` (not in its sub-folders) in the order of their names.

        Args:
            below: a path; files of a folder that does not exist are none.
            after: only names greater than this one.
        """

    def names(self, below: str = "") -> builtins.list[str]:
        """Return the names in the folder ``below``, in any order: of its files, and on a disk of all else, too.

        On a disk that takes a tenth of the time of :meth:`list`.
        """

    def folders(self, below: str = "") -> builtins.list[str]:
        """Return the sorted names of the folders in the folder ``below``."""

    def is_empty(self, below: str = "") -> bool:
        """Whether nothing lies below a path: no file, and on a disk no folder either."""

    def delete_all(self, below: str = "") -> None:
        """Remove all that lies below a path; not synced, and a crash leaves some of it."""

    def delete(self, path: str, *, is_durable: bool = False) -> None:
        """Remove a file if it is there.

        Not synced unless it is asked for: mostly, a removal that a power failure takes back does no harm.
        """

    def move(self, below: str, to: str) -> None:
        """Move what lies below one path, if anything does, to another, below which nothing may lie; durable on return.

        A crash before the return may leave files below either path; the same move again takes the rest.
        """

    def take(self, paths: Iterable[str], origin: Folder) -> None:
        """Have files of another folder here, too, by the same paths; durable on return.

        They are files that never change. A crash before the return leaves some of them, and no part of one in an object
        store.

        Raises:
            FileNotFoundError: one of them is not there.
        """

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes; None if there is no such file."""


@attrs.frozen(eq=False)
class Draft:
    """A file that has its content and not its name yet; it is synced beside what its writer does meanwhile.

    Args:
        path: where it is.
        place: where it is to be.
        synced: waits until it is synced.
    """

    path: Path
    place: Path
    synced: Callable[[], None]

    def put_if_absent(self) -> bool:
        """Give it its name once it is synced; see :meth:`LocalFolder.put_if_absent`."""
        with removed_on_error(self.path):
            self.synced()
        reach("folder.drafted")
        return _named(self.path, self.place)

    def discard(self) -> None:
        """Remove it."""
        self.path.unlink(missing_ok=True)


@attrs.frozen
class LocalFolder:
    """A folder of a file system, on this machine or mounted.

    A file is written as a draft and synced; then it gets its name, by a rename if it may replace another one and by a
    hard link if it may not, because a link is the one way to a name that fails if somebody else was faster; then the
    folder that has the name is synced. A draft that a crash leaves is removed by :meth:`remove_drafts`.

    Args:
        root: its absolute path.
        makes_folders: whether a file's folder is made if it is missing. Otherwise a write fails if somebody has removed
            it, and nothing comes back in its place.
    """

    root: Path
    makes_folders: bool = True

    @property
    def name(self) -> str:
        """See :class:`Folder`."""
        return self.root.name

    @property
    def parent(self) -> LocalFolder:
        """See :class:`Folder`."""
        return attrs.evolve(self, root=self.root.parent)

    def below(self, path: str) -> LocalFolder:
        """See :class:`Folder`."""
        return attrs.evolve(self, root=self.root / path)

    def put(self, path: str, content: bytes | memoryview, *, is_durable: bool = True) -> None:
        """See :class:`Folder`.

        1. A crash before the rename leaves a draft; :meth:`remove_drafts` removes it.
        2. A power failure between the rename and the sync of the folder leaves the old file or the new one.
        """
        draft, place = self._draft(path, content, is_durable=is_durable), self.root / path
        if is_durable:
            reach("folder.drafted")
        with removed_on_error(draft):
            draft.replace(place)
        if is_durable:
            reach("folder.named")
            sync_path(place.parent)

    def put_new(self, path: str, content: Content, meanwhile: Callable[[int], None] = lambda _size: None) -> None:
        """See :class:`Folder`. The file and the folder that has its name are synced at the same time."""
        place = self.root / path
        if self.makes_folders:
            make_folder(place.parent)
        with place.open("xb") as file, removed_on_error(place):
            write_content(content, file)
            file.flush()
            reach("folder.named")
            # The file here, which gives Python's interpreter lock away: another thread would have to wait for it first.
            named = in_background(functools.partial(sync_path, place.parent))
            callback = in_background(functools.partial(meanwhile, file.tell()))
            try:
                os.fsync(file.fileno())
            finally:
                callback()
            named()

    def put_if_absent(self, path: str, content: bytes | memoryview) -> bool:
        """See :class:`Folder`.

        1. A crash before the link leaves a draft, and one after it a draft beside the file: as for :meth:`put`.
        2. A power failure between the link and the sync of the folder may lose the name that others have seen. Whoever
           is to write the file then puts it again.

        Raises:
            ConfigError: the file system has no hard links.
        """
        draft = self._draft(path, content)
        reach("folder.drafted")
        return _named(draft, self.root / path)

    def drafted(self, path: str, content: bytes) -> Draft:
        """Begin to put a file if absent, before it may have its name."""
        draft = self._draft(path, content, is_durable=False)
        return Draft(draft, self.root / path, in_background(functools.partial(sync_path, draft)))

    def begin(self, path: str, content: bytes) -> Growing | None:
        """See :class:`Folder`."""
        return _GrowingFile(self.root / path, len(content)) if self.put_if_absent(path, content) else None

    def get(self, path: str) -> bytes:
        """See :class:`Folder`."""
        return (self.root / path).read_bytes()

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """See :class:`Folder`."""
        with (self.root / path).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def list(self, below: str = "", after: str = "") -> Iterator[Item]:
        """See :class:`Folder`."""
        # Not by pathlib, which takes 2.5x as long: a table has a file for each write of the recent time.
        try:
            with os.scandir(self.root / below) as entries:
                entries_after = sorted((entry for entry in entries if entry.name > after), key=lambda entry: entry.name)
        except OSError as error:
            if error.errno not in NO_FOLDER:
                raise
            return
        for entry in entries_after:
            try:
                status = entry.stat()
            except OSError as error:
                if error.errno not in _NO_FILE:
                    raise
                continue
            if not entry.name.startswith(_DRAFT) and stat.S_ISREG(status.st_mode):
                path = f"{below}/{entry.name}" if below else entry.name
                yield Item(path, status.st_size, status.st_mtime)

    def names(self, below: str = "") -> builtins.list[str]:
        """See :class:`Folder`."""
        return names_in(self.root / below)

    def folders(self, below: str = "") -> builtins.list[str]:
        """See :class:`Folder`."""
        return [path.name for path in paths_in(self.root / below) if path.is_dir()]

    def is_empty(self, below: str = "") -> bool:
        """See :class:`Folder`."""
        place = self.root / below
        return not (place.is_file() or any(not name.startswith(_DRAFT) for name in self.names(below)))

    def delete_all(self, below: str = "") -> None:
        """See :class:`Folder`. Folders above it that are empty then stay."""
        shutil.rmtree(self.root / below, ignore_errors=True)

    def delete(self, path: str, *, is_durable: bool = False) -> None:
        """See :class:`Folder`."""
        place = self.root / path
        place.unlink(missing_ok=True)
        if is_durable:
            sync_path(place.parent)

    def move(self, below: str, to: str) -> None:
        """See :class:`Folder`. Here it is one rename."""
        source, target = self.root / below, self.root / to
        if not source.exists():
            return
        make_folder(target.parent)
        source.rename(target)
        for folder in {source.parent, target.parent}:  # a repair goes on as if this had happened
            sync_path(folder)

    def take(self, paths: Iterable[str], origin: Folder) -> None:
        """See :class:`Folder`. A file gets a second name, or is copied where that is not possible."""
        links = []
        for path in paths:
            target = self.root / path
            make_folder(target.parent)
            if isinstance(origin, LocalFolder):
                try:
                    os.link(origin.root / path, target)
                except OSError as error:
                    if error.errno not in _NOT_LINKED:
                        raise
                    shutil.copyfile(origin.root / path, target)
            else:
                target.write_bytes(origin.get(path))
            links.append(target)
        for place in (*links, *{place.parent for place in links}):
            sync_path(place)

    def size(self, path: str) -> int | None:
        """See :class:`Folder`."""
        place = self.root / path
        return place.stat().st_size if place.is_file() else None

    def remove_drafts(self, below: str = "") -> None:
        """Remove what writers that died have left in a folder; no writer may be at work there."""
        for place in paths_in(self.root / below, f"{_DRAFT}*"):
            place.unlink(missing_ok=True)

    def __str__(self) -> str:
        return str(self.root)

    def _draft(self, path: str, content: bytes | memoryview, *, is_durable: bool = True) -> Path:
        """Write a draft beside the file that it will become."""
        parent = (self.root / path).parent
        if self.makes_folders:
            make_folder(parent)
        draft = parent / f"{_DRAFT}{uuid.uuid4().hex}"
        with removed_on_error(draft), draft.open("xb") as file:
            file.write(content)
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        return draft


@attrs.define(eq=False)
class _GrowingFile:
    """A file that is opened each time: one that was removed or replaced is not written to."""

    path: Path
    size: int
    bytes_max: int = 64 << 20

    def append(self, content: bytes) -> bool:
        try:
            # Without a buffer, which would be written once more when the file is closed.
            with self.path.open("r+b", buffering=0) as file:
                if file.seek(0, os.SEEK_END) != self.size:
                    return False
                try:
                    rest = memoryview(content)
                    while rest:
                        rest = rest[file.write(rest) :]
                    os.fdatasync(file.fileno())
                except OSError:
                    file.truncate(self.size)
                    raise
        except FileNotFoundError:
            return False
        self.size += len(content)
        return True

    def is_in_place(self) -> bool:
        return self.path.is_file() and self.path.stat().st_size == self.size


def _named(draft: Path, place: Path) -> bool:
    """Give a synced draft its name unless that is taken, durably, and remove the draft; return whether it has it."""
    try:
        os.link(draft, place)
    except FileExistsError:
        # A network file system may have made the link and lost the answer. Then the draft has two names.
        if draft.stat().st_nlink == 1:
            return False
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise ConfigError(
                f"the file system of {place.parent} has no hard links ({error.strerror}), so two writers could both "
                "take one version of a table; put the folder on a file system that has them, such as ext4, xfs or NFS"
            ) from None
        raise
    finally:
        draft.unlink(missing_ok=True)
    reach("folder.named")
    sync_path(place.parent)
    return True
