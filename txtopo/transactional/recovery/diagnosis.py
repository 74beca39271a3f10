"""Diagnosis: finds where coordinator state and tables disagree, and proposes a repair.

It changes nothing; :mod:`txtopo.transactional.recovery.repair` does, which also carries out the plan of a rewind (see
:mod:`txtopo.transactional.recovery.rewind`). It proposes the first of these that is possible:

1. *As it is*: every table is at the txid in the coordinator state. Other writers' changes are rolled back.
2. *The newest checkpoint* that all tables can be brought to, from the journal or the coordinator state. If all tables
   are there already, only the coordinator state is rewritten. Otherwise tables are rolled back, and the transactions
   after the checkpoint run again.

A repair is safe, and needs no confirmation, if it rolls back no table, reruns no committed transaction and abandons no
incarnation of the topology. Transactions that are begun and not committed begin again, which loses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs

from txtopo.api.state import State, StateTable, TableDescription
from txtopo.errors import DivergenceError
from txtopo.files.folder import Folder
from txtopo.files.records import WRITTEN_AS_LIFE, from_json, to_json
from txtopo.transactional.core.events import NEVER, Planned
from txtopo.transactional.journal.backfills import backfills_of, identities_in, unfinished_backfills
from txtopo.transactional.journal.journal import JournalPart, asides as journal_asides, find_journal, read_journal
from txtopo.transactional.journal.turns import Turn
from txtopo.transactional.recovery.checkpoints import Checkpoint, checkpoint_of, checkpoints_in
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, StateMark, rooms_of
from txtopo.transactional.recovery.divergence import (
    CoordinatorRecord,
    Divergence,
    DivergenceKind,
    find_divergences,
    find_strangers,
)

_ADOPTABLE = {DivergenceKind.FOREIGN_CHANGE, DivergenceKind.NEWER_EPOCH}
_REPAIR_AGAIN = "run 'txtopo repair' again to finish it"
_NOT_OURS = {DivergenceKind.NO_TABLE_OF_OURS, DivergenceKind.OTHER_OWNER}


@attrs.frozen
class RepairSubject:
    """A topology to diagnose and repair."""

    topology_id: str
    spout: str
    """``repeatable`` or ``opaque``."""
    states: Mapping[str, State]
    metadata_dir: Path
    addresses: Mapping[str, str]
    """The addresses of its tables as the journal records them, by state."""
    optional: Collection[str] = ()
    """The states that may come and go, see :class:`txtopo.transactional.recovery.membership.Membership`."""

    def tables(self) -> dict[str, StateTable]:
        """Return the tables that can be inspected, by state."""
        return {name: table for name, state in self.states.items() if (table := state.table()) is not None}

    def rooms(self) -> dict[str, Folder]:
        """Return the folders that may hold notes of its coordinator state; see :func:`rooms_of`."""
        return rooms_of(self.states, self.metadata_dir, self.topology_id)


@attrs.frozen
class GoTo:
    """A plan that brings coordinator state and tables to one transaction."""

    txid: int
    """The last committed transaction after the repair."""
    metadata: Any
    incarnation: str = attrs.field(metadata=WRITTEN_AS_LIFE)
    spout: str
    """``repeatable`` or ``opaque``."""
    states: Mapping[str, int]
    """The last txid of each table after the repair; 0 for none."""
    is_as_it_is: bool
    """Whether to keep the begun transactions and the group in progress."""
    number: int
    """Replaced values are kept below ``before-repair-<number>``."""
    marks: Mapping[str, StateMark] = attrs.field(factory=dict)
    """The marks of all states that the topology had or has had at that transaction."""
    planned: Planned = NEVER
    """When that transaction was planned."""
    until: int = 0
    """The last transaction that was committed when the plan was made: those after ``txid`` up to it begin anew."""
    epoch: int = 0
    """The epoch that has recorded the plan, whose own part of the journal comes after; 0: it is not on record."""
    held: Mapping[str, int] = attrs.field(factory=dict)
    """The states that the topology had when the plan was made, or has had, each with its last transaction."""
    is_rewind: bool = False
    """Whether ``txtopo rewind`` made it."""
    turns: tuple[Turn, ...] = ()
    """The turns that the topology had gone through where the transaction was found."""
    forgotten: tuple[str, ...] = ()
    """The states that joined the topology later, by a backfill, and those of an unfinished backfill that has later
    transactions: their tables are moved aside, and they are unknown again."""

    is_beside: bool = False
    """Whether it is that of a fork, a second topology: it changes nothing of the first one."""

    @classmethod
    def beside(cls, each: Checkpoint, committed: CommittedMark) -> GoTo:
        """Return the plan of a fork that goes on from a checkpoint of a topology, which has committed a transaction."""
        # The journal may name states of a backfill that died just before it joined: that alone means nothing.
        names = [name for name in each.states if each.has(name) and name in committed.states]
        states = {name: each.states[name].txid or 0 for name in names}
        plan = cls(each.txid, each.metadata, each.incarnation, each.spout, states, is_as_it_is=False, number=0)
        return attrs.evolve(plan, until=max(committed.txid, each.txid), held=states, is_beside=True)

    @property
    def command(self) -> str:
        """The command that made it."""
        return "rewind" if self.is_rewind else "repair"

    @property
    def way_on(self) -> str:
        """How to finish it if it was interrupted, as an advice."""
        return "run 'txtopo rewind' with a TXID, or 'txtopo repair', to finish it" if self.is_rewind else _REPAIR_AGAIN


@attrs.frozen
class StartAnew:
    """A plan that moves tables, journal and coordinator state aside, so that the topology starts at transaction 1."""

    number: int
    """They are kept as ``before-repair-<number>``."""
    held: Mapping[str, int] = attrs.field(factory=dict)
    """The states that the topology has, each with its last transaction."""
    command: ClassVar[str] = "repair"
    """The command that made it."""
    way_on: ClassVar[str] = _REPAIR_AGAIN
    """How to finish it if it was interrupted, as an advice."""


@attrs.frozen
class Adopt:
    """A plan that accepts other writers' changes to the tables of some states as the states' own."""

    states: tuple[str, ...]


Repair = GoTo | StartAnew | Adopt


@attrs.frozen
class Diagnosis:
    """The result of a diagnosis."""

    record: CoordinatorRecord
    descriptions: Mapping[str, TableDescription]
    apart: Mapping[str, int | None]
    """The states that are new in the code, and no part of what is to be repaired; each with the last transaction of its
    backfill, if it has one that has not joined."""
    divergences: tuple[Divergence, ...]
    damage: tuple[str, ...]
    """Problems other than with the tables, in words."""
    journal_txid: int | None
    """The newest transaction in the journal; None if there is none."""
    journal_problem: str | None
    """Why the journal can't be read; None if it can."""
    epoch_min: int
    """The lowest epoch above those in the tables and the journal."""
    unfinished: GoTo | StartAnew | None
    """The plan of an interrupted repair."""
    go_to: GoTo | None
    """The proposed plan; None if none is possible."""
    rolled_back: tuple[str, ...]
    """The states whose tables the plan rolls back."""
    is_safe: bool
    """Whether the plan needs no confirmation."""
    obstacles: tuple[str, ...]
    """Why no plan, or no better one, is possible."""
    adopt: Adopt | None
    """The plan to accept other writers' changes; None if that would not help."""
    anew: StartAnew | None
    """The plan to start anew; None if that is impossible."""
    number: int
    """Under this number a plan keeps what it replaces."""

    @property
    def is_sound(self) -> bool:
        """Whether there is nothing to repair."""
        return not self.divergences and not self.damage and self.unfinished is None


