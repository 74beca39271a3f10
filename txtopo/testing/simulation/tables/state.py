"""Simulated states: of keys and values, of rows, and of rows that expire, each declared and as opened."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Never

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.delta.columns import column_values
from state.delta.keyed.folding import Reducer
from state.delta.keyed.writing import RowWrites
from state.delta.schema import TXID_FIELD, DeclaredKeys, RowFormat
from state.memory import rows_as_table
from txtopo.api.data.fields import Fields
from txtopo.api.data.utc import micros_at
from txtopo.api.map_state import joined_columns
from txtopo.api.reduction import Folding
from txtopo.api.state import CanBeForked, ExpiresKeys, ExpiresRows, FindsRows, NotesRows, State, TakesRows
from txtopo.api.values import Key, StateKind, StateValue
from txtopo.api.writes import KeyedWrites, Reducible, Rows, RowsMode, TransactionRows, Writes, by_key
from txtopo.columnar.keyed_runs import RowsByTime
from txtopo.columnar.selection import rows_at
from txtopo.errors import StateAccessError
from txtopo.testing import checkers
from txtopo.testing.simulation.tables.table import (
    Change,
    OpenedSimulatedTable,
    SimulatedStateTable,
    SimulatedTable,
)


class SimulatedState(DeclaredKeys, CanBeForked):
    """Replaces a topology's state in a simulation; copies the fields and the kind of the state ``of``."""

    def __init__(self, of: State, table: SimulatedTable) -> None:
        self.key: Fields = of.key
        self.value: Fields = of.value
        self.kind: StateKind = of.kind
        self.partition_by = tuple(of.partition_by)
        self.expires = of.expires
        self.time_to_live = of.time_to_live
        self.origin: SimulatedTable | None = None
        """That of which its table is made anew, for a fork."""
        self._of = of
        self._table = table

    @property
    def is_durable(self) -> bool:
        """False: it ends with the schedule."""
        return False

    @property
    def address(self) -> str:
        """The table's name, so that the journal says which one it is."""
        return self._table.name

    def table(self) -> SimulatedStateTable:
        """Return the table."""
        return SimulatedStateTable(self._table)

    def as_rows(self, name: str, rows: Rows) -> pa.Table:
        """Return rows with the columns of the rows table that it replaces."""
        return self._of.as_rows(name, rows)

    def open(self, topology_id: str, name: str, incarnation: str, epoch: int) -> OpenedSimulatedTable:
        """Write the marker of ``epoch``; see :meth:`State.open`."""
        self._table.claim(topology_id, name, incarnation)
        opened = self._opened(name, epoch)
        opened.fence()
        return opened

    def _opened(self, name: str, epoch: int) -> OpenedSimulatedTable:
        match self.kind:
            case StateKind.ROWS:
                return OpenedSimulatedRows(self, name, self._table, epoch)
            case StateKind.EXPIRING:
                return OpenedSimulatedExpiringRows(self, name, self._table, epoch)
            case _:
                form = self.format(name)
                opened = OpenedSimulatedColumns if form.is_typed else OpenedSimulatedKeys
                return opened(self, form, self._table, epoch)

    def moved(self, path: str) -> SimulatedState:
        """Return this state: the world that it is in is its place."""
        del path
        return self

    def fork(self, origin: str, txid: int, topology_id: str, name: str, incarnation: str, epoch: int) -> None:  # noqa: PLR0913, PLR0917 - as CanBeForked
        """Make its table as that of :attr:`origin` was; see :meth:`CanBeForked.fork`."""
        del origin
        assert self.origin is not None, "the world of the fork has said of what"
        self._table.copy_from(self.origin, txid, epoch)
        self._table.owner = topology_id, name, incarnation

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows as of a transaction, or the newest."""
        return self._opened("", 0).snapshot(txid)


class OpenedSimulatedKeys(OpenedSimulatedTable, ExpiresKeys, NotesRows):
    """A simulated table of keys and values, opened by one coordinator."""

    def __init__(self, declared: State, form: RowFormat, table: SimulatedTable, epoch: int) -> None:
        super().__init__(declared, table, epoch)
        self._form = form

    def note_rows(self, bytes_max: int) -> None:
        """Write no file before a write is published; see :meth:`NotesRows.note_rows`."""
        self._notes_rows = bytes_max > 0

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the newest value of each key."""
        refusal = self._form.unhashable(keys)
        if refusal is not None:
            raise refusal
        return [self.rows.get(key) for key in self._form.fit_keys(keys).keys]

    def check(self, values: KeyedWrites) -> None:
        """Raise a ``FieldsError`` if a key or value does not fit."""
        self._form.check(values)

    def fitted(self, txid: int, values: Writes) -> Change:
        """Return the values as they are kept."""
        return Change(self._form.fit(txid, by_key(values)).values, getattr(values, "until", None))

    def shown(self, rows: checkers.Rows) -> pa.Table:
        """Return the key fields, the value fields and the transaction of each row."""
        return rows_as_table(self._form, {key: (row, self._txid_of(key, row)) for key, row in rows.items()})

    def _txid_of(self, key: Key, row: StateValue) -> int:
        """Return the transaction of a row; if the state keeps none, that of the version that the row came with."""
        txid: int | None = getattr(row, "txid", None)
        versions = (made.version for made in self._table.disk.made if made.version.rows.get(key) is row)
        return next(versions).txid or 0 if txid is None else txid

    def expired_until(self, watermark: dt.datetime | None) -> int:  # noqa: ARG002 - no time to live is changed
        """Return the time up to which keys have expired for the last write; none of them is dropped."""
        return self._table.newest.until

    def expired_rows(self, until: int) -> pa.Table:
        """Return the newest rows of keys whose time is at or before another one; see :class:`ExpiresKeys`."""
        ttl = self.declared.time_to_live
        expiry = None if ttl is None else ttl.expiry(until, self.declared.value)
        return self.shown({key: row for key, row in self.rows.items() if expiry is not None and expiry.has(row.value)})


