"""Assembles a run of a transactional topology: takes the lead, recovers, and creates all that the run loop needs."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pathlib
import shutil
import sys
import tempfile
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import attrs

from state.delta.keyed.state import DeltaState
from txtopo.api.components.planned import NEVER, Turn
from txtopo.api.data.fields import Fields
from txtopo.api.reference import SeenVersion
from txtopo.api.state import HoldsRows, OpenedState, State, UsesExecutors
from txtopo.api.store import Store
from txtopo.assembly.feed.asked_spout import AskedSpout
from txtopo.assembly.feed.feed import Feed, SpoutFeed
from txtopo.assembly.feed.references import References, seen_by_undone
from txtopo.assembly.feed.skew import Skew
from txtopo.assembly.parts import Observer, OnProgress, Parts
from txtopo.assembly.run_loop import RunLoop
from txtopo.assembly.snapshot import SnapshotWriter, snapshots_in
from txtopo.assembly.storage import (
    address_from,
    check_places,
    dead_letters_of,
    make_store,
    metadata_dir_of,
    optional_states,
    states_of,
    store_words,
)
from txtopo.assembly.threads import ThreadPools, Threads
from txtopo.attempts import FIRST_TXID, TransactionAttempt, attempt_number, transactions_words
from txtopo.config import Config
from txtopo.errors import ConfigError, DivergenceError, InternalError, StopError
from txtopo.failpoints import durable_step
from txtopo.files.folder import LocalFolder
from txtopo.journal.entries import DEAD_LETTERS, JournalHeader, JournalPart, JournalTable
from txtopo.journal.folders import begin_journal, check_format, find_journal
from txtopo.journal.holds import Hold, holds_in
from txtopo.journal.journal import read_journal
from txtopo.journal.writer import JournalWriter
from txtopo.topology.plans.plan import Plan
from txtopo.topology.topology import TransactionalTopology
from txtopo.topology.user_code.blame import user_code
from txtopo.transactional.commit.entries import input_ranges
from txtopo.transactional.commit.groups import GroupCommitter, Journal
from txtopo.transactional.commit.keeping import Keeping, KeptJournal
from txtopo.transactional.commit.phases import RunCommitPhases, run_commit_phases
from txtopo.transactional.core.actions import AssignedAttempt, DeadLetter
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.events import Fenced, Recovered, RuleBroken, TransactionMetadata
from txtopo.transactional.core.limits import GiveUpPolicy, Limits
from txtopo.transactional.core.spout_policy import policy_of
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.transactional.jobs.jobs import JobPlanner
from txtopo.transactional.recovery.coordinator_state import CoordinatorState, rooms_of
from txtopo.transactional.recovery.membership import Membership
from txtopo.transactional.recovery.recover import RecoveredRun, recover
from txtopo.transactional.tasks.factory import TaskFactory, prototypes_of

JOB_TARGET_MS = 2_000
"""How long a job should take: Spark needs some 100 ms for one however small, which is 5 % of it, and what is committed
waits for no more than that."""

logger = logging.getLogger("txtopo")

REAL_TIME_JOB_TARGET_MS = 250
"""The same in real-time mode, where a job has almost no cost of its own."""

MakeRunner = Callable[[Plan, Config, dict[str, bytes]], AbstractContextManager[JobRunner]]


def _ignore_stage(_stage: str) -> None:
    pass


@attrs.frozen
class Environment:
    """The environment of a run; a simulator passes another one than ``run`` does."""

    make_runner: MakeRunner
    make_threads: Callable[[int], Threads] = ThreadPools
    """Creates the threads and the clock, given the number of jobs in flight."""
    make_coordinator: Callable[[Limits], Coordinator] = Coordinator
    make_store: Callable[[], Store] | None = None
    """None for the store in the configuration."""
    make_dead_letters: Callable[[Any, Fields, Fields], State] = DeltaState
    """Creates the state for dead letters, given path, key and value."""
    make_prototypes: Callable[[Plan], dict[str, bytes]] = prototypes_of
    make_journal: Callable[[JournalHeader], Journal | None] | None = None
    """None for a folder beside the tables, if there are any."""
    make_feed: Callable[[Threads], Feed] | None = None
    """Creates what begins transactions; None for the spout's coordinator."""
    run_phases: RunCommitPhases = run_commit_phases
    on_stage: Callable[[str], None] = _ignore_stage
    """Called with the name of each step before the run begins."""
    observer: Observer = attrs.field(factory=Observer)

    @property
    def has_files(self) -> bool:
        """Whether a run leaves files beside its tables: its journal, snapshots and what holds of the past."""
        return self.make_journal is None


