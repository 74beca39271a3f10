"""Repair: carries out what :mod:`txtopo.recovery.diagnosis` has found can be done, so that a crash does no harm.

1. It has the lead, with an epoch that no table has seen: nobody else writes.
2. The plan is written down in the coordinator state. From here on no run begins until the repair is done, and a
   repair that was cut short is finished from what is written there.
3. Each table is brought to where the plan has it, in one Delta write. A table that is there already is left.
4. The journal gets a part that says what stands fast now.
5. The coordinator state is replaced, and the plan struck out, in one step. What was there is kept aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import attrs

from txtopo.api.capabilities import CanBeRepaired
from txtopo.api.state import OpenedState
from txtopo.errors import StateAccessError
from txtopo.failpoints import durable_step
from txtopo.journal.journal import (
    PART_BYTES_MAX,
    JournalHeader,
    JournalTable,
    JournalWriter,
    find_journal,
    journal_files,
)
from txtopo.recovery.coordinator_state import CommittedMark, CoordinatorState, StateMark
from txtopo.recovery.diagnosis import Adopt, GoTo, RepairSubject, StartAnew, encode_plan


def carry_out(subject: RepairSubject, coordinator_state: CoordinatorState, plan: GoTo | StartAnew | Adopt) -> None:
    """Do what a plan says; it may have been begun before.

    Args:
        subject: the topology.
        coordinator_state: its coordinator state, under a lead whose epoch no table has seen.
        plan: what to do.

    Raises:
        StateAccessError: what a table held is not kept any more.
        ConfigError: a table cannot be moved.
        LostLead: another coordinator has taken the lead meanwhile.
    """
    match plan:
        case GoTo():
            _note(coordinator_state, plan)
            _go_to(subject, coordinator_state, plan)
        case StartAnew():
            _note(coordinator_state, plan)
            _start_anew(subject, coordinator_state, plan)
        case Adopt():
            _adopt(subject, coordinator_state, plan)
        case _:
            assert_never(plan)


def _note(coordinator_state: CoordinatorState, plan: GoTo | StartAnew) -> None:
    with durable_step("repair.begin"):
        coordinator_state.begin_repair(encode_plan(plan))


def _go_to(subject: RepairSubject, coordinator_state: CoordinatorState, plan: GoTo) -> None:
    opened = _opened(subject, coordinator_state, plan.incarnation)
    for name, state in opened.items():
        with durable_step("repair.table"):
            if not isinstance(state, CanBeRepaired):
                raise StateAccessError(f"state {name!r} does not keep what it held before", txid=plan.txid)
            state.roll_back(plan.states.get(name, 0))
    before = coordinator_state.committed()
    if plan.is_as_it_is:
        mark = attrs.evolve(before, states=_marks_as_they_are(before, opened))
        with durable_step("repair.end"):
            coordinator_state.end_repair(mark)
    else:
        known = (
            before.states if coordinator_state.is_begun and coordinator_state.incarnation == plan.incarnation else {}
        )
        gone = {name: mark for name, mark in known.items() if name not in opened}
        marks = {name: StateMark(state.identity, state.last_txid, state.version) for name, state in opened.items()}
        _enter(subject, coordinator_state, plan, opened)
        with durable_step("repair.end"):
            coordinator_state.rewrite(
                plan.incarnation, plan.spout, CommittedMark(plan.txid, plan.metadata, {**gone, **marks}), plan.number
            )
    for state in opened.values():
        state.close()


def _start_anew(subject: RepairSubject, coordinator_state: CoordinatorState, plan: StartAnew) -> None:
    for name, table in subject.tables().items():
        description = table.look()
        if description is not None and description.misfit is None:
            subject.states[name].open(
                subject.topology_id, name, description.incarnation, coordinator_state.epoch
            ).close()
        with durable_step("repair.table"):
            table.set_aside(plan.number)
    journal = find_journal(subject.metadata_dir, subject.topology_id)
    if journal.exists():
        with durable_step("repair.journal"):
            journal.rename(journal.with_name(f"{journal.name}.before-repair-{plan.number}"))
    with durable_step("repair.end"):
        coordinator_state.set_aside(plan.number)


def _adopt(subject: RepairSubject, coordinator_state: CoordinatorState, plan: Adopt) -> None:
    opened = _opened(subject, coordinator_state, coordinator_state.incarnation)
    for name in plan.states:
        with durable_step("repair.table"):
            state = opened[name]
            if isinstance(state, CanBeRepaired):
                state.adopt()
    before = coordinator_state.committed()
    with durable_step("repair.end"):
        coordinator_state.end_repair(attrs.evolve(before, states=_marks_as_they_are(before, opened)))
    for state in opened.values():
        state.close()


def _opened(subject: RepairSubject, coordinator_state: CoordinatorState, incarnation: str) -> dict[str, OpenedState]:
    return {
        name: subject.states[name].open(subject.topology_id, name, incarnation, coordinator_state.epoch)
        for name in subject.tables()
    }


def _marks_as_they_are(before: CommittedMark, opened: Mapping[str, OpenedState]) -> dict[str, StateMark]:
    """Return the marks with the tables' versions of now; a table that a group is ahead with stays known as it was."""
    marks = dict(before.states)
    for name, state in opened.items():
        last, known = state.last_txid, marks.get(name)
        if known is not None and (known.txid or 0) != (last or 0):
            last = known.txid
        if known is not None or last is not None:
            marks[name] = StateMark(state.identity, last, state.version)
    return marks


def _enter(
    subject: RepairSubject, coordinator_state: CoordinatorState, plan: GoTo, opened: Mapping[str, OpenedState]
) -> None:
    """Say in the journal what stands fast now, if there is a journal."""
    folder = find_journal(subject.metadata_dir, subject.topology_id)
    if not journal_files(folder):
        return
    header = JournalHeader(
        topology=subject.topology_id,
        incarnation=plan.incarnation,
        epoch=coordinator_state.epoch,
        spout=plan.spout,
        committed=plan.txid,
        metadata=plan.metadata,
        tables={
            name: JournalTable(subject.addresses[name], state.identity)
            for name, state in opened.items()
            if name in subject.addresses
        },
        states={name: state.last_txid for name, state in opened.items()},
    )
    with durable_step("repair.journal"):
        JournalWriter(folder, header, PART_BYTES_MAX).close()
