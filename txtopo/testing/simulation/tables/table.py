"""A simulated table, and what all opened ones have: the fence, versions, prepared writes, upkeep, a way back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import attrs
import pyarrow as pa

from state.delta.upkeep.past import Removed
from state.delta.upkeep.rounds import LogUpkeep
from txtopo.api.state import CanBeRepaired, History, KeepsHistory, OpenedState, State, StateTable, TableDescription
from txtopo.api.values import Key
from txtopo.api.writes import Writes
from txtopo.errors import DivergenceError, FailedException, LostLead, StateAccessError
from txtopo.failpoints import reach
from txtopo.testing.checkers import Rows, Version
from txtopo.testing.simulation.tables.disk import SCHEDULE, Disk, SimulatedPast

WRITE_TRIES_MAX = 10
"""More than other writers can come between the tries of a write in a schedule."""

OnVersion = Callable[[str, Version, Version], None]
"""Called with the table's name, the version before, and the new one."""


@attrs.frozen
class Change:
    """What a write changes: by key what is put, None where it is removed, and the time up to which it takes."""

    rows: Mapping[Key, Any]
    until: int | None = None


@attrs.define(eq=False)
class SimulatedTable:
    """The data of a table, which outlives the coordinators."""

    name: str
    on_version: OnVersion
    owner: tuple[str, str, str] | None = None
    """Topology, state and incarnation; None if nobody has opened it."""
    newest: Version = attrs.field(factory=lambda: Version(0, None, 0, {}))
    prepared: dict[tuple[int, int], tuple[Change, str]] = attrs.field(factory=dict)
    """By epoch and txid, the writes, each with its file; empty if the note has the rows."""
    disk: Disk = attrs.field(factory=lambda: Disk(lambda: 0.0, lambda: None, lambda _disk: None))
    make_thread: Callable[[], Executor] | None = None
    """Makes the thread that looks after the log, for the coordinator that acts; None: nobody does."""

    def add(
        self, version: Version, file: str | None = None, *, turn: int | None = None, is_merge: bool = False
    ) -> None:
        """Make a version the newest one; ``file`` is the path of the file that it adds, see :meth:`Disk.add`."""
        before, self.newest = self.newest, version
        self.disk.add(version, file, turn=turn, is_merge=is_merge)
        self.on_version(self.name, before, version)

    def claim(self, topology_id: str, name: str, incarnation: str) -> None:
        """Give the table to a state, if it has no owner; raise DivergenceError if it has another one."""
        owner = topology_id, name, incarnation
        self.owner = self.owner or owner
        if self.owner != owner:
            raise DivergenceError(
                f"the table of {self.owner} is opened for {owner}; its last transaction is {self.newest.txid}",
                txid=self.newest.txid,
            )

    def copy_from(self, origin: SimulatedTable, txid: int, epoch: int) -> None:
        """Become as another table was after a transaction's write; raise StateAccessError if that is gone."""
        number = origin.disk.version_of(txid)
        reach("fork.shared")  # where the other one may lose its files; its log is read by now
        made = None if number is None else origin.disk.made[number]
        if made is None or made.version.txid != txid or not made.live <= origin.disk.data.keys():
            raise StateAccessError(f"table {self.name!r} no longer keeps transaction {txid}", txid=txid)
        before = self.newest
        self.newest = attrs.evolve(made.version, number=before.number + 1, epoch=epoch, restored=None)
        self.disk.link_from(origin.disk, made.version.number, self.newest)
        self.on_version(self.name, before, self.newest)

    def version_as_of(self, txid: int) -> Version:
        """Return the version of the last write up to a transaction; raise StateAccessError if it can't be read."""
        last = self.newest.txid
        if txid > (last or 0):
            raise StateAccessError(f"transaction {txid} is not in {self.name!r}, whose last one is {last}", txid=txid)
        number = self.disk.version_of(txid)
        if number is None:
            raise StateAccessError(f"table {self.name!r} no longer keeps transaction {txid}", txid=txid)
        return self.disk.made[number].version


