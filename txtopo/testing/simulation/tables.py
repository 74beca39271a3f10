"""Simulated tables: versioned, with application transactions and optimistic conflicts, like Delta's.

A write reads the newest version, checks the fence in it, and adds the next version. If another writer has added that
version meanwhile, the write starts again. Every new version is passed to the checkers. A
:class:`~state.memory.MemoryState` has one version, no other writers and no past, so it can't stand for them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Never

import attrs
import pyarrow as pa

from state.delta.log.put import Change
from state.delta.upkeep.past import Removed
from state.delta.upkeep.rounds import LogUpkeep
from txtopo.api.data.fields import Fields
from txtopo.api.data.utc import micros_at
from txtopo.api.map_state import pairs_of, split_columns
from txtopo.api.reduction import Folding
from txtopo.api.state import (
    CanBeForked,
    CanBeRepaired,
    ExpiresKeys,
    ExpiresRows,
    FoldsRows,
    History,
    KeepsHistory,
    OpenedState,
    State,
    StateTable,
    TableDescription,
    TakesRows,
)
from txtopo.api.values import Key, StateKind, StateValue, stored_value
from txtopo.api.writes import Reducible, Rows, RowsMode, TransactionRows, Writes, by_key
from txtopo.columnar.rows_by_time import AFTER_ALL, BEFORE_ALL
from txtopo.errors import DivergenceError, FailedException, LostLead, StateAccessError
from txtopo.failpoints import reach
from txtopo.testing.checkers import Version
from txtopo.testing.simulation.history import SCHEDULE, Disk, SimulatedPast

WRITE_TRIES_MAX = 10
"""More than other writers can come between the tries of a write in a schedule."""

OnVersion = Callable[[str, Version, Version], None]
"""Called with the table's name, the version before, and the new one."""


@attrs.define(eq=False)
class SimulatedTable:
    """The data of a table, which outlives the coordinators."""

    name: str
    on_version: OnVersion
    incarnation: str | None = None
    newest: Version = attrs.field(factory=lambda: Version(0, None, 0, {}))
    prepared: dict[tuple[int, int], Writes] = attrs.field(factory=dict)
    """By epoch and txid."""
    disk: Disk = attrs.field(factory=lambda: Disk(lambda: 0.0, lambda: None, lambda _disk: None))
    make_thread: Callable[[], Executor] | None = None
    """Makes the thread that looks after the log, for the coordinator that acts; None: nobody does."""
    files: dict[tuple[int, int], str] = attrs.field(factory=dict)
    """Those of what is prepared, by epoch and txid."""

    def add(self, version: Version, file: str | None = None, *, is_turn: bool = False, is_merge: bool = False) -> None:
        """Make a version the newest one; ``file`` is the path of the file that it adds, see :meth:`Disk.add`."""
        before, self.newest = self.newest, version
        self.disk.add(version, file, is_turn=is_turn, is_merge=is_merge)
        self.on_version(self.name, before, version)

    def take(self, origin: SimulatedTable, txid: int, epoch: int) -> None:
        """Become as another table was after a transaction's write; raise StateAccessError if that is gone."""
        number = origin.disk.version_of(txid)
        reach("fork.shared")  # where the other one may lose its files; its log is read by now
        made = None if number is None else origin.disk.made[number]
        if made is None or made.version.txid != txid or not made.live <= origin.disk.data.keys():
            raise StateAccessError(f"table {self.name!r} no longer keeps transaction {txid}", txid=txid)
        before, self.newest = self.newest, Version(self.newest.number + 1, txid, epoch, made.version.rows)
        self.disk.take(origin.disk, made.version.number, self.newest)
        self.on_version(self.name, before, self.newest)


