"""``run``: assembles a topology with its stores and Spark, and runs it to its end."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import shutil
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, overload

import attrs

from state.delta.keyed.state import DeltaState
from state.stores.memory import MemoryStore
from state.stores.sqlite import SqliteStore
from txtopo.api.capabilities import uses_executors
from txtopo.api.fields import Fields
from txtopo.api.optional import call_if_there
from txtopo.api.state import State
from txtopo.api.store import Store
from txtopo.config import Config, TopologyKind
from txtopo.engine.control import RunControl
from txtopo.errors import ConfigError, DivergenceError
from txtopo.failpoints import durable_step
from txtopo.garbage import seldom_collected
from txtopo.plain.run.runner import PlainReport, start
from txtopo.topology.output import user_output_logged
from txtopo.topology.plan import Plan
from txtopo.topology.topology import PlainTopology, Topology, TransactionalTopology
from txtopo.topology.user_code import user_code
from txtopo.transactional.commit.groups import GroupCommitter, Journal
from txtopo.transactional.commit.phases import RunCommitPhases, run_commit_phases
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.events import Recovered
from txtopo.transactional.core.limits import GiveUpPolicy, Limits
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.transactional.jobs.jobs import JobPlanner
from txtopo.transactional.journal.ending import METADATA_DIR
from txtopo.transactional.journal.journal import (
    DEAD_LETTERS,
    JournalHeader,
    JournalPart,
    JournalTable,
    JournalWriter,
    check_format,
    find_journal,
    read_journal,
    set_aside_former_incarnation,
)
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.membership import Membership
from txtopo.transactional.recovery.recover import RecoveredRun, recover
from txtopo.transactional.run.report import Progress, RunReport
from txtopo.transactional.run.run_loop import Observer, Parts, RunLoop
from txtopo.transactional.run.snapshot import SnapshotWriter, snapshot_path
from txtopo.transactional.run.source import Source
from txtopo.transactional.run.threads import ThreadPools, Threads
from txtopo.transactional.tasks.context import TaskContext
from txtopo.transactional.tasks.factory import TaskFactory, prototypes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB_TARGET_MS = 2_000
"""The target duration of a job."""

SOURCE_POLL_MS = 20
"""The pause before a waiting source is asked again."""

_memory_stores: weakref.WeakKeyDictionary[Any, Store] = weakref.WeakKeyDictionary()
"""The stores of topologies with in-memory states, by state: a store exists as long as its state."""

MakeRunner = Callable[[Plan, Config, dict[str, bytes]], contextlib.AbstractContextManager[JobRunner]]


def _ignore_stage(_stage: str) -> None:
    pass


def _both(first: Callable[[Any], None] | None, second: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a function that calls two, if there are two."""
    if first is None:
        return second

    def call(news: Any) -> None:
        first(news)
        second(news)

    return call


@attrs.frozen
class Environment:
    """The environment of a run; a simulator passes another one than ``run`` does.

    Args:
        make_runner: creates the job runner.
        make_threads: creates the threads and the clock, given the number of jobs in flight.
        make_coordinator: creates the core.
        make_store: creates the store of coordinator state; None for the one in the configuration.
        make_dead_letters: creates the state for dead letters, given path, key and value; None for a DeltaState.
        make_prototypes: returns the pickled components of a plan, by id.
        make_journal: creates the journal; None for a folder beside the tables, if there are any.
        run_commit_phases: runs the commit phases of a group.
        on_stage: called with the name of each step before the run begins.
        control: steers the run from other threads.
        observer: is told what the run does, for metrics.
    """

    make_runner: MakeRunner
    make_threads: Callable[[int], Threads] = ThreadPools
    make_coordinator: Callable[[Limits], Coordinator] = Coordinator
    make_store: Callable[[], Store] | None = None
    make_dead_letters: Callable[[Any, Fields, Fields], State] | None = None
    make_prototypes: Callable[[Plan], dict[str, bytes]] = prototypes_of
    make_journal: Callable[[JournalHeader], Journal | None] | None = None
    run_commit_phases: RunCommitPhases = run_commit_phases
    on_stage: Callable[[str], None] = _ignore_stage
    control: RunControl = attrs.field(factory=RunControl)
    observer: Observer | None = None


