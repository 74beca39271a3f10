"""Runs jobs in resident workers: the threads and sockets round the pool, and what runs in a worker's Spark task."""

from __future__ import annotations

import contextlib
import functools
import logging
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from pyspark.sql import SparkSession

from txtopo.attempts import TransactionAttempt
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.config import Config
from txtopo.errors import JobFailure, StateFailure
from txtopo.spark.jobs.workers import SparkWorkers, session_for_workers
from txtopo.spark.session.sessions import DriverHost
from txtopo.spark.session.shipping import make_importable
from txtopo.spark.tasks.progress import ProgressListener, ProgressSender
from txtopo.spark.tasks.run_package import RunPackage, pack_up
from txtopo.spark.tasks.user_lines import LineListener, LinesAddress, lines_sent, take_line
from txtopo.spark.tasks.worker import task_factory_of
from txtopo.topology.plans.plan import Plan
from txtopo.topology.user_code.output import USER_LOGGER
from txtopo.transactional.jobs.job_runner import JobRunner, OnAnswer, at_the_end
from txtopo.transactional.jobs.pool_answers import collected, compute_asked, computed, job_asked
from txtopo.transactional.jobs.pool_body import PoolBody
from txtopo.transactional.jobs.pool_owner import Asker, PoolOwner
from txtopo.transactional.jobs.stage_run import Job, Report
from txtopo.workers.control import ControlServer, JobStarter
from txtopo.workers.events import StopAsked
from txtopo.workers.handshake import Listener, new_secret
from txtopo.workers.messages import Address, Welcome
from txtopo.workers.process import Links, WorkerJob, run_worker
from txtopo.workers.supervisor import Supervisor

logger = logging.getLogger(__name__)

END_SECS = 15.0
"""How long the workers may take to end; supervision cancels them earlier."""


@attrs.frozen
class WorkerPlace:
    """What a worker needs to reach the driver, and its bound on what waits in it."""

    driver: Address
    secret: bytes = attrs.field(repr=False)
    watermark_bytes: int


def run_pool_worker(package: RunPackage, place: WorkerPlace, number: int, job: int) -> None:
    """Run a worker in this process until the driver stops it."""
    probe = ProgressProbe()
    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(lines_sent(package.lines_address, package.run_key))
        task_factory = task_factory_of(package)

        def make_body(_welcome: Welcome, links: Links) -> PoolBody:
            body = PoolBody(
                number,
                task_factory,
                send=links.send,
                tell=links.tell,
                flush=lines.flush,
                probe=probe,
                memory_max=place.watermark_bytes // 2,  # the other half is for what waits to be sent
            )
            stack.enter_context(ProgressSender(package.driver_address, package.run_key, body.job_ids, probe))
            return body

        run_worker(WorkerJob(number, job, place.secret, place.driver, None, place.watermark_bytes), make_body)


