"""A table's files in an object store, by the library obstore: the same Rust crate that delta-rs uses.

A put is durable and whole when it is answered. A put of a name that must be free is conditional, which S3, Azure,
Google and what is compatible with them check in one step.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import attrs

from txtopo.errors import ConfigError
from txtopo.extras import how_to_install
from txtopo.folder import Item

__all__ = ["ObjectFolder"]

_OF_CLIENT = frozenset(
    [
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "timeout",
        "user_agent",
    ]
)
"""Options of the HTTP client, which delta-rs takes among those of the store, also with the store's prefix."""


@attrs.frozen
class ObjectFolder:
    """The objects below an address; see :class:`~txtopo.folder.Folder`. Picklable.

    Args:
        address: such as ``s3://bucket/table``.
        options: those of delta-rs; what it alone knows is left out.
    """

    address: str
    options: tuple[tuple[str, str], ...] = ()

    def put(self, path: str, content: bytes | memoryview) -> None:
        """See :class:`~txtopo.folder.Folder`."""
        with self._failing(path) as store:
            _obstore().put(store, path, content)

    def put_if_absent(self, path: str, content: bytes | memoryview) -> bool:
        """See :class:`~txtopo.folder.Folder`.

        obstore repeats a put whose answer was lost, and is then told that the name is taken, by itself: whoever is
        told False looks who has taken it.
        """
        with self._failing(path) as store:
            try:
                _obstore().put(store, path, content, mode="create")
            except (_obstore().exceptions.AlreadyExistsError, _obstore().exceptions.PreconditionError):
                return False
        return True

    def get(self, path: str) -> bytes:
        """See :class:`~txtopo.folder.Folder`."""
        with self._failing(path) as store:
            return bytes(_obstore().get(store, path).bytes())

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """See :class:`~txtopo.folder.Folder`."""
        with self._failing(path) as store:
            return bytes(_obstore().get_range(store, path, start=start, length=length))

    def list(self, below: str = "", after: str = "") -> Iterator[Item]:
        """See :class:`~txtopo.folder.Folder`."""
        with self._failing(below) as store:
            objects = _obstore().list_with_delimiter(store, below or None)["objects"]
        for each in sorted(objects, key=lambda each: each["path"]):
            if each["path"].rpartition("/")[2] > after:
                yield Item(each["path"], each["size"], each["last_modified"].timestamp())

    def delete(self, path: str) -> None:
        """See :class:`~txtopo.folder.Folder`."""
        with contextlib.suppress(FileNotFoundError), self._failing(path) as store:
            _obstore().delete(store, path)

    def size(self, path: str) -> int | None:
        """See :class:`~txtopo.folder.Folder`."""
        with contextlib.suppress(FileNotFoundError), self._failing(path) as store:
            return int(_obstore().head(store, path)["size"])
        return None

    @contextlib.contextmanager
    def _failing(self, path: str) -> Iterator[Any]:
        """Yield the store; raise its errors as OSError."""
        store, errors = _store_of(self.address, self.options), _obstore().exceptions
        try:
            yield store
        except errors.NotFoundError as error:
            raise FileNotFoundError(f"{self.address}/{path} does not exist") from error
        except errors.BaseError as error:
            raise OSError(f"{self.address}/{path}: {error}") from error


@functools.lru_cache
def _store_of(address: str, options: tuple[tuple[str, str], ...]) -> Any:
    config: dict[str, str] = {}
    client: dict[str, str] = {}
    for name, value in options:
        plain = name.lower().removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if plain in _OF_CLIENT:
            client[plain] = value
        elif _is_known(address, name, value):
            config[name] = value
    return _obstore().store.from_url(address, config=config or None, client_options=client or None)


def _is_known(address: str, name: str, value: str) -> bool:
    try:
        _obstore().store.from_url(address, config={name: value})
    except _obstore().exceptions.UnknownConfigurationKeyError:
        return False
    except _obstore().exceptions.BaseError:  # it is known, and not enough alone
        pass
    return True


def _obstore() -> Any:
    try:
        import obstore  # noqa: PLC0415 - only tables in object stores need it
        import obstore.store  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"a table in an object store needs the package obstore: {how_to_install('object-store')}"
        ) from error
    return obstore
