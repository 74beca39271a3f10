"""``run``: puts a topology, its stores and Spark together, and runs it to its end."""

from __future__ import annotations

import contextlib
import importlib
import os
import pathlib
import shutil
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from txtopo.config import Config
from txtopo.contracts.fields import Fields
from txtopo.contracts.state import State
from txtopo.contracts.store import Store
from txtopo.core.coordinator import Coordinator
from txtopo.core.events import Recovered
from txtopo.core.limits import GiveUpPolicy, Limits
from txtopo.errors import ConfigError
from txtopo.monitor.report import Progress, RunReport
from txtopo.phases.pack_runner import PackRunner
from txtopo.phases.places import TaskContext, Workshop, prototypes_of
from txtopo.runtime.groups import GroupCommitter
from txtopo.runtime.ledger import Ledger
from txtopo.runtime.packs import PackPlanner
from txtopo.runtime.recovery import recover
from txtopo.runtime.shell import Parts, Shell
from txtopo.runtime.source import Source
from txtopo.topology.plan import Plan, Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEAD_LETTERS = "dead-letters"
"""The name of the state that dead letters go to."""

HOME = "_txtopo"
"""The folder beside the tables where a topology keeps its own files."""

PLUGINS = {
    "sqlite": "state.sqlite:SqliteStore",
    "zookeeper": "state.zookeeper:ZooKeeperStore",
    "memory": "state.memory_store:MemoryStore",
    "delta": "state.delta:DeltaState",
}
"""Where the classes are that a setting names; resolved by name, for the framework imports none of them."""

_memory_stores: weakref.WeakKeyDictionary[Any, Store] = weakref.WeakKeyDictionary()
"""The coordinator state of topologies whose states live in memory: it lives as long as they do."""

MakeRunner = Callable[[Plan, Config, dict[str, bytes]], contextlib.AbstractContextManager[PackRunner]]


