"""The location of a Delta table: a local folder, or an address in an object store with its options."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import attrs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from state.delta.log.damage import LOG_FOLDER, damage_of_log, set_checkpoints_aside
from state.delta.log.handle import Handle
from txtopo.errors import ConfigError
from txtopo.files.folder import Folder, LocalFolder
from txtopo.files.objects import ObjectFolder, with_secrets
from txtopo.files.places import is_address, local_path, tidy_address
from txtopo.text.native import native_text
from txtopo.text.printable import escaped

__all__ = ["LOG_FOLDER", "Location", "parent_of"]

NAME_BYTES_MAX = 255
"""The longest name of a folder, as file systems have it."""

_SHOWN = 200
"""How much of a path that is too long is shown, in characters."""

_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\[\]\\^|]|%[0-9A-Fa-f]{2}")
"""What delta-rs 1.6 fails or panics at in a local path, or takes for an encoded character."""

_NOT_IN_ADDRESS = re.compile(r"[\x00-\x1f\x7f\\#?]|%[0-9A-Fa-f]{2}")
"""What delta-rs takes for something else in an address."""

LISTINGS_MAX = 4
"""How often a log is listed until its entries follow one another; beside 20 writes a second, one of 2,000 listings of
5,000 entries lacks one."""

_GAP = re.compile(r"\bgap\b", re.IGNORECASE)
"""In delta-rs' words for entries that don't: between a checkpoint and the first, or between two."""

_LOG_ENTRY = re.compile(r"^(\d{20}\..*(json|parquet)|_last_checkpoint)$")
"""Names of real log entries; a crash in the first Delta write may leave other files in the log folder."""


@attrs.frozen
class Location:
    """The location of a table.

    Args:
        address: an absolute path, or an address such as ``s3://bucket/table``.
        options: options for the object store, see delta-rs' ``storage_options``.
        root: the absolute path of a local table; None for one in an object store.
    """

    address: str
    options: dict[str, str] | None = attrs.field(repr=False)  # they may hold secrets
    root: Path | None

    @staticmethod
    def resolve(path: str, options: dict[str, str] | None) -> Location:
        """Return the location of ``path``, maybe relative; raise ConfigError if delta-rs cannot use it."""
        if is_address(path):
            address = tidy_address(path)
            match = _NOT_IN_ADDRESS.search(address)
            if match is not None:
                raise ConfigError(
                    f"no table can be at {escaped(address)}: delta-rs takes {escaped(match[0])!r} for a part of a URL; "
                    "choose another name"
                )
            return Location(address, options, None)
        root = local_path(path)
        _check(str(root))
        return Location(str(root), options, root)

    @staticmethod
    def in_store_of(folder: Folder, path: str, options: dict[str, str] | None = None) -> Location:
        """Return the location of a table by a folder near it, whose options it has unless some are given."""
        of_folder = dict(folder.options) if isinstance(folder, ObjectFolder) else {}
        return Location.resolve(path, options or of_folder or None)

    @property
    def folder(self) -> Folder:
        """The table's files."""
        if self.root is None:
            return ObjectFolder(self.address, tuple((self.options or {}).items()))
        # The sub-folders are made when the table is opened: a write must not begin a table anew that was removed.
        return LocalFolder(self.root, makes_folders=False)

    def below(self, name: str) -> Folder:
        """Return the files in a sub-folder of the table's folder."""
        return self.folder.below(name)

    def handle(self, version: int | None = None) -> DeltaTable:
        """Return a fresh handle of ``version`` or the latest; DeltaError if there is no table, or no such version."""
        try:
            return self._handle(version)
        except TableNotFoundError:
            raise
        except DeltaError as error:
            with contextlib.suppress(OSError, DeltaError):
                if set_checkpoints_aside(self.folder):
                    return self._handle(version)
            damage = None if self.root is None else damage_of_log(self.root)
            if damage is None:
                raise
            raise DeltaError(f"{damage} ({native_text(error)})") from None

    def _handle(self, version: int | None) -> DeltaTable:
        """Return a handle; look again if the list of the log's files lacks one in the middle.

        A listing of a local folder is not of one moment:

        1. Entry 7 is put, where the listing has been already.
        2. Entry 8 is put, where it comes later: it has 8 and not 7.
        """
        options = None if self.options is None else with_secrets(self.options.items())
        for _ in range(LISTINGS_MAX - 1):
            try:
                return Handle(self.folder, self.address, version, options)
            except DeltaError as error:
                if not _GAP.search(str(error)):
                    raise
        return Handle(self.folder, self.address, version, options)

    def existing(self) -> DeltaTable | None:
        """Return a fresh handle of the table, or None if there is no table."""
        if self.root is not None and self.root.is_file():
            return None
        try:
            return self.handle()
        except TableNotFoundError:
            return None

    def foreign_file(self) -> Path | None:
        """Return a file in the folder of a table to be created, or None if the folder is free.

        Only local folders are checked. Files left by a first Delta write that a crash interrupted do not count.
        """
        if self.root is None or not self.root.exists():
            return None
        if not self.root.is_dir():
            return self.root
        for file in sorted(self.root.rglob("*")):
            is_left_over = file.parent == self.root / LOG_FOLDER and not _LOG_ENTRY.match(file.name)
            if file.is_file() and not is_left_over:
                return file
        return None


def _check(path: str) -> None:
    """Refuse a local path that delta-rs would take for another one, or not at all, or that no file can have."""
    longest = max(map(len, path.encode(errors="replace").split(b"/")))
    if longest > NAME_BYTES_MAX:
        raise ConfigError(
            f"a table cannot be at {path[:_SHOWN]}…: a name in it has {longest:,} bytes, at most {NAME_BYTES_MAX} fit; "
            "give it a shorter one"
        )
    match = _UNUSABLE.search(path)
    if match is not None:
        where = escaped(path)
        raise ConfigError(
            f"a table cannot be at {where}: delta-rs cannot use {match[0]!r} in a path; rename the folder"
        )
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"a table cannot be at {path!r}: the path is not UTF-8 in this locale; set PYTHONUTF8=1 or a UTF-8 locale, "
            "or rename the folder"
        ) from None


def parent_of(path: str) -> str:
    """Return the place that a table's folder is in."""
    if is_address(path):
        return path.rstrip("/").rpartition("/")[0]
    return str(Path(path.removeprefix("file://")).parent)
