"""Beginning a state empty although transactions are committed, because the user has asked for it.

A state that was left out of the topology for a while, or is new, has missed transactions.
:mod:`txtopo.transactional.recovery.divergence` refuses it, unless ``topology.state.start.empty`` names it with the last
committed transaction. Then, once the group in progress is settled:

1. The coordinator state records permanently that the state was begun empty after that transaction, and forgets the
   identity of its former table. From now on the setting has no effect.
2. The former table, if there is one, is set aside.
3. The state is opened, which makes a new table.
4. The coordinator state records the new table's identity. No group is written before that.

A crash after step 1 leaves a mark without an identity. The next start with that state goes on at step 2, with or
without the setting. It never sets aside the new table: as long as the mark has no identity, that table has no write.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from txtopo.api.state import OpenedState, State, StateTable, TableDescription
from txtopo.errors import DivergenceError
from txtopo.failpoints import durable_step
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, StateMark
from txtopo.transactional.recovery.divergence import CoordinatorRecord


@attrs.frozen
class Membership:
    """Which states of a topology may come and go, or be begun empty."""

    optional: Collection[str] = ()
    """Those that may come and go, because nothing is lost while they are away: txtopo has added them, for dead letters
    or for the records that a spout refuses."""
    start_empty: Mapping[str, int] = attrs.field(factory=dict)
    """Those that may be begun empty, each with the last committed transaction."""

    def to_begin(self, record: CoordinatorRecord, names: Collection[str]) -> list[str]:
        """Return the states that are to be begun empty; ``record`` must be without a group in progress."""
        marks, strangers = record.committed.states, record.strangers(names, self.optional)
        return [
            name
            for name in names
            if (name in strangers and self.start_empty.get(name) == record.committed.txid)
            or (name not in strangers and name in marks and marks[name].is_beginning)
        ]


def begin_empty(
    states: Mapping[str, State], coordinator_state: CoordinatorState, committed: CommittedMark
) -> CommittedMark:
    """Record that states are begun empty after the committed transaction, and set their former tables aside.

    No group may be in progress.

    Raises:
        ConfigError: a table can't be moved; the message explains how to do it by hand.
    """
    # A state whose mark is_beginning has missed nothing since an interrupted start recorded it, and keeps that mark;
    # unless it was left out of the topology again, which moves its beginning to now.
    begun = {
        name: StateMark("", None, begun_after=committed.txid)
        for name in states
        if name not in committed.states
        or not committed.states[name].is_beginning
        or committed.states[name].left_after is not None
    }
    if begun:
        committed = attrs.evolve(committed, states={**committed.states, **begun})
        # Before the table is touched: the transactions that the state will lack are on record whatever happens next.
        # A crash before this leaves everything as it was; after it, the next start finds the mark and goes on below.
        with durable_step("recovery.begin"):
            coordinator_state.note_states(committed)
    tables = {name: table for name, state in states.items() if (table := state.table()) is not None}
    # One number for all that this start sets aside, and a new one: if an earlier start died midway, some tables lie
    # aside under its number, and nothing that lies aside is ever replaced.
    number = 1 + max([0, *coordinator_state.asides(), *(n for table in tables.values() for n in table.asides())])
    for name, table in tables.items():
        description = table.look()
        # A fresh table may be the one that an interrupted start made here.
        if description is not None and not _is_fresh(description, table, coordinator_state.incarnation):
            # A former leader's write may be in flight. Epochs of another incarnation can't be compared with this one's.
            if description.incarnation == coordinator_state.incarnation:
                fence_former_table(coordinator_state, name, states[name], description)
            # A crash before this leaves the former table in place, and the next start sets it aside. A crash after it
            # leaves no table under the name, and the next start has none to set aside.
            with durable_step("recovery.aside"):
                table.set_aside(number)
    return committed


def note_begun(
    opened: Mapping[str, OpenedState], coordinator_state: CoordinatorState, committed: CommittedMark
) -> CommittedMark:
    """Record the tables of states that were begun empty.

    Raises:
        DivergenceError: one of them is not empty, and txtopo can't set it aside.
    """
    # begin_empty() sets aside only what can be inspected: a state without a StateTable may still have its rows.
    for name, state in opened.items():
        if state.last_txid:
            raise DivergenceError(
                f"state {name!r} of topology {coordinator_state.topology_id!r} can't be started empty: it is at "
                f"transaction {state.last_txid}, the coordinator state is at transaction {committed.txid}, and txtopo "
                "can't set such a state aside. Give the topology an empty one in its place"
            )
    marks = {
        name: attrs.evolve(committed.states[name], identity=state.identity, version=state.version)
        for name, state in opened.items()
    }
    committed = attrs.evolve(committed, states={**committed.states, **marks})
    # A crash before this leaves new, empty tables that the mark does not name. The next start finds them fresh and
    # keeps them; no group is written to them before they are named.
    with durable_step("recovery.begun"):
        coordinator_state.note_states(committed)
    return committed


def fence_former_table(
    coordinator_state: CoordinatorState, name: str, state: State, description: TableDescription
) -> None:
    """Open a table that is about to be set aside, so that no older coordinator writes to it any more.

    A table with other columns or of another kind can't be opened, and stays without a fence; so does an altered one.
    """
    if description.misfit is None and description.alteration is None:
        state.open(coordinator_state.topology_id, name, description.incarnation, coordinator_state.epoch).close()


def _is_fresh(description: TableDescription, table: StateTable, incarnation: str) -> bool:
    """Whether a table is empty and fits, so that it need not be set aside."""
    is_ours = description.incarnation == incarnation and description.misfit is None and description.alteration is None
    return is_ours and description.last_txid is None and table.foreign_change(None) is None
