"""``DeltaReference``: a Delta table that a topology only reads."""

from __future__ import annotations

import datetime as dt
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from state.delta.columns import is_key_type, no_equality
from state.delta.log.data_files import DataFile, DataFolder, files_of
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS, Owner
from state.delta.read.history import shown_schema
from state.delta.read.reading import can_read_files, read_rows
from state.delta.reference.loaded import LoadedVersion, TableVersion, no_column
from state.delta.reference.removal import removal_of
from txtopo.api.arguments import checked_arguments
from txtopo.api.reference import OTHER_TABLE_ADVICE, Reference, ReferenceTable, SeenVersion
from txtopo.api.values import ROWS_KINDS
from txtopo.errors import ConfigError, InputError, SourceFailure
from txtopo.text.native import native_text

VERSIONS_KEPT = 2
"""How many versions a process keeps: while transactions of the next one begin, those of the last one go on."""

BYTES_MAX = 1 << 31
"""The most bytes of a version in memory by default: each process has a copy, so a large table fails early, by name."""

REFRESH = dt.timedelta(seconds=10)
"""Each look lists the log once: a few ms on a disk, a request in a bucket."""


class DeltaReference(Reference):
    """A Delta table that a topology only reads, for ``builder.set_reference``.

    Each transaction sees one version of it: the newest when it was planned, looked up at most every ``refresh``. Each
    process that looks something up holds the rows in memory, with an index of their keys, and goes from version to
    version by the files that came and went.

    *You* keep a version's files as long as transactions may run that were planned with it, replays included: a vacuum
    removes them. Anyone may write the table, a topology of txtopo too, and move its rows to other files.
    *txtopo* guarantees that every attempt of a transaction sees the same version, in both phases and after a crash.

    Args:
        path: the table's path or address.
        key: the column or columns of its key, which no two rows may share; a row with a null in it is found by no key.
        columns: the columns to hold in memory, besides the key; None: all.
        refresh: how often to look for a newer version at most.
        bytes_max: how much memory a version may take in a process, in bytes.
        storage_options: options for a table in an object store, as for delta-rs.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - all but two by name
        self,
        path: str | os.PathLike[str],
        key: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        refresh: dt.timedelta = REFRESH,
        bytes_max: int = BYTES_MAX,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        self._location = Location.resolve(os.fspath(path), storage_options)
        self.address = self._location.address
        self.key = (key,) if isinstance(key, str) else tuple(key)
        if not self.key or len({*self.key}) < len(self.key):
            raise ConfigError(f"the key of a DeltaReference is {self.key}; name one column or several, each once")
        self._columns = None if columns is None else tuple(dict.fromkeys([*self.key, *columns]))
        if refresh < dt.timedelta(0):
            raise ConfigError(f"refresh of a DeltaReference is {refresh}; it can't be negative")
        self.refresh = refresh
        self._bytes_max = bytes_max
        self._cached: _Cached | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what was declared, without the rows that this process holds."""
        return {**self.__dict__, "_cached": None}

    def newest(self, name: str) -> SeenVersion:
        """Return the newest version."""
        try:
            table = self._location.handle()
        except TableNotFoundError as error:
            raise ConfigError(
                f"reference {name!r}: there is no Delta table at {self.address}; create it, or correct the path"
            ) from error
        except WORLD_ERRORS as error:
            raise self._unreadable(name, error) from error
        self._schema(f"reference {name!r}", table)
        return SeenVersion(name, str(table.metadata().id), table.version())

    def at(self, version: SeenVersion) -> ReferenceTable:
        """Return a version, which this process loads once."""
        if self._cached is None or self._cached.identity != version.identity:
            self._cached = _cached_of((self.address, self.key, self._columns, version.identity), version.identity)
        return self._cached.at(version.version, lambda before: self._load(version, before))

    def _load(self, version: SeenVersion, before: LoadedVersion | None) -> LoadedVersion:
        try:
            table = self._location.handle(version.version)
            if str(table.metadata().id) != version.identity:
                raise replaced(version, self.address, str(table.metadata().id))
            return LoadedVersion.load(self._source(version, table, before), before)
        except WORLD_ERRORS as error:
            removal = removal_of(self._location, version)
            if removal is None:
                raise self._unreadable(version.name, error) from error
            raise InputError(removal) from error

    def _source(self, version: SeenVersion, table: DeltaTable, before: LoadedVersion | None) -> TableVersion:
        what = f"version {version.version} of reference {version.name!r} at {self.address}"
        schema, data = self._schema(what, table), DataFolder(self._location)
        files: dict[str, DataFile] = {}
        if is_own := can_read_files(table):
            files_known = None if before is None or before.version > version.version else (before.version, before.files)
            files = files_of(self._location, table, table.metadata().partition_columns, files_known)
            is_own = not any(file.is_elsewhere for file in files.values())
        if not is_own:
            files = {f"version {version.version}": DataFile(f"version {version.version}", 0, 0)}

        def read(file: DataFile) -> pa.Table:
            return data.read(file, schema, with_dead=True) if is_own else read_rows(self._location, table, schema)

        def check_bytes(size: int) -> None:
            if size > self._bytes_max:
                raise ConfigError(
                    f"{what} takes more than {self._bytes_max:,} bytes of memory, which is what bytes_max= allows each "
                    "process; name the columns that bolts look up in columns=, raise bytes_max=, or join by Spark SQL "
                    "in a DataFrameBolt"
                )

        return TableVersion(what, version.version, schema, self.key, files, read, data, check_bytes)

    def _schema(self, what: str, table: DeltaTable) -> pa.Schema:
        """Return the columns to load of a version; refuse one that can't be a reference."""
        owner = Owner.of(table)
        if owner is not None and owner.expires and owner.kind in ROWS_KINDS:
            raise ConfigError(f"{what}: the table is one of rows that expire, which are no reference; use a DeltaState")
        schema = pa.schema(table.schema()) if owner is None else shown_schema(table, owner.kind)
        names = schema.names if self._columns is None else self._columns
        for name in (*self.key, *names):
            if name not in schema.names:
                raise no_column(what, name, schema.names)
        for name in self.key:
            if not is_key_type(schema.field(name).type):
                raise no_equality(name, schema.field(name).type)
        return pa.schema([schema.field(name) for name in names])

    def _unreadable(self, name: str, error: Exception) -> SourceFailure:
        return SourceFailure(
            f"reference {name!r}: the table at {self.address} can't be read at the moment", cause=native_text(error)
        )


