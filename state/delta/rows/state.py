"""``DeltaRows``: a table to which committers append rows, or whose partitions they replace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.declared import DeclaredDeltaTable
from state.delta.log.data_files import DataFile, files_in
from state.delta.log.location import Location
from state.delta.log.put import Change
from state.delta.merging import Policy
from state.delta.opened_table import OpenedDeltaTable
from state.delta.read.multiset import missing_from
from state.delta.read.past import Change as PastChange, PastDeltaTable
from state.delta.read.reading import key_mask
from state.delta.rows.files import distinct
from state.delta.rows.format import DeclaredRows, KeylessRows, checked_rows_fields, no_keys
from state.delta.rows.group import RowsWrites, place_here, place_on_executors, rows_left
from state.delta.schema import TXID_FIELD
from state.delta.upkeep.schedule import Upkeep
from state.delta.writer import TableWriter
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.fields import Fields
from txtopo.api.state import SchemaEvolution
from txtopo.api.values import StateKind
from txtopo.api.writes import PreparedWrites, TransactionRows, Writes
from txtopo.columnar.conversion import python_rows


class DeltaRows(DeclaredRows, DeclaredDeltaTable):
    """A table of rows without keys in a Delta table, with the columns of the fields and txid.

    Bolts put rows with ``append`` and ``replace_partitions``, and cannot read single rows.

    *You* must not write to the table with anything else; anybody may read it.
    *txtopo* guarantees that the rows of each transaction are in it exactly once.

    Args:
        path: the table's path, absolute or relative to the working directory of the coordinator, or an address in an
            object store, which needs the extra ``object-store``. The table is created when the state is first opened.
        fields: the fields, each with a type.
        partition_by: the partition fields: strings, integers, booleans or dates; a row must have a value there.
        storage_options: options for the object store, as delta-rs has them.
        upkeep_every_writes: the number of writes between two checkpoints of the log, at least: the more is kept, the
            rarer they are.
        files_max: small files are combined when that saves at least this many files.
        vacuum_retention_hours: how long unreferenced data files are kept, in hours, at least 168; None (the default):
            as long as ``topology.history.recent.secs`` says, or forever if it is none.
        schema_evolution: ``"add"``: when a run begins, the table gets the fields that it lacks, and earlier
            rows have nulls there. By default they are refused; ``txtopo evolve`` adds them once.

    Raises:
        ConfigError: an option is out of range.
        FieldsError: two fields have the same name, or a field has no type or a type that partitions cannot have.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913  each has a default, and is named
        self,
        path: str | os.PathLike[str],
        fields: Fields,
        *,
        partition_by: str | Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
        upkeep_every_writes: int = 50,
        files_max: int = 32,
        vacuum_retention_hours: int | None = None,
        schema_evolution: SchemaEvolution | None = None,
    ) -> None:
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        checked_rows_fields(fields, self.partition_by)
        upkeep = Upkeep(upkeep_every_writes, files_max, vacuum_retention_hours)
        super().__init__(path, storage_options, upkeep, schema_evolution)
        self.key = Fields()
        self.value = fields
        self.kind = StateKind.ROWS

    def open_as_of(self, topology_id: str, name: str, txid: int) -> PastDeltaRows:
        """Open the table as of a transaction; see :class:`KeepsVersions`."""
        return PastDeltaRows(self, topology_id, self._location(), name, txid)

    def _schema(self) -> pa.Schema:
        return self.form("").schema()

    def _opened(self, writer: TableWriter) -> OpenedDeltaTable:
        return OpenedDeltaRows(self, writer, self.upkeep)

    def __repr__(self) -> str:
        return f"DeltaRows({self.path!r}, {self.value}, partition_by={self.partition_by})"


