"""Spouts and states that come while transactions are committed.

A new spout begins at the next transaction. A new state is begun empty, because the user asks for it, or by a backfill.

A state that was left out of the topology for a while, or is new, has missed transactions.
:mod:`txtopo.transactional.recovery.divergence` refuses it, unless ``topology.state.start.empty`` names it with the last
committed transaction. Then, once the group in progress is finished:

1. The plan to begin it empty is recorded. From now on the setting has no effect.
2. The former table, if there is one, is set aside.
3. The state is opened, which makes a new table.
4. The coordinator state records, for ever, the new table's identity and after which transaction it was begun empty, and
   removes the plan, in one step. No group is written before that.

A crash after step 1 leaves the plan. The next start goes on at step 2, with or without the setting; so do ``txtopo
repair`` and ``txtopo rewind``. A start without the state removes the plan, and the state has left where it had.

A *backfill* that has all transactions makes its states join the topology, which is at rest, in three steps:

1. The plan to join is recorded, with the tables as the backfill has left them.
2. A part of the journal begins, whose header has the new states. By itself it means nothing: whoever knows them from
   the coordinator state finds them in the journal, too.
3. The coordinator state records their tables, and removes the plan, in one step. From then on a topology with these
   states starts, and one without them starts, too, but leaves them behind.

A crash after step 1 leaves the plan, which is finished by the same backfill, ``txtopo repair`` and ``txtopo rewind``,
and by the next start, whose own part of the journal takes the place of step 2. All refuse a table that is no longer as
it was left. Code without the states removes the plan, and the topology goes on: the backfill can follow it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping

import attrs

from txtopo.api.state import OpenedState, State, StateTable, TableDescription
from txtopo.errors import DivergenceError
from txtopo.failpoints import durable_step
from txtopo.files.folder import Folder
from txtopo.journal.ending import read_end
from txtopo.journal.entries import JournalTable
from txtopo.journal.writer import PART_BYTES_MAX, JournalWriter
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, StateMark
from txtopo.transactional.recovery.divergence import CoordinatorRecord
from txtopo.transactional.recovery.plans import BeginEmpty, Join, end_plan, record_plan
from txtopo.transactional.recovery.tables import next_number, refuse_what_stays, tables_of


@attrs.frozen
class Membership:
    """Which states of a topology may come and go, or be begun empty."""

    optional: Collection[str] = ()
    """Those that may come and go, because nothing is lost while they are away: txtopo has added them, for dead letters
    or for the records that a spout refuses."""
    start_empty: Mapping[str, int] = attrs.field(factory=dict)
    """Those that may be begun empty, each with the last committed transaction."""
    spouts: Mapping[str, str] = attrs.field(factory=dict)
    """The kind of each spout by its id; empty: those that are on record."""
    folds: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """By state and column, what the code folds into it, in words."""

    def to_begin(self, record: CoordinatorRecord, names: Collection[str]) -> list[str]:
        """Return the states that are to be begun empty; ``record`` must be without a group in progress."""
        incomplete = record.incomplete(names, self.optional)
        return [name for name in incomplete if self.start_empty.get(name) == record.committed.txid]


def new_spouts(coordinator_state: CoordinatorState, kinds: Mapping[str, str]) -> frozenset[str]:
    """Return the spouts that earlier runs did not have, which begin at the next transaction; none in the first run.

    Args:
        coordinator_state: that of the topology.
        kinds: the kind of each spout, ``repeatable`` or ``opaque``, by its id.

    Raises:
        DivergenceError: earlier runs had a spout that is missing now, or is of another kind.
    """
    former = coordinator_state.spouts
    for name, kind in former.items():
        now = kinds.get(name)
        if now == kind:
            continue
        where = (
            f"topology {coordinator_state.topology_id!r} has run with spout {name!r} up to transaction "
            f"{coordinator_state.committed().txid}"
        )
        if now is None:
            raise DivergenceError(
                f"{where}, and the code does not have it: what its source has after that would be left out, silently. "
                "Add it again under this id, with a source that has nothing more if it is done; or give the topology "
                "another id and new tables"
            )
        raise DivergenceError(
            f"{where}, of kind {kind}; now it is {now}, and its metadata has another meaning. Use the former spout, or "
            "give the topology another id and new tables"
        )
    return frozenset(kinds.keys() - former.keys() if former else ())


def plan_to_begin(
    states: Mapping[str, State], coordinator_state: CoordinatorState, committed: CommittedMark
) -> BeginEmpty:
    """Record and return the plan to begin states empty; no group may be decided; ConfigError if a table must stay."""
    refuse_what_stays(table for _, _, table, _ in _former(states, coordinator_state.incarnation))
    number = next_number(coordinator_state.values.asides(), tables_of(states).values())
    plan = BeginEmpty(committed.txid, tuple(states), number, coordinator_state.epoch)
    # Before a table is touched. A crash before this leaves everything as it was; after it, whoever comes next goes on.
    with durable_step("recovery.begin"):
        record_plan(coordinator_state, plan)
    return plan


def set_former_aside(states: Mapping[str, State], coordinator_state: CoordinatorState, plan: BeginEmpty) -> None:
    """Set aside the former tables of states that a plan begins empty; ConfigError, saying how by hand, if one can't."""
    for name, state, table, description in _former(states, coordinator_state.incarnation):
        # A former leader's write may be in flight. Epochs of another incarnation can't be compared with this one's.
        if description.incarnation == coordinator_state.incarnation:
            fence_former_table(coordinator_state, name, state, description)
        # A crash before this leaves the former table in place, and the next start sets it aside. A crash after it
        # leaves no table under the name, and the next start has none to set aside.
        with durable_step("recovery.aside"):
            table.set_aside(plan.number)