def diagnose(subject: RepairSubject, coordinator_state: CoordinatorState, damage: Sequence[str] = ()) -> Diagnosis:
    """Inspect coordinator state, journal and tables, and propose a repair.

    ``damage`` says what is known already: of coordinator state that is to be set aside, and counts as wiped.
    """
    parts, journal_problem = _journal(subject)
    record = CoordinatorRecord.of(coordinator_state, coordinator_state.epoch - 1, lambda: parts)
    damage = (*damage, *_damage_of_state(coordinator_state, record))
    plan = decode_plan(coordinator_state.repair())
    if plan is not None and _was_finished(subject, plan, parts):
        damage = (*damage, f"the coordinator state is from the midst of a {plan.command} that was finished since")
        plan = None
    unfinished = unfinished_backfills(subject.metadata_dir, subject.topology_id, _joined(record, parts))
    every, all_descriptions = subject.tables(), descriptions_of(subject.tables())
    apart = [name for name in every if name in unfinished and name not in record.committed.states]
    settled = record.when_settled(every)
    strangers = [each for each in find_strangers(settled, subject.states, subject.optional) if each.state not in apart]
    # The next run sets these tables aside, and strangers are reported as such, so neither is compared with its mark.
    to_begin = [name for name, mark in record.committed.states.items() if mark.is_beginning]
    others = {name: table for name, table in every.items() if name not in apart}
    compared = find_divergences(record, others, [*to_begin, *(each.state for each in strangers)])
    new = [each.state for each in strangers if each.kind is DivergenceKind.NEW]
    if compared or damage or len(new) < len(strangers):
        apart += new  # a repair of the others leaves them as they are: what they lack, a backfill gives them
    descriptions = {name: each for name, each in all_descriptions.items() if name not in apart}
    checkpoints = _checkpoints(subject, record, descriptions, parts)
    if record.incarnation is None and any(each.txid for each in checkpoints):
        named = {name for each in checkpoints for name in each.states}
        apart += [name for name in every if name not in named and name not in subject.optional and name not in apart]
    tables = {name: table for name, table in every.items() if name not in apart}
    descriptions = {name: each for name, each in descriptions.items() if name not in apart}
    divergences = tuple(each for each in (*compared, *strangers) if each.state not in apart)
    # Higher than anything that is aside anywhere, so that no repair overwrites what an earlier one has kept.
    number = 1 + max(
        [
            0,
            *coordinator_state.asides(),
            *journal_asides(subject.metadata_dir, subject.topology_id),
            *(n for t in every.values() for n in t.asides()),
        ]
    )
    is_of_other_timeline = any(each.kind is DivergenceKind.OTHER_TIMELINE for each in divergences)
    choice = Choice(
        record,
        tables,
        descriptions,
        divergences,
        subject.optional,
        backfilled=backfills_of(subject.metadata_dir, parts) if parts else (),
        unfinished=unfinished,
    )
    go_to, rolled_back, obstacles = choice.best(checkpoints, subject.spout, number, is_damaged=bool(damage))
    if go_to is not None:
        # A table that has the last group proves that it was committed, also if another one was restored since. What a
        # table or coordinator state of another timeline has is undone already, or nobody knows its metadata.
        own = [each.last_txid or 0 for each in descriptions.values() if each.incarnation == go_to.incarnation]
        known = [c for c in checkpoints if not is_of_other_timeline or c.source == "the journal"]
        until = max(
            [
                go_to.txid,
                *([] if is_of_other_timeline else own),
                *(c.txid for c in known if c.incarnation == go_to.incarnation),
            ]
        )
        held = {} if go_to.is_as_it_is else _held(checkpoints, parts, go_to.incarnation)
        go_to = attrs.evolve(go_to, until=until, held=held)
    foreign = tuple(each.state for each in divergences if each.kind is DivergenceKind.FOREIGN_CHANGE)
    is_writable = all(each.alteration is None for each in descriptions.values())
    can_adopt = bool(foreign) and is_writable and not damage and all(each.kind in _ADOPTABLE for each in divergences)
    can_move = all(each.kind not in _NOT_OURS for each in divergences) and _all_movable(subject)
    return Diagnosis(
        record=record,
        descriptions=all_descriptions,
        apart={name: unfinished.get(name) for name in apart},
        divergences=divergences,
        damage=damage,
        journal_txid=max((each.txid for each in checkpoints if each.source == "the journal"), default=None),
        journal_problem=journal_problem,
        epoch_min=1
        + max([0, *(each.epoch for each in all_descriptions.values()), *(part.header.epoch for part in parts)]),
        unfinished=plan,
        go_to=go_to,
        rolled_back=rolled_back,
        is_safe=go_to is not None
        and not rolled_back
        and not go_to.forgotten
        and (is_of_other_timeline or _gives_up_nothing(go_to, record)),
        obstacles=obstacles,
        adopt=Adopt(foreign) if can_adopt else None,
        anew=StartAnew(number, _present(checkpoints, parts)) if can_move else None,
        number=number,
    )


