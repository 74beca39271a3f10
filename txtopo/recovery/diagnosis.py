"""Diagnosis: what is wrong between coordinator state and tables, and what can be done about it.

Looked at only; :mod:`txtopo.recovery.repair` does it. In this order the first that can be done is proposed:

1. *As it is*: every table is where the coordinator state has it. What somebody else wrote on top is taken back.
2. *The newest checkpoint* that all tables can be brought to, of the journal or of the coordinator state. Where
   all of them are there already, only the coordinator state is made anew. Otherwise tables are rolled back,
   and the transactions after it run again.

Nothing is asked where no table is rolled back, no committed transaction runs again, and no other incarnation of the
topology is given up. What is begun and not committed is begun anew, which loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from txtopo.api.state import State
from txtopo.backend.table import StateTable, TableDescription
from txtopo.errors import DivergenceError
from txtopo.journal.journal import JournalPart, find_journal, read_journal
from txtopo.records import WRITTEN_AS_LIFE, from_json, to_json
from txtopo.recovery.checkpoints import Checkpoint, checkpoint_of, checkpoints_in
from txtopo.recovery.coordinator_state import CoordinatorState
from txtopo.recovery.divergence import CoordinatorRecord, Divergence, DivergenceKind, find_divergences

_ADOPTABLE = {DivergenceKind.FOREIGN_CHANGE, DivergenceKind.NEWER_EPOCH}
_NOT_OURS = {DivergenceKind.NO_TABLE_OF_OURS, DivergenceKind.OTHER_OWNER}


@attrs.frozen
class RepairSubject:
    """A topology to be looked at.

    Args:
        topology_id: its id.
        spout: ``repeatable`` or ``opaque``.
        states: its states.
        metadata_dir: the folder that it keeps its own files in.
        addresses: where its tables lie, as its journal has it.
    """

    topology_id: str
    spout: str
    states: Mapping[str, State]
    metadata_dir: Path
    addresses: Mapping[str, str]

    def tables(self) -> dict[str, StateTable]:
        """Return the tables that can be looked at, by state."""
        return {name: table for name, state in self.states.items() if (table := state.table()) is not None}


@attrs.frozen
class GoTo:
    """Bring everything to one transaction.

    Args:
        txid: the transaction that is committed last, then.
        metadata: its metadata.
        incarnation: the incarnation of the tables.
        spout: ``repeatable`` or ``opaque``.
        states: the last txid that each table has then; 0: none.
        is_as_it_is: whether what is begun and under way in the coordinator state stays.
        number: under which what is replaced is kept.
    """

    txid: int
    metadata: Any
    incarnation: str = attrs.field(metadata=WRITTEN_AS_LIFE)
    spout: str
    states: Mapping[str, int]
    is_as_it_is: bool
    number: int


@attrs.frozen
class StartAnew:
    """Move tables, journal and coordinator state aside, so that all begins at transaction 1.

    Args:
        number: under which they are kept.
    """

    number: int


@attrs.frozen
class Adopt:
    """Take what somebody else wrote for the states' own.

    Args:
        states: the states whose tables they are.
    """

    states: tuple[str, ...]


@attrs.frozen
class Diagnosis:
    """What was found.

    Args:
        record: what the coordinator state says.
        descriptions: what the tables say of themselves.
        divergences: what is wrong with them.
        damage: what else is wrong, in words.
        journal_txid: how far the journal knows it; None if it knows nothing.
        journal_problem: why the journal can't be read; None if it can.
        epoch_min: the least epoch that neither a table nor the journal has seen.
        unfinished: a repair that was cut short.
        go_to: what can be done.
        rolled_back: the states whose tables that rolls back.
        is_safe: whether it can be done without asking.
        obstacles: why nothing can be done, or nothing better.
        adopt: what can be accepted; None if that would not help.
        anew: how to start anew; None if that cannot be done.
    """

    record: CoordinatorRecord
    descriptions: Mapping[str, TableDescription]
    divergences: tuple[Divergence, ...]
    damage: tuple[str, ...]
    journal_txid: int | None
    journal_problem: str | None
    epoch_min: int
    unfinished: GoTo | StartAnew | None
    go_to: GoTo | None
    rolled_back: tuple[str, ...]
    is_safe: bool
    obstacles: tuple[str, ...]
    adopt: Adopt | None
    anew: StartAnew | None

    @property
    def is_sound(self) -> bool:
        """Whether there is nothing to repair."""
        return not self.divergences and not self.damage and self.unfinished is None


def diagnose(subject: RepairSubject, coordinator_state: CoordinatorState) -> Diagnosis:
    """Look at coordinator state, journal and tables, and say what can be done."""
    record = CoordinatorRecord.of(coordinator_state, coordinator_state.epoch - 1)
    tables = subject.tables()
    divergences = tuple(find_divergences(record, tables))
    descriptions = _descriptions(tables)
    parts, journal_problem = _journal(subject)
    damage = _damage_of_begun(coordinator_state, record)
    checkpoints = _checkpoints(subject, record, descriptions, parts)
    number = 1 + max(
        [0, *coordinator_state.asides(), *_journal_asides(subject), *(n for t in tables.values() for n in t.asides())]
    )
    choice = _Choice(record, tables, descriptions, divergences)
    go_to, rolled_back, obstacles = choice.best(checkpoints, subject.spout, number, is_damaged=bool(damage))
    foreign = tuple(each.state for each in divergences if each.kind is DivergenceKind.FOREIGN_CHANGE)
    can_adopt = bool(foreign) and all(each.kind in _ADOPTABLE for each in divergences) and not damage
    can_move = all(each.kind not in _NOT_OURS for each in divergences) and _all_movable(subject)
    return Diagnosis(
        record=record,
        descriptions=descriptions,
        divergences=divergences,
        damage=damage,
        journal_txid=max((each.txid for each in checkpoints if each.source == "the journal"), default=None),
        journal_problem=journal_problem,
        epoch_min=1
        + max(
            [0, *(description.epoch for description in descriptions.values()), *(part.header.epoch for part in parts)]
        ),
        unfinished=decode_plan(coordinator_state.repair()),
        go_to=go_to,
        rolled_back=rolled_back,
        is_safe=go_to is not None and not rolled_back and _gives_up_nothing(go_to, record),
        obstacles=obstacles,
        adopt=Adopt(foreign) if can_adopt else None,
        anew=StartAnew(number) if can_move else None,
    )


def encode_plan(plan: GoTo | StartAnew) -> Any:
    """Return a plan as JSON, to be finished from."""
    return {"plan": type(plan).__name__, **to_json(plan)}


def decode_plan(value: Any) -> GoTo | StartAnew | None:
    """Return the plan that :func:`encode_plan` encoded; None for None."""
    if value is None:
        return None
    return from_json(value, GoTo) if value["plan"] == GoTo.__name__ else from_json(value, StartAnew)


@attrs.frozen
class _Choice:
    """What a remedy is chosen by."""

    record: CoordinatorRecord
    tables: Mapping[str, StateTable]
    descriptions: Mapping[str, TableDescription]
    divergences: tuple[Divergence, ...]

    def best(
        self, checkpoints: list[Checkpoint], spout: str, number: int, *, is_damaged: bool
    ) -> tuple[GoTo | None, tuple[str, ...], tuple[str, ...]]:
        """Return the best plan, the states that it rolls back, and what stands in the way of a better one."""
        is_as_it_is = all(each.kind in _ADOPTABLE for each in self.divergences) and self.record.incarnation is not None
        if is_as_it_is and not is_damaged:
            assert self.record.incarnation is not None, "there is coordinator state"
            own = checkpoint_of(self.record.committed, self.record.incarnation, spout)
            own = attrs.evolve(
                own, states={name: description.last_txid or 0 for name, description in self.descriptions.items()}
            )
            rolled_back, obstacles = self._rollbacks(own)
            if not obstacles:
                return _plan(own, number, is_as_it_is=True), rolled_back, ()
        seen: list[str] = []
        for checkpoint in checkpoints:
            rolled_back, obstacles = self._rollbacks(checkpoint)
            if not obstacles:
                return _plan(checkpoint, number, is_as_it_is=False), rolled_back, tuple(seen)
            seen += [each for each in obstacles if each not in seen]
        return None, (), tuple(seen)

    def _rollbacks(self, checkpoint: Checkpoint) -> tuple[tuple[str, ...], list[str]]:
        """Return the states to roll back to a checkpoint, and what makes it impossible."""
        rolled_back, obstacles = [], []
        for name, table in self.tables.items():
            wanted = checkpoint.states.get(name, 0)
            description = self.descriptions.get(name)
            obstacle = self._obstacle(checkpoint, name, description)
            if obstacle is not None:
                obstacles.append(obstacle)
            elif description is None or _is_at(table, description, wanted):
                continue
            elif (description.last_txid or 0) < wanted:
                obstacles.append(f"{name!r} has got to transaction {description.last_txid or 0} only, not to {wanted}")
            elif not table.is_kept(wanted):
                obstacles.append(
                    f"what {name!r} held after transaction {wanted} is not kept (vacuumed, or its log is gone)"
                )
            else:
                rolled_back.append(name)
        return tuple(rolled_back), obstacles

    def _obstacle(self, checkpoint: Checkpoint, name: str, description: TableDescription | None) -> str | None:
        wrong = next((each for each in self.divergences if each.state == name), None)
        if wrong is not None and wrong.kind in {*_NOT_OURS, DivergenceKind.MISFIT}:
            return f"what lies in place of the table of {name!r} is {wrong.kind.value}"
        wanted = checkpoint.states.get(name, 0)
        if description is None:
            return f"the table of {name!r} is gone, which transaction {wanted} was written to" if wanted else None
        if description.incarnation != checkpoint.incarnation:
            known = f"{description.incarnation!r} and not {checkpoint.incarnation!r}"
            return f"the table of {name!r} is of incarnation {known}"
        known = checkpoint.identities.get(name, description.identity)
        if known != description.identity and (wanted or description.last_txid):
            return f"the table of {name!r} is not the one that {checkpoint.source} knows"
        return None


def _plan(checkpoint: Checkpoint, number: int, *, is_as_it_is: bool) -> GoTo:
    return GoTo(
        checkpoint.txid,
        checkpoint.metadata,
        checkpoint.incarnation,
        checkpoint.spout,
        dict(checkpoint.states),
        is_as_it_is,
        number,
    )


def _is_at(table: StateTable, description: TableDescription, txid: int) -> bool:
    return (description.last_txid or 0) == txid and table.foreign_change(None) is None


def _gives_up_nothing(go_to: GoTo, record: CoordinatorRecord) -> bool:
    return record.incarnation is None or (
        record.incarnation == go_to.incarnation and go_to.txid >= record.committed.txid
    )


def _descriptions(tables: Mapping[str, StateTable]) -> dict[str, TableDescription]:
    descriptions = {}
    for name, table in tables.items():
        try:
            description = table.look()
        except DivergenceError:
            continue
        if description is not None:
            descriptions[name] = description
    return descriptions


def _checkpoints(
    subject: RepairSubject,
    record: CoordinatorRecord,
    descriptions: Mapping[str, TableDescription],
    parts: list[JournalPart],
) -> list[Checkpoint]:
    """Return what everything could be brought to, the newest transaction first.

    That nothing is written yet is a checkpoint only if that is so: else it is called starting anew.
    """
    incarnations = {description.incarnation for description in descriptions.values()} | (
        {record.incarnation} if record.incarnation is not None else set()
    )
    found = [
        each
        for incarnation in sorted(incarnations)
        for each in checkpoints_in(parts, subject.topology_id, incarnation, descriptions)
    ]
    if record.incarnation is not None:
        found.append(checkpoint_of(record.committed, record.incarnation, subject.spout))
    found = [each for each in found if each.txid > 0]
    if not any(description.last_txid for description in descriptions.values()):
        found += [
            Checkpoint(0, None, incarnation, subject.spout, {}, {}, "the tables")
            for incarnation in sorted(incarnations)
        ]
    return sorted(found, key=lambda each: -each.txid)


def _journal(subject: RepairSubject) -> tuple[list[JournalPart], str | None]:
    try:
        return read_journal(find_journal(subject.metadata_dir, subject.topology_id)), None
    except DivergenceError as error:
        return [], error.message


def _journal_asides(subject: RepairSubject) -> list[int]:
    found = subject.metadata_dir.glob(f"{find_journal(subject.metadata_dir, subject.topology_id).name}.before-repair-*")
    return [int(path.name.rpartition("-")[2]) for path in found if path.name.rpartition("-")[2].isdecimal()]


def _damage_of_begun(coordinator_state: CoordinatorState, record: CoordinatorRecord) -> tuple[str, ...]:
    try:
        coordinator_state.begun(record.committed.txid)
    except DivergenceError as error:
        return (error.message,)
    return ()


def _all_movable(subject: RepairSubject) -> bool:
    return all(state.table() is not None for state in subject.states.values() if state.is_durable)
