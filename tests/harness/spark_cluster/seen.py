"""What Spark itself reports about its executors and the jobs of a run."""

from __future__ import annotations

import time
from typing import Any

import attrs
from pyspark import SparkContext

from tests.harness.soak.processes import pause
from tests.harness.spark_cluster.bare_python import HIDDEN
from tests.harness.spark_cluster.standalone import START_SECS

_MANY = 100
"""Tasks of a look at the executors: so many that each executor gets one."""


@attrs.frozen
class ExecutorSight:
    """What a task finds on its executor: the working folder, and the packages that it can import."""

    folder: str
    found: tuple[str, ...]


def look_at_executors(context: SparkContext, executors: int) -> set[ExecutorSight]:
    """Wait for so many executors, and return what each finds; call it before anything is shipped."""
    deadline = time.monotonic() + START_SECS
    while executors_alive(context) < executors:
        assert time.monotonic() < deadline, "executors do not start"
        pause()
    names = HIDDEN

    def look(_: int) -> Any:  # travels by value, for the executors could not import this module
        from importlib.util import find_spec
        from pathlib import Path

        return str(Path.cwd()), tuple(name for name in names if find_spec(name) is not None)

    return {ExecutorSight(*seen) for seen in context.parallelize(range(_MANY), _MANY).map(look).collect()}


def executors_alive(context: SparkContext) -> int:
    """Return the number of executors that Spark considers alive."""
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # one of them is the driver


@attrs.frozen
class JobsSeen:
    """The jobs so far.

    Args:
        together: jobs of one stage, in which each transaction ran in one place.
        spread: jobs with shuffles between their stages.
        tasks_lost: their failed tasks, lost with an executor or otherwise.
    """

    together: int = 0
    spread: int = 0
    tasks_lost: int = 0

    def __sub__(self, other: JobsSeen) -> JobsSeen:
        return JobsSeen(*(own - its for own, its in zip(attrs.astuple(self), attrs.astuple(other), strict=True)))


def jobs_of_packs(context: SparkContext) -> JobsSeen:
    """Return the jobs of processing phases in Spark's own record, which ``spark.ui.retainedJobs`` bounds."""
    jobs = context._jsc.sc().statusStore().jobsList(None)
    together = spread = tasks_lost = 0
    for index in range(jobs.size()):
        job = jobs.apply(index)
        group = job.jobGroup()
        if group.isDefined() and group.get().startswith("txtopo-") and not group.get().endswith("-commit"):
            stages = job.stageIds().size()
            together += stages == 1
            spread += stages > 1
            tasks_lost += job.numFailedTasks()
    return JobsSeen(together, spread, tasks_lost)
