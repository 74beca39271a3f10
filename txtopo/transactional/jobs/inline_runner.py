"""Runs jobs in the calling process, without Spark: for tests, experiments, replays and simulations."""

from __future__ import annotations

import pickle
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle

from txtopo.topology.plans.plan import Plan
from txtopo.transactional.jobs.job_runner import JobRunner, OnAnswer, at_the_end
from txtopo.transactional.jobs.stage_run import Item, Job, PartitionItem, Report, StageRun
from txtopo.transactional.tasks.factory import TaskFactory


class LocalJobRunner(JobRunner):
    """Runs each stage of a job partition after partition in the calling thread, with a task factory for each slot."""

    def __init__(self, task_factories: Sequence[TaskFactory]) -> None:
        self.slots = len(task_factories)
        self._task_factories = task_factories
        self._free = [threading.Lock() for _ in task_factories]
        """Held while a slot is at work: as in a process of Spark, its emitters are used by one job at a time."""

    def run(
        self,
        job: Job,
        on_progress: Callable[[], None],  # noqa: ARG002
        on_answer: OnAnswer = at_the_end,  # noqa: ARG002
    ) -> Sequence[Report]:
        """Run a job to its end and return all reports."""
        came: dict[int, list[Item]] = defaultdict(list)
        for stage in range(len(job.layout.stages)):
            partitions = range(job.layout.partitions)
            sent: list[PartitionItem] = []
            for partition in partitions:
                with self._free[partition]:
                    sent += StageRun(self._task_factories[partition], job, stage, partition).run(came[partition])
            came = defaultdict(list)
            for partition, item in self._travel(sent):
                came[partition].append(item)
        return [item for items in came.values() for item in items if isinstance(item, Report)]

    def _travel(self, sent: list[PartitionItem]) -> list[PartitionItem]:
        return sent

    def cancel(self, job_id: int) -> None:
        """Do nothing: a job always runs to its end."""

    def close(self) -> None:
        """Close the emitters."""
        for task_factory in self._task_factories:
            task_factory.close()


class InlineJobRunner(LocalJobRunner):
    """Runs jobs in the calling thread, pickling what Spark would, which finds objects that do not pickle."""

    def __init__(self, plan: Plan, config: Mapping[str, Any], prototypes: Mapping[str, bytes], slots: int = 2) -> None:
        assert not plan.dataframes, "DataFrames need Spark"
        package = cloudpickle.dumps((plan, dict(config), dict(prototypes)))
        super().__init__([TaskFactory(*pickle.loads(package)) for _ in range(slots)])  # noqa: S301 - our bytes
        for task_factory in self._task_factories:
            task_factory.record_late = lambda error: self.record_late(error)  # noqa: PLW0108 - the run sets it later

    def _travel(self, sent: list[PartitionItem]) -> list[PartitionItem]:
        arrived: list[PartitionItem] = pickle.loads(pickle.dumps(sent))  # noqa: S301 - ours
        return arrived
