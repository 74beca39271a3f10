"""What runs in a Spark task: one stage of a pack, in one place."""

from __future__ import annotations

import atexit
import functools
import pickle
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import cloudpickle

from txtopo.phases.garbage import collect_seldom
from txtopo.phases.places import Workshop
from txtopo.phases.processing import Item, PackJob, PlacedItem, StageRun
from txtopo.phases.watch import Watch
from txtopo.spark.progress import ProgressSender, send_late
from txtopo.spark.user_lines import LinesAddress, lines_sent
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


_workshops: dict[bytes, Workshop] = {}
"""The workshop of the run that this process works for; one at a time."""


def workshop_of(package: RunPackage) -> Workshop:
    """Return this process's workshop for a run; an earlier run's is closed."""
    workshop = _workshops.get(package.run_key)
    if workshop is None:
        close_workshops()
        sys.path.extend(path for path in package.import_paths if path not in sys.path)
        plan, config, prototypes = pickle.loads(package.content)  # noqa: S301 - from our own driver
        workshop = _workshops[package.run_key] = Workshop(plan, config, prototypes)
        workshop.tell_late = functools.partial(send_late, package.progress_address, package.run_key)
        collect_seldom()
    return workshop


def close_workshops() -> None:
    """Close what this process holds open for a run."""
    while _workshops:
        _workshops.popitem()[1].close()


atexit.register(close_workshops)


def run_stage(
    package: RunPackage, job: PackJob, stage_index: int, place: int, items: Iterable[Item]
) -> Iterator[PlacedItem]:
    """Run one stage of a pack in this process.

    Args:
        package: what the run needs.
        job: the pack's work.
        stage_index: which stage.
        place: which place.
        items: what earlier stages sent here.
    """
    watch = Watch()
    with (
        lines_sent(package.lines_address, package.run_key),
        ProgressSender(package.progress_address, package.run_key, job.pack_id, watch),
    ):
        workshop = workshop_of(package)
        yield from StageRun(workshop, job, stage_index, place, watch).run(items)