def encode_plan(plan: GoTo | StartAnew) -> Any:
    """Return a plan as JSON, so that an interrupted repair can be finished."""
    return {"plan": type(plan).__name__, **to_json(plan)}


def decode_plan(value: Any) -> GoTo | StartAnew | None:
    """Return the plan that :func:`encode_plan` encoded; None for None."""
    if value is None:
        return None
    return from_json(value, GoTo) if value["plan"] == GoTo.__name__ else from_json(value, StartAnew)


@attrs.frozen
class Choice:
    """Chooses where to go from the facts found."""

    record: CoordinatorRecord
    tables: Mapping[str, StateTable]
    descriptions: Mapping[str, TableDescription]
    divergences: tuple[Divergence, ...]
    optional: Collection[str]
    kept: Mapping[str, Collection[int]] | None = None
    """By state, the transactions whose versions its table keeps, if many checkpoints are compared of a topology that is
    sound; None: each table is asked, for one at a time."""
    backfilled: Collection[str] = ()
    """The states that may be forgotten at a checkpoint without them, because a backfill can give them their history
    again."""
    unfinished: Mapping[str, int] = attrs.field(factory=dict)
    """The states of backfills that have not joined the topology, each with its last transaction."""

    def best(
        self, checkpoints: list[Checkpoint], spout: str, number: int, *, is_damaged: bool
    ) -> tuple[GoTo | None, tuple[str, ...], tuple[str, ...]]:
        """Return the best plan, the states that it rolls back, and the obstacles to a better one."""
        # A newer epoch is no obstacle, because the repair takes one above it.
        is_as_it_is = all(each.kind in _ADOPTABLE for each in self.divergences) and self.record.incarnation is not None
        if is_as_it_is and not is_damaged:
            assert self.record.incarnation is not None, "there is coordinator state"
            own = checkpoint_of(self.record.committed, self.record.incarnation, spout, self.record.timeline)
            # A table that has the group in progress stays there, so each is taken at the txid that it is at.
            at = {name: description.last_txid for name, description in self.descriptions.items()}
            marks = {name: own.states.get(name, StateMark("", None)) for name in at}
            own = attrs.evolve(own, states={name: attrs.evolve(mark, txid=at[name]) for name, mark in marks.items()})
            rolled_back, obstacles = self.rollbacks(own)
            if not obstacles:
                return self.plan(own, number, is_as_it_is=True), rolled_back, ()
        seen: list[str] = []
        for checkpoint in checkpoints:
            rolled_back, obstacles = self.rollbacks(checkpoint)
            if not obstacles:
                return self.plan(checkpoint, number, is_as_it_is=False), rolled_back, tuple(seen)
            seen += [each for each in obstacles if each not in seen]
        return None, (), tuple(seen)

    def rollbacks(self, checkpoint: Checkpoint) -> tuple[tuple[str, ...], list[str]]:
        """Return the states whose tables must be rolled back to a checkpoint, and the obstacles to it."""
        rolled_back, obstacles = [], []
        for name, table in self.tables.items():
            if self._is_forgotten(checkpoint, name):
                continue
            wanted = self._mark_at(checkpoint, name).txid or 0
            description = self.descriptions.get(name)
            obstacle = self._obstacle(checkpoint, name, description)
            if obstacle is not None:
                obstacles.append(obstacle)
            elif description is None:
                continue
            elif (shared := self._shared_until(checkpoint, table, description, wanted)) is not None:
                where = "a rewind or a repair has undone, or has not seen, what came after"
                obstacles.append(
                    f"{name!r} has the same past as {checkpoint.source} only up to transaction {shared}: {where}"
                )
            elif self._is_at(table, description, wanted):
                continue
            elif (description.last_txid or 0) < wanted:
                obstacles.append(f"{name!r} is only at transaction {description.last_txid or 0}, not at {wanted}")
            elif not (table.is_kept(wanted) if self.kept is None else wanted in self.kept[name]):
                obstacles.append(
                    f"the version of {name!r} after transaction {wanted} is gone (vacuumed, or its log was deleted)"
                )
            else:
                rolled_back.append(name)
        return tuple(rolled_back), obstacles

    def _shared_until(
        self, checkpoint: Checkpoint, table: StateTable, description: TableDescription, wanted: int
    ) -> int | None:
        if self.kept is not None:
            return None
        return checkpoint.timeline.shared_until(table, description, checkpoint.txid, wanted)

    def _is_at(self, table: StateTable, description: TableDescription, txid: int) -> bool:
        is_sound = self.kept is not None
        return (description.last_txid or 0) == txid and (is_sound or table.foreign_change(None) is None)

    def _obstacle(self, checkpoint: Checkpoint, name: str, description: TableDescription | None) -> str | None:
        wrong = next((each for each in self.divergences if each.state == name), None)
        if wrong is not None and wrong.kind in {*_NOT_OURS, DivergenceKind.MISFIT}:
            return f"the table at the path of {name!r} is wrong: {wrong.kind.value}"
        if not self._can_have(checkpoint, name):
            mark = checkpoint.states.get(name)
            since = "had no such state yet" if mark is None else f"was without it after transaction {mark.left_after}"
            return f"state {name!r} can't be at transaction {checkpoint.txid}: the topology {since}"
        wanted = self._mark_at(checkpoint, name).txid or 0
        if description is None:
            return f"the table of {name!r}, which had transaction {wanted}, is gone" if wanted else None
        if description.incarnation != checkpoint.incarnation:
            known = f"{description.incarnation!r}, not {checkpoint.incarnation!r}"
            return f"the table of {name!r} belongs to incarnation {known}"
        known = self._mark_at(checkpoint, name).identity or description.identity
        if known != description.identity and (wanted or description.last_txid):
            return f"the table of {name!r} is not the one in {checkpoint.source}"
        return None

    def _is_forgotten(self, checkpoint: Checkpoint, name: str) -> bool:
        return name in self.backfilled and name not in checkpoint.states

    def _can_have(self, checkpoint: Checkpoint, name: str) -> bool:
        """Whether a state has missed nothing at a checkpoint, or only what is on record."""
        is_there = checkpoint.txid == 0 or name in self.optional or checkpoint.has(name)
        return is_there or self._is_begun_later(checkpoint, name)

    def _is_begun_later(self, checkpoint: Checkpoint, name: str) -> bool:
        mark = self.record.committed.states.get(name)
        is_begun = mark is not None and mark.left_after is None and mark.begun_after >= checkpoint.txid
        return checkpoint.txid > 0 and is_begun and not checkpoint.has(name)

    def _mark_at(self, checkpoint: Checkpoint, name: str) -> StateMark:
        """Return the mark that a state gets at a checkpoint, without what only its opened table knows."""
        if self._is_begun_later(checkpoint, name):  # empty at the checkpoint, it gets all transactions after it
            return StateMark("", None, begun_after=checkpoint.txid)
        return checkpoint.states.get(name, StateMark("", None))

    def plan(self, checkpoint: Checkpoint, number: int, *, is_as_it_is: bool) -> GoTo:
        """Return the plan that brings everything to a checkpoint to which there is no obstacle."""
        undone = [name for name, last in self.unfinished.items() if last > checkpoint.txid and not is_as_it_is]
        forgotten = [*(name for name in self.tables if self._is_forgotten(checkpoint, name)), *undone]
        names = [name for name in {**checkpoint.states, **self.tables} if name not in forgotten]
        marks = {name: self._mark_at(checkpoint, name) for name in names}
        return GoTo(
            checkpoint.txid,
            checkpoint.metadata,
            checkpoint.incarnation,
            checkpoint.spout,
            {name: mark.txid or 0 for name, mark in marks.items()},
            is_as_it_is,
            number,
            marks,
            checkpoint.planned,
            turns=checkpoint.timeline.turns,
            forgotten=tuple(forgotten),
        )