class OpenedSimulatedColumns(OpenedSimulatedKeys, FindsRows):
    """One all of whose fields have types: it is folded in columns, as Delta's tables are."""

    def __init__(self, declared: State, form: RowFormat, table: SimulatedTable, epoch: int) -> None:
        super().__init__(declared, form, table, epoch)
        self._reducer = Reducer(form, declared.expires)

    def fitted(self, txid: int, values: Writes) -> Change:
        """Return the values as they are kept."""
        if isinstance(values, RowWrites):
            return Change(self._form.read_written(values.rows), values.until)
        return super().fitted(txid, values)

    def reducible_rows(self, values: Reducible, reduction: Folding) -> Reducible | None:
        """Return ``values`` as rows, if a transactional state folds them in columns."""
        return self._reducer.reducible(values, reduction)

    def rows_to_put(self, txid: int, values: KeyedWrites) -> pa.Table:
        """Return what a transaction puts and removes as rows for :meth:`fold`."""
        return self._form.fit(txid, values, with_previous=False).table

    def fold(self, parts: Sequence[TransactionRows], reduction: Folding | None) -> Writes | None:
        """Return the write that folds the rows into the newest version."""
        folded = self._reducer.fold(parts, reduction, self.rows_among)
        return None if folded is None else RowWrites(folded, is_by_key=reduction is None, until=parts[-1].until)

    def rows_among(self, keys: pa.Table) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """Return the newest rows of those of some keys that exist."""
        asked = joined_columns([column_values(keys[name]) for name in self._form.key])
        at = [position for position, key in enumerate(asked) if key in self.rows]
        found = {asked[position]: self.rows[asked[position]] for position in at}
        rows = self._form.fit(0, found).table
        txids = pa.array([self._txid_of(key, row) for key, row in found.items()], pa.int64())
        places = {key: place for place, key in enumerate(found)}
        rows = rows.set_column(rows.num_columns - 1, rows.schema.field(TXID_FIELD), txids)
        return np.array(at, np.int64), rows_at(rows, np.array([places[asked[position]] for position in at], np.int64))

    def rows_as_kept(self, rows: pa.Table) -> pa.Table | None:
        """Return rows of key and value fields as they are kept; None if they don't fit."""
        return self._reducer.as_kept(rows)


@attrs.frozen
class RowCount:
    """How often a row occurs in a rows table, and the transactions that wrote it."""

    value: int
    txids: tuple[int, ...]


class _RowChanges(dict[Key, Any]):
    """The new :class:`RowCount` of each row that changes, None where it is gone, and up to when rows are taken."""

    until: int | None = None


