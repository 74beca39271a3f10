"""A state's Delta table, inspected without opening the state; see :class:`txtopo.api.state.StateTable`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from state.delta.log.damage import empty_version, state_failure
from state.delta.log.entries import foreign_change, version_after
from state.delta.log.location import Location
from state.delta.log.ownership import (
    WORLD_ERRORS,
    Owner,
    columns_misfit,
    epoch_of,
    not_empty,
    not_ours,
    state_application,
)
from state.delta.staging import staged_obstacle
from txtopo.api.state import StateKind, StateTable, TableDescription
from txtopo.errors import ConfigError

__all__ = ["DeltaStateTable", "kept_handle"]

_ASIDE = ".before-repair-"


class DeltaStateTable(StateTable):
    """A Delta table, inspected without a running topology and compared with its declaration."""

    def __init__(
        self, location: Location, kind: StateKind, schema: pa.Schema, partition_by: Sequence[str] = ()
    ) -> None:
        self._partition_by = tuple(partition_by)
        self._location = location
        self._kind = kind
        self._schema = schema

    @property
    def address(self) -> str:
        """The table's path, or its address in an object store."""
        return self._location.address

    def look(self) -> TableDescription | None:
        """Return a description of the table; None if the path is free; see :meth:`StateTable.look`."""
        try:
            table = self._location.existing()
        except WORLD_ERRORS as error:
            raise state_failure(
                f"the table at {self.address} cannot be opened", error, self._location.folder
            ) from error
        if table is None:
            foreign = self._location.foreign_file()
            if foreign is not None:
                raise not_empty(self._location, foreign)
            return None
        owner = Owner.of(table)
        if owner is None:
            raise not_ours(self._location)
        return TableDescription(
            topology_id=owner.topology_id,
            state=owner.state,
            incarnation=owner.incarnation,
            identity=str(table.metadata().id),
            last_txid=table.transaction_version(state_application(owner.topology_id, owner.state)),
            epoch=epoch_of(table, owner.topology_id),
            version=table.version(),
            misfit=self._misfit(table, owner),
            damage=None if self._location.folder is None else empty_version(self._location.folder, table.version()),
        )

    def foreign_change(self, since: int | None) -> str | None:
        """Describe a change by somebody else, or return None; see :meth:`StateTable.foreign_change`."""
        try:
            return foreign_change(self._location, self._location.handle(), since)
        except WORLD_ERRORS as error:
            raise state_failure(f"the log of {self.address} cannot be read", error, self._location.folder) from error

    def obstacle(self, txid, note) -> str | None:
        location = note["staged"]
        """Describe why a staged write can no longer be finished; see :meth:`StateTable.staged_obstacle`."""
        try:
            return staged_obstacle(self._location, self._location.handle(), location)
        except WORLD_ERRORS as error:
            raise state_failure(
                f"the table at {self.address} cannot be opened", error, self._location.folder
            ) from error

    def is_kept(self, txid: int | None) -> bool:
        """Whether the version of transaction ``txid`` is still in the log, with all of its files."""
        if not txid:
            return True
        found = kept_handle(self._location, self._location.handle(), txid)
        if found is None or self._location.folder is None:
            return found is not None
        # A vacuum removes files of old versions that the log still has.
        return all(Path(path).is_file() for path in self._location.paths_of(found, found.file_uris()))

    def asides(self) -> list[int]:
        """Return the numbers of the folders to which this table was moved aside."""
        folder = self._location.folder
        if folder is None:
            return []
        pattern = re.compile(re.escape(folder.name + _ASIDE) + r"(\d+)")
        found = [pattern.fullmatch(path.name) for path in folder.parent.glob(f"*{_ASIDE}*")]
        return sorted(int(name[1]) for name in found if name is not None)

    def set_aside(self, number: int) -> None:
        """Rename the table's folder; see :meth:`StateTable.set_aside`."""
        folder = self._location.folder
        if folder is None:
            raise ConfigError(
                f"the table at {self.address} is in an object store, which has no rename: move it "
                "away by hand, or give the state another path"
            )
        aside = folder.with_name(f"{folder.name}{_ASIDE}{number}")
        if not folder.exists():
            return
        if aside.exists():
            raise ConfigError(f"{folder} cannot be moved to {aside}, which already exists: move one of them away")
        folder.rename(aside)

    def _misfit(self, table: DeltaTable, owner: Owner) -> str | None:
        if owner.kind is not self._kind:
            return f"its kind is {owner.kind.value!r}, not {self._kind.value!r}"
        return columns_misfit(table, self._schema, self._partition_by)


def kept_handle(location: Location, table: DeltaTable, txid: int) -> DeltaTable | None:
    """Return a handle of the version that transaction ``txid`` wrote; None if it is not kept."""
    version = version_after(location, table, txid)
    if version is None:
        return None
    try:
        return location.handle(version)
    except DeltaError:
        return None
