"""Runs plain topologies on Spark: ``start`` and what it returns."""

from __future__ import annotations

import contextlib
import functools
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, assert_never

import attrs

from txtopo.api.arguments import checked_arguments
from txtopo.assembly.plain.report import PlainReport, Totals, report_of
from txtopo.assembly.plain.steering import (
    Action,
    Answer,
    BeginWorkers,
    Event,
    Finish,
    RebalanceAsked,
    Steering,
    WorkersEnded,
)
from txtopo.config import Config
from txtopo.errors import ConfigError, RuleError, StopError, TxtopoError
from txtopo.settings.setting import TopologyKind
from txtopo.topology.plans.assignment import assign
from txtopo.topology.plans.plain_plan import PlainPlan
from txtopo.topology.topology import PlainTopology
from txtopo.topology.user_code.output import USER_LOGGER, user_output_logged
from txtopo.workers.control import ControlServer
from txtopo.workers.events import ActivationAsked, StopAsked
from txtopo.workers.handshake import Listener, new_secret
from txtopo.workers.messages import Health
from txtopo.workers.supervisor import Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROGRESS_SECS = 0.25
"""Often enough for a display that looks alive."""


class RunningTopology:
    """A plain topology that runs; :func:`start` returns it. Leaving it as a context stops it.

    All methods may be called in any thread, at any time. Requests are carried out in the order of the calls; one that
    comes too late, because the topology ends or has ended, is ignored.
    """

    def __init__(
        self,
        plan: PlainPlan,
        config: Config,
        spark: SparkSession | None,
        on_stage: Callable[[str], None] | None,
        *,
        is_active: bool,
    ) -> None:
        self._plan = plan.limited(config)
        self._config = config
        self._began = time.monotonic()
        self._steering = Steering(config.workers or 1, rebalance_secs=config.message_timeout_secs, is_active=is_active)
        # Requests only put something here: a signal's handler may make them, and interrupt any line of its thread. A
        # SimpleQueue allows that; a lock that the interrupted line holds would never be free.
        self._asked: queue.SimpleQueue[Event | tuple[RebalanceAsked, Future[None]]] = queue.SimpleQueue()
        self._waiting: list[Future[None]] = []
        """The callers of ``rebalance``."""
        self._finish: Finish | None = None
        self._has_ended = threading.Event()
        self._lock = threading.Lock()
        """Held while counts are read, or move from the workers to the totals."""
        self._past = Totals()
        with contextlib.ExitStack() as stack:
            from txtopo.spark.jobs.workers import session_for_workers  # noqa: PLC0415 - pyspark only where Spark runs

            self._session = stack.enter_context(session_for_workers(config, plan.topology_id, spark, on_stage))
            stack.enter_context(user_output_logged(config.given))
            self._run = self._begin(config.workers or 1, is_active=is_active)
            self._exits = stack.pop_all()
        threading.Thread(target=self._steer, name="txtopo-steering", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        self.stop(None if error is None else 0.0)
        with contextlib.suppress(TxtopoError):  # the error of the run, which would hide the caller's exception
            self.wait()

    def activate(self) -> None:
        """Call the spouts' ``next_tuple`` again."""
        self.set_active(is_active=True)

    def deactivate(self) -> None:
        """Stop calling ``next_tuple``; tuples are still executed, and roots still time out."""
        self.set_active(is_active=False)

    def set_active(self, *, is_active: bool) -> None:
        """Activate or deactivate it."""
        self._asked.put(ActivationAsked(is_active))

    def rebalance(self, workers: int) -> None:
        """Move the tasks to another number of workers.

        The spouts are deactivated, and pending roots get up to the message timeout to be acked. Then the workers end,
        and others start: every component starts again, and tasks keep their ids and their number. The call returns once
        the new workers' jobs are submitted. If several rebalances wait, the last number counts. A topology that ends or
        has ended, or whose spouts are all exhausted by then, does not start again.

        Raises:
            ConfigError: ``workers`` is less than 1.
            TxtopoError: the run has failed.
        """
        if workers < 1:
            raise ConfigError(f"a topology has 1 worker at least, not {workers}")
        future: Future[None] = Future()
        self._asked.put((RebalanceAsked(workers), future))
        while not future.done() and not self._has_ended.is_set():
            # Short waits: Python calls a signal's handler only between them.
            with contextlib.suppress(TimeoutError):
                future.exception(_PROGRESS_SECS)
        _raise(future.exception() if future.done() else self._error)

    def stop(self, wait_secs: float | None = None) -> None:
        """Ask it to deactivate the spouts, wait for pending roots, and end. Returns at once; see :meth:`wait`.

        Args:
            wait_secs: how long to wait for pending roots; None: the message timeout. Roots that are still pending then
                are neither acked nor failed.
        """
        self._asked.put(StopAsked(self._config.message_timeout_secs if wait_secs is None else wait_secs))

    def wait(
        self, timeout_secs: float | None = None, *, on_progress: Callable[[PlainReport], None] | None = None
    ) -> PlainReport:
        """Wait until it has ended, and return its report.

        Args:
            timeout_secs: how long to wait; None: without a limit.
            on_progress: is called several times a second with a report, in this thread.

        Raises:
            TimeoutError: it still runs after ``timeout_secs``.
            UserCodeError: a component raised an exception again and again.
            InputError: input can't be read, or a source refuses a spout.
            StopError: workers were lost again and again.
        """
        end = None if timeout_secs is None else time.monotonic() + timeout_secs
        while True:
            secs_left = None if end is None else max(0.0, end - time.monotonic())
            # Short waits, as in rebalance().
            if self._has_ended.wait(_PROGRESS_SECS if secs_left is None else min(secs_left, _PROGRESS_SECS)):
                break
            if on_progress is not None:
                on_progress(self.report())
            if secs_left == 0.0:
                raise TimeoutError(f"topology {self._plan.topology_id!r} still runs")
        report = self.report()
        self._exits.close()
        _raise(self._error)
        return report

    def report(self) -> PlainReport:
        """Return what it has done so far, as its workers last reported."""
        with self._lock:
            run = self._run
            health = [each for each in run.supervisor.health if each is not None]
            statuses = [each.status for each in health]
            past = self._past.plus(run.supervisor, health)
        return report_of(
            self._plan,
            past,
            statuses,
            reason="" if self._finish is None else self._finish.reason,
            elapsed_secs=time.monotonic() - self._began,
            workers=run.workers,
            workers_running=run.supervisor.running,
        )

    @property
    def _error(self) -> Exception | None:
        return None if self._finish is None else self._finish.error

    def _steer(self) -> None:
        """Take requests one after another, and carry out the actions, until the topology has ended."""
        while not self._has_ended.is_set():
            request = self._asked.get()
            if isinstance(request, tuple):
                request, answer = request
                self._waiting.append(answer)
            self._carry_out(self._steering.handle(request))

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case StopAsked() | ActivationAsked():
                    self._run.server.post(action)
                case BeginWorkers(workers, is_active):
                    try:
                        self._move(workers, is_active=is_active)
                    except Exception as error:  # noqa: BLE001 - nobody else would learn of it
                        self._carry_out(self._steering.handle(WorkersEnded(is_exhausted=False, error=error)))
                        return
                case Finish():
                    # Before the event: whoever waits for the end reads the error next.
                    self._finish = action
                    self._has_ended.set()
                case Answer(error):
                    waiting, self._waiting = self._waiting, []
                    for future in waiting:
                        future.set_result(None) if error is None else future.set_exception(error)
                case _:
                    assert_never(action)

    def _move(self, workers: int, *, is_active: bool) -> None:
        # The lock is taken after the start: report() must not wait for Spark.
        run = self._begin(workers, is_active=is_active)
        with self._lock:
            before = self._run.supervisor
            self._past = self._past.plus(before, [health for health in before.health if health is not None])
            self._run = run

    def _begin(self, workers: int, *, is_active: bool) -> _Run:
        from txtopo.assembly.plain.plain_workers import pack_up_workers, run_plain_worker  # noqa: PLC0415 - pyspark
        from txtopo.spark.jobs.workers import SparkWorkers  # noqa: PLC0415 - as above
        from txtopo.spark.session.sessions import DriverHost  # noqa: PLC0415 - as above
        from txtopo.spark.session.shipping import make_importable  # noqa: PLC0415 - as above
        from txtopo.spark.tasks.run_package import RunPackage  # noqa: PLC0415 - as above
        from txtopo.spark.tasks.user_lines import LineListener, LinesAddress  # noqa: PLC0415 - as above

        context = self._session.sparkContext
        host = DriverHost.of(context)
        run_key, secret = secrets.token_bytes(16), new_secret()
        with contextlib.ExitStack() as listeners:
            listener = Listener(host.bound, secret)
            listeners.callback(listener.close)  # the server closes it, too, once it has started
            lines = LineListener(host.reached, run_key, host.bound)
            listeners.callback(lines.close)
            level = logging.getLogger(USER_LOGGER).getEffectiveLevel()
            assignment = assign(self._plan, workers, self._config.acker_executors)
            package = RunPackage(
                run_key,
                pack_up_workers(self._plan, assignment, self._config, secret),
                make_importable(context),
                (host.reached, listener.address[1]),
                LinesAddress(host.reached, lines.port, level),
            )
            supervisor = self._supervisor(workers, is_active=is_active)
            jobs = SparkWorkers(context, run_key, functools.partial(run_plain_worker, package))
            server = ControlServer(supervisor, jobs, listener, self._take_past)
            server.start()
            open_listeners = listeners.pop_all()

        def tell_end() -> None:
            server.join()
            open_listeners.close()  # the workers have said their last lines
            self._asked.put(WorkersEnded(supervisor.is_exhausted, server.error))

        threading.Thread(target=tell_end, name="txtopo-workers", daemon=True).start()
        return _Run(supervisor, server, workers)

    def _supervisor(self, workers: int, *, is_active: bool) -> Supervisor:
        return Supervisor(
            workers,
            restarts_max=self._config.worker_max_restarts,
            period_secs=self._config.worker_restart_period_secs,
            is_active=is_active,
            now=time.monotonic(),
            stall_secs_max=self._config.message_timeout_secs,
            component_of={task: component.id for component in self._plan.components for task in component.tasks},
        )

    def _take_past(self, health: Health) -> None:
        with self._lock:
            self._past = self._past.with_health(health)


@attrs.frozen
class _Run:
    """The workers of a run between two rebalances."""

    supervisor: Supervisor
    server: ControlServer
    workers: int


@checked_arguments
def start(
    topology: PlainTopology,
    config: Config | Mapping[str, Any] | None = None,
    *,
    spark: SparkSession | None = None,
    on_stage: Callable[[str], None] | None = None,
    active: bool = True,
) -> RunningTopology:
    """Start a plain topology and return at once.

    Args:
        topology: what ``TopologyBuilder.build()`` returned.
        config: the configuration; settings that it leaves out have their defaults.
        spark: the session to use; None: the active one, or one that is started here and stopped at the end.
        on_stage: is called with each step of the start: ``starting Spark``.
        active: whether it starts active; if not, no spout is opened before :meth:`RunningTopology.activate`.

    Raises:
        ConfigError: a setting does not fit a plain topology, or there is no Spark that it can run on.
    """
    checked_config = config if isinstance(config, Config) else Config(config)
    of_kind = checked_config.of_kind(TopologyKind.PLAIN)
    from txtopo.spark.jobs.workers import check_settings  # noqa: PLC0415 - pyspark only where Spark runs

    check_settings(of_kind.spark)
    return RunningTopology(topology.plan, of_kind, spark, on_stage, is_active=active)


def _raise(error: BaseException | None) -> None:
    if error is None:
        return
    if isinstance(error, (RuleError, StopError)):
        raise error
    raise StopError(f"workers were lost again and again; the last one: {error}") from error
