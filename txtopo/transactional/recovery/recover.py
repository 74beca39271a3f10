"""Recovery: the steps of a new leader before its first transaction.

1. It has the lead, so no older coordinator can write to the store any more.
2. It inspects every table without changing it, see :mod:`txtopo.transactional.recovery.divergence`. It refuses to
   continue if something is wrong, or if a state missed committed transactions because the topology did not have it.
   If a backfill died while its states joined the topology, they join now.
3. It opens every state, which fences each table: no older coordinator can write to a table any more. It inspects the
   tables again.
4. If a group is decided and not committed, it publishes the group's note and marks the group as committed.
5. It begins the states that are to be begun empty, see :mod:`txtopo.transactional.recovery.membership`.
6. Now the coordinator state and the tables must agree: each table has the recorded identity and txid.
7. It records that it has recovered. Only the leader can write, so nobody else has written since it read the state.

A write of a former leader that is still in flight does no harm:

1. Leader A has decided group 5 to 8, and its write is in flight when A loses the lead.
2. Leader B fences the table. If A's write lands before B's fence, B sees txid 8 in step 4 and publishes nothing. If it
   comes later, it conflicts with the fence and fails, and B publishes the note.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack

import attrs

from txtopo.api.state import GrowsColumns, OpenedState, State, StateTable
from txtopo.attempts import transactions_words
from txtopo.errors import DivergenceError, LostLead
from txtopo.failpoints import durable_step
from txtopo.transactional.core.events import TransactionMetadata
from txtopo.transactional.recovery.coordinator_state import (
    CommittedMark,
    CoordinatorState,
    Folds,
    Group,
    StateMark,
)
from txtopo.transactional.recovery.divergence import (
    WAY_OUT,
    CoordinatorRecord,
    DivergenceKind,
    find_divergences,
    find_incomplete,
    find_mismatched,
    find_refolded,
    marks_of_topology,
    refuse,
)
from txtopo.transactional.recovery.membership import (
    Membership,
    end_begin,
    end_join,
    plan_to_begin,
    refuse_written,
    set_former_aside,
)
from txtopo.transactional.recovery.plans import BeginEmpty, Join, recorded_plan
from txtopo.transactional.recovery.tables import tables_of


@attrs.frozen
class RecoveredRun:
    """The starting point of a run."""

    states: Mapping[str, OpenedState]
    committed: CommittedMark
    begun: tuple[TransactionMetadata, ...]


def open_states(
    topology_id: str, states: Mapping[str, State], coordinator_state: CoordinatorState, stack: ExitStack
) -> dict[str, OpenedState]:
    """Open every state with the coordinator state's epoch; ``stack`` closes them.

    Raises:
        DivergenceError: a state belongs to another topology, or an epoch that the store does not know has opened it.
        LostLead: another coordinator has taken the lead in the meantime.
    """
    opened: dict[str, OpenedState] = {}
    for name, state in states.items():
        try:
            # Opening creates a missing table and writes this epoch to it. A crash leaves some tables with the epoch and
            # some without; the next leader has a higher one and opens them all again.
            with durable_step("table.open"):
                opened[name] = state.open(topology_id, name, coordinator_state.incarnation, coordinator_state.epoch)
        except LostLead as error:
            # A table has a higher epoch than this one. Either a successor leads, and this raises LostLead; or the store
            # was wiped or restored since it gave out that epoch.
            coordinator_state.confirm_lead()
            raise DivergenceError(
                f"{error.message}; but this coordinator holds the lead, so the coordinator state, at transaction "
                f"{coordinator_state.committed().txid}, was wiped or restored from a backup. {WAY_OUT}"
            ) from error
        stack.callback(opened[name].close)
    return opened


def recover(  # noqa: PLR0913, PLR0917 - what is recovered, and with what
    topology_id: str,
    states: Mapping[str, State],
    coordinator_state: CoordinatorState,
    stack: ExitStack,
    membership: Membership | None = None,
    last_store: str = "",
) -> RecoveredRun:
    """Open the states, which ``stack`` closes, end the decided group, and check that state and tables belong together.

    Without ``membership``, no state may come and go or be begun empty; ``last_store`` is
    :attr:`CoordinatorRecord.last_store`.

    Raises:
        DivergenceError: coordinator state and tables do not belong together.
        LostLead: another coordinator has taken the lead in the meantime.
    """
    membership = membership or Membership()
    recovery = _Recovery(topology_id, states, coordinator_state, stack, membership, last_store, tables_of(states))
    try:
        return recovery.run()
    except DivergenceError:
        # If the lead was lost in the meantime, a successor's writes look like divergence: then raise LostLead.
        coordinator_state.confirm_lead()
        raise


@attrs.define(eq=False)
class _Recovery:
    """A recovery in its steps: a look that may refuse, the fences, the decided group, the states to be begun empty."""

    topology_id: str
    states: Mapping[str, State]
    coordinator_state: CoordinatorState
    stack: ExitStack
    membership: Membership
    last_store: str
    tables: Mapping[str, StateTable]
    plan: BeginEmpty | Join | None = None
    """The one on record."""
    opened: dict[str, OpenedState] = attrs.field(factory=dict)

    def run(self) -> RecoveredRun:
        coordinator_state = self.coordinator_state
        to_begin = self._to_begin_empty()
        if isinstance(self.plan, Join):
            end_join(coordinator_state, self.plan.after(coordinator_state.committed(), self.states))
        # Before any table exists: a table whose incarnation the store does not know means that the store was wiped.
        # After a crash here there is an incarnation without tables, and the next start creates them.
        coordinator_state.begin(self.membership.spouts)
        # A state to be begun empty is opened later: its former table is set aside first, and only once the group in
        # progress is finished.
        states = {name: state for name, state in self.states.items() if name not in to_begin}
        self.opened = open_states(self.topology_id, states, coordinator_state, self.stack)
        committed = self._end_group(to_begin)
        self._clean_up()
        transactions = coordinator_state.begun(committed.txid)
        # A crash before this leaves nothing for the next recovery to do. The write itself proves that nobody else has
        # taken the lead since the values above were read.
        with durable_step("recovery.confirm"):
            coordinator_state.confirm_recovery(self._folds(committed))
        return RecoveredRun(self.opened, committed, transactions)

    def _to_begin_empty(self) -> Collection[str]:
        """Return the states to be begun empty; refuse what does not belong together, before anything is written."""
        self.plan = _plan_of_a_start(self.coordinator_state)
        # This epoch has opened no table yet. If a table names it, the store was restored or there is another copy.
        record = CoordinatorRecord.of(self.coordinator_state, self.coordinator_state.epoch - 1, self.last_store)
        if isinstance(self.plan, Join):
            refuse_written(self.plan, self.tables)
            record = attrs.evolve(record, committed=self.plan.after(record.committed, self.states))
        recovered = record.when_recovered()
        to_begin = self._to_begin(recovered)
        incomplete = find_incomplete(recovered, self.states, self.membership.optional, to_begin)
        # A new state may have a table that a backfill is at, which is none of this start's business.
        filled = {divergence.state for divergence in incomplete if divergence.kind is DivergenceKind.NEW}
        fresh = [
            divergence
            for divergence in find_divergences(record, self.tables, to_begin)
            if divergence.state not in filled
            or divergence.kind not in {DivergenceKind.AHEAD, DivergenceKind.NEWER_EPOCH}
        ]
        # A state that has another name now is no new one: its table says so.
        renamed = {divergence.state for divergence in fresh if divergence.kind is DivergenceKind.OTHER_OWNER}
        refolded = find_refolded(recovered, self.membership.folds, to_begin)
        refuse([*fresh, *(divergence for divergence in incomplete if divergence.state not in renamed), *refolded])
        return to_begin

    def _to_begin(self, record: CoordinatorRecord) -> list[str]:
        if isinstance(self.plan, BeginEmpty):
            return [name for name in self.plan.states if name in self.states]
        return self.membership.to_begin(record, self.states)

    def _end_group(self, to_begin: Collection[str]) -> CommittedMark:
        """End the group in progress, begin states empty, and look again, now that nobody else can write."""
        coordinator_state = self.coordinator_state
        # Again, because tables could change until they were fenced. Now they carry this epoch.
        record = CoordinatorRecord.of(coordinator_state, coordinator_state.epoch, self.last_store)
        refuse(find_divergences(record, self.tables, to_begin))
        # Only now: a former leader's write may have landed until its table was fenced, and none can land any more.
        if record.group is not None:
            record = _published(record, record.group, self.opened, coordinator_state)
        # The setting names the last committed transaction. A write that landed since the first look makes it another
        # one; then the setting does not apply any more, and the state is refused.
        to_begin = [name for name in self._to_begin(record) if name in to_begin]
        refuse(find_incomplete(record, self.states, self.membership.optional, to_begin), is_written=True)
        plan = self.plan if isinstance(self.plan, BeginEmpty) else None
        if to_begin or plan is not None:
            opened = {name: self.states[name] for name in to_begin}
            plan = plan or plan_to_begin(opened, coordinator_state, record.committed)
            set_former_aside(opened, coordinator_state, plan)
            new = open_states(self.topology_id, opened, coordinator_state, self.stack)
            both = {**self.opened, **new}
            self.opened = {name: both[name] for name in self.states}
            record = attrs.evolve(record, committed=end_begin(new, coordinator_state, plan))
        # Also covers states without a table to inspect, which the looks above leave out.
        refuse(find_mismatched(record, self.opened))
        return record.committed

    def _folds(self, committed: CommittedMark) -> Folds | None:
        """Return what is folded into all tables from now on, by their identities; None: nothing that is not known."""
        now = self.membership.folds
        if not now:
            return None
        recorded, current = self.coordinator_state.folds, {}
        for name, state in self.opened.items():
            last = state.last_txid or 0
            columns = {column: fold for column, fold in recorded.get(state.identity, {}).items() if last > fold[1]}
            current[state.identity] = {column: (how, last) for column, how in now.get(name, {}).items()} | columns
        departed = {state.identity for state in committed.states.values()} - current.keys()
        return {identity: told for identity, told in current.items() if told} | {
            identity: told for identity, told in recorded.items() if identity in departed
        }

    def _clean_up(self) -> None:
        """Remove what was prepared and belongs to no group, and let tables grow."""
        # The decided group is committed, so what else was prepared belongs to no group. A crash in between leaves some
        # of it, which the next recovery removes.
        for state in self.opened.values():
            state.clean_up()
        self.coordinator_state.remove_notes()
        # Last: nothing refuses this run any more, and what was prepared before is in its table.
        for state in self.opened.values():
            if isinstance(state, GrowsColumns):
                state.grow()


def marks_after(
    committed: CommittedMark,
    opened: Mapping[str, OpenedState],
    written_states: set[str],
    txid: int,
    topology: Iterable[str] | None = None,
) -> dict[str, StateMark]:
    """Return the state marks after a group that ends with ``txid`` and wrote the states ``written_states``.

    ``topology`` names all states of the topology that made the group, if they are not the opened ones.
    """
    marks = marks_of_topology(committed, opened if topology is None else topology)
    for name, state in opened.items():
        mark = marks.get(name)
        # If the group's topology did not have an opened state, that state missed the group and stays departed.
        if mark is not None and mark.left_after is None:
            # One without versions may be ahead since a rewind, and has written nothing then.
            last = max(txid, mark.txid or 0) if name in written_states else mark.txid
            marks[name] = StateMark(state.identity, last, state.version, None, mark.begun_after)
    return marks


def _plan_of_a_start(coordinator_state: CoordinatorState) -> BeginEmpty | Join | None:
    """Return the plan that an interrupted start or backfill has recorded; refuse any other."""
    plan = recorded_plan(coordinator_state)
    if plan is None or isinstance(plan, BeginEmpty | Join):
        return plan
    raise DivergenceError(
        f"a {plan.command} of topology {coordinator_state.topology_id!r}, whose coordinator state is at transaction "
        f"{coordinator_state.committed().txid}, was interrupted: {plan.way_on}"
    )


def _published(
    record: CoordinatorRecord, group: Group, opened: Mapping[str, OpenedState], coordinator_state: CoordinatorState
) -> CoordinatorRecord:
    missing = [name for name in group.states if name not in opened]
    if missing:
        raise DivergenceError(
            f"the group of {transactions_words(group.first, group.last)} is to be written to state {missing[0]!r}, "
            "which the topology no longer has; start it once with that state"
        )
    for name, note in coordinator_state.notes_of(group).items():
        # A crash between two tables loses nothing: the note is still there, and the next leader does this again. Where
        # the group is visible already, publish() only makes sure that it is durable: whoever wrote it may have died
        # before the sync, and the mark below must not name a transaction that a power failure can take back.
        with durable_step("recovery.write"):
            opened[name].publish(group.last, note)
    marks = marks_after(record.committed, opened, set(group.states), group.last, group.topology)
    recovered = attrs.evolve(record, committed=group.mark(marks), group=None)
    refuse(find_mismatched(recovered, opened), is_written=True)
    # A crash before this leaves the note above the mark and every table written: the next leader comes here again.
    with durable_step("recovery.commit"):
        coordinator_state.commit(recovered.committed, group.first)
        coordinator_state.flush()
    return recovered
