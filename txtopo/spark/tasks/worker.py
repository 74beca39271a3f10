"""The code of a Spark task: runs one stage of a job in one partition."""

from __future__ import annotations

import atexit
import functools
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import RuleError
from txtopo.spark.tasks.progress import ProgressSender
from txtopo.spark.tasks.run_package import RunPackage
from txtopo.spark.tasks.user_lines import LATE, LineSender, lines_sent
from txtopo.topology.user_code.output import Line
from txtopo.transactional.jobs.stage_run import Item, Job, PartitionItem, StageRun
from txtopo.transactional.tasks.factory import TaskFactory

_task_factories: dict[bytes, TaskFactory] = {}
"""The task factory of this process's current run, by run key; at most one."""


def task_factory_of(package: RunPackage) -> TaskFactory:
    """Return this process's task factory for a run; close that of an earlier run."""
    task_factory = _task_factories.get(package.run_key)
    if task_factory is None:
        close_task_factories()
        task_factory = _task_factories[package.run_key] = TaskFactory(*package.unpacked())
        task_factory.record_late = functools.partial(_send_late, package)
    return task_factory


def _send_late(package: RunPackage, error: RuleError) -> None:
    """Send what a user's thread did after its batch was over; perhaps no task of the run is left here to send it."""
    sender = LineSender(package.lines_address, package.run_key)
    sender.send(Line(logging.ERROR, error.message, LATE, error.component, None, error.txid, error.attempt))
    sender.flush()


def close_task_factories() -> None:
    """Close the current run's task factory."""
    while _task_factories:
        _task_factories.popitem()[1].close()


atexit.register(close_task_factories)


def stage_function(
    package: Any, job: Job, stage: int
) -> Callable[[int, Iterable[PartitionItem]], Iterator[PartitionItem]]:
    """Return a function on an RDD of (partition, item) pairs that runs one stage of a job in a partition."""

    def run(partition: int, pairs: Iterable[PartitionItem]) -> Iterator[PartitionItem]:
        return run_stage(package.value, job, stage, partition, (item for _, item in pairs))

    return run


def same_partition(partition: int) -> int:
    """Return the partition: Spark's partition function for pairs, whose key it is."""
    return partition


def run_stage(
    package: RunPackage, job: Job, stage_index: int, partition: int, items: Iterable[Item]
) -> Iterator[PartitionItem]:
    """Run one stage of a job in this process."""
    probe = ProgressProbe()
    with (
        lines_sent(package.lines_address, package.run_key),
        ProgressSender(package.driver_address, package.run_key, lambda: (job.job_id,), probe),
    ):
        task_factory = task_factory_of(package)
        yield from StageRun(task_factory, job, stage_index, partition, probe).run(items)