@attrs.frozen
class Assembly:
    """An assembled and recovered run, and its first event."""

    run_loop: RunLoop
    start: Recovered


@overload
def run(
    topology: TransactionalTopology,
    config: Config | Mapping[str, Any] | None = None,
    *,
    spark: SparkSession | None = None,
    until: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
    control: RunControl | None = None,
    observer: Observer | None = None,
) -> RunReport: ...


@overload
def run(
    topology: PlainTopology,
    config: Config | Mapping[str, Any] | None = None,
    *,
    spark: SparkSession | None = None,
    on_progress: Callable[[PlainReport], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
    control: RunControl | None = None,
    observer: Observer | None = None,
) -> PlainReport: ...


def run(  # noqa: PLR0913 - keyword arguments of the main entry point
    topology: Topology,
    config: Config | Mapping[str, Any] | None = None,
    *,
    spark: SparkSession | None = None,
    until: int | None = None,
    on_progress: Callable[[Any], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
    control: RunControl | None = None,
    observer: Observer | None = None,
) -> RunReport | PlainReport:
    """Run a topology until its spouts are exhausted, ``until`` is committed, or a stop is requested.

    If a run was killed, start it again with the same states and configuration, and it continues where it was. SIGINT
    and SIGTERM request an orderly stop: the commit group in flight is still committed.

    Args:
        topology: the result of ``TransactionalTopologyBuilder.build()`` or ``TopologyBuilder.build()``.
        config: the configuration; missing settings get their defaults.
        spark: the session to use; by default the active one, or a new one that is stopped at the end.
        until: the last txid to commit; None for all. For a transactional topology only.
        on_progress: called with the progress several times a second, in the calling thread.
        on_stage: called before that with the name of each step: ``looking at the input``, ``recovering`` …
        control: deactivates, activates and stops the run from other threads.
        observer: is told what the run does; a :class:`txtopo.engine.metrics.RunMetrics` makes metrics of it.

    Returns:
        The result of the run.

    Raises:
        ConfigError: no suitable Spark is available; nothing was written.
        RuleError: a bolt or spout has a bug, input can't be read, or a transaction failed as often as allowed; the
            error names component, transaction and attempt.
        StopError: another process runs the topology or has taken the lead, or coordinator state and tables do not
            belong together.
    """
    from txtopo.spark.session import check_spark  # noqa: PLC0415 - imports pyspark only if Spark is used

    config = config if isinstance(config, Config) else Config(config)
    control = control or RunControl()
    if observer is not None:
        on_stage, on_progress = _both(on_stage, observer.entered), _both(on_progress, observer.progressed)
    if isinstance(topology, PlainTopology):
        if until is not None:
            raise ConfigError(
                f"{topology.id!r} is a plain topology, which has no transactions to run until: leave it out"
            )
        active = control.is_active
        with (
            start(topology, config, spark=spark, on_stage=on_stage, active=active) as running,
            _stop_on_signals(running.stop),
            control.steering(running.set_active, running.stop, is_active=active),
        ):
            return running.wait(on_progress=on_progress)
    assert isinstance(topology, TransactionalTopology), "there are two kinds"
    config = config.of_kind(TopologyKind.TRANSACTIONAL)
    check_spark(config, spark, delta_users=topology.plan.delta_users)

    @contextlib.contextmanager
    def spark_runner(plan: Plan, config: Config, prototypes: dict[str, bytes]) -> Iterator[JobRunner]:
        from txtopo.spark.job_runner import SparkJobRunner  # noqa: PLC0415 - imports pyspark only if Spark is used
        from txtopo.spark.session import spark_session  # noqa: PLC0415 - as above

        if on_stage is not None:
            on_stage("starting Spark")
        with spark_session(config, plan.topology_id, spark, delta_users=plan.delta_users) as session:
            runner = SparkJobRunner(session, plan, config, prototypes)
            try:
                yield runner
            finally:
                runner.close()

    environment = Environment(spark_runner, on_stage=on_stage or _ignore_stage, control=control, observer=observer)
    return run_with(topology, config, environment, until=until, on_progress=on_progress)


def run_with(
    topology: TransactionalTopology,
    config: Config,
    environment: Environment,
    *,
    until: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunReport:
    """Run a topology in an environment; see :func:`run`."""
    run = assembled(topology, config, environment, until=until, on_progress=on_progress)
    with seldom_collected(), user_output_logged(), run as assembly:
        loop = assembly.run_loop
        with (
            _stop_on_signals(loop.request_stop),
            environment.control.steering(loop.set_active, lambda _: loop.request_stop()),
        ):
            return loop.run(assembly.start)


@contextlib.contextmanager
def assembled(
    topology: TransactionalTopology,
    config: Config,
    environment: Environment,
    *,
    until: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Iterator[Assembly]:
    """Assemble a run: take the lead, recover, and create all that the run loop needs; release it at the end."""
    plan = topology.plan
    metadata_dir = metadata_dir_of(plan, config)
    states = states_of(plan, config, environment.make_dead_letters)
    with contextlib.ExitStack() as stack:
        prototypes = environment.make_prototypes(plan)
        task_factory = TaskFactory(plan, config, prototypes)
        stack.callback(task_factory.close)
        threads = environment.make_threads(config.jobs_in_flight_max)
        environment.on_stage("looking at the input")
        source = _make_source(plan, task_factory, threads)  # first, to report bad input before anything is written
        stack.callback(source.close)
        store = make_store(plan, config) if environment.make_store is None else environment.make_store()
        if store not in _memory_stores.values():
            stack.callback(store.close)
        environment.on_stage("recovering")
        if environment.make_journal is None:
            check_format(find_journal(metadata_dir, plan.topology_id))
        with durable_step("lead.take"):
            lead = store.take_lead(plan.topology_id, f"{pathlib.Path(sys.argv[0]).name or 'python'}")
        stack.callback(lead.release)
        coordinator_state = CoordinatorState(store, lead, plan.topology_id)
        coordinator_state.check_spout(plan.semantics.name)
        recovered = recover(
            plan.topology_id,
            states,
            coordinator_state,
            Membership(optional_states(plan, states), config["topology.state.start.empty"] or {}),
            read_journal=lambda: _known_journal(metadata_dir, plan.topology_id),
        )
        source.open_store(store, lead, coordinator_state.source_path)
        for state in recovered.states.values():
            stack.callback(state.close)
        header = _journal_header(plan, states, recovered, coordinator_state, metadata_dir)
        journal = (
            _begin_journal(header, plan, config)
            if environment.make_journal is None
            else environment.make_journal(header)
        )
        if isinstance(journal, JournalWriter):
            stack.callback(journal.close)
        staging_dir = metadata_dir / "staging" / f"{os.getpid()}-{coordinator_state.epoch}"
        stack.callback(shutil.rmtree, staging_dir, ignore_errors=True)
        limits = _limits(plan, config, until)
        runner = stack.enter_context(environment.make_runner(plan, config, prototypes))
        planner = JobPlanner(
            plan,
            limits,
            slots=runner.slots,
            layout=config.layout,
            staging_dir=os.path.abspath(staging_dir),  # noqa: PTH100 - executors have other working folders
            received_bytes_max=config.received_bytes_max,
            has_edge_tallies=config.acker_executors > 0,
        )
        for state in recovered.states.values():
            if uses_executors(state):
                state.use_executors(runner, config["topology.driver.rows.max"])
        dead_letters = DEAD_LETTERS if DEAD_LETTERS in states else None
        committer = GroupCommitter(
            task_factory,
            recovered.states,
            coordinator_state,
            recovered.committed,
            sleep=threads.sleep,
            now_secs=threads.now_secs,
            journal=journal,
            input_ranges=functools.partial(call_if_there, plan.spout.component, "input_ranges"),
            input_skipped=functools.partial(call_if_there, plan.spout.component, "input_skipped"),
            dead_letters=dead_letters,
            run_phases=environment.run_commit_phases,
            on_write=None if environment.observer is None else environment.observer.wrote,
        )
        core = environment.make_coordinator(limits)
        snapshots = _snapshots(header, plan, config) if environment.make_journal is None else None
        parts = Parts(plan.topology_id, threads, core, source, planner, runner, committer, coordinator_state, snapshots)
        run_loop = RunLoop(attrs.evolve(parts, observer=environment.observer), on_progress)
        start = Recovered(
            coordinator_state.epoch,
            recovered.committed.txid,
            recovered.committed.metadata,
            recovered.begun,
            now_ms=0,
            transaction_us=coordinator_state.transaction_us(),
        )
        yield Assembly(run_loop, start)


def _journal_header(
    plan: Plan,
    states: Mapping[str, State],
    recovered: RecoveredRun,
    coordinator_state: CoordinatorState,
    metadata_dir: pathlib.Path,
) -> JournalHeader:
    return JournalHeader(
        topology=plan.topology_id,
        incarnation=coordinator_state.incarnation,
        epoch=coordinator_state.epoch,
        spout=plan.semantics.name,
        committed=recovered.committed.txid,
        metadata=recovered.committed.metadata,
        tables={
            name: JournalTable(address_from(metadata_dir.parent, state.address), recovered.states[name].identity)
            for name, state in states.items()
            if state.address is not None
        },
        states={name: state.last_txid for name, state in recovered.states.items()},
        begun_after={
            name: mark.begun_after
            for name, mark in recovered.committed.states.items()
            if mark.begun_after and name in recovered.states
        },
    )


def address_from(folder: pathlib.Path, address: str) -> str:
    """Return a table's address relative to a folder if it is below it, so that both can be moved together."""
    if "://" in address:
        return address
    path = pathlib.Path(address).absolute()
    return str(path.relative_to(folder.absolute())) if path.is_relative_to(folder.absolute()) else str(path)


def _begin_journal(header: JournalHeader, plan: Plan, config: Config) -> JournalWriter | None:
    bytes_max = config["topology.journal.bytes.max"]
    if not _has_metadata_dir(header, config) or not bytes_max:
        return None
    folder = find_journal(metadata_dir_of(plan, config), plan.topology_id)
    set_aside_former_incarnation(folder, header.incarnation)
    return JournalWriter(folder, header, bytes_max)


def _has_metadata_dir(header: JournalHeader, config: Config) -> bool:
    """Return whether a run has a metadata directory; a run with only in-memory states has none by default."""
    return bool(header.tables) or config.state_dir is not None


def _snapshots(header: JournalHeader, plan: Plan, config: Config) -> SnapshotWriter | None:
    if not _has_metadata_dir(header, config):
        return None
    return SnapshotWriter(
        snapshot_path(metadata_dir_of(plan, config), plan.topology_id), header.epoch, header.incarnation
    )


def metadata_dir_of(plan: Plan, config: Config) -> pathlib.Path:
    """Return the metadata directory of a topology: ``topology.state.dir``, or a folder beside its tables."""
    if config.state_dir is not None:
        return pathlib.Path(config.state_dir)
    for state in plan.states.values():
        if state.home is not None:
            return pathlib.Path(state.home) / METADATA_DIR
    return pathlib.Path("txtopo-data") / METADATA_DIR


def make_store(plan: Plan, config: Config) -> Store:
    """Return the store of a topology's coordinator state."""
    states = list(plan.states.values())
    if config.state_store == "zookeeper":
        port = config["transactional.zookeeper.port"]
        hosts = ",".join(s if ":" in s else f"{s}:{port}" for s in config["transactional.zookeeper.servers"])
        from state.stores.zookeeper import ZooKeeperStore  # noqa: PLC0415 - kazoo only where ZooKeeper is used

        return ZooKeeperStore(
            hosts,
            root=config["transactional.zookeeper.root"],
            session_timeout_secs=config["transactional.zookeeper.session.timeout.secs"],
            credentials=config["transactional.zookeeper.auth"],
        )
    if states and not any(state.is_durable for state in states) and config.state_dir is None:
        if states[0] not in _memory_stores:
            _memory_stores[states[0]] = MemoryStore()
        return _memory_stores[states[0]]
    return SqliteStore(metadata_dir_of(plan, config) / "coordinator.sqlite")


def states_of(
    plan: Plan, config: Config, make_dead_letters: Callable[[Any, Fields, Fields], State] | None = None
) -> dict[str, State]:
    """Return a topology's states, including the one for dead letters if it has one."""
    states = dict(plan.states)
    if config.transaction_max_attempts_policy == "SKIP" and config.transaction_max_attempts is not None:
        if DEAD_LETTERS in states:
            raise ConfigError(f"state name {DEAD_LETTERS!r} is reserved for txtopo; give that state another name")
        path = config.dead_letter_path or metadata_dir_of(plan, config).parent / "dead_letters"
        states[DEAD_LETTERS] = (make_dead_letters or DeltaState)(
            path,
            Fields("transaction: long"),
            Fields("attempt: long", "tries: long", "metadata: string", "error: string"),
        )
    return states


def optional_states(plan: Plan, states: Mapping[str, State]) -> frozenset[str]:
    """Return the states that txtopo has added to the topology's own: for dead letters, and those of the spout.

    They may come and go with the settings and options that they serve: without one there is nothing to put into it.
    """
    of_spout = {component.id for component in plan.components if component.is_left_out_without_tuples}
    return frozenset(name for name in states if name not in plan.states or name in of_spout)


def _known_journal(metadata_dir: pathlib.Path, topology_id: str) -> list[JournalPart]:
    """Return the journal; nothing if it is damaged, which does not concern a recovery."""
    with contextlib.suppress(DivergenceError):
        return read_journal(find_journal(metadata_dir, topology_id))
    return []


def _make_source(plan: Plan, task_factory: TaskFactory, threads: Threads) -> Source:
    spout = plan.spout
    context = TaskContext(plan, spout, 0, None)
    with user_code(spout.id, None):
        coordinator = spout.component.coordinator(task_factory.configuration(spout), context)
    return Source(spout.id, coordinator, plan.semantics, threads.now_secs)


def _limits(plan: Plan, config: Config, until: int | None) -> Limits:
    if until is not None and (isinstance(until, bool) or not isinstance(until, int) or until < 0):
        raise ConfigError(f"until is {until!r}; it must be a txid, an integer of at least 0")
    window = config.max_spout_pending
    jobs_max = config.jobs_in_flight_max
    return Limits(
        window=window,
        # While one part of the window commits, others are processed in the jobs in flight.
        job_transactions_max=max(1, min(config.job_transactions_max, window // (jobs_max + 1))),
        jobs_max=jobs_max,
        group_transactions_max=config.group_transactions_max,
        timeout_ms=int(config.message_timeout_secs * 1000),
        job_target_ms=JOB_TARGET_MS,
        source_poll_ms=SOURCE_POLL_MS,
        tries_max=config.transaction_max_attempts,
        give_up_policy=GiveUpPolicy(config.transaction_max_attempts_policy),
        until=until,
        spout=plan.semantics.policy,
    )


@contextlib.contextmanager
def _stop_on_signals(request_stop: Callable[[], None]) -> Iterator[None]:
    """Treat SIGINT and SIGTERM as requests to stop, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        request_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
