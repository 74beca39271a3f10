"""Runs packs in the calling process, without Spark: for tests, for trying a topology out, and for replays.

What would travel between processes is pickled and unpickled here too, so what does not pickle shows.
"""

from __future__ import annotations

import itertools
import pickle
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle

from txtopo.phases.layout import runs_together
from txtopo.phases.pack_runner import PackRunner
from txtopo.phases.places import Workshop
from txtopo.phases.processing import Item, PackJob, Report, StageRun
from txtopo.topology.plan import Plan


class InlinePackRunner(PackRunner):
    """Runs each stage of a pack place after place in the calling thread.

    Args:
        plan: the topology; DataFrames need Spark and are refused.
        config: the configuration by dotted names.
        prototypes: each component's frozen object.
        places: how many places to pretend there are.
    """

    def __init__(self, plan: Plan, config: Mapping[str, Any], prototypes: Mapping[str, bytes], places: int = 2) -> None:
        assert runs_together(plan) or plan.is_opaque, "DataFrames need Spark"
        self.places = places
        package = cloudpickle.dumps((plan, dict(config), dict(prototypes)))
        self._workshops = [Workshop(*pickle.loads(package)) for _ in range(places)]  # noqa: S301 - our own bytes

    def run(self, job: PackJob, on_progress: Callable[[], None]) -> Sequence[Report]:  # noqa: ARG002
        """Run a job to its end and return all reports."""
        held: dict[int, list[Item]] = defaultdict(list)
        for stage in range(len(job.layout.stages)):
            sent = list(
                itertools.chain.from_iterable(
                    StageRun(self._workshops[place], job, stage, place).run(held[place])
                    for place in range(job.layout.places)
                )
            )
            held = defaultdict(list)
            for place, item in pickle.loads(pickle.dumps(sent)):  # noqa: S301 - our own bytes
                held[place].append(item)
        items = itertools.chain.from_iterable(held.values())
        return [item for item in items if isinstance(item, Report)]

    def cancel(self, pack_id: int) -> None:
        """Do nothing: a job that runs here runs to its end."""

    def close(self) -> None:
        """Close the emitters."""
        for workshop in self._workshops:
            workshop.close()