@attrs.frozen
class Assembly:
    """An assembled and recovered run, and its first event."""

    run_loop: RunLoop
    start: Recovered


@contextlib.contextmanager
def assembled(
    topology: TransactionalTopology,
    config: Config,
    environment: Environment,
    *,
    until: int | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[Assembly]:
    """Assemble a run, and release all of it at the end, in reverse order.

    It looks at the input and the formats on disk before it takes the lead, so a mistake there writes nothing. After a
    crash, the store frees the lead of the dead process, and recovery ends whatever else was begun.
    """
    plan = topology.plan
    limits = _limits(plan, config, until)
    states = states_of(plan, config, environment.make_dead_letters)
    check_places(plan, config, states)
    with ExitStack() as stack:
        prototypes = environment.make_prototypes(plan)
        task_factory = TaskFactory(plan, config, prototypes)
        stack.callback(task_factory.close)
        threads = environment.make_threads(config.jobs_in_flight_max)
        environment.on_stage("looking at the input")
        references = References(plan.references, threads.now_secs)
        references.after(NEVER, FIRST_TXID)  # refuses one that is none before anything is written
        skew = Skew(plan)
        make_feed = environment.make_feed or functools.partial(
            _make_feed, plan, task_factory, references=references, skew=skew
        )
        feed = make_feed(threads)
        stack.callback(feed.close)
        store = environment.make_store() if environment.make_store else make_store(plan, config)
        stack.callback(store.close)
        environment.on_stage("recovering")
        if environment.has_files:
            check_format(find_journal(metadata_dir_of(plan, config), plan.topology_id))
        coordinator_state = take_lead(plan, states, store, stack)
        environment.observer.leads(coordinator_state.incarnation, coordinator_state.epoch)
        if DEAD_LETTERS not in states and _has_dead_letters_to_publish(coordinator_state):
            states |= dead_letters_of(plan, config, environment.make_dead_letters)
        recovered = _recover(plan, config, states, coordinator_state, stack)
        recovered = _complete(recovered, references, coordinator_state)
        if plan.references and environment.has_files:
            journal_before = find_journal(metadata_dir_of(plan, config), plan.topology_id)
            references.remember(seen_by_undone(journal_before, recovered.committed.txid))
        skew.look(recovered.states, recovered.states)
        feed.open_store(*coordinator_state.source_place)
        header = _journal_header(plan, config, states, recovered, coordinator_state)
        holds = functools.partial(holds_in, metadata_dir_of(plan, config), plan.topology_id)
        journal = _begin_journal(header, plan, config, environment, lambda: holds(int(threads.wall_secs() * 1000)))
        staging_dir = _staging_dir(plan, config, coordinator_state.epoch, stack)
        runner = stack.enter_context(environment.make_runner(plan, config, prototypes))
        _equip(recovered.states, runner, config)
        all_holds = holds if environment.has_files else None
        keeping = _make_keeping(config, threads, recovered, coordinator_state, journal, all_holds)
        on_written = functools.partial(skew.look, recovered.states)
        committer = _make_committer(
            environment, threads, task_factory, recovered, coordinator_state, journal, keeping, on_written
        )
        parts = Parts(
            plan.topology_id,
            threads,
            environment.make_coordinator(limits),
            feed,
            _make_planner(plan, config, limits, runner.slots, staging_dir),
            runner,
            committer,
            coordinator_state,
            snapshots=_snapshots(header, plan, config) if environment.has_files else None,
            observer=environment.observer,
            on_progress=on_progress,
        )
        # Late errors come from threads of bolts, in the driver and on executors; the run loop takes them at each tick.
        task_factory.record_late = runner.record_late = parts.late.append
        yield Assembly(RunLoop(parts), _start_of(coordinator_state, recovered))


def _has_dead_letters_to_publish(coordinator_state: CoordinatorState) -> bool:
    """Whether a skip was killed after its decision, or the policy was changed after a crash."""
    group = coordinator_state.group()
    return group is not None and DEAD_LETTERS in group.states


def _complete(recovered: RecoveredRun, references: References, coordinator_state: CoordinatorState) -> RecoveredRun:
    """Let transactions that were begun without a reference of today's code see its newest version."""
    completed = references.completed(recovered.begun)
    if not completed:
        return recovered
    # A crash before this leaves them without it, and the next start completes them: none of them has run with it.
    with durable_step("references.complete"):
        coordinator_state.save_metadata(completed)
    news = {each.txid: each for each in completed}
    return attrs.evolve(recovered, begun=tuple(news.get(each.txid, each) for each in recovered.begun))


def _start_of(coordinator_state: CoordinatorState, recovered: RecoveredRun) -> Recovered:
    return Recovered(
        coordinator_state.epoch,
        recovered.committed.txid,
        recovered.committed.metadata,
        recovered.begun,
        now_ms=0,
        committed_planned=recovered.committed.planned,
        transaction_us=coordinator_state.transaction_us(),
    )


def _make_feed(
    plan: Plan, task_factory: TaskFactory, threads: Threads, references: References, skew: Skew
) -> SpoutFeed:
    spouts = []
    for spout in plan.spouts:
        with user_code(spout.id, None):
            spouts.append(AskedSpout(spout.id, task_factory.coordinator(spout), plan.semantics[spout.id]))
    return SpoutFeed(
        spouts,
        threads.now_secs,
        threads.sleep,
        aside=threads.aside,
        wall_secs=threads.wall_secs,
        quiet_after=plan.quiet_after,
        at_end=plan.at_end,
        references=references,
        skew=skew,
    )


def _equip(states: Mapping[str, OpenedState], runner: JobRunner, config: Config) -> None:
    """Give the states what only a run has: its executors, and memory."""
    holders = sum(isinstance(state, HoldsRows) for state in states.values())
    for state in states.values():
        if isinstance(state, UsesExecutors):
            state.use_executors(runner, config["topology.driver.rows.max"])
        if isinstance(state, HoldsRows):
            state.hold_rows(config["topology.state.bytes.max"] // holders)


def _make_planner(plan: Plan, config: Config, limits: Limits, slots: int, staging_dir: pathlib.Path) -> JobPlanner:
    return JobPlanner(
        plan,
        limits,
        slots=slots,
        layout=config.layout,
        staging_dir=os.path.abspath(staging_dir),  # noqa: PTH100 - executors have other working folders
        received_bytes_max=config.received_bytes_max,
        has_edge_tallies=config.acker_executors > 0,
    )


def _make_committer(  # noqa: PLR0913, PLR0917 - the parts of a run that commit
    environment: Environment,
    threads: Threads,
    task_factory: TaskFactory,
    recovered: RecoveredRun,
    coordinator_state: CoordinatorState,
    journal: Journal | None,
    keeping: Keeping | None = None,
    on_written: Callable[[Collection[str]], None] | None = None,
) -> GroupCommitter:
    return GroupCommitter(
        task_factory,
        recovered.states,
        coordinator_state,
        recovered.committed,
        threads=threads,
        journal=journal,
        run_phases=environment.run_phases,
        dead_letters=DEAD_LETTERS if DEAD_LETTERS in recovered.states else None,
        keeping=keeping,
        on_written=on_written,
    )


def _make_keeping(  # noqa: PLR0913, PLR0917 - the parts of a run that say what may go
    config: Config,
    threads: Threads,
    recovered: RecoveredRun,
    coordinator_state: CoordinatorState,
    journal: Journal | None,
    holds: Callable[[int], Sequence[Hold]] | None,
) -> Keeping:
    return Keeping(
        coordinator_state,
        recovered.committed.txid,
        threads.wall_secs,
        recent_secs=config["topology.history.recent.secs"],
        rewind_hours=config["topology.rewind.hours"],
        journal=journal if isinstance(journal, KeptJournal) else None,
        holds=holds,
    )


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
    store = make_store(plan, config)
    stack.callback(store.close)
    check_format(find_journal(metadata_dir_of(plan, config), plan.topology_id))
    coordinator_state = take_lead(plan, states, store, stack)
    return coordinator_state, _recover(plan, config, states, coordinator_state, stack)


@attrs.frozen
class SetAside:
    """A transaction that is to be set aside."""

    transaction: TransactionMetadata
    ranges: Mapping[str, tuple[Any, Any]]
    """Its input, (start, end) by partition; empty if the spout does not report it."""
    table: str
    """Where its dead letter goes."""


def skip(plan: Plan, config: Config, txid: int, reason: str, agree: Callable[[SetAside], None]) -> None:
    """Set the first transaction that is not committed aside, as the policy SKIP does, while the topology doesn't run.

    Args:
        plan: the topology's.
        config: its configuration, whatever its policy.
        txid: the transaction.
        reason: what its dead letter gives as the error.
        agree: is told what will be done before anything is, and raises StopError if that is not to be.

    Raises:
        StopError: it is not the first one that is not committed, or can't be skipped; nothing was written.
    """
    settings = {"topology.transaction.max.attempts.policy": "SKIP", "topology.transaction.max.attempts": 1}
    config = config.with_settings(settings)
    states = states_of(plan, config)
    environment = Environment(_no_runner)
    with ExitStack() as stack:
        task_factory = TaskFactory(plan, config, {})
        stack.callback(task_factory.close)
        coordinator_state, recovered = recovered_alone(plan, config, states, stack)
        transaction = _to_skip(plan, recovered, txid)
        ranges = input_ranges(plan.spouts, transaction.metadata, recovered.committed.metadata)
        agree(SetAside(transaction, ranges, str(states[DEAD_LETTERS].address)))
        header = _journal_header(plan, config, states, recovered, coordinator_state)
        journal = _begin_journal(header, plan, config, environment, list)  # one entry cuts nothing
        threads = ThreadPools(1)
        stack.callback(threads.shut_down, lambda: None, lambda: None)
        committer = _make_committer(environment, threads, task_factory, recovered, coordinator_state, journal)
        attempt = TransactionAttempt(txid, attempt_number(coordinator_state.epoch, 0))
        given_up = AssignedAttempt(attempt, transaction.metadata, transaction.planned)
        for event in committer.write_dead_letter(DeadLetter(0, given_up, 0, reason)):
            if isinstance(event, (Fenced, RuleBroken)):
                raise event.error
        committer.flush()


def replan(plan: Plan, config: Config, agree: Callable[[Sequence[SeenVersion]], None]) -> None:
    """Let transactions that are begun and not committed see the newest versions of the topology's reference tables.

    The topology must not be running. The journal and the audit know which version each was planned with first.

    Args:
        plan: the topology's.
        config: its configuration.
        agree: is told the new versions of one of the transactions before anything is done, and raises StopError if it
            is not to be; not called if there is nothing to do.
    """
    with ExitStack() as stack:
        coordinator_state, recovered = recovered_alone(plan, config, states_of(plan, config), stack)
        again = References(plan.references).again(recovered.begun)
        if not again:
            return
        agree(again[0].planned.references)
        # A crash before this leaves what was planned, and the command can be run again; the one write changes all.
        with durable_step("references.replan"):
            coordinator_state.save_metadata(again)


def _no_runner(*_: Any) -> AbstractContextManager[JobRunner]:
    raise InternalError("nothing is processed")


def _to_skip(plan: Plan, recovered: RecoveredRun, txid: int) -> TransactionMetadata:
    committed = recovered.committed.txid
    if txid <= committed:
        raise StopError(f"transaction {txid} is committed or set aside already; nothing was written", txid=txid)
    if txid > committed + 1:
        before = transactions_words(committed + 1, txid - 1)
        raise StopError(
            f"it is not the first that is not committed: commit {before} with 'txtopo run MODULE --until {txid - 1}', "
            "or set aside what keeps that from its end; nothing was written",
            txid=txid,
        )
    found = next((each for each in recovered.begun if each.txid == txid), None)
    if found is None or not policy_of(plan.kinds).can_skip(was_emitted=False):
        raise StopError(
            "it has not begun, or it is one of an opaque spout and the end of its batch is unknown; nothing was "
            "written",
            txid=txid,
        )
    if found.planned.turn is Turn.END:
        raise StopError("it can't be skipped: it ends event time; nothing was written", txid=txid)
    return found


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
    _tell_of_opaque(plan, coordinator_state.check_spouts(plan.kinds))
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


def _recover(
    plan: Plan, config: Config, states: Mapping[str, State], coordinator_state: CoordinatorState, stack: ExitStack
) -> RecoveredRun:
    def known_journal() -> list[JournalPart]:
        with contextlib.suppress(DivergenceError):  # damage of the journal does not concern a recovery
            return read_journal(find_journal(metadata_dir_of(plan, config), plan.topology_id))
        return []

    recovered = recover(
        plan.topology_id,
        states,
        coordinator_state,
        Membership(optional_states(plan, states), config["topology.state.start.empty"] or {}),
        read_journal=known_journal,
    )
    for state in recovered.states.values():
        stack.callback(state.close)
    return recovered


def _journal_header(
    plan: Plan,
    config: Config,
    states: Mapping[str, State],
    recovered: RecoveredRun,
    coordinator_state: CoordinatorState,
) -> JournalHeader:
    folder, timeline = metadata_dir_of(plan, config).parent, coordinator_state.timeline()
    return JournalHeader(
        topology=plan.topology_id,
        incarnation=coordinator_state.incarnation,
        epoch=coordinator_state.epoch,
        spouts=plan.kinds,
        committed=recovered.committed.txid,
        metadata=recovered.committed.metadata,
        planned=recovered.committed.planned,
        tables={
            name: JournalTable(address_from(folder, state.address), recovered.states[name].identity)
            for name, state in states.items()
            if state.address is not None
        },
        states={name: state.last_txid for name, state in recovered.states.items()},
        begun_after={
            name: mark.begun_after
            for name, mark in recovered.committed.states.items()
            if mark.begun_after and name in recovered.states
        },
        turns=timeline.turns,
        renames=timeline.renames,
        store=store_words(plan, config),
    )


def _begin_journal(
    header: JournalHeader, plan: Plan, config: Config, environment: Environment, holds: Callable[[], Sequence[Hold]]
) -> Journal | None:
    if environment.make_journal is not None:
        return environment.make_journal(header)
    bytes_max = config["topology.journal.bytes.max"]
    if not _has_metadata_dir(header, config) or not bytes_max:
        return None
    metadata_dir = metadata_dir_of(plan, config)
    folder = begin_journal(metadata_dir, plan.topology_id, header.incarnation)
    return JournalWriter(folder, header, bytes_max, lambda: min((hold.after for hold in holds()), default=None))


def _has_metadata_dir(header: JournalHeader, config: Config) -> bool:
    """Whether a run has a metadata directory; one with only in-memory states has none by default."""
    return bool(header.tables) or config.state_dir is not None


def _snapshots(header: JournalHeader, plan: Plan, config: Config) -> SnapshotWriter | None:
    if not _has_metadata_dir(header, config):
        return None
    return SnapshotWriter(snapshots_in(metadata_dir_of(plan, config)), header, config.given)


def _staging_dir(plan: Plan, config: Config, epoch: int, stack: ExitStack) -> pathlib.Path:
    """Return the folder for what this run spills, and remove those of earlier runs that were killed."""
    metadata_dir = metadata_dir_of(plan, config)
    if not isinstance(metadata_dir, LocalFolder):
        # Nothing in it outlives an attempt, so it need not be where all else is.
        return pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="txtopo-staging-")))
    of_topology = metadata_dir.root / "staging" / urllib.parse.quote(plan.topology_id, safe="")
    # Their coordinators are fenced, and nothing in the folders outlives an attempt.
    shutil.rmtree(of_topology, ignore_errors=True)

    def remove() -> None:
        shutil.rmtree(of_topology / str(epoch), ignore_errors=True)
        with contextlib.suppress(OSError):  # a successor's folder is in it, or there is none
            of_topology.rmdir()
            of_topology.parent.rmdir()

    stack.callback(remove)
    return of_topology / str(epoch)


def _limits(plan: Plan, config: Config, until: int | None) -> Limits:
    if until is not None and (isinstance(until, bool) or not isinstance(until, int) or until < 0):
        raise ConfigError(f"until is {until!r}; it must be a txid, an integer of at least 0")
    pending_max = config.max_spout_pending
    jobs_max = config.jobs_in_flight_max
    limits = Limits(
        pending_max=pending_max,
        # While some of the pending transactions commit, others are processed in the jobs in flight.
        job_transactions_max=max(1, min(config.job_transactions_max, pending_max // (jobs_max + 1))),
        jobs_max=jobs_max,
        group_transactions_max=config.group_transactions_max,
        timeout_ms=int(config.message_timeout_secs * 1000),
        job_target_ms=JOB_TARGET_MS,
        tries_max=config.transaction_max_attempts,
        give_up_policy=GiveUpPolicy(config.transaction_max_attempts_policy),
        until=until,
        spout=policy_of(plan.kinds),
    )
    if config.is_real_time:  # what a dead worker held goes to one that lives, at once
        return attrs.evolve(limits, job_target_ms=REAL_TIME_JOB_TARGET_MS, retry_delay_ms=0)
    return limits
