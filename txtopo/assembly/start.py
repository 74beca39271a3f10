"""What whoever changes a topology begins with: the lead, the recovery, the journal."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import attrs

from txtopo.api.state import State
from txtopo.api.store import Store
from txtopo.assembly import storage
from txtopo.config import Config
from txtopo.errors import DivergenceError
from txtopo.failpoints import durable_step
from txtopo.journal.ending import read_end
from txtopo.journal.entries import JournalHeader
from txtopo.journal.folders import begin_journal, check_format, find_journal
from txtopo.journal.holds import Hold
from txtopo.journal.tail import STORE_FOLDER
from txtopo.journal.writer import JournalWriter
from txtopo.topology.plans.plan import Plan
from txtopo.transactional.recovery.checkpoints import header_after
from txtopo.transactional.recovery.coordinator_state import CoordinatorState, StateMark
from txtopo.transactional.recovery.membership import Membership, new_spouts
from txtopo.transactional.recovery.recover import RecoveredRun, recover
from txtopo.transactional.recovery.tables import rooms_of

logger = logging.getLogger("txtopo")


def recover_alone(plan: Plan, config: Config, states: Mapping[str, State]) -> None:
    """Do what a run does before its first transaction: take the lead, recover, and open the states; then end.

    Raises:
        DivergenceError: coordinator state and tables do not belong together.
    """
    with ExitStack() as stack:
        recovered_alone(plan, config, states, stack)


def recovered_alone(
    plan: Plan, config: Config, states: Mapping[str, State], stack: ExitStack
) -> tuple[CoordinatorState, RecoveredRun]:
    """Take the lead and recover, outside of a run; ``stack`` gives all of it back.

    Raises:
        DivergenceError: coordinator state and tables do not belong together.
    """
    store = storage.make_store(plan, config)
    stack.callback(store.close)
    check_format(find_journal(storage.metadata_dir_of(plan, config), plan.topology_id))
    coordinator_state = take_lead(plan, states, store, stack)
    return coordinator_state, recover_states(plan, config, states, coordinator_state, stack)


def take_lead(
    plan: Plan, states: Mapping[str, State], store: Store, stack: ExitStack, *, epoch_min: int = 1
) -> CoordinatorState:
    """Take the lead of a topology, at an epoch of at least ``epoch_min``; ``stack`` gives it back."""
    # A crash before this step leaves nothing. After it, the epoch has risen, which fences all earlier coordinators; the
    # store frees the lead of a dead process, and a gap in the epochs harms nobody.
    with durable_step("lead.take"):
        lead = store.take_lead(plan.topology_id, pathlib.Path(sys.argv[0]).name or "python", epoch_min)
    stack.callback(lead.release)
    coordinator_state = CoordinatorState(store, lead, plan.topology_id, rooms_of(states))
    _tell_of_opaque(plan, new_spouts(coordinator_state, plan.kinds))
    return coordinator_state


def _tell_of_opaque(plan: Plan, new: frozenset[str]) -> None:
    """Log what changes for a topology of repeatable spouts that gets its first opaque one."""
    opaque = [name for name, semantics in plan.semantics.items() if semantics.emits_in_turn]
    if opaque and new >= set(opaque):
        logger.warning(
            "the new spout %s is opaque: from now on a transaction that fails is replayed with all later ones, one job "
            "is in flight at a time, and a transaction is skipped only if it is known where it ends",
            " and ".join(map(repr, opaque)),
        )


def recover_states(
    plan: Plan, config: Config, states: Mapping[str, State], coordinator_state: CoordinatorState, stack: ExitStack
) -> RecoveredRun:
    """Recover the states and what they were last written with; ``stack`` closes them.

    Raises:
        DivergenceError: coordinator state and tables do not belong together.
    """
    last_store = ""
    if not coordinator_state.is_begun:
        with contextlib.suppress(DivergenceError):  # damage of the journal does not concern a recovery
            end = read_end(find_journal(storage.metadata_dir_of(plan, config), plan.topology_id))
            last_store = "" if end is None else end.header.store
    return recover(
        plan.topology_id,
        states,
        coordinator_state,
        stack,
        Membership(
            storage.optional_states(plan, states), config["topology.state.start.empty"] or {}, plan.kinds, plan.folds
        ),
        last_store,
    )


def journal_header(
    plan: Plan,
    config: Config,
    states: Mapping[str, State],
    recovered: RecoveredRun,
    coordinator_state: CoordinatorState,
) -> JournalHeader:
    """Return what the journal's next file begins with."""
    folder, known = storage.metadata_dir_of(plan, config).parent, recovered.committed.states
    marks = {
        name: StateMark(state.identity, state.last_txid, begun_after=known[name].begun_after if name in known else 0)
        for name, state in recovered.states.items()
    }
    return header_after(
        attrs.evolve(recovered.committed, states=marks),
        (plan.topology_id, coordinator_state.incarnation, coordinator_state.epoch),
        plan.kinds,
        {n: storage.address_from(folder, state.address) for n, state in states.items() if state.address is not None},
        coordinator_state.timeline(),
        store=storage.store_words(plan, config),
    )


def begun_journal(
    header: JournalHeader, plan: Plan, config: Config, holds: Callable[[], Sequence[Hold]], stack: ExitStack
) -> JournalWriter | None:
    """Begin a file of the topology's journal, which ``stack`` ends; None if it keeps none."""
    bytes_max = config["topology.journal.bytes.max"]
    if not has_metadata_dir(header, plan, config) or not bytes_max:
        return None
    metadata_dir = storage.metadata_dir_of(plan, config)
    folder = begin_journal(metadata_dir, plan.topology_id, header.incarnation)
    store = storage.store_folder_of(plan, config)
    rides = store is not None and str(store) == str(metadata_dir.below(STORE_FOLDER))
    if not rides:  # another store may have left last lines there
        folder = find_journal(metadata_dir, plan.topology_id)
    journal = JournalWriter(
        folder, header, bytes_max, lambda: min((hold.after for hold in holds()), default=None), rides=rides
    )
    stack.callback(journal.add_lines)
    return journal


def has_metadata_dir(header: JournalHeader, plan: Plan, config: Config) -> bool:
    """Whether a run has a metadata directory; one with only in-memory states has none by default."""
    return bool(header.tables) or storage.said_metadata_dir(plan, config) is not None
