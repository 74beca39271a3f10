"""Assembles a run of a transactional topology: takes the lead, recovers, and creates all that the run loop needs."""

from __future__ import annotations

import contextlib
import functools
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import attrs

from txtopo.api.components.planned import NEVER
from txtopo.api.state import HoldsRows, NotesRows, OpenedState, State, UsesExecutors
from txtopo.assembly.environment import Environment
from txtopo.assembly.feed.asked_spout import AskedSpout
from txtopo.assembly.feed.feed import SpoutFeed
from txtopo.assembly.feed.references import References, seen_by_undone
from txtopo.assembly.feed.skew import Skew
from txtopo.assembly.parts import OnProgress, Parts
from txtopo.assembly.run_loop import RunLoop
from txtopo.assembly.snapshot import SnapshotWriter, snapshots_in
from txtopo.assembly.start import begun_journal, has_metadata_dir, journal_header, recover_states, take_lead
from txtopo.assembly.storage import (
    check_places,
    dead_letters_of,
    in_a_bucket,
    make_store,
    metadata_dir_of,
    pending_max_of,
    states_of,
)
from txtopo.assembly.threads import Threads
from txtopo.attempts import FIRST_TXID
from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.failpoints import durable_step
from txtopo.files.folder import Folder, LocalFolder
from txtopo.journal.entries import DEAD_LETTERS, JournalHeader
from txtopo.journal.folders import check_format, find_journal
from txtopo.journal.holds import Hold, holds_in
from txtopo.journal.writer import KeptJournal
from txtopo.topology.plans.plan import Plan
from txtopo.topology.topology import TransactionalTopology
from txtopo.topology.user_code.blame import user_code
from txtopo.transactional.commit.groups import GroupCommitter, Journal
from txtopo.transactional.commit.point_keeper import PointKeeper
from txtopo.transactional.core.events import Recovered, TransactionMetadata
from txtopo.transactional.core.limits import GiveUpPolicy, Limits
from txtopo.transactional.core.spout_policy import policy_of
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.transactional.jobs.jobs import JobPlanner
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.recover import RecoveredRun
from txtopo.transactional.tasks.factory import TaskFactory

JOB_TARGET_MS = 2_000
"""How long a job should take: Spark needs some 100 ms for one however small, which is 5 % of it, and what is committed
waits for no more than that."""

REAL_TIME_JOB_TARGET_MS = 250
"""The same in real-time mode, where a job has almost no cost of its own."""

