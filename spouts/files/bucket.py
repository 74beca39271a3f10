"""The files of a files spout in a bucket: objects, which appear whole and are told apart by what the store calls them.

What a store says of an object's version, its *tag*, stands where a file's time stands: on S3 it is a checksum of the
content, so an original that is put back is the original; on Azure it changes with each put. Every read asks for the
version that was planned, so that no attempt reads a part of one and a part of another.

A bucket has no folders: a path is the beginning of names, which nothing has to have yet, and is never missing.
"""

from __future__ import annotations

import fnmatch
import functools
import glob
import hashlib
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import attrs

from spouts.files.file_system import Scan
from spouts.files.listing import (
    FILES_MAX,
    FileChangedError,
    FileRange,
    InputFile,
    Listing,
    check_suffix,
    check_version,
    is_hidden,
    is_unfinished,
)
from spouts.files.packed import suffix_of
from txtopo.errors import InputError
from txtopo.files.durable import in_background
from txtopo.files.folder import Item
from txtopo.files.objects import ObjectFolder


@attrs.frozen
class Bucket:
    """The objects of a store; see :class:`~spouts.files.file_system.FileSystem`. Picklable.

    ``options`` are those of tables there.
    """

    options: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)  # they may hold secrets
    read_bytes_min: int = 256 * 1024
    """What a request reads at least; from one to the next, if they follow one another, it doubles."""
    read_bytes_max: int = 8 * 1024 * 1024
    """What it reads at most."""

    def absolute(self, path: str) -> str:
        """Return an address as it is."""
        return path

    def folders_of(self, paths: Sequence[str]) -> list[str]:
        """Return what the names of each path begin with; for a single object, the folder that it would be in.

        Raises:
            txtopo.errors.BucketUnreachable: there are no credentials, or the store does not answer.
        """
        return [self._top(path) for path in paths]

    def root_of(self, folders: Sequence[str]) -> str:
        """Return the longest folder that all are in; raise InputError if they are in several buckets."""
        buckets = {_split(folder)[0] for folder in folders}
        if len(buckets) > 1:
            raise InputError(f"the paths are in several buckets, {', '.join(sorted(buckets))}; give those of one")
        parts = [_split(folder)[1].split("/") for folder in folders]
        levels = zip(*parts, strict=False)
        shared = [level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, levels)]
        return _joined(buckets.pop(), "/".join(shared))

    def list_files(self, paths: Sequence[str]) -> Listing:
        """List the objects of paths; raise InputError if one has none, or one can't be read."""
        items: dict[str, Item] = {}
        for path in paths:
            before = len(items)
            items.update(self._objects_of(path, is_hidden))
            if len(items) == before:
                raise InputError(f"there is no file in {path}; put one there, or give another path")
            _check_number(path, items)
        root = self.root_of(self.folders_of(paths))
        files = [_input_file(path.removeprefix(f"{root}/"), path, item) for path, item in items.items()]
        for path in items:
            check_suffix(path)
        suffixes = frozenset(map(suffix_of, [file.path for file in files if file.size] or items))
        return Listing(root, tuple(sorted((file for file in files if file.size), key=lambda file: file.name)), suffixes)

    def scan(self, paths: Sequence[str], root: str) -> Scan:
        """List the objects of paths, each with its version: no object is asked for by itself."""
        items: dict[str, Item] = {}
        for path in paths:
            items.update(self._objects_of(path, is_unfinished))
            _check_number(path, items)
        names = {path.removeprefix(f"{root}/"): path for path in items}

        def look_at(name: str) -> InputFile | None:
            item = items.get(names.get(name, ""))
            return _input_file(name, names[name], item) if item is not None and item.size else None

        return Scan(names, look_at)

    def look_at(self, name: str, path: str) -> InputFile | None:
        """Return the current object of a name; None if there is none, or an empty one."""
        item = self._item(path)
        return None if item is None or not item.size else _input_file(name, path, item)

    def is_there(self, path: str) -> bool:
        """Whether an object has a path."""
        return self._item(path) is not None

    is_file = is_there

    def is_folder(self, path: str) -> bool:
        """Whether anything is below a path."""
        bucket, key = _split(path)
        return next(self._folder(bucket).walk(key), None) is not None

    def is_mounted(self, folder: str) -> bool:
        """Return True: a bucket is there, or nothing of it can be asked for."""
        del folder
        return True

    def identity_of(self, folder: str) -> int:
        """Return 0: nothing is mounted in place of a bucket."""
        del folder
        return 0

    def check_complete(self, file: InputFile) -> None:
        """Raise InputError for an archive."""
        check_suffix(file.path)

    def opening(self, path: str, piece: FileRange) -> Callable[[], IO[bytes]]:
        """Begin to open an object beside what is done meanwhile."""
        return in_background(functools.partial(self.open, path, piece))

    def open(self, path: str, planned: FileRange | InputFile | None = None) -> IO[bytes]:
        """Open an object, of which only the version of now is read; a small one is read at once."""
        item = self._item(path)
        now = None if item is None else _input_file("" if planned is None else planned.name, path, item)
        if planned is not None:
            check_version(path, planned, now)
        if item is None:
            raise FileNotFoundError(f"{path} does not exist")
        bucket, key = _split(path)
        get_range = functools.partial(self._folder(bucket).get_range_of, item.tag, key)
        reader = _ObjectReader(get_range, path, item.size, self.read_bytes_min, self.read_bytes_max)
        if 0 < item.size <= self.read_bytes_min:
            reader.fill()
        return io.BufferedReader(reader)

    def check_unchanged(self, path: str, piece: FileRange, handle: IO[bytes]) -> None:
        """Do nothing: each read has asked for the planned version."""

    def for_arrow(self, handle: IO[bytes], path: str) -> Any:
        """Return the open object."""
        del path
        return handle

    def _folder(self, bucket: str) -> ObjectFolder:
        return ObjectFolder(bucket, self.options)

    def _item(self, path: str) -> Item | None:
        bucket, key = _split(path)
        return self._folder(bucket).item(key)

    def _top(self, path: str) -> str:
        bucket, fixed, pattern = _parts_of(path)
        if fixed and not pattern and not self.is_folder(path) and self.is_there(path):
            del fixed[-1]
        return _joined(bucket, "/".join(fixed))

    def _objects_of(self, path: str, is_skipped: Callable[[str], bool]) -> Iterator[tuple[str, Item]]:
        """Yield the objects of a path, by their addresses; an object that is given itself may have any name."""
        bucket, fixed, pattern = _parts_of(path)
        is_empty = True
        for item in self._folder(bucket).walk("/".join(fixed)):
            is_empty = False
            parts = item.path.split("/")[len(fixed) :]
            if not any(map(is_skipped, parts)) and _is_matched(parts, pattern):
                yield _joined(bucket, item.path), item
        item_itself = self._item(path) if is_empty and fixed and not pattern else None
        if item_itself is not None:
            yield path, item_itself


