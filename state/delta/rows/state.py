"""DeltaRows: a table of rows, which committers append to, or whose partitions they replace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable

from state.delta.declared import DeclaredDeltaTable
from state.delta.log.fence import Fence
from state.delta.log.location import Location
from state.delta.rows.format import RowsFormat, checked_rows_fields
from state.delta.rows.keyless import fitted_rows
from state.delta.rows.opened import OpenedDeltaRows
from state.delta.rows.past import PastDeltaRows
from state.delta.upkeep import Upkeep
from txtopo.api.fields import Fields
from txtopo.api.reduction import Rows, RowsMode
from txtopo.api.state import StateKind
from txtopo.columnar.rows_file import in_memory

__all__ = ["DeltaRows"]


class DeltaRows(DeclaredDeltaTable):
    """A plain table of rows: the fields, and the txid of the transaction that put each row.

    It has no keys: bolts put rows into it, by ``append`` and ``replace_partitions``, and read none of them one by
    one. Each transaction's rows are in it once.

    Args:
        path: the table: a local path, absolute or relative to the working directory of the coordinator, or an
            address in an object store. It is made when the state is first opened. A topology with several
            states needs local ones, see :mod:`state.delta.staging`.
        fields: the fields, each with a type.
        partition_by: the fields that the table is partitioned by: strings, integers, booleans or dates; a row must
            have a value there.
        storage_options: what the object store needs, passed on to delta-rs.
        upkeep_every_writes: writes between two checkpoints of the log.
        files_max: the most files that could be spared before small ones are put together.
        vacuum_retention_hours: how long data files that are no longer referenced stay, at least 168; None
            (the default): for ever.

    Raises:
        ConfigError: an option is out of its range.
        FieldsError: a field has no type, no name of its own, or a type that partitions cannot have.
    """

    def __init__(  # noqa: PLR0913  each has a default, and is named
        self,
        path: str | os.PathLike[str],
        fields: Fields,
        *,
        partition_by: Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
        upkeep_every_writes: int = 50,
        files_max: int = 32,
        vacuum_retention_hours: int | None = None,
    ) -> None:
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        checked_rows_fields(fields, self.partition_by)
        super().__init__(path, storage_options, Upkeep(upkeep_every_writes, files_max, vacuum_retention_hours))
        self.key = Fields()
        self.value = fields
        self.kind = StateKind.ROWS

    def as_rows(self, name: str, rows: Rows) -> pa.Table:
        """Return rows with the table's fields.

        Raises:
            FieldsError: a value does not fit its field.
        """
        return in_memory(fitted_rows(self._form(name), rows, RowsMode.APPEND))

    def open_as_of(self, topology_id: str, name: str, txid: int) -> PastDeltaRows:
        """Open what the table held as of a transaction, for reading only; it fences nobody.

        Args:
            topology_id: the topology that the state belongs to.
            name: the state's name in it.
            txid: the last transaction to see.

        Raises:
            ConfigError: there is no table.
            StateAccessError: what it held then is no longer kept.
        """
        return PastDeltaRows(topology_id, self._location(), self._form(name), txid)

    def _schema(self) -> pa.Schema:
        return self._form("").schema()

    def _opened(self, location: Location, table: DeltaTable, fence: Fence) -> OpenedDeltaRows:
        return OpenedDeltaRows(location, table, fence, self._form(fence.state), self._upkeep)

    def _form(self, name: str) -> RowsFormat:
        return RowsFormat(name, self.value, tuple(self.partition_by))

    def __repr__(self) -> str:
        return f"DeltaRows({self.path!r}, {self.value}, partition_by={self.partition_by})"
