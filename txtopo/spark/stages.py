"""Stages as functions for RDDs of pairs: a slot and an item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from txtopo.processing.stage_run import Job, SlotItem
from txtopo.spark.worker import run_stage

PartitionFunction = Callable[[int, Iterable[SlotItem]], Iterator[SlotItem]]


def stage_function(package: Any, job: Job, stage: int) -> PartitionFunction:
    """Return what runs one stage of a job in each partition; the partition's index is the slot.

    Args:
        package: the broadcast :class:`~txtopo.spark.worker.RunPackage`.
        job: what the job does.
        stage: which stage.
    """

    def run(slot: int, pairs: Iterable[SlotItem]) -> Iterator[SlotItem]:
        return run_stage(package.value, job, stage, slot, (item for _, item in pairs))

    return run


def same_slot(slot: int) -> int:
    """Partition pairs by their slot itself."""
    return slot
