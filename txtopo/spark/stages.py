"""Stages as functions on RDDs of (slot, item) pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from txtopo.spark.worker import run_stage
from txtopo.transactional.jobs.stage_run import Job, SlotItem

PartitionFunction = Callable[[int, Iterable[SlotItem]], Iterator[SlotItem]]


def stage_function(package: Any, job: Job, stage: int) -> PartitionFunction:
    """Return a function that runs one stage of a job in each partition; the partition's index is the slot.

    Args:
        package: the broadcast :class:`~txtopo.spark.run_package.RunPackage`.
        job: the job.
        stage: the index of the stage.
    """

    def run(slot: int, pairs: Iterable[SlotItem]) -> Iterator[SlotItem]:
        return run_stage(package.value, job, stage, slot, (item for _, item in pairs))

    return run


def same_slot(slot: int) -> int:
    """Return the slot: the partition function for pairs, whose key is the slot."""
    return slot
