"""The parts of a run that its run loop and its statistics use, and the observer of a run."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from txtopo.assembly.feed.feed import Feed
from txtopo.assembly.report import Progress
from txtopo.assembly.snapshot import SnapshotWriter
from txtopo.assembly.threads import Threads
from txtopo.errors import RuleError
from txtopo.transactional.commit.groups import GroupCommitter
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.record.facts import Fact
from txtopo.transactional.core.record.record import Record
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.transactional.jobs.jobs import JobPlanner
from txtopo.transactional.recovery.coordinator_state import CoordinatorState

OnProgress = Callable[[Progress], None]


class Observer:
    """Is told what a run does, for metrics and timelines; override what you want to know.

    *An implementation* must return at once and raise nothing.
    """

    def entered(self, stage: str) -> None:
        """Called when a step before the run begins."""

    def leads(self, incarnation: str, epoch: int) -> None:
        """Called when the run has taken the lead; a plain topology's runs never do."""

    def began(self, record: Record, executors_lost: Callable[[], int]) -> None:
        """Called when the run loop begins.

        ``record`` keeps the facts of each transaction; ``executors_lost`` may be called on any thread, and may take a
        while.
        """

    def recorded(self, fact: Fact) -> None:
        """Called with each fact, once the record has it."""

    def progressed(self, progress: Any) -> None:
        """Called with the progress: a :class:`Progress`, or the PlainReport of a plain topology."""


class Observers(Observer):
    """Several observers as one: each is told what this one is told, in their order."""

    def __init__(self, *observers: Observer) -> None:
        for name in vars(Observer):
            if not name.startswith("_"):
                setattr(self, name, functools.partial(_tell, [getattr(observer, name) for observer in observers]))


def _tell(methods: Sequence[Callable[..., None]], *news: Any) -> None:
    for method in methods:
        method(*news)


@attrs.frozen
class Parts:
    """The parts of a run."""

    topology_id: str
    threads: Threads
    coordinator: Coordinator
    feed: Feed
    planner: JobPlanner
    runner: JobRunner
    committer: GroupCommitter
    coordinator_state: CoordinatorState
    late: deque[RuleError] = attrs.field(factory=deque)
    """What users' threads did after their batches were over. Any thread may append: a deque needs no lock for that."""
    snapshots: SnapshotWriter | None = None
    observer: Observer = attrs.field(factory=Observer)
    on_progress: OnProgress | None = None
    """Called with the progress several times a second."""