class _ObjectReader(io.RawIOBase):
    """Reads one version of an object, in parts that grow as long as they follow one another."""

    def __init__(
        self, get_range: Callable[[int, int], bytes | None], path: str, size: int, bytes_min: int, bytes_max: int
    ) -> None:
        super().__init__()
        self._get_range = get_range
        self._path = path
        self._size = size
        self._position = 0
        self._window = b""
        self._start = 0
        self._bytes_min, self._bytes_max = bytes_min, bytes_max
        self._ahead = bytes_min

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, begin + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        if self._position >= self._size:
            return 0
        if not self._start <= self._position < self._start + len(self._window):
            self.fill(len(buffer))
        offset = self._position - self._start
        data = self._window[offset : offset + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def fill(self, bytes_wanted: int = 0) -> None:
        """Read from the position on; raise FileChangedError if the object has another version now."""
        follows = self._window and self._position == self._start + len(self._window)
        self._ahead = min(self._bytes_max, 2 * self._ahead) if follows else self._bytes_min
        length = min(max(bytes_wanted, self._ahead), self._size - self._position)
        data = self._get_range(self._position, length)
        if data is None:
            raise FileChangedError(
                f"{self._path} has changed while it was read; put the original file back, and put new data in a new "
                "file"
            )
        self._window, self._start = data, self._position


def _split(path: str) -> tuple[str, str]:
    scheme, _, rest = path.partition("://")
    parts = rest.split("/")
    depth = 2 if scheme.startswith("http") else 1  # an account, and a container in it
    bucket = "/".join(parts[:depth])
    return f"{scheme}://{bucket}" if bucket else f"{scheme}:///", "/".join(parts[depth:])


def _joined(bucket: str, key: str) -> str:
    return f"{bucket}/{key}" if key and not bucket.endswith("/") else bucket + key


def _parts_of(path: str) -> tuple[str, list[str], list[str]]:
    """Return the address of a bucket, the fixed parts of a path in it, and its pattern."""
    bucket, key = _split(path)
    parts = key.split("/") if key else []
    fixed = next((index for index, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return bucket, parts[:fixed], parts[fixed:]


def _is_matched(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a name, or a folder that it is in, matches a pattern."""
    if not pattern:
        return True
    first, *rest = pattern
    if first == "**":
        return not rest or any(_is_matched(parts[index:], rest) for index in range(len(parts)))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], first) and _is_matched(parts[1:], rest)


def _input_file(name: str, path: str, item: Item) -> InputFile:
    tag = item.tag.removeprefix("W/").strip('"')  # a listing of Azure has no quotes
    version = int.from_bytes(hashlib.sha256(tag.encode()).digest()[:7], "big")
    return InputFile(name, path, item.size, version, round(item.modified_secs) * 10**9)


def _check_number(path: str, items: Mapping[str, Item]) -> None:
    if len(items) > FILES_MAX:
        raise InputError(f"{path} has more than {FILES_MAX} files; give a narrower path, or move old files away")
