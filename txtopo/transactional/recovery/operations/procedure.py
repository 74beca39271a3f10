"""How coordinator state and tables are brought together: looked at with the lead, then a plan is carried out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from txtopo.api.store import Change, Lead, Store
from txtopo.config import Config
from txtopo.errors import DivergenceError, StopError
from txtopo.failpoints import durable_step
from txtopo.journal.folders import find_journal
from txtopo.journal.tail import add_tail
from txtopo.text.words import NOTHING_CHANGED
from txtopo.topology.plans.plan import Plan
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.operations.diagnosis import Diagnosis, RepairSubject, diagnose
from txtopo.transactional.recovery.operations.going_back import checked
from txtopo.transactional.recovery.operations.repair import carry_out
from txtopo.transactional.recovery.plans import Repair
from txtopo.transactional.recovery.values import PLAN, all_values, set_damaged_aside


@attrs.frozen
class StorePlace:
    """Where a topology keeps its coordinator state."""

    open: Callable[[], Store]
    """Opens the store; the caller closes it."""
    scratch: Callable[[], Store]
    """Makes an empty store in memory."""
    damage: Callable[[], str | None]
    """Says in words if the whole store is damaged, with the coordinator state of all topologies that use it."""
    set_aside: Callable[[str], Path]
    """Moves a damaged store aside, given who does it; returns where it is kept."""


@attrs.frozen
class Procedure:
    """What a command that brings coordinator state and tables together does before it changes anything."""

    owner: str
    """The name of the command, for whoever finds that it holds the lead."""
    show: Callable[[Diagnosis], None]
    """Tells what was found."""
    decide: Callable[[Diagnosis], Repair | None]
    """Returns what to do; None if there is nothing to do. Asked again if the lead is taken again."""
    agree: Callable[[Diagnosis, Repair], None]
    """Tells what will be done, and asks; raises StopError if there is no agreement."""
    kept: Callable[[Path], None] = lambda _: None
    """Tells where a damaged store is kept."""

    def carry_out(self, plan: Plan, config: Config, subject: RepairSubject, place: StorePlace) -> Repair | None:
        """Take the lead, and carry out what is decided; return that, None if there was nothing to do."""
        with contextlib.ExitStack() as stack:
            coordinator_state, damage = self._looked_at(subject, place, stack)
            diagnosis = diagnose(subject, coordinator_state, damage)
            self.show(diagnosis)
            repair = self.decide(diagnosis)
            if repair is None:
                return None
            # Before the question, and before anything is changed.
            of_spout = checked(plan, config, subject, coordinator_state, repair)
            self.agree(diagnosis, repair)
            if damage or coordinator_state.epoch < diagnosis.epoch_min:
                # A store that was wiped counts epochs anew, and tables refuse one below their own. So take the lead
                # again from the lowest epoch that they accept, and diagnose again: another process may have led in
                # between.
                stack.pop_all().close()
                if damage:
                    self._set_damage_aside(subject, place)
                store, lead = self._store_and_lead(subject, place, stack, diagnosis.epoch_min)
                coordinator_state = CoordinatorState(store, lead, subject.topology_id, subject.rooms())
                again = self.decide(diagnose(subject, coordinator_state))
                if again is not None and again != repair:
                    raise StopError(
                        f"the tables or the coordinator state changed meanwhile; {NOTHING_CHANGED}; try again"
                    )
                of_spout = checked(plan, config, subject, coordinator_state, repair)
            carry_out(subject, coordinator_state, repair, of_spout)
        return repair

    def _store_and_lead(
        self, subject: RepairSubject, place: StorePlace, stack: contextlib.ExitStack, epoch_min: int = 1
    ) -> tuple[Store, Lead]:
        store = place.open()
        stack.callback(store.close)
        lead = store.take_lead(subject.topology_id, self.owner, epoch_min)
        stack.callback(lead.release)
        add_tail(find_journal(subject.metadata_dir, subject.topology_id))  # what is set aside may hold it
        return store, lead

    def _looked_at(
        self, subject: RepairSubject, place: StorePlace, stack: contextlib.ExitStack
    ) -> tuple[CoordinatorState, tuple[str, ...]]:
        """Return the coordinator state, with the lead; if it is damaged, one as it will be, and what is damaged."""
        topology_id, damage = subject.topology_id, place.damage()
        if damage is not None:
            return self._as_if_aside(topology_id, place, ()), (damage,)
        store, lead = self._store_and_lead(subject, place, stack)
        damage = _damage_in(store, lead, topology_id)
        if damage is not None:
            return self._as_if_aside(topology_id, place, all_values(store, topology_id)), (damage,)
        return CoordinatorState(store, lead, topology_id, subject.rooms()), ()

    def _as_if_aside(self, topology_id: str, place: StorePlace, values: Sequence[Change]) -> CoordinatorState:
        store = place.scratch()
        lead = store.take_lead(topology_id, self.owner)
        lead.write(values)
        set_damaged_aside(store, lead, topology_id)
        return CoordinatorState(store, lead, topology_id)

    def _set_damage_aside(self, subject: RepairSubject, place: StorePlace) -> None:
        """Set aside what is damaged; a crash after it leaves coordinator state that counts as wiped."""
        with durable_step("repair.damage"), contextlib.ExitStack() as stack:
            if place.damage() is not None:
                self.kept(place.set_aside(self.owner))
                return
            store, lead = self._store_and_lead(subject, place, stack)
            set_damaged_aside(store, lead, subject.topology_id)


def _damage_in(store: Store, lead: Lead, topology_id: str) -> str | None:
    """Describe a value of a topology's coordinator state that can't be read; None if all can."""
    try:
        state = CoordinatorState(store, lead, topology_id)
        looks = (state.committed, state.group, state.timeline, state.begun_as_far_as_known, state.points)
        for look in looks:
            look()
        state.values.read(PLAN, dict)
    except DivergenceError as error:
        return error.message
    return None
