"""Diagnosis: finds where coordinator state and tables disagree, and proposes a repair.

It changes nothing; :mod:`txtopo.transactional.recovery.operations.repair` does, which also carries out the plan of a
rewind (see :mod:`txtopo.transactional.recovery.operations.rewind`). It proposes the first of these that is possible:

1. *As it is*: every table is at the txid in the coordinator state. Other writers' changes are rolled back.
2. *The newest checkpoint* that all tables can be brought to, from the journal or the coordinator state. If all tables
   are there already, only the coordinator state is rewritten. Otherwise tables are rolled back, and the transactions
   after the checkpoint run again.

A repair is safe, and needs no confirmation, if it rolls back no table, reruns no committed transaction and abandons no
incarnation of the topology. Transactions that are begun and not committed begin again, which loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import attrs

from txtopo.api.state import State, StateTable, TableDescription
from txtopo.errors import DivergenceError, StopError
from txtopo.files.folder import Folder
from txtopo.journal.backfills import backfills_of, identities_in, unfinished_backfills
from txtopo.journal.ending import METADATA_DIR
from txtopo.journal.entries import JournalHeader, JournalPart
from txtopo.journal.folders import asides as journal_asides, find_journal
from txtopo.journal.search import JournalSearch
from txtopo.text.words import NOTHING_CHANGED
from txtopo.transactional.recovery import plans
from txtopo.transactional.recovery.checkpoints import JOURNAL, Checkpoint, checkpoint_of, checkpoints_in
from txtopo.transactional.recovery.coordinator_state import CoordinatorState, StateMark, rooms_of, tables_of
from txtopo.transactional.recovery.divergence import (
    CoordinatorRecord,
    Divergence,
    DivergenceKind,
    find_divergences,
    find_incomplete,
)
from txtopo.transactional.recovery.operations.ways import Ways

_ADOPTABLE = {DivergenceKind.FOREIGN_CHANGE, DivergenceKind.NEWER_EPOCH}
_NOT_OURS = {DivergenceKind.NO_TABLE_OF_OURS, DivergenceKind.OTHER_OWNER}


@attrs.frozen
class RepairSubject:
    """A topology to diagnose and repair."""

    topology_id: str
    spouts: Mapping[str, str]
    """The kind of each spout, ``repeatable`` or ``opaque``, by its id."""
    states: Mapping[str, State]
    metadata_dir: Folder
    addresses: Mapping[str, str]
    """The addresses of its tables as the journal records them, by state."""
    optional: Collection[str] = ()
    """The states that may come and go, see :class:`txtopo.transactional.recovery.membership.Membership`."""

    def tables(self) -> dict[str, StateTable]:
        """Return the tables that can be inspected, by state."""
        return tables_of(self.states)

    def journal(self, is_meant: Callable[[JournalHeader], bool] = lambda _: True) -> JournalSearch:
        """Return its journal, or those files of it whose header is meant."""
        return JournalSearch(find_journal(self.metadata_dir, self.topology_id), is_meant)

    def rooms(self) -> dict[str, Folder]:
        """Return the folders that may hold notes of its coordinator state; see :func:`rooms_of`."""
        return rooms_of(self.states)


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
    unfinished: plans.Repair | None
    """The plan that was interrupted."""
    go_to: plans.GoTo | None
    """The proposed plan; None if none is possible."""
    rolled_back: tuple[str, ...]
    """The states whose tables the plan rolls back."""
    obstacles: tuple[str, ...]
    """Why no plan, or no better one, is possible."""
    adopt: plans.Adopt | None
    """The plan to accept other writers' changes; None if that would not help."""
    anew: plans.StartAnew | None
    """The plan to start anew; None if that is impossible."""
    number: int
    """Under this number a plan keeps what it replaces."""

    @property
    def is_safe(self) -> bool:
        """Whether the proposed plan needs no confirmation."""
        plan = self.go_to
        if plan is None or self.rolled_back or plan.forgotten:
            return False
        is_same = self.record.incarnation in {None, plan.incarnation}
        return is_same and (plan.is_as_it_is or plan.until <= plan.txid)

    @property
    def is_sound(self) -> bool:
        """Whether there is nothing to repair."""
        return not self.divergences and not self.damage and self.unfinished is None

    def repair(self, *, is_accepting: bool, is_anew: bool) -> plans.Repair | None:
        """Return the repair to make, None if none is needed; raise StopError if it is impossible."""
        if is_anew:
            if self.anew is None:
                raise StopError(
                    "a table can't be moved aside, because it is not this topology's or txtopo can't move it: give "
                    f"the state another path; {NOTHING_CHANGED}"
                )
            return self.anew
        if self.unfinished is not None:  # before any other: its first steps are done already
            return self.unfinished
        if self.is_sound:
            return None
        if is_accepting:
            if self.adopt is None:
                raise StopError(
                    f"foreign writes are not the only fault: leave out --accept-foreign-writes; {NOTHING_CHANGED}"
                )
            return self.adopt
        if self.go_to is None:
            why = "; ".join(self.obstacles) or "there is no journal of the committed transactions"
            raise StopError(
                f"the existing files are not enough for a repair: {why}. Restore the missing table, or the coordinator "
                f"state with the journal (in {METADATA_DIR!r} beside the tables), from the same backup as the tables; "
                f"or start anew with 'txtopo repair --start-anew'; {NOTHING_CHANGED}"
            )
        return self.go_to


