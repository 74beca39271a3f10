"""Renames a topology or some of its states: finds out what they were called, and lets them have the names in the code.

The code has the new names. What they were is said by the tables, which know their owner; only of a topology without any
the user must say it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import attrs

from txtopo.api.state import State
from txtopo.api.store import Store
from txtopo.assembly.snapshot import remove_snapshot
from txtopo.assembly.start import recovered_alone, take_lead
from txtopo.assembly.storage import make_store, metadata_dir_of, store_file_of, with_kept_letters
from txtopo.config import Config
from txtopo.engine.timeline.records import folder_of
from txtopo.engine.timeline.writer import rename_timeline
from txtopo.errors import StopError
from txtopo.failpoints import durable_step
from txtopo.files.folder import LocalFolder
from txtopo.journal.turns import Rename
from txtopo.text.words import NOTHING_CHANGED
from txtopo.topology.plans.plan import Plan
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.operations.going_back import GatheringLead
from txtopo.transactional.recovery.operations.renaming import Renaming
from txtopo.transactional.recovery.plans import NewNames, recorded_plan
from txtopo.transactional.recovery.tables import descriptions_of, tables_of
from txtopo.transactional.recovery.values import incarnation_in


def rename(plan: Plan, config: Config, former_id: str | None, agree: Callable[[NewNames, bool], None]) -> bool:
    """Rename what has another name in the code than in its tables, while the topology doesn't run.

    Args:
        plan: the topology's, with the new names.
        config: its configuration.
        former_id: its id before; None if its tables say it.
        agree: is told what will be renamed before anything is written, and whether that was interrupted before; raises
            StopError if that is not to be.

    Returns:
        Whether there was anything to rename.

    Raises:
        ConfigError: a state can't be renamed, or the tables have several owners.
        DivergenceError: coordinator state and tables do not belong together.
        StopError: a name is in use, or a repair, a rewind or a backfill is unfinished.
    """
    metadata_dir, states = metadata_dir_of(plan, config), with_kept_letters(plan, config)
    file = store_file_of(plan, config)
    if file is not None and not file.exists() and not descriptions_of(tables_of(states)):
        return False  # it has never run
    with ExitStack() as stack:
        store = make_store(plan, config)
        stack.callback(store.close)
        unfinished = _unfinished(store, plan.topology_id)
        new_names = unfinished or _wanted(plan, states, former_id, store)
        if new_names is None:
            return False
        unfinished = unfinished or _unfinished(store, new_names.rename.former)
        new_names = unfinished or new_names
        if new_names.rename.topology != plan.topology_id:
            raise StopError(
                f"a rename to {new_names.rename.topology!r} was interrupted: {new_names.way_on}; {NOTHING_CHANGED}"
            )
        former, former_states = _as_before(plan, states, new_names.rename)
        if unfinished is None:
            coordinator_state, recovered = recovered_alone(former, config, former_states, stack)
            new_names = attrs.evolve(new_names, rename=attrs.evolve(new_names.rename, txid=recovered.committed.txid))
        else:
            coordinator_state = take_lead(former, former_states, store, stack)
        coordinator_state_now = coordinator_state
        if new_names.rename.is_of_id:
            coordinator_state_now = take_lead(plan, states, store, stack, epoch_min=coordinator_state.epoch + 1)
        renaming = Renaming(coordinator_state, coordinator_state_now, metadata_dir, tables_of(states))
        if unfinished is None:
            renaming.check(new_names)
        agree(new_names, unfinished is not None)
        renaming.carry_out(new_names)
        if new_names.rename.is_of_id:
            with durable_step("rename.shown"):
                remove_snapshot(metadata_dir, former.topology_id)
                if isinstance(metadata_dir, LocalFolder):
                    rename_timeline(metadata_dir.root, former.topology_id, plan.topology_id)
                else:
                    ends = (folder_of(Path(), each).name for each in (former.topology_id, plan.topology_id))
                    metadata_dir.move(*ends)
        renaming.end(new_names)
    return True


def _unfinished(store: Store, topology_id: str) -> NewNames | None:
    plan = recorded_plan(CoordinatorState(store, GatheringLead(), topology_id))
    return plan if isinstance(plan, NewNames) else None


def _wanted(plan: Plan, states: Mapping[str, State], former_id: str | None, store: Store) -> NewNames | None:
    """Return what is to be renamed, as the tables say; None if nothing is."""
    new_id = plan.topology_id
    tables = descriptions_of(tables_of(states))
    former_ids = {table.topology_id for table in tables.values()} - {new_id} | (
        {former_id} if former_id is not None else set()
    )
    if len(former_ids - {new_id}) > 1:
        raise StopError(
            f"the tables belong to several topologies, {', '.join(map(repr, sorted(former_ids)))}: give each state the "
            f"path of its own table; {NOTHING_CHANGED}"
        )
    former = next(iter(former_ids), new_id)
    # What was left out when the topology was renamed is renamed alone, once it is back.
    is_left = former != new_id and incarnation_in(store, former) is None and incarnation_in(store, new_id) is not None
    names = {name: table.state for name, table in tables.items() if table.state != name and not is_left}
    if former == new_id and not names:
        return None
    return NewNames(Rename(0, new_id if is_left else former, new_id, names))


def _as_before(plan: Plan, states: Mapping[str, State], rename: Rename) -> tuple[Plan, dict[str, State]]:
    """Return a topology and its states with their former names; without states whose tables have a third one."""
    descriptions = descriptions_of(tables_of(states))
    before = {
        name: rename.states.get(name, name)
        for name in states
        if name not in descriptions or descriptions[name].topology_id in {rename.former, rename.topology}
    }
    if len(set(before.values())) < len(before):
        twice = next(each for each in before.values() if list(before.values()).count(each) > 1)
        raise StopError(
            f"two states would have been {twice!r}: rename one first, and add the other afterwards; {NOTHING_CHANGED}"
        )
    former = {before[name]: states[name] for name in before}
    in_plan = {before[name]: state for name, state in plan.states.items() if name in before}
    return attrs.evolve(plan, topology_id=rename.former, states=in_plan), former
