"""What a worker of a plain topology runs in its Spark task."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from threading import get_ident

import cloudpickle

from txtopo.config import Config
from txtopo.plain.tasks.task import Observer
from txtopo.plain.worker import Worker
from txtopo.spark.tasks.run_package import RunPackage, pack_up
from txtopo.spark.tasks.user_lines import lines_sent
from txtopo.topology.plans.assignment import Assignment
from txtopo.topology.plans.plain_plan import PlainPlan
from txtopo.topology.user_code.output import OutputOrigin, renewed
from txtopo.workers.messages import Welcome
from txtopo.workers.process import Links, WorkerJob, run_worker
from txtopo.workers.watcher import NO_TASK


def pack_up_workers(plan: PlainPlan, assignment: Assignment, config: Config, secret: bytes) -> bytes:
    """Return the content of a run package for :func:`run_plain_worker`."""
    # Each prototype is pickled by itself, so that every task can load its own copy.
    prototypes = {component.id: cloudpickle.dumps(component.component) for component in plan.components}
    return pack_up(plan.without_objects(), assignment, config, prototypes, secret)


def run_plain_worker(package: RunPackage, number: int, job: int) -> None:
    """Run a worker in this process until the driver stops it; :func:`pack_up_workers` made the package."""
    with lines_sent(package.lines_address, package.run_key):
        plan, assignment, config, prototypes, secret = package.unpacked()

        def make_body(welcome: Welcome, links: Links) -> Worker:
            generations = {peer.worker: peer.generation for peer in welcome.peers}
            return Worker(
                plan,
                assignment,
                number,
                config,
                {**generations, number: welcome.generation},
                make_object=lambda component: cloudpickle.loads(prototypes[component]),
                send=links.send,
                clock=time.monotonic,
                rng=random.Random(),  # noqa: S311 - ids of tuples are no secrets
                observer=_OutputObserver(links.record_task),
            )

        run_worker(
            WorkerJob(number, job, secret, package.driver_address, None, config.worker_watermark_bytes), make_body
        )


class _OutputObserver(Observer):
    """Attributes what user code prints and logs to its component and task, and marks whose turn it is."""

    def __init__(self, record_task: Callable[[int], None]) -> None:
        self._record_task = record_task
        self._thread = get_ident()
        self._origins: dict[int, OutputOrigin] = {}

    def turn(self, component: str, task: int) -> None:
        """Attribute output to this task from now on."""
        self.current = component, task
        self._record_task(task)
        origin = self._origins.get(task)
        if origin is None:
            origin = self._origins[task] = OutputOrigin(component, task=task)
        OutputOrigin.running[self._thread] = origin

    def no_turn(self) -> None:
        """Attribute output to no task from now on."""
        self.current = None
        self._record_task(NO_TASK)
        OutputOrigin.running.pop(self._thread, None)

    def timers_ran(self) -> None:
        """Begin a new interval of output."""
        renewed()
