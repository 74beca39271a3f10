"""Runs jobs in the calling process, without Spark: for tests, experiments and replays.

It pickles and unpickles what Spark would send between processes, to find objects that do not pickle.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle

from txtopo.topology.plan import Plan
from txtopo.transactional.jobs.job_runner import JobRunner, OnAnswer, at_the_end
from txtopo.transactional.jobs.stage_run import Item, Job, PartitionItem, Report, StageRun
from txtopo.transactional.tasks.factory import TaskFactory


class InlineJobRunner(JobRunner):
    """Runs each stage of a job partition after partition in the calling thread."""

    def __init__(self, plan: Plan, config: Mapping[str, Any], prototypes: Mapping[str, bytes], slots: int = 2) -> None:
        assert not plan.dataframes, "DataFrames need Spark"
        self.slots = slots
        package = cloudpickle.dumps((plan, dict(config), dict(prototypes)))
        self._task_factories = [TaskFactory(*pickle.loads(package)) for _ in range(slots)]  # noqa: S301 - our own bytes
        for task_factory in self._task_factories:
            task_factory.note_late = lambda error: self.note_late(error)  # noqa: PLW0108 - the run sets it later

    def run(
        self,
        job: Job,
        on_progress: Callable[[], None],  # noqa: ARG002
        on_answer: OnAnswer = at_the_end,  # noqa: ARG002
    ) -> Sequence[Report]:
        """Run a job to its end and return all reports."""
        return run_stages(job, self._task_factories, lambda sent: pickle.loads(pickle.dumps(sent)))  # noqa: S301 - our own

    def cancel(self, job_id: int) -> None:
        """Do nothing: an inline job always runs to its end."""

    def close(self) -> None:
        """Close the emitters."""
        for task_factory in self._task_factories:
            task_factory.close()


def run_stages(
    job: Job, task_factories: Sequence[TaskFactory], travel: Callable[[list[PartitionItem]], list[PartitionItem]]
) -> list[Report]:
    """Run a job stage by stage, partition after partition, and return all reports.

    There is one task factory for each partition. ``travel`` takes the items that leave a stage and returns them as they
    arrive at the next one.
    """
    held: dict[int, list[Item]] = defaultdict(list)
    for stage in range(len(job.layout.stages)):
        partitions = range(job.layout.partitions)
        sent = [
            sent
            for partition in partitions
            for sent in StageRun(task_factories[partition], job, stage, partition).run(held[partition])
        ]
        held = defaultdict(list)
        for partition, item in travel(sent):
            held[partition].append(item)
    return [item for items in held.values() for item in items if isinstance(item, Report)]
