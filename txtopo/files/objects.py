# ruff: noqa: D102 - the methods are those of txtopo.files.folder.Folder
"""Files in an object store, by the library obstore: the same Rust crate that delta-rs uses.

A put is durable and whole when it is answered. A put of a name that must be free is conditional, which S3, Azure,
Google and what is compatible with them check in one step.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import os
import re
import tempfile
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import attrs

from txtopo.errors import BucketUnreachable, ConfigError
from txtopo.files.durable import in_background
from txtopo.files.folder import Content, Folder, Growing, Item, write_content
from txtopo.text.client_properties import resolved
from txtopo.text.extras import how_to_install
from txtopo.text.native import native_text

Version = tuple[tuple[str, str], ...]
"""What a store says of the version of an object, by name."""

_MEMORY = "memory:///"

_PART_BYTES = 16 * 1024 * 1024
"""What is longer is put in parts of this size: two requests more, and what a crash leaves of them is out of sight."""

_SPOOLED_BYTES = 1 << 24
"""What is longer lies on the disk while it is put: a merged file of 5,000,000 rows would take 250 MB of memory."""

_OF_ADDRESS = "/:@!$&'()*+,;=~"
"""What is in the path of an address as it is."""

_OF_CLIENT = re.compile(r"(?:aws_|azure_|google_)?((?:allow|connect|http1|http2|pool|proxy)_.*|timeout|user_agent)")
"""Options of the HTTP client, which delta-rs takes among those of the store, also with the store's prefix."""


