"""Repair: carries out a plan of a diagnosis or of a rewind, safely even if it crashes.

1. It takes the lead with an epoch that no table has seen, so nobody else can write.
2. It opens the tables that the plan brings to a transaction: what prevents that is found before anything is recorded.
   If somebody else has altered a table so that it can't be opened, it first takes that back.
3. It records the plan in the coordinator state. From now on no run starts until the repair is done, and an interrupted
   repair is finished from this record.
4. It brings each table to its transaction in the plan, in one Delta write; it does not change a table that is there
   already, nor one of a state that the plan does not know. A rewind moves tables aside that were backfilled later.
   States without versions stay where they are, which the new coordinator state says: until the transactions that they
   have are over once more, they take nothing of them.
5. It adds a part to the journal, with a header that describes the new state.
6. It replaces the coordinator state and the spout's values, and removes the plan, in one step. The old values are
   kept aside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

import attrs

from txtopo.api.state import CanBeRepaired, OpenedState, StateTable
from txtopo.api.store import Change
from txtopo.errors import StateAccessError
from txtopo.failpoints import durable_step
from txtopo.journal.backfills import set_backfills_aside
from txtopo.journal.folders import set_aside
from txtopo.journal.journal import journal_files
from txtopo.journal.turns import Timeline, Turn
from txtopo.journal.writer import PART_BYTES_MAX, JournalWriter
from txtopo.text.words import NOTHING_CHANGED
from txtopo.transactional.recovery import plans
from txtopo.transactional.recovery.checkpoints import header_after
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, StateMark
from txtopo.transactional.recovery.membership import end_begin, fence_former_table, join, set_former_aside
from txtopo.transactional.recovery.operations.diagnosis import RepairSubject


def carry_out(
    subject: RepairSubject, coordinator_state: CoordinatorState, plan: plans.Repair, of_spout: Sequence[Change] = ()
) -> None:
    """Carry out a plan, or continue one that was interrupted.

    The lead of ``coordinator_state`` must have an epoch that no table has seen. ``of_spout`` are the changes of the
    spout's values that belong to the plan, see :func:`txtopo.transactional.recovery.operations.going_back.checked`,
    which must have been called: also if the plan is continued, perhaps with other code and other input.

    Raises:
        StateAccessError: a table no longer keeps the version to roll back to, or can't accept what others have put.
        ConfigError: a table cannot be moved.
        LostLead: another coordinator has taken the lead in the meantime.
    """
    if isinstance(plan, plans.GoTo | plans.Adopt) and not plan.epoch:
        plan = attrs.evolve(plan, epoch=coordinator_state.epoch)
    repair = _Repair(subject, coordinator_state, subject.tables())
    match plan:
        case plans.GoTo():
            repair.go_to(plan, of_spout)
        case plans.StartAnew():
            repair.start_anew(plan)
        case plans.BeginEmpty():
            repair.begin_empty(plan)
        case plans.Join():
            join(subject.journal_folder, coordinator_state, plan, repair.tables)
        case plans.Adopt():
            repair.adopt(plan)
        case _:
            assert_never(plan)


@attrs.frozen
class _Repair:
    """The steps of plans."""

    subject: RepairSubject
    coordinator_state: CoordinatorState
    tables: Mapping[str, StateTable]

    def go_to(self, plan: plans.GoTo, of_spout: Sequence[Change]) -> None:
        states = self.subject.states
        known = [name for name in (self._known() if plan.is_as_it_is else self.tables) if name in plan.states]
        staying = [] if plan.is_as_it_is else [name for name in states if name not in self.tables]
        durable = [name for name in staying if states[name].is_durable]
        # A crash after this leaves the rows that others have changed refused, as they were, in a table that can be
        # opened.
        for name in known:
            with durable_step("repair.alteration"):
                self.tables[name].take_back(self.coordinator_state.epoch)
        # All tables are fenced before the first is rolled back, so no older coordinator writes to any of them in
        # between.
        with self._opened(plan.incarnation, [*known, *durable]) as opened:
            self._record(plan)
            self._set_forgotten_aside(plan)
            # After a crash, some tables are at their transaction and others are not; the next repair rolls back the
            # rest.
            for name in known:
                _roll_back(name, opened[name], plan)
            if plan.is_as_it_is:
                self._end_as_it_is(opened)
            else:
                self._end_elsewhere(plan, of_spout, opened)

    def start_anew(self, plan: plans.StartAnew) -> None:
        subject = self.subject
        self._record(plan)
        for name, table in self.tables.items():
            self._fence(name, table)
            # A table that an interrupted repair has moved is gone from here, and is skipped.
            with durable_step("repair.table"):
                table.set_aside(plan.number)
        with durable_step("repair.backfill"):
            set_backfills_aside(subject.metadata_dir, subject.topology_id, None, plan.number)
        # After a crash the journal is aside already, and the next repair finds none.
        with durable_step("repair.journal"):
            set_aside(subject.metadata_dir, subject.topology_id, plan.number)
        # Last, because the plan is in it. A crash before this leaves the plan, and tables and journal aside already.
        with durable_step("repair.end"):
            plans.end_by_setting_aside(self.coordinator_state, plan.number)

    def begin_empty(self, plan: plans.BeginEmpty) -> None:
        states = self.subject.states
        begun = {name: states[name] for name in plan.states if name in states}
        set_former_aside(begun, self.coordinator_state, plan)
        with self._opened(self.coordinator_state.incarnation, begun) as opened:
            end_begin(opened, self.coordinator_state, plan)

    def adopt(self, plan: plans.Adopt) -> None:
        with self._opened(self.coordinator_state.incarnation, self._known()) as opened:
            changed = {name: state for name, state in opened.items() if name in plan.states}
            repaired = {name: state for name, state in changed.items() if isinstance(state, CanBeRepaired)}
            for name, state in repaired.items():
                why = state.why_not_adopted()
                if why is not None:
                    raise StateAccessError(
                        f"state {name!r}: {why}; leave out --accept-foreign-writes; {NOTHING_CHANGED}"
                    )
            self._record(plan)
            # After a crash, some tables have adopted the changes and others have not; the next repair does the rest.
            for name in opened:
                with durable_step("repair.table"):
                    if name in repaired:
                        repaired[name].adopt()
            self._end_as_it_is(opened)

    def _record(self, plan: plans.GoTo | plans.StartAnew | plans.Adopt) -> None:
        # A crash before this leaves a topology that nobody has touched. From here on, no run starts until the plan is
        # done.
        with durable_step("repair.begin"):
            plans.record_plan(self.coordinator_state, plan)

    def _known(self) -> list[str]:
        """Return the states with tables, without new ones."""
        committed = self.coordinator_state.committed()
        return [name for name in self.tables if name in committed.states or not committed.txid]

    @contextlib.contextmanager
    def _opened(self, incarnation: str, names: Iterable[str]) -> Iterator[dict[str, OpenedState]]:
        """Open states, and close them at the end, whatever is raised; also if one of them can't be opened."""
        subject, opened = self.subject, dict[str, OpenedState]()
        with contextlib.ExitStack() as stack:
            for name in names:
                state = subject.states[name]
                opened[name] = state.open(subject.topology_id, name, incarnation, self.coordinator_state.epoch)
                stack.callback(opened[name].close)
            yield opened

    def _fence(self, name: str, table: StateTable) -> bool:
        """Open a table that is about to be set aside as a fence; return whether it is there."""
        description = table.describe()
        if description is not None:
            fence_former_table(self.coordinator_state, name, self.subject.states[name], description)
        return description is not None

    def _set_forgotten_aside(self, plan: plans.GoTo) -> None:
        """Move aside what states have that joined by a backfill after the transaction of the plan."""
        for name, table in self.tables.items():
            if name in plan.forgotten and self._fence(name, table):
                # What was moved is gone from here, and the next repair skips it.
                with durable_step("repair.table"):
                    table.set_aside(plan.number)
        if plan.forgotten:
            # After the tables: a crash before this leaves evidence of tables that are aside, which the next repair
            # moves.
            with durable_step("repair.backfill"):
                subject = self.subject
                set_backfills_aside(subject.metadata_dir, subject.topology_id, plan.forgotten, plan.number)

    def _end_as_it_is(self, opened: Mapping[str, OpenedState]) -> None:
        """Take the plan off the record, with marks of the tables' current versions."""
        before = self.coordinator_state.committed()
        marks = dict(before.states)
        for name, state in opened.items():
            last, known = state.last_txid, marks.get(name)
            # The group in progress has written this table already. Recovery will finish the group and then raise the
            # txid.
            if known is not None and (known.txid or 0) != (last or 0):
                last = known.txid
            if known is not None or last is not None:
                known = known or StateMark("", None)
                marks[name] = attrs.evolve(known, identity=state.identity, txid=last, version=state.version)
        # A crash before this leaves the plan on record, with marks of old versions; the next repair finds every table
        # where it should be.
        with durable_step("repair.end"):
            plans.end_plan(self.coordinator_state, attrs.evolve(before, states=marks))

    def _end_elsewhere(self, plan: plans.GoTo, of_spout: Sequence[Change], opened: Mapping[str, OpenedState]) -> None:
        """Replace the coordinator state, and the plan in it, by that of the plan's transaction."""
        subject, coordinator_state = self.subject, self.coordinator_state
        # Marks of another incarnation are of other tables.
        is_same = coordinator_state.is_begun and coordinator_state.incarnation == plan.incarnation
        before = coordinator_state.committed().states if is_same else {}
        marks = _marks_at(plan, before, opened)
        # What is in this process's memory is not what a run has.
        in_memory = {n for n, state in subject.states.items() if n not in self.tables and not state.is_durable}
        marks |= {name: before[name] for name in in_memory & before.keys()}
        turned = tuple(state.identity for name, state in opened.items() if name in self.tables)
        turn = Turn(coordinator_state.epoch, plan.txid, turned)
        timeline = Timeline(turns=plan.turns, renames=plan.renames).after(turn)
        mark = CommittedMark(plan.txid, plan.metadata, marks, plan.planned)
        # The journal comes first: once the plan is off the record, no repair would add this part any more.
        folder = subject.journal_folder
        if journal_files(folder):
            there = attrs.evolve(mark, states={name: marks[name] for name in opened})
            owner = subject.topology_id, plan.incarnation, timeline.epoch
            undone_until = plan.until if plan.until > plan.txid else 0
            header = header_after(there, owner, plan.spouts, subject.addresses, timeline, undone_until=undone_until)
            # A crash after this leaves a part without entries. The next repair has a higher epoch and adds another one,
            # and the newest counts.
            with durable_step("repair.journal"):
                JournalWriter(folder, header, PART_BYTES_MAX)
        # In one step: until then the plan is on record, so that a run can't mix the old state with the repaired tables.
        with durable_step("repair.end"):
            plans.end_by_replacing(
                coordinator_state, plan.incarnation, plan.spouts, mark, timeline, plan.number, of_spout
            )


