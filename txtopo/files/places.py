"""Places as users write them: paths of a file system, and addresses in object stores."""

from __future__ import annotations

import hashlib
import os
import re
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

from txtopo.errors import ConfigError
from txtopo.files.folder import Folder, LocalFolder
from txtopo.files.objects import ObjectFolder

_FILE_SCHEME = "file://"

_SHORTENED = re.compile(r"(s3a?|gs|az|azure|adl|abfss?|https?):/[^/]")
"""How an address begins that was a path on its way, which makes one slash of two."""

_WITH_SECRET = re.compile(r"(\w[\w+.-]*://)(?:[^/@]*:(?!\d+(?:/|$))[^@]*@(.*)|([^?]*)\?(?:.*&)?sig=.*)", re.DOTALL)
"""An address with a user's name and secret, or with a signature that lets in whoever has it."""

_READABLE_MAX = 64
"""The length of the readable part of a file name; the digest after it makes the name unique."""


def is_address(place: str | os.PathLike[str]) -> bool:
    """Whether a place is in an object store, as ``s3://bucket/folder`` is.

    Raises:
        ConfigError: it is an address that ``pathlib`` has shortened, or one with a secret: addresses are shown, and
            written into what runs leave.
    """
    text = os.fspath(place)
    if with_secret := _WITH_SECRET.fullmatch(text):
        login = "".join(filter(None, with_secret.groups()))
        raise ConfigError(
            f"an address of {login} has a secret in it: write the address without, and give the secret as one of the "
            'storage options, where "env:NAME" or "file:PATH" can say where it is, or in the environment'
        )
    if _SHORTENED.match(text):
        raise ConfigError(f"{text} was an address until it became a path, which lacks a slash; write it as a string")
    return "://" in text and not text.startswith(_FILE_SCHEME)


def tidy_address(place: str | os.PathLike[str]) -> str:
    """Return an address in an object store without slashes that say nothing: at its end, and beside another one."""
    scheme, _, path = os.fspath(place).partition("://")
    return f"{scheme}://{re.sub('/+', '/', path).rstrip('/')}"


def local_path(place: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a place that is none in an object store."""
    return Path(os.path.abspath(os.fspath(place).removeprefix(_FILE_SCHEME)))  # noqa: PTH100  keeps symbolic links


def folder_at(place: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Folder:
    """Return the folder at a place; a relative path is relative to the working directory.

    Args:
        place: a path or an address.
        options: options of the object store, those of tables there; None: from the environment.

    Raises:
        ConfigError: nothing can be there.
    """
    if is_address(place):
        return ObjectFolder(tidy_address(place), tuple((options or {}).items()))
    path = local_path(place)
    if "\0" in str(path):
        raise ConfigError(f"there is no folder {str(path)!r}: no path has a null character")
    return LocalFolder(path)


def joined(folder: Folder, address: str) -> str:
    """Return the place of what may be relative to a folder."""
    return address if is_address(address) or os.path.isabs(address) else f"{folder}/{address}"  # noqa: PTH117 - a text


def file_name(topology_id: str) -> str:
    """Return a file name of bounded length that is unique for the topology id, on any file system."""
    readable = urllib.parse.quote(topology_id, safe="").replace("%", "_")[:_READABLE_MAX]
    digest = hashlib.sha256(topology_id.encode()).hexdigest()[:16]
    return f"{readable}-{digest}"