def diagnose(subject: RepairSubject, coordinator_state: CoordinatorState, damage: Sequence[str] = ()) -> Diagnosis:
    """Inspect coordinator state, known ``damage`` aside, journal and tables, and propose a repair."""
    descriptions = descriptions_of(subject.tables())
    parts, journal_problem = _journal(subject, coordinator_state, descriptions)
    record = CoordinatorRecord.of(coordinator_state, coordinator_state.epoch - 1, lambda: parts)
    damage = (*damage, *_damage_of_state(coordinator_state, record))
    plan = plans.recorded_plan(coordinator_state)
    if isinstance(plan, plans.NewNames):
        raise StopError(f"a {plan.command} was interrupted: {plan.way_on}; nothing was changed")
    if plan is not None and _was_finished(subject, plan, record, parts):
        damage = (*damage, f"the coordinator state is from the midst of a {plan.command} that was finished since")
        plan = None
    found = _Found.of(subject, record, parts, plan, descriptions, is_damaged=bool(damage))
    number = _next_number(subject, coordinator_state)
    go_to, rolled_back, obstacles = found.proposal(subject, record, parts, number, is_damaged=bool(damage))
    can_move = all(divergence.kind not in _NOT_OURS for divergence in found.divergences) and _all_movable(subject)
    epochs = [*(table.epoch for table in found.every_description.values()), *(part.header.epoch for part in parts)]
    return Diagnosis(
        record=record,
        descriptions=found.every_description,
        apart={name: found.backfills.get(name) for name in found.apart},
        divergences=found.divergences,
        damage=damage,
        journal_txid=max(
            (checkpoint.txid for checkpoint in found.checkpoints if checkpoint.source == JOURNAL), default=None
        ),
        journal_problem=journal_problem,
        epoch_min=1 + max(epochs, default=0),
        unfinished=plan,
        go_to=go_to,
        rolled_back=rolled_back,
        obstacles=obstacles,
        adopt=None if damage else found.adopt(),
        anew=plans.StartAnew(number, _present(found.checkpoints, parts)) if can_move else None,
        number=number,
    )


def _next_number(subject: RepairSubject, coordinator_state: CoordinatorState) -> int:
    """Return a number above those of all that is aside, so that no repair overwrites what an earlier one has kept."""
    aside = [*coordinator_state.values.asides(), *journal_asides(subject.metadata_dir, subject.topology_id)]
    return 1 + max([0, *aside, *(number for table in subject.tables().values() for number in table.asides())])