def _was_finished(subject: RepairSubject, plan: GoTo | StartAnew, parts: Sequence[JournalPart]) -> bool:
    """Whether the topology has run since: then the coordinator state with the plan was restored from a backup."""
    if isinstance(plan, GoTo):
        own = (part for part in parts if part.header.incarnation == plan.incarnation and part.entries)
        return plan.epoch > 0 and any(part.header.epoch > plan.epoch for part in own)
    # What is moved aside is there again.
    is_aside = plan.number in journal_asides(subject.metadata_dir, subject.topology_id)
    tables = subject.tables().values()
    return (is_aside and bool(parts)) or any(plan.number in t.asides() and t.look() is not None for t in tables)


def _joined(record: CoordinatorRecord, parts: Sequence[JournalPart]) -> dict[str, str]:
    """Return the identities of the tables of all states that a topology has, or has had, by name.

    The journal may name those of a backfill that died just before it joined. A header without entries alone means
    nothing, unless there is no coordinator state that would know better.
    """
    meant = [part for part in parts if part.entries or (record.incarnation is None and part is parts[-1])]
    return {**identities_in(meant), **{name: mark.identity for name, mark in record.committed.states.items()}}


def _held(checkpoints: Sequence[Checkpoint], parts: Sequence[JournalPart], incarnation: str) -> dict[str, int]:
    """Return the states of an incarnation, each with the last transaction that its table may have.

    The last group in the journal counts: a state that the code lacks may have it, as no look at its table can tell.
    """
    held: dict[str, int] = {}
    for checkpoint in checkpoints:
        if checkpoint.incarnation == incarnation:
            for name, mark in checkpoint.states.items():
                held[name] = max(held.get(name, 0), mark.txid or 0)
    newest = next((part for part in reversed(parts) if part.header.incarnation == incarnation), None)
    entry = newest.entries[-1] if newest is not None and newest.entries else None
    return held if entry is None else {**held, **dict.fromkeys(entry.states, entry.last)}