class OpenedSimulatedRows(OpenedSimulatedTable, TakesRows):
    """A simulated rows table, opened by one coordinator: each row is a key, and its :class:`RowCount` the value."""

    def __init__(self, declared: State, name: str, table: SimulatedTable, epoch: int) -> None:
        super().__init__(declared, table, epoch)
        self._name = name
        self._partition_at = [declared.value.index(field) for field in declared.partition_by]

    def multi_get(self, keys: Sequence[Key]) -> Never:  # noqa: ARG002 - refused
        """Raise a ``StateAccessError``."""
        raise StateAccessError(f"state {self._name!r} is a table of rows and has no keys")

    def fitted(self, txid: int, values: Writes) -> Change:  # noqa: ARG002 - each row has its own
        """Return the rows that change, which fit already."""
        assert isinstance(values, _RowChanges), "as write_rows() has made them"
        return Change(values, values.until)

    def shown(self, rows: checkers.Rows) -> pa.Table:
        """Return the fields and the transaction of each row."""
        fields, found = self.declared.value, [(row, each) for row, count in _counts(rows) for each in count.txids]
        columns = list(zip(*(row for row, _ in found), strict=True)) or [()] * len(fields)
        table = pa.table(dict(zip(fields.names, columns, strict=True)), schema=fields.arrow_schema())
        return table.append_column(TXID_FIELD, pa.array([txid for _, txid in found], pa.int64()))

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table:
        """Return rows with the table's fields."""
        if mode is RowsMode.REPLACE and not self._partition_at:
            raise StateAccessError(f"state {self._name!r} has no partitions to replace; declare it with partition_by")
        return self.declared.as_rows(self._name, rows)

    def write_rows(self, parts: Sequence[TransactionRows]) -> Writes:
        """Return the new :class:`RowCount` of each row that the transactions change."""
        before, changes = dict(_counts(self.rows)), _RowChanges()
        txids = {row: list(count.txids) for row, count in before.items()}
        last = self.last_txid or 0
        for txid in sorted({part.txid for part in parts if part.txid > last}):
            own = [part for part in parts if part.txid == txid]
            gone = {self._partition(row) for part in own if part.mode is RowsMode.REPLACE for row in _rows(part)}
            for row in txids:
                if self._partition(row) in gone:
                    txids[row] = []
            for part in own:
                if part.until is not None:
                    changes.until = until = max(part.until, changes.until or part.until)
                    txids = {row: [] if self._time(row) <= until else added for row, added in txids.items()}
                for row in _rows(part):
                    txids.setdefault(row, []).append(txid)
        after = {row: RowCount(len(own), tuple(own)) if own else None for row, own in txids.items()}
        changes.update({row: count for row, count in after.items() if count != before.get(row)})
        return changes

    def _partition(self, row: Any) -> tuple[Any, ...]:
        return tuple(row[position] for position in self._partition_at)

    def _time(self, row: Any) -> int:
        return micros_at(row[self.declared.value.index(self.declared.expires)])


class OpenedSimulatedExpiringRows(OpenedSimulatedRows, ExpiresRows):
    """A simulated table of rows that expire: a row that is taken is removed."""

    _indexed: tuple[int, RowsByTime] | None = None
    """The rows of a version, by its number."""

    def taken_until(self) -> int:
        """Return the time up to which rows are taken."""
        return self._table.newest.until

    def count(self, after: int) -> int:
        """Return the number of rows that expire after a time."""
        return self._by_time.count(after)

    def expired(self, after: int, until: int) -> pa.Table:
        """Return the rows that expire after one time and up to another."""
        return self._together(self._by_time.between(after, until))

    def of_keys(self, keys: pa.Table, after: int) -> pa.Table:
        """Return the rows of some keys that expire after a time."""
        return self._together(self._by_time.of_keys(keys, after))

    def holds(self, keys: pa.Table, after: int) -> pa.BooleanArray:
        """Return for each key whether it has a row that expires after a time."""
        return pa.array(self._by_time.holds(keys, after))

    @property
    def _by_time(self) -> RowsByTime:
        number = self._table.newest.number
        if self._indexed is None or self._indexed[0] != number:
            rows = RowsByTime(self.declared.expires, tuple(self.declared.key))
            rows.add(self.shown(self.rows).drop_columns([TXID_FIELD]))
            self._indexed = number, rows
        return self._indexed[1]

    def _together(self, parts: Iterable[pa.Table]) -> pa.Table:
        return pa.concat_tables([self.declared.value.arrow_schema().empty_table(), *parts])


def _counts(rows: Mapping[Key, Any]) -> Iterable[tuple[Any, RowCount]]:
    return rows.items()


def _rows(part: TransactionRows) -> list[tuple[Any, ...]]:
    assert isinstance(part.rows, pa.Table), "as it was fitted"
    columns = [list(map(_hashable, column.to_pylist())) for column in part.rows.columns]
    return list(zip(*columns, strict=True))


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return tuple((name, _hashable(each)) for name, each in value.items())
    return value