class SimulatedState(State, CanBeForked):
    """Replaces a topology's state in a simulation; copies the fields and the kind of the state ``of``."""

    def __init__(self, of: State, table: SimulatedTable) -> None:
        self.key: Fields = of.key
        self.value: Fields = of.value
        self.kind: StateKind = of.kind
        self.partition_by = tuple(getattr(of, "partition_by", ()))
        self.expires = getattr(of, "expires", "")
        self.time_to_live = getattr(of, "time_to_live", None)
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

    def as_rows(self, name: str, rows: Rows) -> pa.Table:
        """Return rows with the columns of the rows table that it replaces."""
        return self._of.as_rows(name, rows)

    def open(self, topology_id: str, name: str, incarnation: str, epoch: int) -> OpenedState:
        """Write the marker of ``epoch``; see :meth:`State.open`."""
        table = self._table
        if table.incarnation is None:
            table.incarnation = incarnation
        if table.incarnation != incarnation:
            raise DivergenceError(f"state {name!r} of topology {topology_id!r} is of another incarnation")
        opened: OpenedSimulatedState
        match self.kind:
            case StateKind.ROWS:
                opened = OpenedSimulatedRows(self, name, table, epoch)
            case StateKind.EXPIRING:
                opened = OpenedSimulatedExpiringRows(self, name, table, epoch)
            case _:
                opened = OpenedSimulatedState(self, table, epoch)
        opened.check_fence(table.newest)
        # A version with the epoch alone fences: every write of an earlier epoch reads it and stops, even one whose
        # coordinator is past its check of the lead.
        newest = table.newest
        table.add(Version(newest.number + 1, newest.txid, epoch, newest.rows))
        opened.landed()
        return opened

    def moved(self, path: str) -> SimulatedState:
        """Return this state: the world that it is in is its place."""
        del path
        return self

    def fork(self, origin: str, txid: int, topology_id: str, name: str, incarnation: str, epoch: int) -> None:  # noqa: PLR0913, PLR0917 - as CanBeForked
        """Make its table as that of :attr:`origin` was; see :meth:`CanBeForked.fork`."""
        del origin, topology_id, name
        assert self.origin is not None, "the world of the fork has said of what"
        self._table.take(self.origin, txid, epoch)
        self._table.incarnation = incarnation

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return the newest rows."""
        del txid
        return _shown(self._table.newest.rows)


class OpenedSimulatedState(OpenedState, FoldsRows, ExpiresKeys, KeepsHistory, CanBeRepaired):
    """A simulated table opened by one coordinator."""

    def __init__(self, declared: SimulatedState, table: SimulatedTable, epoch: int) -> None:
        self.declared = declared
        self._table = table
        self._epoch = epoch
        self._kind = declared.kind
        past = SimulatedPast(table.disk, lambda: self.check_fence(table.newest))
        self._log_upkeep = LogUpkeep(past, SCHEDULE, table.make_thread or ThreadPoolExecutor)
        self._head = table.newest.number

    @property
    def identity(self) -> str:
        """The table's name, which is unique in a world."""
        return self._table.name

    @property
    def rows(self) -> Mapping[Key, StateValue]:
        """The newest rows."""
        return self._table.newest.rows

    @property
    def last_txid(self) -> int | None:
        """The txid of the last write."""
        return self._table.newest.txid

    def check_fence(self, version: Version) -> None:
        """Raise LostLead if a newer coordinator has opened the table."""
        if version.epoch > self._epoch:
            raise LostLead(f"state {self._table.name!r} was opened by epoch {version.epoch}, not {self._epoch}")

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the newest value of each key."""
        rows = self._table.newest.rows
        return [rows.get(key) for key in keys]

    def expired_until(self, watermark: dt.datetime | None) -> int:  # noqa: ARG002
        """Return a time before all others, because no key is dropped; see :class:`ExpiresKeys`."""
        return BEFORE_ALL

    def expired_rows(self, until: int) -> pa.Table:
        """Return the newest rows of keys whose time is at or before another one; see :class:`ExpiresKeys`."""
        declared, ttl = self.declared, self.declared.time_to_live
        expiry = None if ttl is None else ttl.expiry(until, declared.value)
        found = {key: row for key, row in self.rows.items() if expiry is not None and expiry.has(row.value)}
        columns = [
            pa.array(values, kind)
            for fields, given in (
                (declared.key, list(found)),
                (declared.value, [each.value for each in found.values()]),
            )
            for kind, values in zip(fields.types, split_columns(given, len(fields)), strict=True)
        ]
        txids = pa.array([getattr(each, "txid", 0) for each in found.values()], pa.int64())
        return pa.Table.from_arrays([*columns, txids], names=[*declared.key, *declared.value, "txid"])

    def reducible_rows(self, values: Reducible, reduction: Folding) -> Reducible | None:  # noqa: ARG002
        """Return ``values`` as rows, for a transactional state."""
        if self._kind is not StateKind.TRANSACTIONAL or not isinstance(values, Mapping):
            return None
        return dict(values) if set(map(type, values.values())) <= {int} else None

    def fold(self, parts: Sequence[TransactionRows], reduction: Folding | None) -> Writes | None:
        """Return the writes that fold the rows into the newest version, row by row."""
        assert reduction is not None, "what is put is written by key"
        kept: dict[Key, StateValue | None] = {}
        for part in parts:
            for key, value in pairs_of(part.rows):
                stored = kept.get(key) or self._table.newest.rows.get(key)
                if stored is None:
                    kept[key] = stored_value(self._kind, part.txid, value)
                elif key not in kept and stored.is_applied(part.txid):
                    return None  # a lost answer: the row is written already, and the caller folds key by key
                else:
                    kept[key] = stored.written(part.txid, reduction.function(stored.value, value))
        return kept

    def write(self, txid: int, values: Writes) -> None:
        """Add a version; see :meth:`OpenedState.write`."""
        self._write(txid, values, self._table.disk.write())

    def _write(self, txid: int, values: Writes, file: str) -> None:
        table = self._table
        for _ in range(WRITE_TRIES_MAX):
            seen = table.newest
            self.check_fence(seen)
            if seen.txid is not None and seen.txid >= txid:  # an earlier try landed, and its answer was lost
                return
            # 1. This coordinator is paused here. 2. Its successor opens the table, which adds a version. 3. This one
            # resumes, finds the next version taken, and the check of the fence stops it at the next try.
            reach("delta.write.checked")
            if table.newest is not seen:
                continue
            rows = dict(seen.rows)
            for key, value in by_key(values).items():
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
            table.add(Version(seen.number + 1, txid, self._epoch, rows), file)
            self.landed()
            reach("delta.write.landed")  # a crash or an error here loses the answer to a durable write
            return
        raise FailedException(f"state {table.name!r}: other writers were faster")

    def prepare(self, txid: int, values: Writes) -> tuple[int, int]:
        """Keep a write; see :meth:`OpenedState.prepare`."""
        self.check_fence(self._table.newest)
        self._table.prepared[self._epoch, txid] = values
        self._table.files[self._epoch, txid] = self._table.disk.write()
        return self._epoch, txid

    def publish(self, txid: int, note: Any) -> None:
        """Add a version with a prepared write; see :meth:`OpenedState.publish`."""
        newest, prepared = self._table.newest, (note[0], note[1])
        if newest.txid is None or newest.txid < txid:
            values = self._table.prepared.get(prepared)
            if values is None or self._table.files[prepared] not in self._table.disk.data:
                self.check_fence(newest)  # a successor may have published it, gone back, and deleted it
                raise DivergenceError(f"state {self._table.name!r}: what was prepared for {txid} is gone", txid=txid)
            self._write(txid, values, self._table.files[prepared])
        self._table.prepared.pop(prepared, None)

    def clean_up(self) -> None:
        """Drop what this coordinator and earlier ones have prepared; what a successor has stays."""
        prepared = self._table.prepared
        self._table.prepared = {key: values for key, values in prepared.items() if key[0] > self._epoch}

    def keep_history(self, history: History) -> None:
        """Keep what a history names; see :meth:`KeepsHistory.keep_history`."""
        self._log_upkeep.keep(history)

    @property
    def is_upkeep_due(self) -> bool:
        """Whether a round of upkeep is due; see :attr:`OpenedState.is_upkeep_due`."""
        return self._table.make_thread is not None and self._log_upkeep.is_due(0)

    def maintain(self) -> None:
        """Look after the log, as Delta's tables do; see :mod:`state.delta.upkeep`."""
        if not self.is_upkeep_due:
            self._log_upkeep.delete_removed(self._files_needed, self._is_head)
            return
        self._log_upkeep.end()
        self._merge()
        self._log_upkeep.begin(self._head, self._files_needed())

    def _merge(self) -> None:
        """Move the rows to one file where there are several, by a version without a transaction."""
        table, newest = self._table, self._table.newest
        if len(table.disk.made[newest.number].live) > 1:
            self.check_fence(newest)
            merged = Version(newest.number + 1, newest.txid, self._epoch, newest.rows)
            table.add(merged, table.disk.write(), is_merge=True)
            self.landed()

    def close(self) -> None:
        """End the upkeep."""
        self._log_upkeep.close()

    def landed(self) -> None:
        """Take note that the newest version is this coordinator's."""
        made = self._table.disk.made[-1]
        number, gone = made.version.number, tuple(sorted(made.before - made.live))
        self._head = number
        # Each of its versions counts as a write, so that more is looked after.
        self._log_upkeep.written(Change(txid=made.version.txid or 0), Removed(number, int(made.made_secs * 1000), gone))

    def _files_needed(self) -> set[str]:
        """Return the files of the head, and those that this coordinator has prepared."""
        table = self._table
        return {*table.disk.made[self._head].live, *(table.files[each] for each in table.prepared)}

    def _is_head(self) -> bool:
        return self._table.newest.number == self._head

    def roll_back(self, txid: int | None) -> None:
        """Add a version that equals the one of a transaction; see :meth:`CanBeRepaired.roll_back`."""
        table, wanted = self._table, txid or 0
        for _ in range(WRITE_TRIES_MAX):
            seen = table.newest
            self.check_fence(seen)
            if (seen.txid or 0) == wanted:
                return
            number = table.disk.version_of(wanted) if wanted else 0
            if number is None:
                raise StateAccessError(f"state {table.name!r} no longer keeps transaction {txid}", txid=txid)
            reach("delta.write.checked")
            if table.newest is seen:
                rows = table.disk.made[number].version.rows
                table.add(Version(seen.number + 1, wanted, self._epoch, rows, restored=number))
                self.landed()
                return
        raise FailedException(f"state {table.name!r}: other writers were faster")

    def record_turn(self, txid: int) -> None:
        """Add a version that marks a turn; see :meth:`CanBeRepaired.record_turn`."""
        del txid  # no later start looks for it
        newest = self._table.newest
        self.check_fence(newest)
        self._table.add(Version(newest.number + 1, newest.txid, self._epoch, newest.rows), is_turn=True)
        self.landed()

    def adopt(self) -> None:
        """Do nothing: nobody else writes."""

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return the newest rows; rows of past transactions are not kept."""
        if txid is not None and txid != self.last_txid:
            raise StateAccessError("a simulated table only shows its newest rows", txid=txid)
        return _shown(self._table.newest.rows)


class SimulatedStateTable(StateTable):
    """A simulated table, for who goes back."""

    def __init__(self, table: SimulatedTable, topology_id: str) -> None:
        self._table = table
        self._topology_id = topology_id

    @property
    def address(self) -> str:
        """The table's name."""
        return self._table.name

    def look(self) -> TableDescription | None:
        """Return its description; None if nobody has opened it."""
        table, newest = self._table, self._table.newest
        if table.incarnation is None:
            return None
        name, incarnation = table.name, table.incarnation
        return TableDescription(
            self._topology_id, name, incarnation, name, newest.txid, newest.epoch, newest.number, misfit=None
        )

    def foreign_change(self, since: int | None) -> None:
        """Return None: nobody else writes."""
        del since

    def obstacle(self, txid: int, note: Any) -> None:
        """Return None: what was prepared is there."""
        del txid, note

    def undone_to(self, epoch: int) -> None:
        """Return None: nobody asks."""
        del epoch

    def is_kept(self, txid: int | None) -> bool:
        """Return whether the version of a transaction can be read."""
        return not txid or txid in self.kept([txid])

    def kept(self, txids: Collection[int]) -> set[int]:
        """Return the transactions whose versions can be read."""
        disk = self._table.disk
        readable = set(disk.readable())
        return {txid for number, txid in disk.transactions(len(disk.made) - 1) if number in readable} & {*txids}

    def asides(self) -> list[int]:
        """Return none."""
        return []

    def set_aside(self, number: int) -> None:
        """Refuse to move it: no plan of the simulator does."""
        raise StateAccessError(f"table {self._table.name!r} can't be moved to {number}")