def replaced(version: SeenVersion, address: str, identity: str) -> InputError:
    """Return the error for another table in place of the one that a transaction was planned with."""
    return InputError(
        f"reference {version.name!r}: the table at {address} was replaced: transactions saw the one with the id "
        f"{version.identity}, and it has {identity}. {OTHER_TABLE_ADVICE}"
    )


@attrs.define(eq=False)
class _Cached:
    """The versions of a table that this process holds, the one that was used last at the end."""

    identity: str
    _versions: OrderedDict[int, LoadedVersion] = attrs.field(factory=OrderedDict)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def at(self, version: int, load: Any) -> LoadedVersion:
        with self._lock:
            found = self._versions.get(version)
            if found is None:
                nearest = min(self._versions.values(), key=lambda loaded: abs(loaded.version - version), default=None)
                found = self._versions[version] = load(nearest)
            self._versions.move_to_end(version)
            while len(self._versions) > VERSIONS_KEPT:
                self._versions.popitem(last=False)
            return found


_CACHED: weakref.WeakValueDictionary[tuple[Any, ...], _Cached] = weakref.WeakValueDictionary()
"""By table, what this process holds of it: copies of a reference, such as one for each slot, share it."""


def _cached_of(key: tuple[Any, ...], identity: str) -> _Cached:
    cached = _CACHED.get(key)
    if cached is None:
        cached = _CACHED[key] = _Cached(identity)
    return cached