@attrs.frozen
class ObjectFolder:
    """The objects below an address, such as ``s3://bucket/table``; see :class:`~txtopo.files.folder.Folder`. Picklable.

    ``options`` are those of delta-rs; what it alone knows is left out. A value may be ``env:NAME`` or ``file:PATH``.
    """

    address: str
    options: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)  # they may hold secrets

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2]

    @property
    def parent(self) -> ObjectFolder:
        return attrs.evolve(self, address=self.address.rpartition("/")[0])

    def below(self, path: str) -> ObjectFolder:
        return attrs.evolve(self, address=f"{self.address}/{path}")

    def put(self, path: str, content: bytes | memoryview | IO[bytes], *, is_durable: bool = True) -> None:  # noqa: ARG002
        # A crash before the answer leaves the old object or the new one, and parts of a large one that the store keeps
        # out of sight until its own rule for unfinished uploads removes them.
        with self._store(path) as (obstore, store, key):
            obstore.put(store, key, content, chunk_size=_PART_BYTES)

    def put_new(self, path: str, content: Content, meanwhile: Callable[[int], None] = lambda _size: None) -> None:
        file = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES)  # noqa: SIM115 - it is closed below
        try:
            write_content(content, file)
            size = file.tell()
            file.seek(0)
        except OSError as error:  # of a disk that no address names
            with contextlib.suppress(OSError):
                file.close()
            raise OSError(error.errno, error.strerror, tempfile.gettempdir()) from error
        with file:
            putting = in_background(lambda: self.put(path, file))
            try:
                meanwhile(size)
            finally:
                putting()

    def put_if_absent(self, path: str, content: bytes | memoryview) -> bool:
        # obstore repeats a put whose answer was lost, and may find its own: whoever is told False looks who was faster.
        # A crash before the answer leaves no object or a whole one, so whoever comes next looks, too.
        with self._store(path) as (obstore, store, key):
            try:
                obstore.put(store, key, content, mode="create")
            except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                return False
        return True

    def begin(self, path: str, content: bytes) -> Growing | None:
        version = self.replace(path, content, None)
        if version is not None:
            return _GrowingObject(self, path, content, version)
        content_found = self.read(path)  # ours, if the answer was lost
        return (
            _GrowingObject(self, path, content, content_found[1])
            if content_found is not None and content_found[0] == content
            else None
        )

    def read(self, path: str) -> tuple[bytes, Version] | None:
        """Return an object's content and its version, for :meth:`replace`; None if there is no such object."""
        with contextlib.suppress(FileNotFoundError), self._store(path) as (obstore, store, key):
            answer = obstore.get(store, key)
            return bytes(answer.bytes()), _version_of(answer.meta)
        return None

    def replace(self, path: str, content: bytes, version: Version | None) -> Version | None:
        """Write an object in place of a version that was read (None: of none); return its version, None if it was not.

        The store compares. With most stores a version is a checksum of the content: if an object must not be taken for
        an earlier one, its content says which one it is. The client repeats a request whose answer was lost, and may
        find what it wrote itself: whoever is told None looks.
        """
        with self._store(path) as (obstore, store, key):
            try:
                return _version_of(
                    obstore.put(store, key, content, mode="create" if version is None else dict(version))
                )
            except (
                FileNotFoundError,
                obstore.exceptions.AlreadyExistsError,
                obstore.exceptions.PreconditionError,
            ):
                return None

    def version(self, path: str) -> Version | None:
        """Return the version of an object; None if there is no such object."""
        with contextlib.suppress(FileNotFoundError), self._store(path) as (obstore, store, key):
            return _version_of(obstore.head(store, key))
        return None

    def folders(self, below: str = "") -> builtins.list[str]:
        with self._store(below) as (obstore, store, key):
            prefixes = obstore.list_with_delimiter(store, key or None)["common_prefixes"]
        return sorted(each.rstrip("/").rpartition("/")[2] for each in prefixes)

    def get(self, path: str) -> bytes:
        with self._store(path) as (obstore, store, key):
            return bytes(obstore.get(store, key).bytes())

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with self._store(path) as (obstore, store, key):
            return bytes(obstore.get_range(store, key, start=start, length=length))

    def list(self, below: str = "", after: str = "") -> Iterator[Item]:
        with self._store(below) as (obstore, store, key):
            if after:  # the store begins there, and says of sub-folders what is in them
                listed = obstore.list(
                    store, key or None, offset=f"{key}/{after}".lstrip("/"), chunk_size=1000
                ).collect()
                objects = [each for each in listed if "/" not in each["path"].removeprefix(key).lstrip("/")]
            else:
                objects = obstore.list_with_delimiter(store, key or None)["objects"]
        for name, each in sorted((each["path"].rpartition("/")[2], each) for each in objects):
            if name > after:
                path = f"{below}/{name}" if below else name
                yield _item_of(each, path)

    def walk(self, below: str = "") -> Iterator[Item]:
        """Yield all objects below a path, in sub-folders, too, in the order of their paths; a request for 1,000."""
        with self._store(below) as (obstore, store, key):
            start = len(key) - len(below)
            for objects in obstore.list(store, key or None, chunk_size=1000):
                for each in objects:
                    yield _item_of(each, each["path"][start:])

    def item(self, path: str) -> Item | None:
        """Return what is known of an object; None if there is no such object."""
        with contextlib.suppress(FileNotFoundError), self._store(path) as (obstore, store, key):
            return _item_of(obstore.head(store, key), path)
        return None

    def get_range_of(self, tag: str, path: str, start: int, length: int) -> bytes | None:
        """Return a part of an object as of the version with a tag; None if it has another one now, or is gone."""
        with contextlib.suppress(FileNotFoundError), self._store(path) as (obstore, store, key):
            try:
                answer = obstore.get(store, key, options={"range": (start, start + length), "if_match": tag})
                return bytes(answer.bytes())
            except obstore.exceptions.PreconditionError:
                return None
        return None

    def names(self, below: str = "") -> builtins.list[str]:
        return [item.path.rpartition("/")[2] for item in self.list(below)]

    def is_empty(self, below: str = "") -> bool:
        with self._store(below) as (obstore, store, key):
            if below and self.size(below) is not None:
                return False
            return not any(obstore.list(store, key or None, chunk_size=1))

    def delete(self, path: str, *, is_durable: bool = False) -> None:  # noqa: ARG002 - it is so anyway
        with contextlib.suppress(FileNotFoundError), self._store(path) as (obstore, store, key):
            obstore.delete(store, key)

    def delete_all(self, below: str = "") -> None:
        with self._store(below) as (obstore, store, key):
            for objects in obstore.list(store, key or None):
                obstore.delete(store, [each["path"] for each in objects])

    def move(self, below: str, to: str) -> None:
        if self.size(below) is not None:
            self._rename(below, to)
            return
        with self._store(below) as (obstore, store, key):
            paths = sorted(each["path"].removeprefix(key) for each in obstore.list(store, key).collect())
        # 1. A crash before all are copied leaves the old ones whole, and the same move again copies them.
        # 2. A crash after that leaves the first of the old ones by name: of a table's log, its past.
        copied = [in_background(functools.partial(self._copy, below + path, to + path)) for path in paths]
        for each in copied:
            each()
        for path in reversed(paths):
            self.delete(below + path)

    def _rename(self, path: str, to: str) -> None:
        self._copy(path, to)
        self.delete(path)

    def _copy(self, path: str, to: str) -> None:
        with self._store(path) as (obstore, store, key), self._store(to) as (_, _, target):
            obstore.copy(store, key, target)

    def take(self, paths: Iterable[str], origin: Folder) -> None:
        for copying in [in_background(functools.partial(self._take, path, origin)) for path in paths]:
            copying()

    def _take(self, path: str, origin: Folder) -> None:
        with self._store(path) as (obstore, store, key):
            if isinstance(origin, ObjectFolder):
                with origin._store(path) as (_, origin_key, source):  # noqa: SLF001 - its own class
                    if origin_key is store:  # else it would go by a bucket that has no such object
                        obstore.copy(store, source, key)
                        return
            obstore.put(store, key, origin.get(path), chunk_size=_PART_BYTES)

    def size(self, path: str) -> int | None:
        with contextlib.suppress(FileNotFoundError), self._store(path) as (obstore, store, key):
            return int(obstore.head(store, key)["size"])
        return None

    def __str__(self) -> str:
        return self.address

    @contextlib.contextmanager
    def _store(self, path: str) -> Iterator[tuple[Any, Any, str]]:
        """Yield the library, the store and the path in it; raise errors about ``path`` as OSError."""
        try:
            import obstore.store  # noqa: PLC0415 - only tables in object stores need it
        except ImportError as error:
            needs = f"{self.address} needs the package obstore: {how_to_install('object-store')}"
            raise ConfigError(needs) from error
        try:
            # At each use, so that a file that is written anew when credentials expire is read then.
            store, prefix = _store_of(obstore, self.address, tuple(with_secrets(self.options).items()))
            yield obstore, store, f"{prefix}/{path}".strip("/")
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.address}/{path} does not exist") from error
        except obstore.exceptions.BaseError as error:
            raise BucketUnreachable(f"{self.address}/{path}: {native_text(error)}") from error


