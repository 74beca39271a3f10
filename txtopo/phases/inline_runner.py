"""Runs packs in the calling process, without Spark: for tests, for trying a topology out, and for replays.

What would travel between processes is pickled and unpickled here too, so what does not pickle shows.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle

from txtopo.errors import TxtopoError
from txtopo.phases.layout import runs_together
from txtopo.phases.pack_runner import PackRunner
from txtopo.phases.places import Workshop
from txtopo.phases.processing import Item, PackJob, PlacedItem, Report, StageRun
from txtopo.topology.plan import Plan


class InlinePackRunner(PackRunner):
    """Runs each stage of a pack place after place in the calling thread.

    Args:
        plan: the topology; DataFrames need Spark and are refused.
        config: the configuration by dotted names.
        prototypes: each bolt's frozen object.
        places: how many places to pretend there are.
    """

    def __init__(self, plan: Plan, config: Mapping[str, Any], prototypes: Mapping[str, bytes], places: int = 2) -> None:
        assert runs_together(plan) or plan.is_opaque, "DataFrames need Spark"
        self.places = places
        package = cloudpickle.dumps((plan, dict(config), dict(prototypes)))
        self._workshops = [Workshop(*pickle.loads(package)) for _ in range(places)]  # noqa: S301 - our own bytes

    def run(self, job: PackJob, on_progress: Callable[[], None]) -> Sequence[Report]:  # noqa: ARG002
        """Run a job to its end and return all reports."""
        return run_stages(job, self._workshops, lambda sent: pickle.loads(pickle.dumps(sent)))  # noqa: S301 - our own

    def take_late(self) -> TxtopoError | None:
        """Return what a component has done when its batch was over and reported."""
        found = (workshop.take_late() for workshop in self._workshops)
        return next((error for error in found if error is not None), None)

    def cancel(self, pack_id: int) -> None:
        """Do nothing: a job that runs here runs to its end."""

    def close(self) -> None:
        """Close the emitters."""
        for workshop in self._workshops:
            workshop.close()


def run_stages(
    job: PackJob, workshops: Sequence[Workshop], travel: Callable[[list[PlacedItem]], list[PlacedItem]]
) -> list[Report]:
    """Run a job stage by stage, place after place, and return all reports.

    Args:
        job: the pack's work.
        workshops: one for each place.
        travel: returns what leaves a stage as it arrives at the next one.
    """
    held: dict[int, list[Item]] = defaultdict(list)
    for stage in range(len(job.layout.stages)):
        places = range(job.layout.places)
        sent = [sent for place in places for sent in StageRun(workshops[place], job, stage, place).run(held[place])]
        held = defaultdict(list)
        for place, item in travel(sent):
            held[place].append(item)
    return [item for items in held.values() for item in items if isinstance(item, Report)]