def _present(checkpoints: Sequence[Checkpoint], parts: Sequence[JournalPart]) -> dict[str, int]:
    """Return the states that the topology has now, each with the last transaction that its table may have."""
    if not checkpoints:
        return {}
    held = _held(checkpoints, parts, checkpoints[0].incarnation)
    return {name: txid for name, txid in held.items() if name not in checkpoints[0].states or checkpoints[0].has(name)}


def _gives_up_nothing(go_to: GoTo, record: CoordinatorRecord) -> bool:
    return record.incarnation is None or (
        record.incarnation == go_to.incarnation and go_to.txid >= record.committed.txid
    )


def descriptions_of(tables: Mapping[str, StateTable]) -> dict[str, TableDescription]:
    """Return the descriptions of those tables that are there and are txtopo's."""
    descriptions = {}
    for name, table in tables.items():
        try:
            description = table.look()
        except DivergenceError:  # find_divergences() reports it
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
    """Return all possible checkpoints, newest transaction first.

    Transaction 0 is a checkpoint only if no table was written yet; otherwise going there is *starting anew*.
    """
    incarnations = {description.incarnation for description in descriptions.values()} | (
        {record.incarnation} if record.incarnation is not None else set()
    )
    found = [
        each
        for incarnation in sorted(incarnations)
        for each in checkpoints_in(parts, subject.topology_id, incarnation, subject.states, descriptions)
    ]
    if record.incarnation is not None:
        found.append(checkpoint_of(record.committed, record.incarnation, subject.spout, record.timeline))
    found = [each for each in found if each.txid > 0]
    if not any(description.last_txid for description in descriptions.values()):
        found += [
            Checkpoint(0, None, incarnation, subject.spout, {}, "the tables") for incarnation in sorted(incarnations)
        ]
    return sorted(found, key=lambda each: -each.txid)


def _journal(subject: RepairSubject) -> tuple[list[JournalPart], str | None]:
    try:
        return read_journal(find_journal(subject.metadata_dir, subject.topology_id)), None
    except DivergenceError as error:
        return [], error.message


def _damage_of_state(coordinator_state: CoordinatorState, record: CoordinatorRecord) -> tuple[str, ...]:
    damage = []
    try:
        coordinator_state.begun(record.committed.txid)
    except DivergenceError as error:
        damage.append(error.message)
    if record.group is not None and not record.notes:
        try:
            coordinator_state.notes_of(record.group)
        except DivergenceError as error:
            damage.append(error.message)
    return tuple(damage)


def _all_movable(subject: RepairSubject) -> bool:
    return all(state.table() is not None for state in subject.states.values() if state.is_durable)