@attrs.define(eq=False)
class _GrowingObject:
    """An object that is replaced by a longer one, if it is still the one that was written last.

    1. A crash before the answer leaves the old object or the new one.
    2. If the answer is lost, what is there is compared with what was to be there.
    """

    folder: ObjectFolder
    path: str
    content: bytes
    version: Version
    bytes_max: int = 256 * 1024
    """Half of it, on average, is sent again with each addition."""

    @property
    def size(self) -> int:
        return len(self.content)

    def append(self, content: bytes) -> bool:
        longer, size, version = self.content + content, self.size, self.version
        while (version_written := self.folder.replace(self.path, longer, version)) is None:
            content_found = self.folder.read(self.path)
            if content_found is None or not (longer.startswith(content_found[0]) and len(content_found[0]) > size):
                return False
            # It is this addition, or a part that was thought to have failed.
            size, version = len(content_found[0]), content_found[1]
            if size == len(longer):
                version_written = version
                break
        self.content, self.version = (
            longer,
            version_written,
        )  # not before all is there: whoever is told of an error adds all
        return True

    def is_in_place(self) -> bool:
        return self.folder.version(self.path) == self.version


def _item_of(meta: Any, path: str) -> Item:
    return Item(path, meta["size"], meta["last_modified"].timestamp(), meta.get("e_tag") or "")


def _version_of(meta: Any) -> Version:
    return tuple((name, meta[name]) for name in ("e_tag", "version") if meta.get(name) is not None)


@functools.lru_cache
def _store_of(obstore: Any, address: str, options: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """Return the store of a bucket, and the path in it: all folders of a bucket share its connections."""
    if address.startswith(_MEMORY):
        return _opened(obstore, _MEMORY, ()), address.removeprefix(_MEMORY)
    store = _opened(obstore, address, options)
    if store.prefix is None:
        return store, ""
    prefix = str(store.prefix)
    return _opened(obstore, address.rstrip("/").removesuffix(prefix).rstrip("/"), options), prefix


@functools.lru_cache
def _opened(obstore: Any, address: str, options: tuple[tuple[str, str], ...]) -> Any:
    config: dict[str, str] = {}
    client: dict[str, str] = {}
    for name, value in options:
        of_client = _OF_CLIENT.fullmatch(name.lower())
        if of_client is not None:
            client[of_client[1]] = value
            continue
        try:
            _from_url(obstore, address, config={name: value})
        except obstore.exceptions.UnknownConfigurationKeyError:
            continue  # delta-rs' own
        except obstore.exceptions.BaseError:
            pass  # it is known, and not enough alone
        config[name] = value
    return _from_url(obstore, address, config=config or None, client_options=client or None)


def with_secrets(options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return options with what ``env:NAME`` and ``file:PATH`` refer to; keep the result nowhere.

    Raises:
        ConfigError: a variable is not set, or a file can't be read, on this machine.
    """
    return {name: resolved("storage_options", name, value) for name, value in options}


def forget_clients() -> None:
    """Let the next request of each folder make its client anew: with the environment of then, and after a fork."""
    _store_of.cache_clear()
    _opened.cache_clear()


os.register_at_fork(after_in_child=forget_clients)  # a client's threads and connections are its maker's


def _from_url(obstore: Any, address: str, **options: Any) -> Any:
    # It takes an address for a URL, in which %20 is a space and a # ends the path. Ours are names as they are.
    scheme, _, location = address.partition("://")
    bucket, slash, path = location.partition("/")
    if urllib.parse.quote(bucket, safe=f"{_OF_ADDRESS}[]") != bucket:
        raise ConfigError(f"nothing can be at {address}, which is no address: no bucket is called {bucket!r}")
    try:
        return obstore.store.from_url(
            f"{scheme}://{bucket}{slash}{urllib.parse.quote(path, safe=_OF_ADDRESS)}", **options
        )
    except ValueError as error:
        raise ConfigError(f"nothing can be at {address}, which is no address: {error}") from error
