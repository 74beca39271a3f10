"""Runs plain topologies on Spark: ``start`` and what it returns."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs

from txtopo.acking.assignment import assign
from txtopo.acking.latency import LatencyHistogram
from txtopo.acking.metrics import Counts, by_component
from txtopo.acking.worker import WorkerStatus
from txtopo.config import Config, TopologyKind
from txtopo.errors import ConfigError, InputError, StopError, TxtopoError, UserCodeError
from txtopo.tasks.user_output import USER_LOGGER, user_output_logged
from txtopo.topology.plain_plan import PlainPlan
from txtopo.topology.topology import PlainTopology
from txtopo.workers.control import ControlServer
from txtopo.workers.handshake import new_secret
from txtopo.workers.listener import Listener
from txtopo.workers.messages import Vitals
from txtopo.workers.supervision import ActivationAsked, StopAsked, Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROGRESS_SECS = 0.25


@attrs.frozen
class PlainReport:
    """What a plain topology did, or does.

    Args:
        topology_id: which topology.
        reason: why it stopped, in words; empty while it runs.
        elapsed_secs: time from its start.
        emitted: roots and untracked tuples that its spouts emitted.
        acked: roots that were acked.
        failed: roots that failed.
        pending: roots that are neither.
        latency_p50_secs: how long half of the acked roots took at most; None if there are none.
        latency_p99_secs: how long 99 % of them took at most.
        components: what the tasks of each component counted, ``__acker`` among them.
        workers: how many workers there are.
        workers_running: how many of them run.
        restarts: workers that were started again.
        worker_cpu_secs: processor time that the workers took.
        reported_errors: errors that components reported.
        last_error: the last error that was reported, or that ended a worker; empty if there was none.
        latencies: complete latencies of the acked roots.
        lag: of each spout that knows it, how many records its tasks are behind the end of their source.
    """

    topology_id: str
    reason: str
    elapsed_secs: float
    emitted: int
    acked: int
    failed: int
    pending: int
    latency_p50_secs: float | None
    latency_p99_secs: float | None
    components: Mapping[str, Counts]
    workers: int
    workers_running: int
    restarts: int
    worker_cpu_secs: float
    reported_errors: int
    last_error: str
    latencies: LatencyHistogram = attrs.field(factory=LatencyHistogram, repr=False)
    lag: Mapping[str, int] = attrs.field(factory=dict)


class RunningTopology:
    """A plain topology that runs; made by :func:`start`. Leaving it as a context stops it.

    Args:
        plan: the plan.
        config: its configuration, as it is for plain topologies.
        spark: the session to use.
        on_stage: is called with what is being done before it runs.
    """

    def __init__(
        self,
        plan: PlainPlan,
        config: Config,
        spark: SparkSession | None,
        on_stage: Callable[[str], None] | None,
    ) -> None:
        self._plan = plan.limited(config)
        self._config = config
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._is_active = True
        self._reason = ""
        self._past = _Past()
        self._exits = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self._session = stack.enter_context(_session(plan, config, spark, on_stage))
            stack.enter_context(user_output_logged())
            self._run = self._begin(config.workers)
            self._exits = stack.pop_all()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it; at once if an exception leaves the context."""
        self.stop(None if error is None else 0.0)
        with contextlib.suppress(TxtopoError):
            self.wait()

    def activate(self) -> None:
        """Call the spouts' ``next_tuple`` again."""
        self.set_active(is_active=True)

    def deactivate(self) -> None:
        """Stop calling ``next_tuple``; what is under way goes on, and timeouts too."""
        self.set_active(is_active=False)

    def set_active(self, *, is_active: bool) -> None:
        """Activate or deactivate it."""
        self._is_active = is_active
        self._run.server.post(ActivationAsked(is_active))

    def rebalance(self, workers: int) -> None:
        """Move the tasks to another number of workers: wait for what is pending, up to the message timeout; restart.

        Every component begins anew; tasks keep their ids and their number.

        Raises:
            ConfigError: there must be one worker at least.
            TxtopoError: the run has failed.
        """
        if workers < 1:
            raise ConfigError(f"a topology has 1 worker at least, not {workers}")
        with self._lock:
            if self._reason:
                return
            self._end(self._config.message_timeout_secs)
            self._run = self._begin(workers)

    def stop(self, wait_secs: float | None = None) -> None:
        """Ask it to end: deactivate, wait for what is pending, close. Returns at once; see :meth:`wait`.

        Args:
            wait_secs: how long to wait for what is pending; None: the message timeout. What is pending then is neither
                acked nor failed.
        """
        self._reason = self._reason or "stopped"
        self._run.server.post(StopAsked(self._config.message_timeout_secs if wait_secs is None else wait_secs))

    def wait(
        self, timeout_secs: float | None = None, *, on_progress: Callable[[PlainReport], None] | None = None
    ) -> PlainReport:
        """Wait until it has ended, and return what it did.

        Args:
            timeout_secs: how long to wait; None: as long as it takes.
            on_progress: is called meanwhile with what it does, several times a second, in this thread.

        Raises:
            TimeoutError: it runs still.
            UserCodeError: a component raised an exception again and again.
            InputError: input can't be read, or a source refuses a spout.
            StopError: workers were lost again and again.
        """
        end = None if timeout_secs is None else time.monotonic() + timeout_secs
        while True:
            run = self._run
            left = None if end is None else max(0.0, end - time.monotonic())
            # In short waits: only between them a signal's handler is called.
            if run.server.join(_PROGRESS_SECS if left is None else min(left, _PROGRESS_SECS)):
                with self._lock:
                    if run is self._run:
                        break
            elif on_progress is not None:
                on_progress(self.report())
            if left == 0.0:
                raise TimeoutError(f"topology {self._plan.topology_id!r} runs still")
        self._reason = self._reason or "every spout is exhausted"
        report = self.report()
        self._exits.close()
        _raise(run.server.error)
        return report

    def report(self) -> PlainReport:
        """Return what it did so far, as its workers last said."""
        run = self._run
        vitals = [each for each in run.supervisor.vitals if each is not None]
        statuses: list[WorkerStatus] = [each.body for each in vitals]
        counts = by_component([*self._past.counts, *(each for status in statuses for each in status.counts)])
        latencies = LatencyHistogram.sum([self._past.latencies, *(status.latencies for status in statuses)])
        spouts = [counts[spout.id] for spout in self._plan.spouts if spout.id in counts]
        errors = [self._past.last_error, *(status.last_error for status in statuses)]
        return PlainReport(
            topology_id=self._plan.topology_id,
            reason=self._reason if run.server.join(0) else "",
            elapsed_secs=time.monotonic() - self._began,
            emitted=sum(sum(each.emitted.values()) for each in spouts),
            acked=sum(each.acked for each in spouts),
            failed=sum(each.failed for each in spouts),
            pending=sum(status.pending for status in statuses),
            latency_p50_secs=latencies.quantile(0.5),
            latency_p99_secs=latencies.quantile(0.99),
            components=counts,
            workers=run.workers,
            workers_running=run.supervisor.running,
            restarts=self._past.restarts + run.supervisor.restarts,
            worker_cpu_secs=self._past.cpu_secs + sum(each.cpu_secs for each in vitals),
            reported_errors=self._past.reported_errors + sum(status.reported_errors for status in statuses),
            last_error=next((each for each in reversed(errors) if each), ""),
            latencies=latencies,
            lag=_sums(each for status in statuses for each in status.lag),
        )

    def _begin(self, workers: int) -> _Run:
        from txtopo.spark.plain_workers import SparkWorkers, WorkerPackage, pack_up  # noqa: PLC0415 - pyspark
        from txtopo.spark.session import DriverHost  # noqa: PLC0415 - as above
        from txtopo.spark.shipping import make_importable  # noqa: PLC0415 - as above
        from txtopo.spark.user_lines import LineListener, LinesAddress  # noqa: PLC0415 - as above

        context = self._session.sparkContext
        host = DriverHost.of(context)
        run_key, secret = secrets.token_bytes(16), new_secret()
        listener = Listener(host.bound, secret)
        lines = LineListener(host.reached, run_key, host.bound)
        level = logging.getLogger(USER_LOGGER).getEffectiveLevel()
        assignment = assign(self._plan, workers, self._config.acker_executors)
        package = WorkerPackage(
            run_key=run_key,
            content=pack_up(self._plan, assignment, self._config),
            import_paths=make_importable(context),
            secret=secret,
            driver=(host.reached, listener.address[1]),
            lines=LinesAddress(host.reached, lines.port, level),
        )
        supervisor = Supervisor(
            workers,
            restarts_max=self._config.worker_max_restarts,
            period_secs=self._config.worker_restart_period_secs,
            is_active=self._is_active,
            now=time.monotonic(),
            held_secs_max=self._config.message_timeout_secs,
            component_of={task: component.id for component in self._plan.components for task in component.tasks},
        )
        server = ControlServer(supervisor, SparkWorkers(context, package), listener, self._past.take)
        server.start()
        self._exits.callback(lines.close)
        return _Run(supervisor, server, workers)

    def _end(self, wait_secs: float) -> None:
        """End the workers, and keep what they have counted."""
        run = self._run
        run.server.post(StopAsked(wait_secs))
        run.server.join()
        for vitals in run.supervisor.vitals:
            if vitals is not None:
                self._past.take(vitals)
        self._past.restarts += run.supervisor.restarts
        _raise(run.server.error)


