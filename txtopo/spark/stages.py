"""Stages as functions on RDDs of (partition, item) pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from txtopo.spark.worker import run_stage
from txtopo.transactional.jobs.stage_run import Job, PartitionItem

PartitionFunction = Callable[[int, Iterable[PartitionItem]], Iterator[PartitionItem]]


def stage_function(package: Any, job: Job, stage: int) -> PartitionFunction:
    """Return a function that runs one stage of a job in each partition, given its index.

    Args:
        package: the broadcast :class:`~txtopo.spark.worker.RunPackage`.
        job: the job.
        stage: the index of the stage.
    """

    def run(partition: int, pairs: Iterable[PartitionItem]) -> Iterator[PartitionItem]:
        return run_stage(package.value, job, stage, partition, (item for _, item in pairs))

    return run


def same_partition(partition: int) -> int:
    """Return the partition: Spark's partition function for pairs, whose key it is."""
    return partition