class OpenedSimulatedTable(OpenedState, KeepsHistory, CanBeRepaired):
    """A simulated table opened by one coordinator."""

    def __init__(self, declared: State, table: SimulatedTable, epoch: int) -> None:
        self.declared = declared
        self._table = table
        self._epoch = epoch
        past = SimulatedPast(table.disk, lambda: self.check_fence(table.newest))
        self._log_upkeep = LogUpkeep(past, SCHEDULE, table.make_thread or ThreadPoolExecutor)
        self._head = table.newest.number
        self._notes_rows = False
        """Whether files are written when a write is published, and not when it is prepared."""

    @abstractmethod
    def fitted(self, txid: int, values: Writes) -> Change:
        """Return what a write changes, in the form in which it is kept; raise a ``FieldsError`` if it does not fit."""

    @abstractmethod
    def shown(self, rows: Rows) -> pa.Table:
        """Return the rows of a version as a snapshot shows them."""

    @property
    def identity(self) -> str:
        """The table's name, which is unique in a world."""
        return self._table.name

    @property
    def rows(self) -> Rows:
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

    def fence(self) -> None:
        """Keep coordinators of earlier epochs from writing.

        A version with the epoch alone does: every write of an earlier epoch reads it and stops, even one whose
        coordinator is past its check of the lead.
        """
        self.check_fence(self._table.newest)
        self._add()

    def _add(self, version: Version | None = None, file: str | None = None, **options: Any) -> None:
        """Add a version of this coordinator's: with the newest rows, unless others are given."""
        newest = self._table.newest
        rows = attrs.evolve(newest, restored=None) if version is None else version
        self._table.add(attrs.evolve(rows, number=newest.number + 1, epoch=self._epoch), file, **options)
        made = self._table.disk.made[-1]
        self._head, gone = made.version.number, tuple(sorted(made.before - made.live))
        self._log_upkeep.written(Removed(self._head, int(made.made_secs * 1000), gone), 0)

    # Writes.

    def write(self, txid: int, values: Writes) -> None:
        """Add a version; see :meth:`OpenedState.write`."""
        self._write(txid, self.fitted(txid, values), self._table.disk.write())

    def _write(self, txid: int, change: Change, file: str) -> None:
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
            rows = {key: row for key, row in {**seen.rows, **change.rows}.items() if row is not None}
            until = seen.until if change.until is None else max(seen.until, change.until)
            self._add(attrs.evolve(seen, txid=txid, rows=rows, until=until, restored=None), file)
            reach("delta.write.landed")  # a crash or an error here loses the answer to a durable write
            return
        raise FailedException(f"state {table.name!r}: other writers were faster")

    def prepare(self, txid: int, values: Writes) -> tuple[int, int]:
        """Keep a write; see :meth:`OpenedState.prepare`."""
        change = self.fitted(txid, values)
        self.check_fence(self._table.newest)
        self._table.prepared[self._epoch, txid] = change, "" if self._notes_rows else self._table.disk.write()
        return self._epoch, txid

    def publish(self, txid: int, note: Any) -> None:
        """Add a version with a prepared write; see :meth:`OpenedState.publish`."""
        newest, prepared = self._table.newest, (note[0], note[1])
        if newest.txid is None or newest.txid < txid:
            change, file = self._table.prepared.get(prepared, (None, ""))
            if change is None or (file and file not in self._table.disk.data):
                self.check_fence(newest)  # a successor may have published it, gone back, and deleted it
                raise DivergenceError(f"state {self._table.name!r}: what was prepared for {txid} is gone", txid=txid)
            self._write(txid, change, file or self._table.disk.write())
        self._table.prepared.pop(prepared, None)

    def clean_up(self) -> None:
        """Drop what this coordinator and earlier ones have prepared; what a successor has stays."""
        prepared = self._table.prepared
        self._table.prepared = {key: write for key, write in prepared.items() if key[0] > self._epoch}

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows as of a transaction, or the newest."""
        return self.shown((self._table.newest if txid is None else self._table.version_as_of(txid)).rows)

    # The past.

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
        disk, newest = self._table.disk, self._table.newest
        if len(disk.made[newest.number].live) > 1:
            self.check_fence(newest)
            self._add(None, disk.write(), is_merge=True)

    def close(self) -> None:
        """End the upkeep."""
        self._log_upkeep.close()

    def _files_needed(self) -> set[str]:
        """Return the files of the head, and those that are prepared."""
        table = self._table
        return {*table.disk.made[self._head].live, *(file for _, file in table.prepared.values())}

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
            version = table.version_as_of(wanted) if wanted else table.disk.made[0].version
            if (version.txid or 0) != wanted:
                raise StateAccessError(f"table {table.name!r} has nothing of transaction {wanted}", txid=wanted)
            reach("delta.write.checked")
            if table.newest is seen:
                self._add(attrs.evolve(version, txid=wanted, restored=version.number))
                return
        raise FailedException(f"state {table.name!r}: other writers were faster")

    def record_turn(self, txid: int) -> None:
        """Add a version that marks a turn; see :meth:`CanBeRepaired.record_turn`."""
        self.check_fence(self._table.newest)
        self._add(turn=txid)

    def adopt(self) -> None:
        """Do nothing: nobody else writes."""


class SimulatedStateTable(StateTable):
    """A simulated table, as who starts, goes back or forks looks at it."""

    def __init__(self, table: SimulatedTable) -> None:
        self._table = table

    @property
    def address(self) -> str:
        """The table's name."""
        return self._table.name

    def describe(self) -> TableDescription | None:
        """Return its description; None if nobody has opened it."""
        table, newest = self._table, self._table.newest
        if table.owner is None:
            return None
        return TableDescription(*table.owner, table.name, newest.txid, newest.epoch, newest.number, misfit=None)

    def foreign_change(self, since: int | None) -> None:
        """Return None: nobody else writes."""
        del since

    def obstacle(self, txid: int, note: Any) -> str | None:
        """Say that what was prepared is gone, if it is needed."""
        table = self._table
        if (table.newest.txid or 0) >= txid or (note[0], note[1]) in table.prepared:
            return None
        return "which is gone"

    def undone_to(self, epoch: int) -> int | None:
        """Return the lowest transaction to which a later epoch has rolled it back."""
        versions = [made.version for made in self._table.disk.made]
        later = (version.txid or 0 for version in versions if version.restored is not None and version.epoch > epoch)
        return min(later, default=None)

    def turned_to(self, epoch: int) -> int | None:
        """Return the lowest transaction to which the topology has gone back at a later epoch."""
        later = (made.turn for made in self._table.disk.made if made.version.epoch > epoch)
        return min((turn for turn in later if turn is not None), default=None)

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