@attrs.frozen
class _Found:
    """What was found of a topology, and what of it is no part of a repair."""

    every_description: Mapping[str, TableDescription]
    backfills: Mapping[str, int]
    """The states of backfills that have not joined the topology, each with its last transaction."""
    apart: Collection[str]
    """The states that are no part of a repair."""
    divergences: tuple[Divergence, ...]
    checkpoints: list[Checkpoint]

    @classmethod
    def of(  # noqa: PLR0913 - all that was read
        cls,
        subject: RepairSubject,
        record: CoordinatorRecord,
        parts: list[JournalPart],
        plan: plans.Repair | None,
        descriptions: Mapping[str, TableDescription],
        *,
        is_damaged: bool,
    ) -> _Found:
        """Compare the tables, of which there are descriptions."""
        backfills = unfinished_backfills(subject.metadata_dir, subject.topology_id, _joined(record, parts))
        every = subject.tables()
        apart = [name for name in every if name in backfills and name not in record.committed.states]
        # The plan sets these tables aside, and incomplete states are reported: neither is compared with its mark.
        to_begin = plan.states if isinstance(plan, plans.BeginEmpty) else ()
        incomplete = find_incomplete(record.when_recovered(), subject.states, subject.optional, [*to_begin, *apart])
        others = {name: table for name, table in every.items() if name not in apart}
        compared = find_divergences(record, others, [*to_begin, *(divergence.state for divergence in incomplete)])
        new = [divergence.state for divergence in incomplete if divergence.kind is DivergenceKind.NEW]
        if compared or is_damaged or len(new) < len(incomplete):
            apart += new  # a repair of the others leaves them as they are: what they lack, a backfill gives them
        own = {name: description for name, description in descriptions.items() if name not in apart}
        checkpoints = _checkpoints(subject, record, own, parts)
        if record.incarnation is None and any(checkpoint.txid for checkpoint in checkpoints):
            known = {*apart, *subject.optional, *(name for checkpoint in checkpoints for name in checkpoint.states)}
            apart += [name for name in every if name not in known]
        divergences = tuple(divergence for divergence in (*compared, *incomplete) if divergence.state not in apart)
        return cls(descriptions, backfills, apart, divergences, checkpoints)

    @property
    def descriptions(self) -> dict[str, TableDescription]:
        """Those of the tables that are a part of a repair."""
        return {name: table for name, table in self.every_description.items() if name not in self.apart}

    @property
    def is_of_other_timeline(self) -> bool:
        """Whether a table is of another timeline than the coordinator state."""
        return any(divergence.kind is DivergenceKind.OTHER_TIMELINE for divergence in self.divergences)

    def proposal(
        self,
        subject: RepairSubject,
        record: CoordinatorRecord,
        parts: list[JournalPart],
        number: int,
        *,
        is_damaged: bool,
    ) -> tuple[plans.GoTo | None, tuple[str, ...], tuple[str, ...]]:
        """Return the best plan, the states that it rolls back, and the obstacles to a better one."""
        tables = {name: table for name, table in subject.tables().items() if name not in self.apart}
        ways = _WaysOfApart(
            record=record,
            tables=tables,
            descriptions=self.descriptions,
            divergences=self.divergences,
            optional=subject.optional,
            backfilled=backfills_of(subject.metadata_dir, parts) if parts else (),
            unfinished=self.backfills,
        )
        go_to, rolled_back, obstacles = ways.best(self.checkpoints, subject.spouts, number, is_damaged=is_damaged)
        if go_to is not None:
            last_txids = {} if go_to.is_as_it_is else _last_of_states(self.checkpoints, parts, go_to.incarnation)
            after, until = self.unseen(go_to, record, tables)
            go_to = attrs.evolve(
                go_to, until=self.until(go_to), unseen_after=after, unseen_until=until, last_txids=last_txids
            )
        return go_to, rolled_back, obstacles

    def until(self, go_to: plans.GoTo) -> int:
        """Return the last transaction that was committed.

        A table that has the last group proves that it was committed, also if another one was restored since. What a
        table or coordinator state of another timeline has is undone already, or nobody knows its metadata.
        """
        is_other, incarnation = self.is_of_other_timeline, go_to.incarnation
        tables = () if is_other else self.descriptions.values()
        known = [checkpoint for checkpoint in self.checkpoints if not is_other or checkpoint.source == JOURNAL]
        return max(
            [
                go_to.txid,
                *(table.last_txid or 0 for table in tables if table.incarnation == incarnation),
                *(checkpoint.txid for checkpoint in known if checkpoint.incarnation == incarnation),
            ]
        )

    def unseen(self, go_to: plans.GoTo, record: CoordinatorRecord, tables: Mapping[str, StateTable]) -> tuple[int, int]:
        """Return after which transaction, and up to which, tables or coordinator state have gone another way.

        Since a turn that the journal has not seen: what they took from the source may be gone from there, and nobody
        could say so. (0, 0) if they have not.
        """
        known = [e.timeline for e in self.checkpoints if e.source == JOURNAL and e.incarnation == go_to.incarnation]
        if not known:
            return 0, 0
        epoch = known[0].epoch
        ways = [(turn.txid, record.committed.txid) for turn in record.timeline.turns if turn.epoch > epoch]
        for name, description in self.descriptions.items():
            end = tables[name].turned_to(epoch) if description.incarnation == go_to.incarnation else None
            ways += [] if end is None else [(end, description.last_txid or 0)]
        ways = [(end, last) for end, last in ways if last > end]
        return min((end for end, _ in ways), default=0), max((last for _, last in ways), default=0)

    def adopt(self) -> plans.Adopt | None:
        """Return the plan to accept other writers' changes; None if that would not help."""
        foreign = tuple(
            divergence.state for divergence in self.divergences if divergence.kind is DivergenceKind.FOREIGN_CHANGE
        )
        is_writable = all(description.alteration is None for description in self.descriptions.values())
        can_adopt = foreign and is_writable and all(divergence.kind in _ADOPTABLE for divergence in self.divergences)
        return plans.Adopt(foreign) if can_adopt else None


