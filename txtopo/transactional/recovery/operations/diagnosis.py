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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

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
from txtopo.transactional.recovery.coordinator_state import CoordinatorState, StateMark
from txtopo.transactional.recovery.divergence import (
    CoordinatorRecord,
    Divergence,
    DivergenceKind,
    find_divergences,
    find_incomplete,
)
from txtopo.transactional.recovery.operations.ways import RollbackPlanner
from txtopo.transactional.recovery.tables import descriptions_of, next_number, rooms_of, tables_of

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

    @property
    def journal_folder(self) -> Folder:
        """The folder of its journal."""
        return find_journal(self.metadata_dir, self.topology_id)

    def journal(self, is_meant: Callable[[JournalHeader], bool] = lambda _: True) -> JournalSearch:
        """Return its journal, or those files of it whose header is meant."""
        return JournalSearch(self.journal_folder, is_meant)

    def around(self, txids: Iterable[int]) -> list[JournalPart]:
        """Return what its journal says of some transactions; see :meth:`JournalSearch.around`."""
        return self.journal().around(txids)

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
    return _Examination(subject, coordinator_state, damage).diagnosis()


class _Examination:
    """Coordinator state, journal and tables as they are found, and what follows from that."""

    def __init__(self, subject: RepairSubject, coordinator_state: CoordinatorState, damage: Sequence[str]) -> None:
        self._subject = subject
        self._coordinator_state = coordinator_state
        self._every = subject.tables()
        self._every_description = descriptions_of(self._every)
        self._parts, self._journal_problem = self._journal()
        last_store = self._parts[-1].header.store if self._parts else ""
        self._record = CoordinatorRecord.of(coordinator_state, coordinator_state.epoch - 1, last_store)
        self._damage = [*damage, *self._damage_of_state()]
        self._unfinished = self._unfinished_plan()
        self._backfills = unfinished_backfills(subject.metadata_dir, subject.topology_id, self._joined())
        """The states of backfills that have not joined the topology, each with its last transaction."""
        self._apart: list[str] = []
        """The states that are no part of a repair."""
        self._checkpoints: list[Checkpoint] = []
        self._divergences = self._compare()

    def diagnosis(self) -> Diagnosis:
        """Return what was found, and the proposal."""
        subject = self._subject
        asides = [*self._coordinator_state.values.asides(), *journal_asides(subject.metadata_dir, subject.topology_id)]
        number = next_number(asides, self._every.values())
        go_to, rolled_back, obstacles = self._proposal(number)
        is_movable = all(state.table() is not None for state in subject.states.values() if state.is_durable)
        can_move = is_movable and all(found.kind not in _NOT_OURS for found in self._divergences)
        newest_epochs = (
            *(table.epoch for table in self._every_description.values()),
            *(part.header.epoch for part in self._parts),
        )
        return Diagnosis(
            record=self._record,
            descriptions=self._every_description,
            apart={name: self._backfills.get(name) for name in self._apart},
            divergences=self._divergences,
            damage=tuple(self._damage),
            journal_txid=max((point.txid for point in self._checkpoints if point.source == JOURNAL), default=None),
            journal_problem=self._journal_problem,
            epoch_min=1 + max(newest_epochs, default=0),
            unfinished=self._unfinished,
            go_to=go_to,
            rolled_back=rolled_back,
            obstacles=obstacles,
            adopt=None if self._damage else self._adopt(),
            anew=plans.StartAnew(number, self._present()) if can_move else None,
            number=number,
        )

    def _journal(self) -> tuple[list[JournalPart], str | None]:
        """Return what the journal says of where the topology is or can be brought to, and what is wrong with it.

        Of a week it has millions of groups. At most of them, a table has no version any more.
        """
        state = self._coordinator_state
        txids = {state.committed().txid, *(point.txid for point in state.points().points)}
        for name, description in self._every_description.items():
            txids |= {description.last_txid or 0, *self._every[name].all_kept()}
        try:
            return self._subject.around(txids), None
        except DivergenceError as error:
            return [], error.message

    def _damage_of_state(self) -> Iterator[str]:
        state, group = self._coordinator_state, self._record.group
        looks = (
            lambda: state.begun(self._record.committed.txid),
            lambda: group is None or self._record.notes or state.notes_of(group),
        )
        for look in looks:
            try:
                look()
            except DivergenceError as error:
                yield error.message

    def _unfinished_plan(self) -> plans.Repair | None:
        plan = plans.recorded_plan(self._coordinator_state)
        if isinstance(plan, plans.NewNames):
            raise StopError(f"a {plan.command} was interrupted: {plan.way_on}; nothing was changed")
        if plan is not None and self._was_finished(plan):
            self._damage.append(f"the coordinator state is from the midst of a {plan.command} that was finished since")
            return None
        return plan

    def _was_finished(self, plan: plans.Repair) -> bool:
        """Whether the topology has run since: then the coordinator state with the plan was restored from a backup."""
        incarnation = plan.incarnation if isinstance(plan, plans.GoTo) else self._record.incarnation
        own = [part for part in self._parts if part.header.incarnation == incarnation]
        if isinstance(plan, plans.GoTo | plans.Join | plans.Adopt):
            return plan.epoch > 0 and any(part.header.epoch > plan.epoch for part in own if part.entries)
        if isinstance(plan, plans.BeginEmpty):
            begun = (table for name, table in self._every_description.items() if name in plan.states)
            is_written = any((table.last_txid or 0) > plan.txid for table in begun if table.incarnation == incarnation)
            return is_written or any(part.header.epoch >= plan.epoch for part in own)
        # What is moved aside is there again.
        is_aside = plan.number in journal_asides(self._subject.metadata_dir, self._subject.topology_id)
        again = (plan.number in table.asides() and table.describe() is not None for table in self._every.values())
        return (is_aside and bool(self._parts)) or any(again)

    def _joined(self) -> dict[str, str]:
        """Return the identities of the tables of all states that the topology has, or has had, by name.

        The journal may name those of a backfill that died just before it joined. A header without entries alone means
        nothing, unless there is no coordinator state that would know better.
        """
        parts, record = self._parts, self._record
        meant = [part for part in parts if part.entries or (record.incarnation is None and part is parts[-1])]
        return {**identities_in(meant), **{name: mark.identity for name, mark in record.committed.states.items()}}

    def _compare(self) -> tuple[Divergence, ...]:
        """Compare the tables; find which states are apart, and the checkpoints of the others."""
        subject, record, apart = self._subject, self._record, self._apart
        apart += [name for name in self._every if name in self._backfills and name not in record.committed.states]
        # The plan sets these tables aside, and incomplete states are reported: neither is compared with its mark.
        to_begin = self._unfinished.states if isinstance(self._unfinished, plans.BeginEmpty) else ()
        incomplete = find_incomplete(record.when_recovered(), subject.states, subject.optional, [*to_begin, *apart])
        others = {name: table for name, table in self._every.items() if name not in apart}
        compared = find_divergences(record, others, [*to_begin, *(found.state for found in incomplete)])
        new = [found.state for found in incomplete if found.kind is DivergenceKind.NEW]
        if compared or self._damage or len(new) < len(incomplete):
            apart += new  # a repair of the others leaves them as they are: what they lack, a backfill gives them
        self._checkpoints = self._all_checkpoints()
        if record.incarnation is None and any(point.txid for point in self._checkpoints):
            known = {*apart, *subject.optional, *(name for point in self._checkpoints for name in point.states)}
            apart += [name for name in self._every if name not in known]
        return tuple(found for found in (*compared, *incomplete) if found.state not in apart)

    @property
    def _descriptions(self) -> dict[str, TableDescription]:
        """Those of the tables that are a part of a repair."""
        return {name: found for name, found in self._every_description.items() if name not in self._apart}

    def _all_checkpoints(self) -> list[Checkpoint]:
        """Return all possible checkpoints, newest first; 0 only if no table was written, else it is *starting anew*."""
        subject, record, descriptions = self._subject, self._record, self._descriptions
        known = {record.incarnation, *(table.incarnation for table in descriptions.values())}
        incarnations = sorted(incarnation for incarnation in known if incarnation is not None)
        found = [
            point
            for incarnation in incarnations
            for point in checkpoints_in(self._parts, subject.topology_id, incarnation, subject.states, descriptions)
        ]
        if record.incarnation is not None:
            found.append(checkpoint_of(record.committed, record.incarnation, subject.spouts, record.timeline))
        found = [point for point in found if point.txid > 0]
        if not any(table.last_txid for table in descriptions.values()):
            found += [Checkpoint(0, None, own, subject.spouts, {}, "the tables") for own in incarnations]
        return sorted(found, key=lambda point: -point.txid)

    def _proposal(self, number: int) -> tuple[plans.GoTo | None, tuple[str, ...], tuple[str, ...]]:
        """Return the best plan, the states that it rolls back, and the obstacles to a better one."""
        subject = self._subject
        ways = _RollbackPlannerApart(
            record=self._record,
            tables={name: table for name, table in self._every.items() if name not in self._apart},
            descriptions=self._descriptions,
            divergences=self._divergences,
            optional=subject.optional,
            backfilled=backfills_of(subject.metadata_dir, self._parts) if self._parts else (),
            unfinished=self._backfills,
        )
        seen: list[str] = []
        for checkpoint, is_as_it_is in self._candidates():
            rolled_back, obstacles = ways.rollbacks(checkpoint)
            if not obstacles:
                go_to = ways.plan(checkpoint, number, is_as_it_is=is_as_it_is)
                return self._completed(go_to), rolled_back, tuple(seen)
            seen += [obstacle for obstacle in obstacles if obstacle not in seen and not is_as_it_is]
        return None, (), tuple(seen)

    def _candidates(self) -> Iterator[tuple[Checkpoint, bool]]:
        """Yield the checkpoints, best first, and whether it is where everything is already."""
        record = self._record
        # A newer epoch is no obstacle, because the repair takes one above it.
        is_adoptable = all(found.kind in _ADOPTABLE for found in self._divergences)
        if is_adoptable and record.incarnation is not None and not self._damage:
            own = checkpoint_of(record.committed, record.incarnation, self._subject.spouts, record.timeline)
            # A table that has the group in progress stays there, so each is taken at the txid that it is at.
            states = {
                name: attrs.evolve(own.states.get(name, StateMark("", None)), txid=table.last_txid)
                for name, table in self._descriptions.items()
            }
            yield attrs.evolve(own, states=states), True
        yield from ((point, False) for point in self._checkpoints)

    def _completed(self, go_to: plans.GoTo) -> plans.GoTo:
        """Return a plan with what is known of the transactions after it."""
        own = [point for point in self._checkpoints if point.incarnation == go_to.incarnation]
        tables = {n: found for n, found in self._descriptions.items() if found.incarnation == go_to.incarnation}
        # The last transaction that was committed. A table that has the last group proves that it was, also if another
        # one was restored since. What a table or coordinator state of another timeline has is undone already, or
        # nobody knows its metadata.
        is_other = any(found.kind is DivergenceKind.OTHER_TIMELINE for found in self._divergences)
        reached = [] if is_other else [found.last_txid or 0 for found in tables.values()]
        entered = [point for point in own if point.source == JOURNAL]
        until = max([go_to.txid, *reached, *(point.txid for point in (entered if is_other else own))])
        # Since a turn that the journal has not seen, tables or coordinator state have gone another way: what they took
        # from the source may be gone from there, and nobody could say so.
        ways: list[tuple[int, int]] = []
        if entered:
            epoch, turns = entered[0].timeline.epoch, self._record.timeline.turns
            ways = [(turn.txid, self._record.committed.txid) for turn in turns if turn.epoch > epoch]
            ends = {name: self._every[name].turned_to(epoch) for name in tables}
            ways += [(end, tables[name].last_txid or 0) for name, end in ends.items() if end is not None]
        unseen = [(end, last) for end, last in ways if last > end]
        return attrs.evolve(
            go_to,
            until=until,
            unseen_after=min((end for end, _ in unseen), default=0),
            unseen_until=max((last for _, last in unseen), default=0),
            last_txids={} if go_to.is_as_it_is else self._last_of_states(go_to.incarnation),
        )

    def _adopt(self) -> plans.Adopt | None:
        """Return the plan to accept other writers' changes; None if that would not help."""
        foreign = tuple(found.state for found in self._divergences if found.kind is DivergenceKind.FOREIGN_CHANGE)
        is_writable = all(table.alteration is None for table in self._descriptions.values())
        can_adopt = foreign and is_writable and all(found.kind in _ADOPTABLE for found in self._divergences)
        return plans.Adopt(foreign) if can_adopt else None

    def _last_of_states(self, incarnation: str) -> dict[str, int]:
        """Return the states of an incarnation, each with the last transaction that its table may have.

        The last group in the journal counts: a state that the code lacks may have it, as no look at its table can tell.
        """
        last_txids: dict[str, int] = {}
        for checkpoint in self._checkpoints:
            if checkpoint.incarnation == incarnation:
                for name, mark in checkpoint.states.items():
                    last_txids[name] = max(last_txids.get(name, 0), mark.txid or 0)
        epoch = next((p.header.epoch for p in reversed(self._parts) if p.header.incarnation == incarnation), None)
        # Of its last coordinator, whose last file may have none yet.
        own = [entry for part in self._parts if part.header.epoch == epoch for entry in part.entries]
        return last_txids | dict.fromkeys(own[-1].states, own[-1].last) if own else last_txids

    def _present(self) -> dict[str, int]:
        """Return the states that the topology has now, each with the last transaction that its table may have."""
        if not self._checkpoints:
            return {}
        newest = self._checkpoints[0]
        last_txids = self._last_of_states(newest.incarnation)
        return {name: txid for name, txid in last_txids.items() if name not in newest.states or newest.has(name)}


@attrs.frozen(kw_only=True)
class _RollbackPlannerApart(RollbackPlanner):
    """The ways where tables and coordinator state may disagree."""

    divergences: tuple[Divergence, ...]
    kept: Mapping[str, Collection[int]] = attrs.field(factory=dict, init=False)
    """Nothing: few checkpoints are asked for, so each table is."""

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
