"""The code of a Spark task: runs one stage of a job in one partition."""

from __future__ import annotations

import atexit
import functools
import logging
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import cloudpickle

from txtopo.errors import RuleError
from txtopo.garbage import collect_seldom
from txtopo.spark.progress import ProgressSender
from txtopo.spark.user_lines import LinesAddress, LineSender, lines_sent
from txtopo.topology.output import Line
from txtopo.topology.plan import Plan
from txtopo.transactional.jobs.stage_run import Item, Job, PartitionItem, StageRun
from txtopo.transactional.tasks.factory import TaskFactory
from txtopo.transactional.tasks.progress_probe import ProgressProbe

LATE = "txtopo.late"
"""The source of a line that is no output, but tells the driver what a user's thread did too late."""


@attrs.frozen
class RunPackage:
    """The data that every task of a run needs; a broadcast sends it to each executor once.

    Args:
        run_key: 16 bytes that identify the run.
        content: the plan, the configuration and the prototypes, pickled.
        import_paths: the driver's module search path; empty if its modules are shipped.
        progress_address: the driver's address for progress.
        lines_address: the driver's address for the output of user code.
    """

    run_key: bytes
    content: bytes
    import_paths: tuple[str, ...]
    progress_address: tuple[str, int]
    lines_address: LinesAddress


def pack_up(plan: Plan, config: dict[str, Any], prototypes: dict[str, bytes]) -> bytes:
    """Return the content of a run package."""
    names_only: Any = dict.fromkeys(plan.states)
    content: bytes = cloudpickle.dumps((attrs.evolve(plan, states=names_only), config, prototypes))
    return content


_task_factories: dict[bytes, TaskFactory] = {}
"""The task factory of this process's current run, by run key; at most one."""


def task_factory_of(package: RunPackage) -> TaskFactory:
    """Return this process's task factory for a run; close that of an earlier run."""
    task_factory = _task_factories.get(package.run_key)
    if task_factory is None:
        close_task_factories()
        sys.path.extend(path for path in package.import_paths if path not in sys.path)
        plan, config, prototypes = pickle.loads(package.content)  # noqa: S301 - from our own driver
        task_factory = _task_factories[package.run_key] = TaskFactory(plan, config, prototypes)
        task_factory.note_late = functools.partial(_send_late, package)
        collect_seldom()
    return task_factory


def _send_late(package: RunPackage, error: RuleError) -> None:
    """Send what a user's thread did after its batch was over, in that thread; no task of the run may run here then."""
    sender = LineSender(package.lines_address, package.run_key)
    sender.send(Line(logging.ERROR, error.message, LATE, error.component, None, error.txid, error.attempt))
    sender.close()


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
        ProgressSender(package.progress_address, package.run_key, job.job_id, probe),
    ):
        task_factory = task_factory_of(package)
        yield from StageRun(task_factory, job, stage_index, partition, probe).run(items)
