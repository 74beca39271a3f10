"""DeltaState: keyed state in a Delta table, by delta-rs. No Spark takes part."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from state.delta.declared import DeclaredDeltaTable
from state.delta.keyed.opened import OpenedDeltaState, TableOptions
from state.delta.keyed.past import PastDeltaState
from state.delta.log.fence import Fence
from state.delta.log.location import Location
from state.delta.read.history import read_table
from state.delta.schema import RowFormat, checked_fields
from state.delta.upkeep import Upkeep
from txtopo.api.fields import Fields
from txtopo.api.state import Key, StateKind
from txtopo.errors import ConfigError

__all__ = ["DeltaState", "OpenedDeltaState", "read_table"]


class DeltaState(DeclaredDeltaTable):
    """A state in a Delta table of its own: key fields, value fields, txid.

    The table of an opaque state has the previous value of each value field too.

    Args:
        path: the table: a local path, absolute or relative to the working directory of the coordinator, or an
            address in an object store. It is made when the state is first opened. A topology with several
            states needs local ones, see :mod:`state.delta.staging`.
        key: the key fields, each with a type: string, an integer, boolean, decimal, date, timestamp, binary.
        value: the value fields, each with a type.
        kind: what is kept beside each value. An opaque state with several value fields does not take values
            whose every field is null.
        storage_options: what the object store needs, passed on to delta-rs.
        cached_keys_max: the most keys that the coordinator keeps in its memory. A table with more keys is
            read again, all of it, whenever a key is asked for that is not among those used last.
        upkeep_every_writes: writes between two checkpoints of the log.
        files_max: the most data files before the table is compacted.
        vacuum_retention_hours: how long data files that are no longer referenced stay, at least 168; None
            (the default): for ever.

    Raises:
        ConfigError: an option is out of its range.
        FieldsError: a field has no type, no name of its own, or a type that keys cannot have.
    """

    def __init__(  # noqa: PLR0913  each has a default, and is named
        self,
        path: str | os.PathLike[str],
        key: Fields,
        value: Fields,
        kind: StateKind = StateKind.TRANSACTIONAL,
        *,
        storage_options: Mapping[str, str] | None = None,
        cached_keys_max: int = 1_000_000,
        upkeep_every_writes: int = 50,
        files_max: int = 32,
        vacuum_retention_hours: int | None = None,
    ) -> None:
        checked_fields(key, value, kind, typed=True)
        super().__init__(path, storage_options, Upkeep(upkeep_every_writes, files_max, vacuum_retention_hours))
        if cached_keys_max < 1:
            raise ConfigError(f"cached_keys_max of a DeltaState is {cached_keys_max}; it must be at least 1")
        self.key = key
        self.value = value
        self.kind = StateKind(kind)
        self._options = TableOptions(cached_keys_max=cached_keys_max, upkeep=self._upkeep)

    def open_as_of(self, topology_id: str, name: str, txid: int) -> PastDeltaState:
        """Open what the table held as of a transaction, for reading only; it fences nobody.

        Args:
            topology_id: the topology that the state belongs to.
            name: the state's name in it.
            txid: the last transaction to see.

        Raises:
            ConfigError: there is no table.
            StateAccessError: what it held then is no longer kept.
        """
        location = self._location()
        return PastDeltaState(topology_id, location, self._format(name), txid)

    def fitted(self, name: str, key: Key, value: Any) -> Key:
        """Return a key as it is kept.

        Raises:
            FieldsError: the key or the value does not fit its field.
        """
        return self._format(name).fitted(key, value)

    def _schema(self) -> pa.Schema:
        return self._format("").schema()

    def _opened(self, location: Location, table: DeltaTable, fence: Fence) -> OpenedDeltaState:
        return OpenedDeltaState(location, table, fence, self._format(fence.state), self._options)

    def _format(self, name: str) -> RowFormat:
        return RowFormat(name, self.key, self.value, self.kind)

    def __repr__(self) -> str:
        return f"DeltaState({self.path!r}, key={self.key}, value={self.value}, kind={self.kind})"