class PoolRunner(JobRunner):
    """Runs the jobs of one run in workers that ``jobs`` starts."""

    def __init__(self, slots: int, pooled: PoolOwner, progress: ProgressListener, close: Callable[[], None]) -> None:
        self.slots = slots
        self._pooled = pooled
        self._progress = progress
        self._close = close
        self._lock = threading.Lock()
        self._numbers: dict[int, int] = {}
        """By job that runs, its number in the pool."""
        self._cancelled: set[int] = set()
        """Jobs that were cancelled before they had a number."""

    def run(self, job: Job, on_progress: Callable[[], None], on_answer: OnAnswer = at_the_end) -> Sequence[Report]:
        """Run a job, and pass its answers on as they come.

        Raises:
            JobFailure: the job was lost, or cancelled.
            StopError: the workers are gone.
        """
        asker = Asker(on_progress=on_progress)
        content = pickle.dumps(job, 5)
        self._progress.listen(job.job_id, on_progress)
        try:
            with self._lock:
                if job.job_id in self._cancelled:
                    raise JobFailure("it was cancelled")
                self._numbers[job.job_id] = self._pooled.ask(lambda number: job_asked(number, job, content), asker)
            return collected(job, asker.take, on_answer, time.monotonic)
        finally:
            with self._lock:
                self._numbers.pop(job.job_id, None)
                self._cancelled.discard(job.job_id)
            self._progress.forget(job.job_id)

    def compute(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return ``function(item)`` for each item, computed in the workers, before what waits there.

        Raises:
            StateFailure: a worker died in it, or the function failed.
            StopError: the workers are gone.
        """
        if not items:
            return []
        asker = Asker()
        number = self._pooled.ask(compute_asked(function, items), asker)
        try:
            return computed(len(items), asker.take)
        except StateFailure:
            self._pooled.cancel(number)  # the items that have not failed
            raise

    def at_work(self) -> Mapping[TransactionAttempt, str]:
        """Return the component that each attempt has been in for a while in a worker."""
        return self._progress.at_work()

    def executors_lost(self) -> int:
        """Return how many workers were lost."""
        return self._pooled.workers_lost

    def cancel(self, job_id: int) -> None:
        """Stop a job that runs, or is about to."""
        with self._lock:
            number = self._numbers.get(job_id)
            if number is None:
                self._cancelled.add(job_id)
            else:
                self._pooled.cancel(number)

    def close(self) -> None:
        """End the workers."""
        self._close()


def start_pool(  # noqa: PLR0913 - keyword arguments
    plan: Plan,
    config: Config,
    prototypes: Mapping[str, bytes],
    *,
    slots: int,
    host: DriverHost,
    import_paths: tuple[str, ...],
    make_jobs: Callable[[RunPackage, WorkerPlace], JobStarter],
) -> PoolRunner:
    """Return a runner whose workers are starting; ``make_jobs`` returns what starts them."""
    run_key, secret = uuid.uuid4().bytes, new_secret()
    runner: PoolRunner

    progress = ProgressListener(host.reached, run_key, host.bound)
    lines = LineListener(host.reached, run_key, host.bound, lambda line: take_line(line, runner.record_late))
    listener = Listener(host.bound, secret)
    package = RunPackage(
        run_key,
        pack_up(plan.without_states(), dict(config), dict(prototypes)),
        import_paths,
        progress.address,
        LinesAddress(host.reached, lines.port, logging.getLogger(USER_LOGGER).getEffectiveLevel()),
    )
    place = WorkerPlace((host.reached, listener.address[1]), secret, config.worker_watermark_bytes)
    supervisor = Supervisor(
        slots,
        restarts_max=config.worker_max_restarts,
        period_secs=config.worker_restart_period_secs,
        is_active=True,
        now=time.monotonic(),
        stall_secs_max=config.message_timeout_secs,
        is_owned=True,
    )
    pooled = PoolOwner(lambda event: server.post(event))  # noqa: PLW0108 - the server comes next
    server = ControlServer(supervisor, make_jobs(package, place), listener, owner=pooled)

    def close() -> None:
        pooled.end_calls()  # first: a worker in a call does not hear that it is to stop, and the call may never return
        server.post(StopAsked(0.0))
        server.join(END_SECS)
        lines.close()  # last: workers print until they end
        progress.close()

    runner = PoolRunner(slots, pooled, progress, close)
    server.start()
    return runner


@contextlib.contextmanager
def spark_pool_runner(
    plan: Plan,
    config: Config,
    prototypes: Mapping[str, bytes],
    *,
    spark: SparkSession | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Iterator[PoolRunner]:
    """Yield a runner on a session: the caller's, the active one, or a new one that is stopped at the end."""
    with session_for_workers(config, plan.topology_id, spark, on_stage, delta_users=plan.delta_users) as session:
        context = session.sparkContext

        def make_jobs(package: RunPackage, place: WorkerPlace) -> JobStarter:
            return SparkWorkers(context, package.run_key, functools.partial(run_pool_worker, package, place))

        runner = start_pool(
            plan,
            config,
            prototypes,
            slots=config.workers or max(1, context.defaultParallelism),
            host=DriverHost.of(context),
            import_paths=make_importable(context),
            make_jobs=make_jobs,
        )
        with contextlib.closing(runner):
            yield runner