def run(
    topology: Topology,
    config: Config | Mapping[str, Any] | None = None,
    *,
    spark: SparkSession | None = None,
    until: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunReport:
    """Run a topology until its spout is exhausted, ``until`` is committed, or a stop is asked for.

    A run that was killed goes on where it was when it is started again with the same states and
    configuration. SIGINT and SIGTERM ask for an orderly stop: what commits just now is committed.

    Args:
        topology: what ``TransactionalTopologyBuilder.build()`` returned.
        config: the configuration; defaults are used for what it leaves out.
        spark: the session to use; otherwise an active one, or one that is started and stopped here.
        until: the last txid to commit.
        on_progress: called with a snapshot several times a second, in the calling thread.

    Returns:
        What the run did.

    Raises:
        RuleError: a bug in a bolt or spout, input that can't be read, or a transaction that failed as
            often as it may; it names component, transaction and attempt.
        StopError: another process runs the topology or has taken the lead, or coordinator state and
            tables do not belong together.
    """
    config = config if isinstance(config, Config) else Config(config)

    @contextlib.contextmanager
    def spark_runner(plan: Plan, config: Config, prototypes: dict[str, bytes]) -> Iterator[PackRunner]:
        from txtopo.spark.pack_runner import SparkPackRunner  # noqa: PLC0415 - pyspark only where Spark runs
        from txtopo.spark.session import spark_session  # noqa: PLC0415 - as above

        with spark_session(config, plan.topology_id, spark) as session:
            runner = SparkPackRunner(session, plan, config, prototypes)
            try:
                yield runner
            finally:
                runner.close()

    return run_with(topology, config, spark_runner, until=until, on_progress=on_progress)


def run_with(
    topology: Topology,
    config: Config,
    make_runner: MakeRunner,
    *,
    until: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunReport:
    """Run a topology on whatever ``make_runner`` makes; see :func:`run`."""
    plan = topology.plan
    states = _states(plan, config)
    with contextlib.ExitStack() as stack:
        prototypes = prototypes_of(plan)
        workshop = Workshop(plan, config, prototypes)
        stack.callback(workshop.close)
        source = _make_source(plan, config, workshop)  # first of all: bad input is told of before anything is written
        stack.callback(source.close)
        store = make_store(plan, config)
        if store not in _memory_stores.values():
            stack.callback(store.close)
        lead = store.take_lead(plan.topology_id, f"{pathlib.Path(sys.argv[0]).name or 'python'}")
        stack.callback(lead.release)
        ledger = Ledger(store, lead, plan.topology_id)
        ledger.check_spout("opaque" if plan.is_opaque else "repeatable")
        recovered = recover(plan.topology_id, states, ledger)
        for state in recovered.states.values():
            stack.callback(state.close)
        staging_dir = home_of(plan, config) / "staging" / f"{os.getpid()}-{ledger.epoch}"
        stack.callback(shutil.rmtree, staging_dir, ignore_errors=True)
        limits = _limits(plan, config, until)
        runner = stack.enter_context(make_runner(plan, config, prototypes))
        planner = PackPlanner(
            plan,
            limits,
            places=runner.places,
            layout=config.layout,
            staging_dir=os.path.abspath(staging_dir),  # noqa: PTH100 - executors have other working folders
            received_bytes_max=config.received_bytes_max,
            has_acker=config.acker_executors > 0,
        )
        dead_letters = DEAD_LETTERS if DEAD_LETTERS in states else None
        committer = GroupCommitter(workshop, recovered.states, ledger, recovered.committed, dead_letters)
        parts = Parts(plan.topology_id, Coordinator(limits), source, planner, runner, committer, ledger)
        shell = Shell(parts, limits.jobs_max, on_progress)
        start = Recovered(
            ledger.epoch, recovered.committed.txid, recovered.committed.metadata, recovered.begun, now_ms=0
        )
        with _stop_on_signals(shell):
            return shell.run(start)


def home_of(plan: Plan, config: Config) -> pathlib.Path:
    """Return the folder where a topology keeps its own files: beside its tables unless told otherwise."""
    if config.state_dir is not None:
        return pathlib.Path(config.state_dir)
    for state in plan.states.values():
        if state.home is not None:
            return pathlib.Path(state.home) / HOME
    return pathlib.Path("txtopo-data") / HOME


def make_store(plan: Plan, config: Config) -> Store:
    """Return the store that a topology's coordinator state is kept in."""
    states = list(plan.states.values())
    if config.state_store == "zookeeper":
        port = config["transactional.zookeeper.port"]
        hosts = ",".join(s if ":" in s else f"{s}:{port}" for s in config["transactional.zookeeper.servers"])
        return cast(
            "Store",
            _plugin("zookeeper")(
                hosts,
                root=config["transactional.zookeeper.root"],
                session_timeout_secs=config["transactional.zookeeper.session.timeout.secs"],
            ),
        )
    if states and not any(state.is_durable for state in states) and config.state_dir is None:
        if states[0] not in _memory_stores:
            _memory_stores[states[0]] = _plugin("memory")()
        return _memory_stores[states[0]]
    return cast("Store", _plugin("sqlite")(home_of(plan, config) / "coordinator.sqlite"))


def _plugin(name: str) -> Callable[..., Any]:
    module, _, attribute = PLUGINS[name].partition(":")
    return cast("Callable[..., Any]", getattr(importlib.import_module(module), attribute))


def _states(plan: Plan, config: Config) -> dict[str, State]:
    states = dict(plan.states)
    if config.transaction_max_attempts_policy == "SKIP" and config.transaction_max_attempts is not None:
        if DEAD_LETTERS in states:
            raise ConfigError(f"state name {DEAD_LETTERS!r} is txtopo's own; give that state another name")
        path = config.dead_letter_path or home_of(plan, config).parent / "dead_letters"
        states[DEAD_LETTERS] = _plugin("delta")(
            path,
            key=Fields("transaction: long"),
            value=Fields("attempt: long", "tries: long", "metadata: string", "error: string"),
        )
    return states


def _make_source(plan: Plan, config: Config, workshop: Workshop) -> Source:
    spout = plan.spout
    context = TaskContext(plan, spout, 0, None)
    configuration = {**config, **workshop.configuration(spout)}
    coordinator = spout.component.coordinator(configuration, context)
    return Source(spout.id, coordinator, is_opaque=plan.is_opaque)


def _limits(plan: Plan, config: Config, until: int | None) -> Limits:
    if until is not None and (isinstance(until, bool) or not isinstance(until, int) or until < 0):
        raise ConfigError(f"until is {until!r}; it must be a txid, a whole number from 0 on")
    window = config.max_spout_pending
    jobs_max = config.jobs_in_flight_max
    return Limits(
        window=window,
        # While one part of the window commits, another is processed and a third waits for a job.
        pack_transactions_max=max(1, min(config.pack_transactions_max, window // (jobs_max + 1))),
        jobs_max=jobs_max,
        group_transactions_max=config.group_transactions_max,
        timeout_ms=int(config.message_timeout_secs * 1000),
        tries_max=config.transaction_max_attempts,
        give_up_policy=GiveUpPolicy(config.transaction_max_attempts_policy),
        until=until,
        opaque=plan.is_opaque,
    )


@contextlib.contextmanager
def _stop_on_signals(shell: Shell) -> Iterator[None]:
    """Take SIGINT and SIGTERM as a request to stop, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        shell.request_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
