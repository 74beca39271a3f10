"""What runs in a Spark task: one stage of a job, in one slot."""

from __future__ import annotations

import atexit
import functools
import pickle
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import cloudpickle

from txtopo.processing.stage_run import Item, Job, SlotItem, StageRun
from txtopo.spark.progress import ProgressSender, send_late
from txtopo.spark.user_lines import LinesAddress, lines_sent
from txtopo.tasks.factory import TaskFactory
from txtopo.tasks.garbage import collect_seldom
from txtopo.tasks.progress_probe import ProgressProbe
from txtopo.topology.plan import Plan


@attrs.frozen
class RunPackage:
    """What every task of a run needs: sent to each executor once, by a broadcast.

    Args:
        run_key: 16 bytes that name the run.
        content: the plan, the configuration and the prototypes, pickled.
        import_paths: the driver's module search path; none where its modules are shipped.
        progress_address: where progress is told.
        lines_address: where what user code prints is taken.
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
"""The task factory of the run that this process works for; one at a time."""


def task_factory_of(package: RunPackage) -> TaskFactory:
    """Return this process's task factory for a run; an earlier run's is closed."""
    task_factory = _task_factories.get(package.run_key)
    if task_factory is None:
        close_task_factories()
        sys.path.extend(path for path in package.import_paths if path not in sys.path)
        plan, config, prototypes = pickle.loads(package.content)  # noqa: S301 - from our own driver
        task_factory = _task_factories[package.run_key] = TaskFactory(plan, config, prototypes)
        task_factory.tell_late = functools.partial(send_late, package.progress_address, package.run_key)
        collect_seldom()
    return task_factory


def close_task_factories() -> None:
    """Close what this process holds open for a run."""
    while _task_factories:
        _task_factories.popitem()[1].close()


atexit.register(close_task_factories)


def run_stage(package: RunPackage, job: Job, stage_index: int, slot: int, items: Iterable[Item]) -> Iterator[SlotItem]:
    """Run one stage of a job in this process.

    Args:
        package: what the run needs.
        job: what the job does.
        stage_index: which stage.
        slot: which slot.
        items: what earlier stages sent here.
    """
    probe = ProgressProbe()
    with (
        lines_sent(package.lines_address, package.run_key),
        ProgressSender(package.progress_address, package.run_key, job.job_id, probe),
    ):
        task_factory = task_factory_of(package)
        yield from StageRun(task_factory, job, stage_index, slot, probe).run(items)