@attrs.frozen
class RowCount:
    """How often a row occurs in a rows table, and the transactions that wrote it."""

    value: int
    txids: tuple[int, ...]


class OpenedSimulatedRows(OpenedSimulatedState, TakesRows):
    """A simulated rows table, opened by one coordinator: each row is a key, and its :class:`RowCount` the value."""

    def __init__(self, state: SimulatedState, name: str, table: SimulatedTable, epoch: int) -> None:
        super().__init__(state, table, epoch)
        self._state = state
        self._name = name
        self._partition_at = [state.value.index(field) for field in state.partition_by]

    def multi_get(self, keys: Sequence[Key]) -> Never:  # noqa: ARG002 - refused
        """Raise a ``StateAccessError``."""
        raise StateAccessError(f"state {self._name!r} is a table of rows and has no keys")

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table:
        """Return rows with the table's fields."""
        if mode is RowsMode.REPLACE and not self._partition_at:
            raise StateAccessError(f"state {self._name!r} has no partitions to replace; declare it with partition_by")
        return self._state.as_rows(self._name, rows)

    def write_rows(self, parts: Sequence[TransactionRows]) -> Writes:
        """Return the new :class:`RowCount` of each row that the transactions change."""
        before = self._table.newest.rows
        txids = {row: list(getattr(count, "txids", ())) for row, count in before.items()}
        last = self.last_txid or 0
        for txid in sorted({part.txid for part in parts if part.txid > last}):
            own = [part for part in parts if part.txid == txid]
            gone = {self._partition(row) for part in own if part.mode is RowsMode.REPLACE for row in _rows(part)}
            for row in txids:
                if self._partition(row) in gone:
                    txids[row] = []
            for part in own:
                if part.until is not None:
                    until = part.until
                    txids = {row: [] if self._time(row) <= until else added for row, added in txids.items()}
                for row in _rows(part):
                    txids.setdefault(row, []).append(txid)
        after: dict[Key, Any] = {row: RowCount(len(own), tuple(own)) if own else None for row, own in txids.items()}
        return {row: count for row, count in after.items() if count != before.get(row)}

    def _partition(self, row: Any) -> tuple[Any, ...]:
        return tuple(row[position] for position in self._partition_at)

    def _time(self, row: Any) -> int:
        return micros_at(row[self._state.value.index(self._state.expires)])


