"""What all commands that go back check, before anything is changed and again when they are resumed.

The code must have every state whose rows would stay behind, the journal must say what the transactions after the point
were, and the spout's source must have their input still; a rewind and a repair also bring the spout's values back.

The spout's coordinator is asked as at the start of a run, but what it writes is only gathered. The rewind applies it in
the step that replaces the coordinator state, so the spout's values and the metadata never disagree. Then a second
coordinator resumes on top of these changes: a source that would be refused by the next run is refused before anything
is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.api.components.optional import call_if_there
from txtopo.api.components.planned import last_txid_of, metadata_of
from txtopo.api.state import KeepsVersions, State
from txtopo.api.store import Change, Delete, Lead, Put, Store
from txtopo.api.values import ROWS_KINDS
from txtopo.config import Config
from txtopo.errors import StateAccessError, StopError
from txtopo.journal.ending import metadata_dir_with_journal, read_end
from txtopo.journal.folders import find_journal
from txtopo.journal.search import JournalSearch
from txtopo.text.words import NOTHING_CHANGED
from txtopo.topology.plans.plan import Plan, PlannedComponent
from txtopo.topology.user_code.blame import user_code
from txtopo.transactional.core.events import TransactionMetadata
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.divergence import CoordinatorRecord, DivergenceKind, refuse_two_timelines
from txtopo.transactional.recovery.operations.diagnosis import Diagnosis, RepairSubject
from txtopo.transactional.recovery.operations.rewind import (
    Past,
    Point,
    metadata_after,
    refuse_left_behind,
    refuse_other_store,
    without_new,
)
from txtopo.transactional.recovery.plans import Adopt, BeginEmpty, GoTo, Join, Repair, StartAnew, recorded_plan
from txtopo.transactional.recovery.tables import refuse_what_stays
from txtopo.transactional.recovery.values import incarnation_in, room_of_spout
from txtopo.transactional.tasks.factory import TaskFactory


class GatheringLead(Lead):
    """A lead that writes nothing: it gathers the changes."""

    def __init__(self, epoch: int = 0) -> None:
        self.changes: list[Change] = []
        self._epoch = epoch

    @property
    def epoch(self) -> int:
        """The epoch that it was made with."""
        return self._epoch

    def write(self, changes: Sequence[Change]) -> None:
        """Gather changes."""
        self.changes += changes

    def is_held(self) -> bool:
        """Return True: nothing can be lost."""
        return True

    def release(self) -> None:
        """Do nothing."""


class _ChangedStore(Store):
    """A store as it will be after some changes; for reading only."""

    def __init__(self, store: Store, changes: Sequence[Change]) -> None:
        self._store = store
        self._changes = changes

    def read(self, path: str) -> bytes | None:
        for change in reversed(self._changes):
            if isinstance(change, Put) and change.path == path:
                return change.value
            if isinstance(change, Delete) and _is_at_or_below(path, change.path):
                return None
        return self._store.read(path)

    def children(self, path: str) -> list[str]:
        below = [
            change.path[len(path) + 1 :]
            for change in self._changes
            if isinstance(change, Put) and change.path.startswith(f"{path}/")
        ]
        names = {*self._store.children(path), *(each.partition("/")[0] for each in below)}
        return sorted(name for name in names if self._has(f"{path}/{name}"))

    def take_lead(self, topology_id: str, owner: str, epoch_min: int = 1) -> Lead:
        del topology_id, owner, epoch_min
        return GatheringLead()

    def close(self) -> None:
        pass

    def _has(self, path: str) -> bool:
        return self.read(path) is not None or bool(self.children(path))


def _is_at_or_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def checked(
    plan: Plan, config: Config, subject: RepairSubject, coordinator_state: CoordinatorState, to: Repair
) -> list[Change]:
    """Check that a plan loses nothing; return what it changes of the spout's values. Nothing is written.

    Args:
        plan: the topology, as it will run afterwards.
        config: its configuration.
        subject: the topology that goes back, or that a fork leaves as it is.
        coordinator_state: that of the subject.
        to: the plan.

    Raises:
        ConfigError: a table that is to be moved aside can't be.
        StateAccessError: the code lacks a state whose rows would stay behind, the journal does not say what input would
            be read again, or the spout keeps values of its own and can't bring them back.
        DivergenceError: a fork would be one of two timelines.
        InputError: the source no longer has that input, or no longer matches the metadata.
    """
    if isinstance(to, Adopt | BeginEmpty | Join):  # of the last, the tables are looked at where it is carried out
        return []
    refuse_left_behind(subject, coordinator_state, to)
    tables = subject.tables()
    moved = tables if isinstance(to, StartAnew) else to.forgotten
    refuse_what_stays(table for name, table in tables.items() if name in moved)
    if not isinstance(to, GoTo) or to.is_as_it_is:
        return []
    if to.is_beside:
        refuse_two_timelines(coordinator_state, tables)  # the other plans come from a diagnosis
    store, _, root = coordinator_state.source_place
    gathering = GatheringLead(coordinator_state.epoch)
    undone = metadata_after(subject, coordinator_state, to)
    stuck = []
    for spout in plan.spouts:
        part, room = metadata_of(to.metadata, spout.id), room_of_spout(root, spout.id)
        with _coordinator(plan, config, spout) as coordinator:
            call_if_there(coordinator, "open_store", store, gathering, room)
            # Without input of a spout, a transaction has a copy of what the one before has taken, which may stay.
            former = [each[spout.id] for each, planned in undone if planned.has_input_of(spout.id, each)]
            txid = last_txid_of(spout.id, to.txid, to.metadata)
            if not plan.semantics[spout.id].rewind(coordinator, txid, part, former) and store.children(room):
                stuck.append(spout.id)
    if to.is_beside:  # it begins with the values as they are, and with these transactions
        return []
    for name in stuck:
        raise StateAccessError(
            f"the coordinator of spout {name!r} keeps values of its own, and has no method rewind() to bring them back "
            f"to transaction {to.txid}: give it one, see Coordinator.rewind"
        )
    after = _ChangedStore(store, gathering.changes)
    for spout in plan.spouts:
        part, room = metadata_of(to.metadata, spout.id), room_of_spout(root, spout.id)
        with _coordinator(plan, config, spout) as coordinator:
            call_if_there(coordinator, "open_store", after, GatheringLead(coordinator_state.epoch), room)
            txid = last_txid_of(spout.id, to.txid, to.metadata)
            plan.semantics[spout.id].resume(coordinator, txid, part, is_first=True)
    return gathering.changes


@attrs.frozen
class Rewind:
    """What a rewind goes back to: the point, why it is no nearer one, and the plan; None if it is there."""

    past: Past
    point: Point
    reasons: list[str]
    new: tuple[str, ...]
    """The states that are new in the code, and left as they are."""
    plan: GoTo | None

    @classmethod
    def decided(cls, subject: RepairSubject, diagnosis: Diagnosis, txid: int | None, time_ms: int | None) -> Rewind:
        """Decide on the rewind to a transaction, or to the last one that was planned by a time.

        Raises:
            StopError: a repair must come first, or the time has not come yet.
            StateAccessError: there is no such point.
        """
        record = diagnosis.record
        if diagnosis.damage:
            raise _repair_first(diagnosis.damage)
        headers = journal_of(subject).headers()
        refuse_other_store(subject.topology_id, record.incarnation, headers[-1] if headers else None)
        without_states, new = without_new(subject, record.committed)
        # A state that was left out has its place at an earlier point.
        divergences = (divergence for divergence in diagnosis.divergences if divergence.kind is not DivergenceKind.AWAY)
        wrong = [divergence.text for divergence in divergences if divergence.state not in new]
        if wrong:
            raise _repair_first(wrong)
        if time_ms is not None:
            txid = Past.of(without_states, record).at(time_ms)
        assert txid is not None, "one of them is given"
        past = Past.of(without_states, record, txid)
        point, reasons = past.nearest(txid)
        is_there = point.txid == past.committed.txid and record.group is None
        return cls(past, point, reasons, new, None if is_there else past.plan(point, diagnosis.number))


def _repair_first(wrong: Sequence[str]) -> StopError:
    return StopError(f"{'; '.join(wrong)}. Run 'txtopo repair' first; {NOTHING_CHANGED}")


@attrs.frozen
class DryRun:
    """What a rewind would do to a topology, which may be running; nothing is written."""

    subject: RepairSubject
    past: Past
    new: tuple[str, ...]
    """The states that are new in the code, and no part of the subject."""
    committed: int
    """The last transaction that is committed; a group after it may be decided."""

    @classmethod
    def of(cls, subject: RepairSubject, open_store: Callable[[], Store], txid: int | None = None) -> DryRun:
        """Read journal and tables, maybe for a txid; raise StopError if a repair or a rewind is unfinished."""
        with contextlib.closing(open_store()) as store:
            coordinator_state = CoordinatorState(store, GatheringLead(), subject.topology_id, subject.rooms())
            end = read_end(find_journal(subject.metadata_dir, subject.topology_id))
            newest = None if end is None else end.header
            refuse_other_store(subject.topology_id, incarnation_in(store, subject.topology_id), newest)
            unfinished = recorded_plan(coordinator_state)
            record = CoordinatorRecord.of(coordinator_state, 0, "" if newest is None else newest.store)
            subject, new = without_new(subject, record.committed)
        if unfinished is not None:
            raise StopError(f"a {unfinished.command} was interrupted: {unfinished.way_on}")
        journal_of(subject)
        return cls(subject, Past.of(subject, record, txid), new, record.committed.txid)

    def check(self, plan: Plan, config: Config, open_store: Callable[[], Store], to: GoTo) -> None:
        """Raise what a rewind would be refused with; nothing is written."""
        with contextlib.closing(open_store()) as store:
            subject = self.subject
            coordinator_state = CoordinatorState(store, GatheringLead(), subject.topology_id, subject.rooms())
            checked(plan, config, subject, coordinator_state, to)

    def change(self, name: str, point: Point) -> TableChange | None:
        """Return what going back to a point changes in a table; None if nothing."""
        if name not in point.rolled_back:
            return None
        state, mark = self.subject.states[name], point.checkpoint.states.get(name)
        txid = 0 if mark is None else mark.txid or 0
        now = state.snapshot(None)
        if not txid:
            return TableChange(None, True, *_counts(state, now, now.slice(0, 0), txid))
        past = state.open_as_of(self.subject.topology_id, name, txid) if isinstance(state, KeepsVersions) else None
        # A state without versions tells by itself what it had.
        before = state.snapshot(txid) if past is None else past.snapshot()
        return TableChange(None if past is None else past.version, False, *_counts(state, now, before, txid))


@attrs.frozen
class TableChange:
    """What a rewind changes in a table."""

    like: int | None
    """The version that the new one would equal; None if the state has no versions, or is emptied."""
    is_emptied: bool
    """Whether no transaction that wrote to it would stay."""
    gone: int
    back: int
    changed: int


def _counts(state: State, now: pa.Table, past: pa.Table, txid: int) -> tuple[int, int, int]:
    """Count the rows that would go, come back and change; one without a later transaction is as it was then."""
    newer = now.filter(pc.greater(now["txid"], txid))
    keys = list(state.key.names) if getattr(state, "kind", None) not in ROWS_KINDS else []
    changed = newer.select(keys).join(past.select(keys), keys, join_type="left semi").num_rows if keys else 0
    removed, restored = newer.num_rows - changed, past.num_rows - (now.num_rows - newer.num_rows) - changed
    return removed, restored, changed


def journal_of(subject: RepairSubject) -> JournalSearch:
    """Return the journal of a topology; raise ConfigError if it has none."""
    metadata_dir_with_journal(subject.metadata_dir, subject.topology_id)
    return subject.journal()


def forgo(
    plan: Plan,
    config: Config,
    open_store: Callable[[], Store],
    names: Sequence[str],
    agree: Callable[[list[str]], None],
) -> None:
    """Let a spout go on without input that a rewind has promised to read again, while the topology doesn't run.

    Args:
        plan: the topology's.
        config: its configuration.
        open_store: opens the store of its coordinator state.
        names: what is lost, as the spout calls it.
        agree: is told what that is before anything is written, and raises StopError if that is not to be.

    Raises:
        InputError: it is not owed, or is there.
        StopError: a repair or a rewind is unfinished, or the spout owes nothing.
    """
    with contextlib.ExitStack() as stack:
        store = open_store()
        stack.callback(store.close)
        lead = store.take_lead(plan.topology_id, "txtopo forgo")
        stack.callback(lead.release)
        coordinator_state = CoordinatorState(store, lead, plan.topology_id)
        unfinished = recorded_plan(coordinator_state)
        if unfinished is not None:
            raise StopError(f"a {unfinished.command} was interrupted: {unfinished.way_on}; nothing was changed")
        _, _, root = coordinator_state.source_place
        mark = coordinator_state.committed()
        committed = TransactionMetadata(mark.txid, mark.metadata, mark.planned)
        last = max((committed, *coordinator_state.begun_as_far_as_known()), key=lambda transaction: transaction.txid)
        gathering = GatheringLead(coordinator_state.epoch)
        lines: list[str] = []
        for spout in plan.spouts:
            with _coordinator(plan, config, spout) as coordinator:
                call_if_there(coordinator, "open_store", store, gathering, room_of_spout(root, spout.id))
                spout_metadata = metadata_of(last.metadata, spout.id)
                lines += call_if_there(coordinator, "forgo", last.txid, spout_metadata, names) or []
        if not lines:
            whose = " or ".join(repr(spout.id) for spout in plan.spouts)
            raise StopError(f"spout {whose} has promised nothing by name; nothing was changed")
        agree(lines)
        # One step: a crash before it leaves all as it was.
        lead.write(gathering.changes)


@contextlib.contextmanager
def _coordinator(plan: Plan, config: Config, spout: PlannedComponent) -> Iterator[Any]:
    """Yield a fresh coordinator of a spout; what is done with it is the user's code."""
    with user_code(spout.id, None):
        coordinator = TaskFactory(plan, config, {}).coordinator(spout)
        try:
            yield coordinator
        finally:
            call_if_there(coordinator, "close")