def _former(states: Mapping[str, State], incarnation: str) -> Iterator[tuple[str, State, StateTable, TableDescription]]:
    """Yield the states with former tables, which are to be set aside before the states begin empty."""
    for name, state in states.items():
        table = state.table()
        description = None if table is None else table.describe()
        # A fresh table may be the one that an interrupted start made here.
        if table is not None and description is not None and not _is_fresh(description, table, incarnation):
            yield name, state, table, description


def end_begin(
    opened: Mapping[str, OpenedState], coordinator_state: CoordinatorState, plan: BeginEmpty
) -> CommittedMark:
    """Record the new tables of states that a plan begins empty, and remove the plan; return the committed mark.

    Raises:
        DivergenceError: one of them is not empty, and txtopo can't set it aside.
    """
    # Only what can be inspected was set aside: a state without a StateTable may still have its rows.
    for name, state in opened.items():
        if state.last_txid:
            raise DivergenceError(
                f"state {name!r} of topology {coordinator_state.topology_id!r} can't be started empty: it is at "
                f"transaction {state.last_txid}, the coordinator state is at transaction {plan.txid}, and txtopo "
                "can't set such a state aside. Give the topology an empty one in its place"
            )
    committed = coordinator_state.committed()
    marks = {
        name: StateMark(state.identity, None, state.version, begun_after=plan.txid) for name, state in opened.items()
    }
    committed = attrs.evolve(committed, states={**committed.states, **marks})
    # A crash before this leaves new, empty tables that the mark does not name. The next start finds them fresh and
    # keeps them; no group is written to them before they are named.
    with durable_step("recovery.begun"):
        end_plan(coordinator_state, committed)
    return committed


def fence_former_table(
    coordinator_state: CoordinatorState, name: str, state: State, description: TableDescription
) -> None:
    """Open a table that is about to be set aside as a fence, unless its columns or kind, or a change, forbid it."""
    if description.misfit is None and description.alteration is None:
        state.open(coordinator_state.topology_id, name, description.incarnation, coordinator_state.epoch).close()