def _roll_back(name: str, state: OpenedState, plan: plans.GoTo) -> None:
    with durable_step("repair.table"):
        if not isinstance(state, CanBeRepaired):
            raise StateAccessError(f"state {name!r} keeps no earlier versions", txid=plan.txid)
        state.roll_back(plan.states.get(name, 0))
        if plan.until > plan.txid and not plan.is_as_it_is:
            state.record_turn(plan.txid)


def _marks_at(
    plan: plans.GoTo, known: Mapping[str, StateMark], opened: Mapping[str, OpenedState]
) -> dict[str, StateMark]:
    """Return the marks after a repair: of opened tables, and of states that the topology has had and has no longer.

    ``known`` are the marks so far of the same incarnation.
    """
    marks = {}
    for name, mark in {**known, **plan.marks}.items():
        before = known.get(name)
        if name not in plan.marks and plan.marks and (mark.left_after is None or mark.left_after > plan.txid):
            continue  # it came after the transaction of the plan
        if before is not None and (before.identity, before.txid or 0) == (mark.identity, mark.txid or 0):
            # The journal, from which a plan may come, knows no table versions.
            mark = attrs.evolve(mark, version=before.version)  # noqa: PLW2901 - the same mark, with more in it
        marks[name] = mark
    for name, state in opened.items():
        before = marks.get(name) or known.get(name)
        begun_after = 0 if before is None else before.begun_after
        marks[name] = StateMark(state.identity, state.last_txid, state.version, None, begun_after)
    return marks
