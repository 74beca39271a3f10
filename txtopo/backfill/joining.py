"""Makes states part of a topology that have caught up with it.

1. The backfill takes the topology's lead, with an epoch above those of its own tables; so from now on the topology is
   at rest. If a coordinator died in the middle of a group, the group is finished first, as a start would.
2. The backfill runs the transactions that are left.
3. Its states join the topology by a plan, see :mod:`txtopo.transactional.recovery.membership`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import attrs

from txtopo.api.state import State
from txtopo.api.store import Lead, Store
from txtopo.errors import AlreadyRunning
from txtopo.failpoints import durable_step
from txtopo.files.folder import Folder
from txtopo.journal.folders import find_journal
from txtopo.transactional.recovery.coordinator_state import (
    CommittedMark,
    CoordinatorState,
    StateMark,
    committed_in,
)
from txtopo.transactional.recovery.divergence import CoordinatorRecord, find_divergences, refuse, refuse_two_timelines
from txtopo.transactional.recovery.membership import Membership, join, record_join
from txtopo.transactional.recovery.operations.going_back import GatheringLead
from txtopo.transactional.recovery.plans import Join, recorded_plan
from txtopo.transactional.recovery.recover import recover
from txtopo.transactional.recovery.tables import rooms_of, tables_of
from txtopo.transactional.recovery.values import incarnation_in

OWNER = "txtopo backfill"


@attrs.define(eq=False)
class JoinedTopology:
    """The topology that a backfill joins, whose lead it takes at the end; ``states`` are those of today's code."""

    topology_id: str
    store: Store
    metadata_dir: Folder
    states: Mapping[str, State]
    membership: Membership
    new: Mapping[str, State] = attrs.field(factory=dict)
    """The states that join it."""
    epoch_min: int = 1
    """Above the epochs of the backfill's tables."""
    _lead: Lead | None = None

    def committed(self) -> CommittedMark:
        """Return the last committed transaction that is recorded."""
        return committed_in(self.store, self.topology_id) or CommittedMark()

    def points(self) -> tuple[int, ...]:
        """Return the transactions that are its points."""
        return tuple(point.txid for point in self._coordinator_state(GatheringLead()).points().points)

    @property
    def incarnation(self) -> str:
        """Its incarnation; empty if it has none."""
        return incarnation_in(self.store, self.topology_id) or ""

    def refuse_two_timelines(self) -> None:
        """Raise a DivergenceError if its tables and its coordinator state are of two timelines; it may be running."""
        refuse_two_timelines(self._coordinator_state(GatheringLead()), tables_of(self.states))

    def lead_if_free(self) -> int | None:
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
        if state.group() is None and recorded_plan(state) is None:
            refuse(find_divergences(CoordinatorRecord.of(state, self._lead.epoch - 1), tables_of(self.states)))
            return state.committed().txid
        with contextlib.ExitStack() as stack:
            return recover(self.topology_id, self.states, state, stack, self.membership).committed.txid

    def join(
        self,
        txid: int,
        marks: Mapping[str, StateMark],
        addresses: Mapping[str, str],
        folds: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Make the new states part of the topology; the lead must be held.

        Args:
            txid: the last transaction that the states have.
            marks: the marks that the backfill has of the states, by name.
            addresses: the addresses of their tables, as the journal has them.
            folds: by state and column, what the backfill has folded into it, in words.

        Raises:
            DivergenceError: a table is not as the backfill left it.
            LostLead: another process has taken the lead meanwhile.
        """
        assert self._lead is not None, "the topology is at rest"
        state, tables = self._coordinator_state(self._lead), tables_of(self.new)
        plan = Join(txid, marks, addresses, self._lead.epoch)
        record_join(state, plan, tables, folds)
        join(find_journal(self.metadata_dir, self.topology_id), state, plan, tables)

    def release(self) -> None:
        """Release the lead if it was taken."""
        if self._lead is not None:
            self._lead.release()
            self._lead = None

    def _coordinator_state(self, lead: Lead) -> CoordinatorState:
        rooms = rooms_of(self.states)
        return CoordinatorState(self.store, lead, self.topology_id, rooms)
