# ruff: noqa: D102 - the methods are those of txtopo.files.folder.Folder
"""Files in an object store, by the library obstore: the same Rust crate that delta-rs uses.

A put is durable and whole when it is answered. A put of a name that must be free is conditional, which S3, Azure,
Google and what is compatible with them check in one step.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from txtopo.errors import ConfigError
from txtopo.files.durable import beside
from txtopo.files.folder import Item
from txtopo.text.extras import how_to_install
from txtopo.text.native import plain_text

__all__ = ["ObjectFolder", "Version"]

Version = tuple[tuple[str, str], ...]
"""What a store says of the version of an object, by name."""

_OF_CLIENT = re.compile(r"(?:aws_|azure_|google_)?((?:allow|connect|http1|http2|pool|proxy)_.*|timeout|user_agent)")
"""Options of the HTTP client, which delta-rs takes among those of the store, also with the store's prefix."""


@attrs.frozen
class ObjectFolder:
    """The objects below an address, such as ``s3://bucket/table``; see :class:`~txtopo.files.folder.Folder`. Picklable.

    ``options`` are those of delta-rs; what it alone knows is left out.
    """

    address: str
    options: tuple[tuple[str, str], ...] = ()

    def put(self, path: str, content: bytes | memoryview, *, is_durable: bool = True) -> None:  # noqa: ARG002
        # A crash before the answer leaves the old object or the new one, and parts of a large one that the store keeps
        # out of sight until its own rule for unfinished uploads removes them.
        with self._store(path) as (obstore, store):
            obstore.put(store, path, content)

    def put_new(self, path: str, content: bytes | memoryview, meanwhile: Callable[[], None] = lambda: None) -> None:
        put = beside(lambda: self.put(path, content))
        try:
            meanwhile()
        finally:
            put()

    def put_if_absent(self, path: str, content: bytes | memoryview) -> bool:
        # obstore repeats a put whose answer was lost, and may find its own: whoever is told False looks who was faster.
        # A crash before the answer leaves no object or a whole one, so whoever comes next looks, too.
        with self._store(path) as (obstore, store):
            try:
                obstore.put(store, path, content, mode="create")
            except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                return False
        return True

    def append(self, path: str, content: bytes, at: int) -> bool:
        # Of two that append at once, one is told False. A crash leaves the old object or the new one, never a part as a
        # file may have.
        found = self.read(path)
        if found is None or len(found[0]) != at:
            return False
        return self.replace(path, found[0] + content, found[1]) is not None

    def read(self, path: str) -> tuple[bytes, Version] | None:
        """Return an object's content and its version, for :meth:`replace`; None if there is no such object."""
        with contextlib.suppress(FileNotFoundError), self._store(path) as (obstore, store):
            found = obstore.get(store, path)
            return bytes(found.bytes()), _version_of(found.meta)
        return None

    def replace(self, path: str, content: bytes, version: Version | None) -> Version | None:
        """Write an object in place of a version that was read (None: of none); return its version, None if it was not.

        The store compares. With most stores a version is a checksum of the content: if an object must not be taken for
        an earlier one, its content says which one it is. The client repeats a request whose answer was lost, and may
        find what it wrote itself: whoever is told None looks.
        """
        with self._store(path) as (obstore, store):
            try:
                return _version_of(
                    obstore.put(store, path, content, mode="create" if version is None else dict(version))
                )
            except (
                FileNotFoundError,
                obstore.exceptions.AlreadyExistsError,
                obstore.exceptions.PreconditionError,
            ):
                return None

    def version(self, path: str) -> Version | None:
        """Return the version of an object; None if there is no such object."""
        with contextlib.suppress(FileNotFoundError), self._store(path) as (obstore, store):
            return _version_of(obstore.head(store, path))
        return None

    def folders(self) -> builtins.list[str]:
        """Return the sorted names of the folders directly below the address."""
        with self._store("") as (obstore, store):
            return sorted(each.rstrip("/") for each in obstore.list_with_delimiter(store)["common_prefixes"])

    def get(self, path: str) -> bytes:
        with self._store(path) as (obstore, store):
            return bytes(obstore.get(store, path).bytes())

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with self._store(path) as (obstore, store):
            return bytes(obstore.get_range(store, path, start=start, length=length))

    def list(self, below: str = "", after: str = "") -> Iterator[Item]:
        with self._store(below) as (obstore, store):
            objects = obstore.list_with_delimiter(store, below or None)["objects"]
        for each in sorted(objects, key=lambda each: each["path"]):
            if each["path"].rpartition("/")[2] > after:
                yield Item(each["path"], each["size"], each["last_modified"].timestamp())

    def names(self, below: str = "") -> builtins.list[str]:
        return [item.path.rpartition("/")[2] for item in self.list(below)]

    def delete(self, path: str, *, is_durable: bool = False) -> None:  # noqa: ARG002 - it is so anyway
        with contextlib.suppress(FileNotFoundError), self._store(path) as (obstore, store):
            obstore.delete(store, path)

    def move(self, below: str, to: str) -> None:
        with self._store(below) as (obstore, store):
            # A store renames one object at a time. A crash leaves the rest at the old place for the same move again.
            for each in obstore.list(store, f"{below}/").collect():
                obstore.rename(store, each["path"], to + each["path"].removeprefix(below))

    def size(self, path: str) -> int | None:
        with contextlib.suppress(FileNotFoundError), self._store(path) as (obstore, store):
            return int(obstore.head(store, path)["size"])
        return None

    def __str__(self) -> str:
        return self.address

    @contextlib.contextmanager
    def _store(self, path: str) -> Iterator[tuple[Any, Any]]:
        """Yield the library and the store; raise errors about ``path`` as OSError."""
        try:
            import obstore.store  # noqa: PLC0415 - only tables in object stores need it
        except ImportError as error:
            needs = f"{self.address} needs the package obstore: {how_to_install('object-store')}"
            raise ConfigError(needs) from error
        try:
            yield obstore, _store_of(obstore, self.address, self.options)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.address}/{path} does not exist") from error
        except obstore.exceptions.BaseError as error:
            raise OSError(f"{self.address}/{path}: {plain_text(error)}") from error


def _version_of(meta: Any) -> Version:
    return tuple((name, meta[name]) for name in ("e_tag", "version") if meta.get(name) is not None)


@functools.lru_cache
def _store_of(obstore: Any, address: str, options: tuple[tuple[str, str], ...]) -> Any:
    config: dict[str, str] = {}
    client: dict[str, str] = {}
    for name, value in options:
        of_client = _OF_CLIENT.fullmatch(name.lower())
        if of_client is not None:
            client[of_client[1]] = value
            continue
        try:
            _opened(obstore, address, config={name: value})
        except obstore.exceptions.UnknownConfigurationKeyError:
            continue  # delta-rs' own
        except obstore.exceptions.BaseError:
            pass  # it is known, and not enough alone
        config[name] = value
    return _opened(obstore, address, config=config or None, client_options=client or None)


def _opened(obstore: Any, address: str, **options: Any) -> Any:
    try:
        return obstore.store.from_url(address, **options)
    except ValueError as error:
        raise ConfigError(f"nothing can be at {address}, which is no address: {error}") from error
