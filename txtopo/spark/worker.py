"""The code of a Spark task: runs one stage of a job in one slot."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Iterable, Iterator

from txtopo.spark.progress import ProgressSender, send_late
from txtopo.spark.run_package import RunPackage
from txtopo.spark.user_lines import lines_sent
from txtopo.transactional.jobs.stage_run import Item, Job, SlotItem, StageRun
from txtopo.transactional.tasks.factory import TaskFactory
from txtopo.transactional.tasks.progress_probe import ProgressProbe

_task_factories: dict[bytes, TaskFactory] = {}
"""The task factory of this process's current run, by run key; at most one."""


def task_factory_of(package: RunPackage) -> TaskFactory:
    """Return this process's task factory for a run; close that of an earlier run."""
    task_factory = _task_factories.get(package.run_key)
    if task_factory is None:
        close_task_factories()
        task_factory = _task_factories[package.run_key] = TaskFactory(*package.unpacked())
        task_factory.tell_late = functools.partial(send_late, package.driver_address, package.run_key)
    return task_factory


def close_task_factories() -> None:
    """Close the current run's task factory."""
    while _task_factories:
        _task_factories.popitem()[1].close()


atexit.register(close_task_factories)


def run_stage(package: RunPackage, job: Job, stage_index: int, slot: int, items: Iterable[Item]) -> Iterator[SlotItem]:
    """Run one stage of a job in this process.

    Args:
        package: the run's data.
        job: the job.
        stage_index: the index of the stage.
        slot: the index of the slot.
        items: the items that earlier stages sent to this slot.
    """
    probe = ProgressProbe()
    with (
        lines_sent(package.lines_address, package.run_key),
        ProgressSender(package.driver_address, package.run_key, job.job_id, probe),
    ):
        task_factory = task_factory_of(package)
        yield from StageRun(task_factory, job, stage_index, slot, probe).run(items)