NOTED_BYTES_MAX = 128 * 1024
"""So many bytes of rows ride with a decision in real-time mode, a third more as text. The value of a group takes
512 KiB, see :data:`~txtopo.api.store.VALUE_BYTES_MAX`."""


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
        coordinator_state, states, recovered = _take_over(plan, config, environment, states, references, stack)
        skew.update(recovered.states, recovered.states)
        feed.open_store(*coordinator_state.source_place)
        header = journal_header(plan, config, states, recovered, coordinator_state)
        holds = functools.partial(holds_in, metadata_dir_of(plan, config), plan.topology_id)
        if environment.make_journal is not None:
            journal = environment.make_journal(header)
        else:
            journal = begun_journal(header, plan, config, lambda: holds(int(threads.wall_secs() * 1000)), stack)
        staging = _staging(plan, config, coordinator_state.epoch, stack)
        runner = stack.enter_context(environment.make_runner(plan, config, prototypes))
        _equip(recovered.states, runner, config)
        all_holds = holds if environment.has_files else None
        runs_ahead = in_a_bucket(plan, config) if environment.runs_ahead is None else environment.runs_ahead
        committer = GroupCommitter(
            task_factory,
            recovered.states,
            coordinator_state,
            recovered.committed,
            threads=threads,
            journal=journal,
            run_phases=environment.run_phases,
            keeping=_make_keeping(config, threads, recovered, coordinator_state, journal, all_holds),
            on_written=functools.partial(skew.update, recovered.states),
            ahead_max=limits.group_transactions_max if runs_ahead else 0,
        )
        parts = Parts(
            plan.topology_id,
            threads,
            environment.make_coordinator(limits),
            feed,
            _make_planner(plan, config, limits, runner.slots, staging),
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


def _take_over(  # noqa: PLR0913, PLR0917 - what a run is made of
    plan: Plan,
    config: Config,
    environment: Environment,
    states: dict[str, State],
    references: References,
    stack: ExitStack,
) -> tuple[CoordinatorState, dict[str, State], RecoveredRun]:
    """Take the lead and recover; the states come back with that for dead letters, if it has some to publish."""
    journal = find_journal(metadata_dir_of(plan, config), plan.topology_id)
    store = environment.make_store() if environment.make_store else make_store(plan, config)
    stack.callback(store.close)
    environment.on_stage("recovering")
    if environment.has_files:
        check_format(journal)
    coordinator_state = take_lead(plan, states, store, stack)
    environment.observer.leads(coordinator_state.incarnation, coordinator_state.epoch)
    if DEAD_LETTERS not in states and _has_dead_letters_to_publish(coordinator_state):
        states |= dead_letters_of(plan, config, environment.make_dead_letters)
    recovered = recover_states(plan, config, states, coordinator_state, stack)
    recovered = _complete(recovered, references, coordinator_state)
    if plan.references and environment.has_files:
        references.remember(seen_by_undone(journal, recovered.committed.txid))
    return coordinator_state, states, recovered


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
    news = {transaction.txid: transaction for transaction in completed}
    return attrs.evolve(
        recovered, begun=tuple(news.get(transaction.txid, transaction) for transaction in recovered.begun)
    )


def _start_of(coordinator_state: CoordinatorState, recovered: RecoveredRun) -> Recovered:
    committed = recovered.committed
    return Recovered(
        coordinator_state.epoch,
        TransactionMetadata(committed.txid, committed.metadata, committed.planned),
        recovered.begun,
        now_ms=0,
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
        cpu_secs=threads.cpu_secs,
        aside=threads.aside,
        wall_secs=threads.wall_secs,
        quiet_after=plan.quiet_after,
        at_end=plan.at_end,
        references=references,
        skew=skew,
    )


def _equip(states: Mapping[str, OpenedState], runner: JobRunner, config: Config) -> None:
    holders = sum(isinstance(state, HoldsRows) for state in states.values())
    for state in states.values():
        if isinstance(state, UsesExecutors):
            state.use_executors(runner, config["topology.driver.rows.max"])
        if isinstance(state, HoldsRows):
            state.hold_rows(config["topology.state.bytes.max"] // holders)
        if isinstance(state, NotesRows) and config.is_real_time:
            state.note_rows(NOTED_BYTES_MAX // len(states))


def _make_planner(plan: Plan, config: Config, limits: Limits, slots: int, staging: Folder) -> JobPlanner:
    return JobPlanner(
        plan,
        limits,
        slots=slots,
        layout=config.layout,
        staging=staging,
        received_bytes_max=config.received_bytes_max,
        has_edge_tallies=config.acker_executors > 0,
    )


def _make_keeping(  # noqa: PLR0913, PLR0917 - the parts of a run that say what may go
    config: Config,
    threads: Threads,
    recovered: RecoveredRun,
    coordinator_state: CoordinatorState,
    journal: Journal | None,
    holds: Callable[[int], Sequence[Hold]] | None,
) -> PointKeeper:
    return PointKeeper(
        coordinator_state,
        recovered.committed.txid,
        threads.wall_secs,
        recent_secs=config["topology.history.recent.secs"],
        rewind_hours=config["topology.rewind.hours"],
        journal=journal if isinstance(journal, KeptJournal) else None,
        holds=holds,
    )


def _snapshots(header: JournalHeader, plan: Plan, config: Config) -> SnapshotWriter | None:
    if not has_metadata_dir(header, plan, config):
        return None
    return SnapshotWriter(snapshots_in(metadata_dir_of(plan, config)), header, config.given)


def _staging(plan: Plan, config: Config, epoch: int, stack: ExitStack) -> Folder:
    """Return the folder for what this run spills, and remove those of earlier runs that were killed."""
    metadata_dir = metadata_dir_of(plan, config)
    all_staged = metadata_dir.below("staging")
    of_topology = all_staged.below(urllib.parse.quote(plan.topology_id, safe=""))
    # Their coordinators are fenced, and nothing in the folders outlives an attempt.
    with contextlib.suppress(OSError):
        of_topology.delete_all()

    def remove() -> None:
        with contextlib.suppress(OSError):
            of_topology.delete_all(str(epoch))
        for folder in (of_topology, all_staged):
            if isinstance(folder, LocalFolder):
                with contextlib.suppress(OSError):  # a successor's folder is in it, or there is none
                    folder.root.rmdir()

    stack.callback(remove)
    return of_topology.below(str(epoch))


def _limits(plan: Plan, config: Config, until: int | None) -> Limits:
    if until is not None and (isinstance(until, bool) or not isinstance(until, int) or until < 0):
        raise ConfigError(f"until is {until!r}; it must be a txid, an integer of at least 0")
    pending_max = pending_max_of(plan, config)
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