class OpenedDeltaRows(KeylessRows, OpenedDeltaTable):
    """A table of rows opened by one coordinator; made by :meth:`DeltaRows.open`."""

    def __init__(self, declared: DeltaRows, writer: TableWriter, upkeep: Upkeep, policy: Policy | None = None) -> None:
        form, policy = declared.form(writer.fence.owner.state), policy or Policy.of_bins(upkeep.files_max)
        OpenedDeltaTable.__init__(self, declared, writer, form.schema(), declared.sizes, upkeep, policy)
        KeylessRows.__init__(self, form)

    def write_rows(self, parts: Sequence[TransactionRows]) -> RowsWrites:
        """Write the rows of some transactions to data files that are not in a version of the table yet."""
        # A crash between this and prepare() leaves files that no version names: a vacuum of upkeep removes them.
        last = self._head.last_txid
        parts = [part for part in parts if last is None or part.txid > last]
        if not parts:
            return RowsWrites([], [])
        is_large = sum(part.count for part in parts) > self._driver_rows_max
        with self._writer.failing("its rows cannot be written", parts[-1].txid):
            if self._executors is not None and self._location.root is not None and is_large:
                writes = place_on_executors(self._executors, self._data, self._form, parts)
            else:
                writes = place_here(self._data, self._form, parts)
        return attrs.evolve(writes, rows_removed=sum(file.live for file in self._in(writes.replaced)))

    def _in(self, partitions: Sequence[Mapping[str, str | None]]) -> list[DataFile]:
        """Return the files of the head in some partitions."""
        names = self._form.partition_by
        replaced = {tuple(partition[name] for name in names) for partition in partitions}
        files = self._head.files.values() if replaced else ()
        return [file for file in files if tuple(file.partition[name] for name in names) in replaced]

    def _make(self, txid: int, values: Writes) -> Any:  # noqa: ARG002 - a note of rows has none
        if not isinstance(values, RowsWrites):
            if len(values):
                raise no_keys(self._form.state)
            values = RowsWrites([], [])
        return values.note()

    def _change(self, txid: int, note: Any) -> Change:
        return Change(files_in(note), self._in(note["replaced"]), txid=txid)


@attrs.frozen(eq=False)
class PastWrites(PreparedWrites):
    """The rows that a replay has put, in memory only."""

    parts: Sequence[TransactionRows]

    @property
    def rows_put(self) -> int:
        """The number of rows that it would put."""
        return sum(part.count for part in self.parts)


def _first(rows: pa.Table) -> dict[str, object]:
    return python_rows(rows.slice(0, 1))[0]


class PastDeltaRows(KeylessRows, PastDeltaTable):
    """A table of rows as of the past; made by :meth:`DeltaRows.open_as_of`."""

    def __init__(self, declared: DeltaRows, topology_id: str, location: Location, name: str, txid: int) -> None:
        form = declared.form(name)
        PastDeltaTable.__init__(self, declared, topology_id, location, name, form.schema(), txid)
        KeylessRows.__init__(self, form)

    def write_rows(self, parts: Sequence[TransactionRows]) -> PastWrites:
        """Keep the rows of some transactions in memory; nothing is written."""
        return PastWrites(parts)

    def _put_now(self, txid: int, writes: Writes, recorded: pa.Table) -> pa.Table:
        """Return them without partitions that a later transaction of the group has replaced."""
        now, _ = self._left(txid, writes)
        names = list(self._form.partition_by)
        if not names or not now.num_rows:
            return now
        later = distinct(self.all.filter(pc.greater(self.all[TXID_FIELD], txid)).select(names))
        stayed = key_mask(now, distinct(recorded.select(names)))
        return now.filter(pc.invert(pc.and_(key_mask(now, later), pc.invert(stayed))))

    def _difference(self, change: PastChange) -> str | None:
        """Describe the first row that differs, or that is replaced and was not; None if none does."""
        then, now = change.then, change.now
        lost, extra = missing_from(now, then), missing_from(then, now)
        counts = f"{then.num_rows} rows then, {now.num_rows} now"
        if lost.num_rows:
            return f"row {_first(lost)} was put then, but is not put now ({counts})"
        if extra.num_rows:
            return f"row {_first(extra)} is put now, but was not put then ({counts})"
        _, replaced = self._left(change.txid, change.writes)
        if replaced is None:
            return None
        older = self.all.filter(pc.less(self.all[TXID_FIELD], change.txid))
        staying = older.filter(key_mask(older, replaced))
        return f"row {_first(staying)} is replaced now, but was kept then" if staying.num_rows else None

    def _left(self, txid: int, writes: Writes) -> tuple[pa.Table, pa.Table | None]:
        """Return the rows that a replay has put for a transaction, and the partitions that it has replaced."""
        assert isinstance(writes, PastWrites) or not writes, "a replay puts rows into memory"
        parts = writes.parts if isinstance(writes, PastWrites) else ()
        return rows_left([part for part in parts if part.txid == txid], self._form)
