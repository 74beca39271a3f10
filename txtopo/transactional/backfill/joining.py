"""Makes states part of a topology that have caught up with it.

1. The backfill takes the topology's lead, with an epoch above those of its own tables; so from now on the topology is
   at rest. If a coordinator died in the middle of a group, the group is finished first, as a start would.
2. The backfill runs the transactions that are left.
3. A part of the journal begins, whose header has the new states.
4. The coordinator state records the tables of the new states, in one step. From then on a topology with these states
   starts, and one without them starts, too, but leaves them behind.

A crash before step 4 leaves a topology that does not know the states. It may go on; and the backfill, when it is run
again, follows it and joins later. Step 3 alone means nothing: a header without entries, and states that the next header
does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from txtopo.api.state import State, StateTable
from txtopo.api.store import Lead, Store
from txtopo.errors import AlreadyRunning, DivergenceError
from txtopo.failpoints import durable_step
from txtopo.files.folder import Folder
from txtopo.transactional.journal.ending import read_end
from txtopo.transactional.journal.journal import PART_BYTES_MAX, JournalTable, JournalWriter
from txtopo.transactional.recovery.coordinator_state import (
    CommittedMark,
    CoordinatorState,
    StateMark,
    committed_in,
    incarnation_in,
    rooms_of,
)
from txtopo.transactional.recovery.divergence import (
    CoordinatorRecord,
    find_divergences,
    refuse,
    refuse_two_timelines,
)
from txtopo.transactional.recovery.membership import Membership
from txtopo.transactional.recovery.recover import recover
from txtopo.transactional.run.rewinding import GatheringLead

OWNER = "txtopo backfill"


@attrs.define(eq=False)
class JoinedTopology:
    """The topology that a backfill joins, whose lead it takes at the end.

    Args:
        topology_id: its id.
        store: its coordinator state.
        metadata_dir: its metadata directory.
        states: those that it has already, of the code that is there now.
        membership: which of them may come and go.
    """

    topology_id: str
    store: Store
    metadata_dir: Path
    states: Mapping[str, State]
    membership: Membership
    epoch_min: int = 1
    """Above the epochs of the backfill's tables."""
    _lead: Lead | None = None

    def committed(self) -> CommittedMark:
        """Return the last committed transaction that is recorded."""
        return committed_in(self.store, self.topology_id) or CommittedMark()

    @property
    def incarnation(self) -> str:
        """Its incarnation; empty if it has none."""
        return incarnation_in(self.store, self.topology_id) or ""

    def refuse_two_timelines(self) -> None:
        """Raise a DivergenceError if its tables and its coordinator state are of two timelines; it may be running."""
        refuse_two_timelines(self._coordinator_state(GatheringLead()), self._tables())

    def rest(self) -> int | None:
        """Take the lead, and return the last committed transaction; None if a process leads the topology.

        Raises:
            DivergenceError: its tables and its coordinator state do not belong together, or a repair was interrupted.
        """
        try:
            # A crash after this leaves a raised epoch and a free lead, which harm nobody.
            with durable_step("lead.take"):
                self._lead = self.store.take_lead(self.topology_id, OWNER, self.epoch_min)
        except AlreadyRunning:
            return None
        state = self._coordinator_state(self._lead)
        if state.group() is None and state.plan() is None:
            refuse(find_divergences(CoordinatorRecord.of(state, self._lead.epoch - 1), self._tables()))
            return state.committed().txid
        recovered = recover(self.topology_id, self.states, state, self.membership)
        for each in recovered.states.values():
            each.close()
        return recovered.committed.txid

    def join(self, journal: Folder, txid: int, new: Mapping[str, StateMark], addresses: Mapping[str, str]) -> None:
        """Record new states, which have all transactions up to the last one; the lead must be held.

        Args:
            journal: the topology's journal.
            txid: the last transaction that the states have.
            new: the marks of the states, by name.
            addresses: the addresses of their tables, as the journal has them.

        Raises:
            LostLead: another process has taken the lead meanwhile.
        """
        assert self._lead is not None, "the topology is at rest"
        state = self._coordinator_state(self._lead)
        before = state.committed()
        end = read_end(journal)
        if before.txid != txid or end is None:
            raise DivergenceError(f"the states have transactions up to {txid}, but the topology is at {before.txid}")
        header = end.header
        mark = attrs.evolve(before, states={**before.states, **new})
        present = {name: each for name, each in mark.states.items() if each.left_after is None}
        known = {name: each for name, each in header.tables.items() if name in present}
        joined = attrs.evolve(
            header,
            epoch=self._lead.epoch,
            committed=mark.txid,
            metadata=mark.metadata,
            planned=mark.planned,
            tables={**known, **{name: JournalTable(addresses[name], each.identity) for name, each in new.items()}},
            states={name: each.txid for name, each in present.items()},
            begun_after={name: each.begun_after for name, each in present.items() if each.begun_after},
        )
        # A crash after this leaves a part without entries; the journal comes first, so that whoever knows the states
        # from the coordinator state finds them in the journal, too.
        with durable_step("backfill.enter"):
            JournalWriter(journal, joined, PART_BYTES_MAX)
        # A crash before this leaves a topology without the states, and one after it leaves it with them; only the
        # backfill's scratch tables may be left, which the next call removes.
        with durable_step("backfill.join"):
            state.note_states(mark)

    def _tables(self) -> dict[str, StateTable]:
        return {name: table for name, state in self.states.items() if (table := state.table()) is not None}

    def release(self) -> None:
        """Release the lead if it was taken."""
        if self._lead is not None:
            self._lead.release()
            self._lead = None

    def _coordinator_state(self, lead: Lead) -> CoordinatorState:
        rooms = rooms_of(self.states)
        return CoordinatorState(self.store, lead, self.topology_id, rooms)


def mark_of(name: str, state: State, here: StateMark) -> StateMark:
    """Return the mark of a state whose backfill is done, which is the mark that the backfill has of it, verified.

    Raises:
        DivergenceError: its table is not the one that the backfill wrote.
    """
    table = state.table()
    found = None if table is None else table.look()
    if found is None or (found.identity, found.last_txid) != (here.identity, here.txid):
        raise DivergenceError(
            f"the table of state {name!r} is not as the backfill left it, at transaction {here.txid or 0}: another "
            "writer has written or replaced it. Remove it and the backfill's folder, and begin again"
        )
    return attrs.evolve(here, version=found.version)
