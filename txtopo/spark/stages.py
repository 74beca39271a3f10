"""Stages as functions for RDDs of pairs: a place and an item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from txtopo.phases.processing import PackJob, PlacedItem
from txtopo.spark.worker import run_stage

PartitionFunction = Callable[[int, Iterable[PlacedItem]], Iterator[PlacedItem]]


def stage_function(package: Any, job: PackJob, stage: int) -> PartitionFunction:
    """Return what runs one stage of a pack in each partition; the partition's index is the place.

    Args:
        package: the broadcast :class:`~txtopo.spark.worker.RunPackage`.
        job: the pack's work.
        stage: which stage.
    """

    def run(place: int, pairs: Iterable[PlacedItem]) -> Iterator[PlacedItem]:
        return run_stage(package.value, job, stage, place, (item for _, item in pairs))

    return run


def same_place(place: int) -> int:
    """Partition pairs by their place itself."""
    return place
