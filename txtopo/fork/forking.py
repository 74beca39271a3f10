"""Forks of a topology as its module declares it: how it is moved to a fork's folder, and how a fork is made.

A module names paths and an id; a fork has others. So the plan is moved: the id, the place of each state's table, the
folder of its records. What the spout and the bolts do stays as the module has it, except that a spout may leave out
what a second topology must not do, see :meth:`~txtopo.api.components.spout.AnySpout.forked`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import attrs

from state.stores.memory import MemoryPlace, MemoryStore
from txtopo.api.components.optional import call_if_there
from txtopo.api.components.planned import BeginReason, metadata_of
from txtopo.api.state import CanBeForked, State
from txtopo.api.store import Put
from txtopo.assembly.storage import address_from, dead_letters_of, make_store, metadata_dir_of, states_of, subject_of
from txtopo.config import Config
from txtopo.errors import AlreadyRunning, ConfigError
from txtopo.files.folder import Folder
from txtopo.files.places import is_address, joined
from txtopo.fork.fork import Fork, ForkPoint, ForkPoints, ForkSubject, claim, discard, find_fork, make
from txtopo.journal.backfills import backfills_of
from txtopo.journal.ending import METADATA_DIR, READS_MAX, metadata_dir_with_journal, read_consistently
from txtopo.journal.entries import DEAD_LETTERS, JournalTransaction
from txtopo.journal.folders import find_journal
from txtopo.journal.search import EnteredGroup, JournalSearch
from txtopo.topology.plans.plan import SPOUTS, Plan, PlannedComponent
from txtopo.transactional.core.events import TransactionMetadata
from txtopo.transactional.core.spout_policy import policy_of
from txtopo.transactional.recovery.checkpoints import Checkpoint
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, committed_in
from txtopo.transactional.recovery.membership import new_spouts
from txtopo.transactional.recovery.operations.diagnosis import RepairSubject
from txtopo.transactional.recovery.operations.going_back import checked
from txtopo.transactional.recovery.operations.rewind import refuse_other_store
from txtopo.transactional.recovery.plans import GoTo
from txtopo.transactional.recovery.values import copy_of, incarnation_in, source_in

OWNER = "txtopo fork"

BEGUN_MAX = 10_000
"""The maximum number of transactions that a fork takes over as begun; what comes after them is up to the spout."""


def moved(plan: Plan, config: Config, folder: Folder) -> tuple[Plan, Config]:
    """Return a topology, as its module declares it, as it runs in a fork's folder.

    Raises:
        ConfigError: there is no fork, or it is not finished, or is one of another topology.
    """
    fork = find_fork(folder)
    if fork is None:
        raise ConfigError(f"{folder} holds no fork: make one with 'txtopo fork'")
    if not fork.is_made:
        raise ConfigError(f"the fork in {folder} is not finished: run 'txtopo fork' again, which makes it")
    if fork.declared != plan.topology_id:
        raise ConfigError(f"the fork in {folder} is one of topology {fork.declared!r}, not of {plan.topology_id!r}")
    return _moved(plan, config, folder, fork)


def make_fork(  # noqa: PLR0913, PLR0917 - the topology, where the fork is to be, and who is told
    plan: Plan, config: Config, txid: int, folder: Folder, fork: Fork, on_point: Callable[[ForkPoint], None]
) -> ForkSubject:
    """Make a fork of a topology, which may be running; return what was made.

    It goes on from the newest moment up to ``txid``, a committed transaction or 0, that is kept; ``on_point`` is called
    with that before anything is made.

    Raises:
        ConfigError: there is no journal, or the folder or the id is in use, or a state or the spout can't be forked.
        StateAccessError: no moment up to the transaction is kept.
    """
    if fork.topology == plan.topology_id:
        raise ConfigError(f"the fork needs another id than {fork.topology!r}, which the topology itself has")
    subject, point = _subject(plan, config, txid, folder, fork)
    on_point(point)
    claim(subject)
    try:
        store = make_store(*_moved(plan, config, folder, subject.fork))
        try:
            lead = store.take_lead(fork.topology, OWNER)
            state = CoordinatorState(store, lead, fork.topology)
            new_spouts(state, plan.kinds)
            make(subject, state)
        finally:
            store.close()
    except AlreadyRunning:  # another process makes this fork
        raise
    except Exception:
        # What is refused or fails leaves nothing. After a crash, the next try removes what there is.
        left = find_fork(folder)
        if left is not None and not left.is_made:
            discard(folder, left)
        raise
    return subject


def fork_points(plan: Plan, config: Config) -> ForkPoints:
    """Return the transactions from which a fork of a topology may go on; raise ConfigError without a journal."""
    origin = _origin(plan, config)
    values, incarnation, committed = _values_of(plan, config)
    points = _points(origin, committed, state_of(origin, values))
    refuse_other_store(plan.topology_id, incarnation, points.parts[-1].header)
    return points


def _origin(plan: Plan, config: Config) -> RepairSubject:
    """Return the topology to fork; refuse a state that can't be forked, whatever the point."""
    metadata_dir = metadata_dir_with_journal(metadata_dir_of(plan, config), plan.topology_id)
    _places(plan.states, metadata_dir.parent)
    for name, state in plan.states.items():
        if not isinstance(state, CanBeForked):
            _elsewhere(name, state, plan.topology_id)
    return subject_of(plan, config)