class OpenedSimulatedExpiringRows(OpenedSimulatedRows, ExpiresRows):
    """A simulated table of rows that expire: a row that is taken is removed."""

    def taken_until(self) -> int:
        """Return a time before all others, because the rows that are taken are not in the table."""
        return BEFORE_ALL

    def count(self, after: int) -> int:
        """Return the number of rows that expire after a time."""
        count: int = self.expired(after, AFTER_ALL).num_rows
        return count

    def of_keys(self, keys: pa.Table, after: int) -> pa.Table:
        """Return the rows of some keys that expire after a time."""
        wanted = {tuple(row.values()) for row in keys.to_pylist()}
        rows = self.expired(after, AFTER_ALL)
        return rows.filter(
            pa.array(
                [tuple(key.values()) in wanted for key in rows.select(list(self._state.key)).to_pylist()], pa.bool_()
            )
        )

    def expired(self, after: int, until: int) -> pa.Table:
        """Return the rows that expire after one time and up to another."""
        fields = self._state.value
        rows: Mapping[Any, Any] = self.rows
        found = [row for row, count in rows.items() for _ in range(count.value) if after < self._time(row) <= until]
        columns = list(zip(*found, strict=True)) or [()] * len(fields)
        return pa.table(dict(zip(fields.names, columns, strict=True)), schema=fields.arrow_schema())

    def holds(self, keys: pa.Table, after: int) -> pa.BooleanArray:
        """Return for each key whether it has a row that expires after a time."""
        fields = self._state.value
        rows: Sequence[Any] = [row for row in self.rows if self._time(row) > after]
        found = {tuple(row[fields.index(name)] for name in self._state.key) for row in rows}
        return pa.array([tuple(row.values()) in found for row in keys.to_pylist()], pa.bool_())


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


def _shown(rows: Mapping[Key, StateValue]) -> pa.Table:
    return pa.table({"key": list(map(repr, rows)), "value": [repr(row.value) for row in rows.values()]})