@attrs.frozen
class _Run:
    """The workers of a run between two rebalances."""

    supervisor: Supervisor
    server: ControlServer
    workers: int


@attrs.define
class _Past:
    """What workers counted that are no more."""

    counts: list[tuple[str, Counts]] = attrs.field(factory=list)
    latencies: LatencyHistogram = attrs.field(factory=LatencyHistogram)
    restarts: int = 0
    cpu_secs: float = 0.0
    reported_errors: int = 0
    last_error: str = ""

    def take(self, vitals: Vitals) -> None:
        """Add what a worker said last."""
        status: WorkerStatus = vitals.body
        self.counts = list(by_component([*self.counts, *status.counts]).items())
        self.latencies = LatencyHistogram.sum([self.latencies, status.latencies])
        self.cpu_secs += vitals.cpu_secs
        self.reported_errors += status.reported_errors
        self.last_error = status.last_error or self.last_error


def start(
    topology: PlainTopology,
    config: Config | Mapping[str, Any] | None = None,
    *,
    spark: SparkSession | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> RunningTopology:
    """Start a plain topology and return at once.

    Args:
        topology: what ``TopologyBuilder.build()`` returned.
        config: the configuration; defaults are used for what it leaves out.
        spark: the session to use; otherwise an active one, or one that is started here and stopped at the end.
        on_stage: is called before that with what is being done: ``starting Spark``.

    Raises:
        ConfigError: a setting does not fit a plain topology, or there is no Spark that it can run on.
    """
    given = config if isinstance(config, Config) else Config(config)
    of_kind = given.of_kind(TopologyKind.PLAIN)
    _check_spark_settings(of_kind.spark)
    return RunningTopology(topology.plan, of_kind, spark, on_stage)


@contextlib.contextmanager
def _session(
    plan: PlainPlan, config: Config, spark: SparkSession | None, on_stage: Callable[[str], None] | None
) -> Iterator[SparkSession]:
    from txtopo.spark.session import spark_session  # noqa: PLC0415 - pyspark only where Spark runs

    if on_stage is not None:
        on_stage("starting Spark")
    master = config.spark_master or f"local[{max(config.workers, _cores())}]"
    with spark_session(config.with_settings({"topology.spark.master": master}), plan.topology_id, spark) as session:
        settings = session.sparkContext.getConf().getAll()
        _check_spark_settings(dict(settings))
        yield session


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_REFUSED = {
    "spark.speculation": "a worker would run twice",
    "spark.python.worker.killOnIdleTimeout": "a worker that waits for tuples would be killed",
}
"""Settings of Spark that long-running workers cannot live with, and why."""


def _check_spark_settings(settings: Mapping[str, str]) -> None:
    for name, why in _REFUSED.items():
        if settings.get(name, "false").lower() == "true":
            raise ConfigError(f"{name}=true does not go with plain topologies: {why}; leave it out")


def _sums(lag: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for spout, records in lag:
        sums[spout] = sums.get(spout, 0) + records
    return sums


def _raise(error: Exception | None) -> None:
    if error is None:
        return
    if isinstance(error, (UserCodeError, ConfigError, InputError, StopError)):
        raise error
    raise StopError(f"workers were lost again and again; the last one: {error}") from error