def _subject(plan: Plan, config: Config, txid: int, folder: Folder, fork: Fork) -> tuple[ForkSubject, ForkPoint]:
    origin = _origin(plan, config)
    # The store before the journal, which then has what leaves the store.
    values, incarnation, committed = _values_of(plan, config)
    state = state_of(origin, values)
    points = _points(origin, committed, state, txid)
    point = points.nearest(txid)
    refuse_other_store(plan.topology_id, incarnation, points.parts[-1].header)
    checkpoint = point.checkpoint
    places = _places(origin.states, origin.metadata_dir.parent)
    committed_mark = state.committed()
    to = GoTo.of_fork(checkpoint, committed_mark)
    fork = attrs.evolve(fork, origin=str(origin.metadata_dir.parent), txid=checkpoint.txid, tables=places, plan=to)
    journal = JournalSearch(
        find_journal(origin.metadata_dir, origin.topology_id),
        lambda header: header.incarnation == checkpoint.incarnation,
    )
    begun, is_all = begun_after(plan, checkpoint, journal.backwards, state)
    source = source_in(values)
    if source and not is_all:
        raise ConfigError(
            f"the coordinator of a spout keeps values of its own, which are those of now: a fork "
            f"at transaction {checkpoint.txid} would need them as they were. Give a later transaction"
        )
    moved_plan, moved_config = _moved(plan, config, folder, fork)
    checked(moved_plan, moved_config, origin, state, to)
    moved_states = states_of(moved_plan, moved_config)
    if DEAD_LETTERS in origin.states:
        moved_states |= dead_letters_of(moved_plan, moved_config)
    empty = dict(_begun_empty(origin, checkpoint, committed_mark, backfills_of(origin.metadata_dir, points.parts)))
    turns = checkpoint.timeline.turns
    return ForkSubject(fork, folder, origin, to, moved_states, begun, source, empty, turns, state.folds), point