@attrs.frozen(kw_only=True)
class _WaysOfApart(Ways):
    """The ways where tables and coordinator state may disagree."""

    divergences: tuple[Divergence, ...]
    kept: Mapping[str, Collection[int]] = attrs.field(factory=dict, init=False)
    """Nothing: few checkpoints are asked for, so each table is."""

    def best(
        self, checkpoints: list[Checkpoint], spouts: Mapping[str, str], number: int, *, is_damaged: bool
    ) -> tuple[plans.GoTo | None, tuple[str, ...], tuple[str, ...]]:
        """Return the best plan, the states that it rolls back, and the obstacles to a better one."""
        # A newer epoch is no obstacle, because the repair takes one above it.
        is_as_it_is = (
            all(divergence.kind in _ADOPTABLE for divergence in self.divergences)
            and self.record.incarnation is not None
        )
        if is_as_it_is and not is_damaged:
            assert self.record.incarnation is not None, "there is coordinator state"
            own = checkpoint_of(self.record.committed, self.record.incarnation, spouts, self.record.timeline)
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
            seen += [obstacle for obstacle in obstacles if obstacle not in seen]
        return None, (), tuple(seen)

    def _is_kept(self, name: str, txid: int) -> bool:
        return self.tables[name].is_kept(txid)

    def _is_at(self, name: str, description: TableDescription, txid: int) -> bool:
        return super()._is_at(name, description, txid) and self.tables[name].foreign_change(None) is None

    def _obstacle(self, checkpoint: Checkpoint, name: str, description: TableDescription | None) -> str | None:
        wrong = next((divergence for divergence in self.divergences if divergence.state == name), None)
        if wrong is not None and wrong.kind in {*_NOT_OURS, DivergenceKind.MISFIT}:
            return f"the table at the path of {name!r} is wrong: {wrong.kind.value}"
        obstacle = super()._obstacle(checkpoint, name, description)
        if obstacle is not None or description is None:
            return obstacle
        wanted = self.mark_at(checkpoint, name).txid or 0
        shared = checkpoint.timeline.shared_until(self.tables[name], description, checkpoint.txid, wanted)
        if shared is None:
            return None
        where = "a rewind or a repair has undone, or has not seen, what came after"
        return f"{name!r} has the same past as {checkpoint.source} only up to transaction {shared}: {where}"


