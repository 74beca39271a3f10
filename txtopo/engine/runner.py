"""``run``: runs a topology, transactional or plain, to its end."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, overload

import attrs

from txtopo.api.arguments import checked_arguments
from txtopo.assembly.assembly import assembled
from txtopo.assembly.environment import Environment
from txtopo.assembly.parts import Observer, Observers, OnProgress
from txtopo.assembly.plain.report import PlainReport
from txtopo.assembly.plain.runner import start
from txtopo.assembly.report import Progress, RunReport
from txtopo.config import MICRO_BATCH, REAL_TIME, Config
from txtopo.engine.control import RunControl
from txtopo.engine.exporting import exporting
from txtopo.engine.timeline.ends import metadata_dir_if_any, place_of
from txtopo.engine.timeline.observer import Timeline
from txtopo.errors import ConfigError, TxtopoError
from txtopo.settings.setting import TopologyKind
from txtopo.text.secrecy import without_secrets
from txtopo.topology.plans.plan import Plan
from txtopo.topology.topology import PlainTopology, Topology, TransactionalTopology
from txtopo.topology.user_code.modules import refuse_twins
from txtopo.topology.user_code.output import user_output_logged
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.workers.garbage import seldom_collected
from txtopo.workers.process_wide import until_the_last

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TURN_SECS = 0.0005
"""How long a thread keeps Python's interpreter lock while another one waits for it. Python's 5 ms are long for a
commit, which gives the lock away at each wait for the disk and in Arrow, and wants it back: beside a thread that never
rests, as the upkeep of a log for some tenths of a second, one took 87 ms on a busy machine, and 148 with 5 ms."""


def _call_both(first: Callable[[Any], None] | None, second: Callable[[Any], None]) -> Callable[[Any], None]:
    if first is None:
        return second

    def call(news: Any) -> None:
        first(news)
        second(news)

    return call


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
    timeline: Path | None = None,
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
    timeline: Path | None = None,
) -> PlainReport: ...


@checked_arguments
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
    timeline: Path | None = None,
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
        timeline: the folder of the run's timeline, which ``txtopo ui`` shows; by default it is in the metadata
            directory, and a topology that has none keeps no timeline.

    Returns:
        The result of the run.

    Raises:
        ConfigError: no suitable Spark is available; nothing was written.
        RuleError: a bolt or spout has a bug, input can't be read, or a transaction failed as often as allowed; the
            error names component, transaction and attempt.
        StopError: another process runs the topology or has taken the lead, or coordinator state and tables do not
            belong together.
    """
    refuse_twins()
    config = config if isinstance(config, Config) else Config(config)
    control = control or RunControl()
    place = timeline or place_of(topology, config)
    if place is not None:
        with Timeline(topology, config, place, metadata_dir=metadata_dir_if_any(topology, config)) as run_timeline:
            both = run_timeline if observer is None else Observers(observer, run_timeline)
            report = _run(topology, config, control, spark, until, on_progress, on_stage, both)
            run_timeline.ended = report.reason
            return report
    return _run(topology, config, control, spark, until, on_progress, on_stage, observer)


def _run(  # noqa: PLR0913, PLR0917 - as above
    topology: Topology,
    config: Config,
    control: RunControl,
    spark: SparkSession | None,
    until: int | None,
    on_progress: Callable[[Any], None] | None,
    on_stage: Callable[[str], None] | None,
    observer: Observer | None,
) -> RunReport | PlainReport:
    if observer is not None:
        on_stage, on_progress = _call_both(on_stage, observer.entered), _call_both(on_progress, observer.progressed)
    if isinstance(topology, PlainTopology):
        if until is not None:
            raise ConfigError(
                f"{topology.id!r} is a plain topology, which has no transactions to run until: leave it out"
            )
        # Read once: a deactivation between the start and ``steering`` differs from it, and is passed on there.
        active = control.is_active
        with (
            _with_places({}, config.given),
            start(topology, config, spark=spark, on_stage=on_stage, active=active) as running,
            _stop_on_signals(running.stop),
            control.steering(lambda on: running.set_active(is_active=on), running.stop, is_active=active),
        ):
            return running.wait(on_progress=on_progress)
    assert isinstance(topology, TransactionalTopology), "there are two kinds"
    from txtopo.spark.session.sessions import check_spark  # noqa: PLC0415 - imports pyspark only if Spark is used

    config = config.of_kind(TopologyKind.TRANSACTIONAL)
    make_runner = _maker_of_runner(topology.plan, config)
    check_spark(config, spark, delta_users=topology.plan.delta_users)
    environment = Environment(
        functools.partial(make_runner, spark=spark, on_stage=on_stage), observer=observer or Observer()
    )
    if on_stage is not None:
        environment = attrs.evolve(environment, on_stage=on_stage)
    return run_with(topology, config, environment, until=until, on_progress=on_progress, control=control)


def _maker_of_runner(plan: Plan, config: Config) -> Callable[..., AbstractContextManager[JobRunner]]:
    """Return the function that makes what runs a mode's jobs; ConfigError if topology or Spark rule the mode out."""
    if not config.is_real_time:
        from txtopo.spark.jobs.job_runner import spark_job_runner  # noqa: PLC0415 - imports pyspark only if Spark is used

        return spark_job_runner
    if plan.dataframes:
        names = ", ".join(repr(component.id) for component in plan.dataframes)
        raise ConfigError(
            f"topology.processing.mode = {REAL_TIME}: {names} runs on DataFrames, which Spark SQL computes in jobs of "
            f"its own, and in this mode workers hold all of Spark's slots; choose {MICRO_BATCH}, or write it in Python"
        )
    from txtopo.spark.jobs.pool_runner import spark_pool_runner  # noqa: PLC0415 - as above
    from txtopo.spark.jobs.workers import check_settings  # noqa: PLC0415 - as above

    check_settings(config.spark)
    return spark_pool_runner


def run_with(  # noqa: PLR0913 - as above
    topology: TransactionalTopology,
    config: Config,
    environment: Environment,
    *,
    until: int | None = None,
    on_progress: OnProgress | None = None,
    control: RunControl | None = None,
) -> RunReport:
    """Run a transactional topology in an environment; see :func:`run`."""
    control = control or RunControl()
    with _with_places(topology.places, config.given), exporting(topology, config, environment) as exported:
        run = assembled(topology, config, exported.environment, until=until, on_progress=on_progress)
        with seldom_collected(), _short_turns(), user_output_logged(config.given), run as assembly:
            loop = assembly.run_loop
            with (
                _stop_on_signals(loop.request_stop),
                control.steering(lambda on: loop.set_active(is_active=on), lambda _: loop.request_stop()),
            ):
                report = loop.run(assembly.start)
        exported.ended(report)
    return report


@contextlib.contextmanager
def _with_places(places: Mapping[str, str], settings: Mapping[str, object]) -> Iterator[None]:
    """Let errors say where users have written the component, and nothing of the secrets that its code quotes."""
    try:
        yield
    except TxtopoError as error:
        place = places.get(error.component or "")
        if place is not None:
            error.story = "\n".join(filter(None, [f"written in {place}", error.story]))
        error.hide(functools.partial(without_secrets, settings=settings))
        raise


@until_the_last
@contextlib.contextmanager
def _short_turns() -> Iterator[None]:
    """Let threads hand one another Python's interpreter lock soon within the context."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN_SECS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextlib.contextmanager
def _stop_on_signals(request_stop: Callable[[], None]) -> Iterator[None]:
    """Treat SIGINT and SIGTERM as requests to stop; Python allows handlers on the main thread only."""
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
