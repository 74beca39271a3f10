"""Repair: carries out what :mod:`txtopo.runtime.diagnosis` has found can be done, so that a crash does no harm.

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

from txtopo.contracts.state import OpenedState
from txtopo.failpoints import durable_step
from txtopo.monitor.journal import (
    PART_BYTES_MAX,
    JournalHeader,
    JournalTable,
    JournalWriter,
    find_journal,
    journal_files,
)
from txtopo.runtime.diagnosis import Adopt, GoTo, Patient, StartAnew, encode_plan
from txtopo.runtime.ledger import CommittedMark, Ledger, StateMark


def carry_out(patient: Patient, ledger: Ledger, plan: GoTo | StartAnew | Adopt) -> None:
    """Do what a plan says; it may have been begun before.

    Args:
        patient: the topology.
        ledger: its coordinator state, under a lead whose epoch no table has seen.
        plan: what to do.

    Raises:
        StateAccessError: what a table held is not kept any more.
        ConfigError: a table cannot be moved.
        LostLead: another coordinator has taken the lead meanwhile.
    """
    match plan:
        case GoTo():
            _note(ledger, plan)
            _go_to(patient, ledger, plan)
        case StartAnew():
            _note(ledger, plan)
            _start_anew(patient, ledger, plan)
        case Adopt():
            _adopt(patient, ledger, plan)
        case _:
            assert_never(plan)


def _note(ledger: Ledger, plan: GoTo | StartAnew) -> None:
    with durable_step("repair.begin"):
        ledger.begin_repair(encode_plan(plan))


def _go_to(patient: Patient, ledger: Ledger, plan: GoTo) -> None:
    opened = _opened(patient, ledger, plan.life)
    for name, state in opened.items():
        with durable_step("repair.table"):
            state.roll_back(plan.states.get(name, 0))
    before = ledger.committed()
    if plan.is_as_it_is:
        mark = attrs.evolve(before, states=_marks_as_they_are(before, opened))
        with durable_step("repair.end"):
            ledger.end_repair(mark)
    else:
        known = before.states if ledger.is_begun and ledger.life == plan.life else {}
        gone = {name: mark for name, mark in known.items() if name not in opened}
        marks = {name: StateMark(state.identity, state.last_txid, state.version) for name, state in opened.items()}
        _enter(patient, ledger, plan, opened)
        with durable_step("repair.end"):
            ledger.rewrite(
                plan.life, plan.spout, CommittedMark(plan.txid, plan.metadata, {**gone, **marks}), plan.number
            )
    for state in opened.values():
        state.close()


def _start_anew(patient: Patient, ledger: Ledger, plan: StartAnew) -> None:
    for name, table in patient.tables().items():
        sight = table.look()
        if sight is not None and sight.misfit is None:
            patient.states[name].open(patient.topology_id, name, sight.life, ledger.epoch).close()
        with durable_step("repair.table"):
            table.set_aside(plan.number)
    journal = find_journal(patient.home, patient.topology_id)
    if journal.exists():
        with durable_step("repair.journal"):
            journal.rename(journal.with_name(f"{journal.name}.before-repair-{plan.number}"))
    with durable_step("repair.end"):
        ledger.set_aside(plan.number)


def _adopt(patient: Patient, ledger: Ledger, plan: Adopt) -> None:
    opened = _opened(patient, ledger, ledger.life)
    for name in plan.states:
        with durable_step("repair.table"):
            opened[name].adopt()
    before = ledger.committed()
    with durable_step("repair.end"):
        ledger.end_repair(attrs.evolve(before, states=_marks_as_they_are(before, opened)))
    for state in opened.values():
        state.close()


def _opened(patient: Patient, ledger: Ledger, life: str) -> dict[str, OpenedState]:
    return {name: patient.states[name].open(patient.topology_id, name, life, ledger.epoch) for name in patient.tables()}


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


def _enter(patient: Patient, ledger: Ledger, plan: GoTo, opened: Mapping[str, OpenedState]) -> None:
    """Say in the journal what stands fast now, if there is a journal."""
    folder = find_journal(patient.home, patient.topology_id)
    if not journal_files(folder):
        return
    header = JournalHeader(
        topology=patient.topology_id,
        life=plan.life,
        epoch=ledger.epoch,
        spout=plan.spout,
        committed=plan.txid,
        metadata=plan.metadata,
        tables={
            name: JournalTable(patient.addresses[name], state.identity)
            for name, state in opened.items()
            if name in patient.addresses
        },
        states={name: state.last_txid for name, state in opened.items()},
    )
    with durable_step("repair.journal"):
        JournalWriter(folder, header, PART_BYTES_MAX).close()