def _was_finished(
    subject: RepairSubject, plan: plans.Repair, record: CoordinatorRecord, parts: Sequence[JournalPart]
) -> bool:
    """Whether the topology has run since: then the coordinator state with the plan was restored from a backup."""
    if isinstance(plan, plans.GoTo | plans.Join | plans.Adopt):
        incarnation = plan.incarnation if isinstance(plan, plans.GoTo) else record.incarnation
        own = (part for part in parts if part.header.incarnation == incarnation and part.entries)
        return plan.epoch > 0 and any(part.header.epoch > plan.epoch for part in own)
    tables = subject.tables()
    if isinstance(plan, plans.BeginEmpty):
        own = (part for part in parts if part.header.incarnation == record.incarnation)
        begun = descriptions_of({name: table for name, table in tables.items() if name in plan.states}).values()
        is_written = any((d.last_txid or 0) > plan.txid for d in begun if d.incarnation == record.incarnation)
        return is_written or any(part.header.epoch >= plan.epoch for part in own)
    # What is moved aside is there again.
    is_aside = plan.number in journal_asides(subject.metadata_dir, subject.topology_id)
    again = (plan.number in table.asides() and table.look() is not None for table in tables.values())
    return (is_aside and bool(parts)) or any(again)


def _joined(record: CoordinatorRecord, parts: Sequence[JournalPart]) -> dict[str, str]:
    """Return the identities of the tables of all states that a topology has, or has had, by name.

    The journal may name those of a backfill that died just before it joined. A header without entries alone means
    nothing, unless there is no coordinator state that would know better.
    """
    meant = [part for part in parts if part.entries or (record.incarnation is None and part is parts[-1])]
    return {**identities_in(meant), **{name: mark.identity for name, mark in record.committed.states.items()}}


def _last_of_states(
    checkpoints: Sequence[Checkpoint], parts: Sequence[JournalPart], incarnation: str
) -> dict[str, int]:
    """Return the states of an incarnation, each with the last transaction that its table may have.

    The last group in the journal counts: a state that the code lacks may have it, as no look at its table can tell.
    """
    last_txids: dict[str, int] = {}
    for checkpoint in checkpoints:
        if checkpoint.incarnation == incarnation:
            for name, mark in checkpoint.states.items():
                last_txids[name] = max(last_txids.get(name, 0), mark.txid or 0)
    newest = next((part.header for part in reversed(parts) if part.header.incarnation == incarnation), None)
    # Of its last coordinator, whose last file may have none yet.
    own = [each for part in parts if newest and part.header.epoch == newest.epoch for each in part.entries]
    entry = own[-1] if own else None
    return last_txids if entry is None else {**last_txids, **dict.fromkeys(entry.states, entry.last)}


def _present(checkpoints: Sequence[Checkpoint], parts: Sequence[JournalPart]) -> dict[str, int]:
    """Return the states that the topology has now, each with the last transaction that its table may have."""
    if not checkpoints:
        return {}
    last_txids = _last_of_states(checkpoints, parts, checkpoints[0].incarnation)
    return {
        name: txid for name, txid in last_txids.items() if name not in checkpoints[0].states or checkpoints[0].has(name)
    }


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
    """Return all possible checkpoints, newest first; 0 only if no table was written, else it is *starting anew*."""
    incarnations = {description.incarnation for description in descriptions.values()} | (
        {record.incarnation} if record.incarnation is not None else set()
    )
    found = [
        checkpoint
        for incarnation in sorted(incarnations)
        for checkpoint in checkpoints_in(parts, subject.topology_id, incarnation, subject.states, descriptions)
    ]
    if record.incarnation is not None:
        found.append(checkpoint_of(record.committed, record.incarnation, subject.spouts, record.timeline))
    found = [checkpoint for checkpoint in found if checkpoint.txid > 0]
    if not any(description.last_txid for description in descriptions.values()):
        found += [
            Checkpoint(0, None, incarnation, subject.spouts, {}, "the tables") for incarnation in sorted(incarnations)
        ]
    return sorted(found, key=lambda each: -each.txid)


def _journal(
    subject: RepairSubject, coordinator_state: CoordinatorState, descriptions: Mapping[str, TableDescription]
) -> tuple[list[JournalPart], str | None]:
    """Return what the journal says of where the topology is or can be brought to, and what is wrong with it.

    Of a week it has millions of groups. At most of them, a table has no version any more.
    """
    tables = subject.tables()
    txids = {coordinator_state.committed().txid, *(point.txid for point in coordinator_state.points().points)}
    for name, description in descriptions.items():
        txids |= {description.last_txid or 0, *tables[name].all_kept()}
    try:
        return subject.journal().around(txids), None
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