def _is_fresh(description: TableDescription, table: StateTable, incarnation: str) -> bool:
    """Whether a table is empty and fits, so that it need not be set aside."""
    is_ours = description.incarnation == incarnation and description.misfit is None and description.alteration is None
    return is_ours and description.last_txid is None and table.foreign_change(None) is None


def record_join(
    coordinator_state: CoordinatorState,
    plan: Join,
    tables: Mapping[str, StateTable],
    folds: Mapping[str, Mapping[str, str]],
) -> None:
    """Record the plan to join of states that have all transactions of the topology, and what is folded into these.

    Raises:
        DivergenceError: the topology is at another transaction, or a table is not as the backfill left it.
    """
    before = coordinator_state.committed()
    if before.txid != plan.txid:
        raise DivergenceError(f"the states have transactions up to {plan.txid}, but the topology is at {before.txid}")
    refuse_written(plan, tables)
    # A crash before this leaves a topology that does not know the states. It may go on; and the backfill, when it is
    # run again, follows it and joins later.
    with durable_step("backfill.plan"):
        new_folds = {mark.identity: folds[name] for name, mark in plan.states.items() if name in folds}
        coordinator_state.add_folds(
            {each: {column: (how, 0) for column, how in own.items()} for each, own in new_folds.items()}
        )
        record_plan(coordinator_state, plan)


def refuse_written(plan: Join, tables: Mapping[str, StateTable]) -> None:
    """Raise DivergenceError if a table is not as its state's backfill left it; those of other code are left alone."""
    for name, mark in plan.states.items() if plan.states.keys() <= tables.keys() else ():
        found = tables[name].describe()
        is_as_left = found is not None and (found.identity, found.last_txid) == (mark.identity, mark.txid)
        if not is_as_left or tables[name].foreign_change(mark.version) is not None:
            raise DivergenceError(
                f"the table of state {name!r} is not as the backfill left it, at transaction {mark.txid or 0}: another "
                "writer has written, replaced or removed it. Restore it; or remove it and the backfill's folder, start "
                "the topology without the state, and begin again"
            )


def join(journal: Folder, coordinator_state: CoordinatorState, plan: Join, tables: Mapping[str, StateTable]) -> None:
    """Make states part of a topology by a plan that is on record; ``journal`` is the topology's.

    Raises:
        DivergenceError: a table is not as the backfill left it.
        LostLead: another process has taken the lead meanwhile.
    """
    refuse_written(plan, tables)
    mark, end = plan.after(coordinator_state.committed(), tables), None
    with contextlib.suppress(DivergenceError):  # damage of the journal is in nobody's way
        end = read_end(journal)
    if end is not None:
        present = {name: state for name, state in mark.states.items() if state.left_after is None}
        new = {name: JournalTable(address, plan.states[name].identity) for name, address in plan.addresses.items()}
        header = attrs.evolve(
            end.header,
            epoch=coordinator_state.epoch,
            committed=mark.txid,
            metadata=mark.metadata,
            planned=mark.planned,
            undone_until=0,
            tables={name: table for name, table in {**end.header.tables, **new}.items() if name in present},
            states={name: each.txid for name, each in present.items()},
            begun_after={name: each.begun_after for name, each in present.items() if each.begun_after},
        )
        # A crash after this leaves a part without entries, and whoever finishes the plan has a part of its own.
        with durable_step("backfill.enter"):
            JournalWriter(journal, header, PART_BYTES_MAX)
    end_join(coordinator_state, mark)


def end_join(coordinator_state: CoordinatorState, mark: CommittedMark) -> None:
    """Remove a plan to join; ``mark`` is that of the last transaction, with the states or without."""
    # A crash after it leaves a topology with the states; only the backfill's scratch tables may be left, which its next
    # call removes.
    with durable_step("backfill.join"):
        end_plan(coordinator_state, mark)