def _begun_empty(
    origin: RepairSubject, point: Checkpoint, committed: CommittedMark, backfilled: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the states that begin empty in a fork at a point, each with why."""
    for name, state in origin.states.items():
        mark = point.states[name] if point.has(name) else committed.states.get(name)
        if mark is None or mark.left_after is not None or not point.txid:
            continue
        if point.has(name) and mark.txid and not isinstance(state, CanBeForked):
            yield name, "keeps no versions"
        elif not point.has(name) and mark.begun_after >= point.txid and name not in backfilled:
            yield name, f"was begun empty after transaction {mark.begun_after}"


def state_of(origin: RepairSubject, values: Mapping[str, bytes]) -> CoordinatorState:
    """Return a copy of a coordinator state, given its values by path."""
    store = MemoryStore(MemoryPlace())
    lead = store.take_lead(origin.topology_id, OWNER)
    lead.write([Put(f"{origin.topology_id}/{path}", value) for path, value in values.items()])
    return CoordinatorState(store, lead, origin.topology_id, origin.rooms())


def _values_of(plan: Plan, config: Config) -> tuple[dict[str, bytes], str | None, int]:
    """Return a topology's coordinator state, by path, its incarnation, if it has one, and the last committed txid."""
    store = make_store(plan, config)
    try:
        values, incarnation = copy_of(store, plan.topology_id), incarnation_in(store, plan.topology_id)
        mark = committed_in(store, plan.topology_id)
    finally:
        store.close()
    if values is None:
        raise ConfigError(
            f"topology {plan.topology_id!r} writes too fast to be forked; try again, or stop it meanwhile"
        )
    return values, incarnation, 0 if mark is None else mark.txid


def begun_after(
    plan: Plan,
    point: Checkpoint,
    backwards: Callable[[int, int], Iterable[EnteredGroup]],
    coordinator_state: CoordinatorState,
) -> tuple[list[TransactionMetadata], bool]:
    """Return the transactions that a topology has begun after a point, and whether these are all.

    Args:
        plan: the topology.
        point: the point.
        backwards: reads its journal, after the coordinator state; see
            :meth:`txtopo.journal.search.JournalSearch.backwards`.
        coordinator_state: a copy of the coordinator state.
    """
    committed = coordinator_state.committed().txid
    in_store = {transaction.txid: transaction for transaction in coordinator_state.begun(committed)}
    last = max([committed, point.txid, *in_store])
    if not policy_of(plan.kinds).keeps_begun:
        return [], last == point.txid
    groups = [*backwards(min(last, point.txid + BEGUN_MAX), point.txid + 1)]
    known, before = {}, point.metadata
    for each in (transaction for group in reversed(groups) for transaction in group.entry.transactions):
        if point.txid < each.txid <= last:
            again = _begun_again(plan, before, each)
            known[each.txid] = TransactionMetadata(each.txid, again, each.planned)
            before = each.metadata
    known |= in_store
    begun = []
    for txid in range(point.txid + 1, min(last, point.txid + BEGUN_MAX) + 1):
        # An opaque spout may have more at that end, this time.
        if txid not in known or (plan.emits_in_turn and known[txid].planned.turn is BeginReason.END):
            break
        begun.append(known[txid])
    return begun, point.txid + len(begun) == last


def _begun_again(plan: Plan, before: Any, then: JournalTransaction) -> Any:
    return {
        name: plan.semantics[name].begun_again(metadata_of(before, name), own) if name in plan.semantics else own
        for name, own in (then.metadata or {}).items()
    }


def _moved(plan: Plan, config: Config, folder: Folder, fork: Fork) -> tuple[Plan, Config]:
    # A state that the module has got since lies where it would lie in the original.
    home = metadata_dir_of(plan, config).parent
    places = {**_places(plan.states, home), **fork.tables}
    states = {
        name: state.moved(joined(folder, places[name]))
        if isinstance(state, CanBeForked)
        else _elsewhere(name, state, fork.topology)
        for name, state in plan.states.items()
    }
    settings: dict[str, Any] = {"topology.state.dir": str(folder.below(METADATA_DIR))}
    if DEAD_LETTERS in fork.tables and DEAD_LETTERS not in plan.states:
        settings["topology.dead.letter.path"] = joined(folder, fork.tables[DEAD_LETTERS])
    moved_plan = Plan(
        fork.topology,
        tuple(attrs.evolve(component, component=_forked(component)) for component in plan.components),
        plan.edges,
        states,
        references=plan.references,
    )
    return moved_plan, config.with_settings(settings)


def _forked(component: PlannedComponent) -> Any:
    if component.kind not in SPOUTS:
        return component.component
    return call_if_there(component.component, "forked", default=component.component)


def _elsewhere(name: str, state: State, topology_id: str) -> State:
    """Return a state without a separate table as a fork has it."""
    forked = state.forked(topology_id)
    if forked is None:
        raise ConfigError(
            f"state {name!r} is a {type(state).__name__}, which can't be forked: the fork would write to the place of "
            "the topology. Give it a method forked(), which returns it empty at another one; see State.forked"
        )
    return forked


def _places(states: Mapping[str, State], home: Folder) -> dict[str, str]:
    """Return the path of each state's table in a fork: as in the origin, or the state's name if it lies elsewhere."""
    places: dict[str, str] = {}
    for name, state in states.items():
        if not isinstance(state, CanBeForked):
            continue
        address = address_from(home, state.address or name)
        places[name] = name if is_address(address) or os.path.isabs(address) else address  # noqa: PTH117 - a text
        twice = next((other for other, place in places.items() if place == places[name] and other != name), None)
        if twice is not None:
            raise ConfigError(f"states {twice!r} and {name!r} would both be at {places[name]!r} in a fork: rename one")
    return places


def _points(
    origin: RepairSubject, committed: int, coordinator_state: CoordinatorState, txid: int | None = None
) -> ForkPoints:
    """Return the points, and how it stood at a transaction; again if another coordinator began meanwhile."""
    journal = find_journal(origin.metadata_dir, origin.topology_id)
    txids = {*(point.txid for point in coordinator_state.points().points), *(() if txid is None else (txid,))}
    found = read_consistently(journal, lambda _: ForkPoints.of(origin, committed, txids))
    if found is None:
        raise ConfigError(f"coordinators follow one another too fast to fork one; gave up after {READS_MAX} tries")
    return found
