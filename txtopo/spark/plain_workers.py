"""Workers of plain topologies in Spark: each is a job of one task, which lasts as long as the worker."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from typing import Any

import cloudpickle
from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext

from txtopo.config import Config
from txtopo.errors import ConfigError, JobFailure
from txtopo.plain.loop.worker import Worker
from txtopo.plain.tasks.task import Observer
from txtopo.spark.errors import error_of_python, line_that_matters
from txtopo.spark.run_package import RunPackage, pack_up
from txtopo.spark.user_lines import lines_sent
from txtopo.topology.assignment import Assignment
from txtopo.topology.output import OutputOrigin, renewed
from txtopo.topology.plain_plan import PlainPlan
from txtopo.workers.control import JobStarter
from txtopo.workers.messages import Welcome
from txtopo.workers.process import WorkerJob, run_worker
from txtopo.workers.watcher import NO_TASK


def pack_up_workers(plan: PlainPlan, assignment: Assignment, config: Config, secret: bytes) -> bytes:
    """Return the content of a run package for :func:`run_plain_worker`."""
    # Each prototype is pickled by itself, so that every task can load its own copy.
    prototypes = {each.id: cloudpickle.dumps(each.component) for each in plan.components}
    return pack_up(plan.without_objects(), assignment, config, prototypes, secret)


def run_plain_worker(package: RunPackage, number: int, job: int) -> None:
    """Run a worker in this process until the driver stops it; :func:`pack_up_workers` made the package."""
    with lines_sent(package.lines_address, package.run_key):
        plan, assignment, config, prototypes, secret = package.unpacked()

        def make_body(welcome: Welcome, send: Callable[[int, bytes], None], mark: Callable[[int], None]) -> Worker:
            incarnations = {peer.worker: peer.incarnation for peer in welcome.peers}
            return Worker(
                plan,
                assignment,
                number,
                config,
                {**incarnations, number: welcome.incarnation},
                make_object=lambda component: cloudpickle.loads(prototypes[component]),
                send=send,
                clock=time.monotonic,
                rng=random.Random(),  # noqa: S311 - ids of tuples are no secrets
                observer=_OutputObserver(mark),
            )

        run_worker(
            WorkerJob(number, job, secret, package.driver_address, None, config.worker_watermark_bytes), make_body
        )


class _OutputObserver(Observer):
    """Attributes what user code prints and logs to its component and task, with a bound for each interval.

    It also marks, for the worker's watcher, which task has its turn.
    """

    def __init__(self, mark: Callable[[int], None]) -> None:
        self._mark = mark
        self._thread = get_ident()
        self._origins: dict[int, OutputOrigin] = {}

    def turn(self, component: str, task: int) -> None:
        """Attribute output to this task from now on."""
        self.current = component, task
        self._mark(task)
        origin = self._origins.get(task)
        if origin is None:
            origin = self._origins[task] = OutputOrigin(component, task=task)
        OutputOrigin.running[self._thread] = origin

    def no_turn(self) -> None:
        """Attribute output to no task from now on."""
        self.current = None
        self._mark(NO_TASK)
        OutputOrigin.running.pop(self._thread, None)

    def looked(self) -> None:
        """Begin a new interval of output."""
        renewed()


class SparkWorkers(JobStarter):
    """Starts workers as jobs of Spark."""

    def __init__(self, context: SparkContext, package: RunPackage) -> None:
        self._context = context
        self._package = package

    def start(self, worker: int, job: int, on_end: Callable[[Exception | None], None]) -> None:
        """Submit the job of a worker."""

        def run() -> None:
            error: Exception | None = None
            try:
                self._context.setJobGroup(self._group(worker, job), f"worker {worker}", interruptOnCancel=True)
                self._context.setLocalProperty("spark.scheduler.pool", f"worker-{worker}")
                self._context.parallelize([None], 1).mapPartitions(self._function(worker, job)).collect()
            except Exception as failure:  # noqa: BLE001 - supervision decides what follows
                error = _why(failure)
            on_end(error)

        thread = InheritableThread(target=run, name=f"txtopo-worker-{worker}")
        thread.daemon = True
        thread.start()

    def cancel(self, worker: int, job: int) -> None:
        """Cancel the job of a worker."""
        if self._context._jsc is not None:  # noqa: SLF001 - None once the session is stopped
            with contextlib.suppress(Py4JError, OSError):  # the JVM may be gone, and the job with it
                self._context.cancelJobGroup(self._group(worker, job))

    def _group(self, worker: int, job: int) -> str:
        return f"txtopo-{self._package.run_key.hex()}-worker-{worker}-{job}"

    def _function(self, worker: int, job: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
        package = self._package

        def work(_: Iterable[Any]) -> Iterator[Any]:
            run_plain_worker(package, worker, job)
            return iter(())

        return work


def _why(failure: Exception) -> Exception:
    """Return the error that ended a job, without Spark's own lines."""
    wrong: ConfigError | None = error_of_python(str(failure))
    return wrong or JobFailure(f"Spark lost its job: {line_that_matters(str(failure))}")
