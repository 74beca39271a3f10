"""The parts of a run that its run loop and its statistics use, and the observer of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import attrs

from txtopo.errors import RuleError
from txtopo.transactional.commit.groups import GroupCommitter
from txtopo.transactional.core.actions import Action
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.events import Event
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.transactional.jobs.jobs import JobPlanner
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.run.report import Progress
from txtopo.transactional.run.snapshot import SnapshotWriter
from txtopo.transactional.run.source import Begins
from txtopo.transactional.run.threads import Threads

OnProgress = Callable[[Progress], None]


class Observer(Protocol):
    """Is told what a run does, for metrics. *An implementation* must return at once and raise nothing."""

    def entered(self, stage: str) -> None:
        """Take in that a step before the run begins."""

    def began(self, executors_lost: Callable[[], int]) -> None:
        """Take in that the run loop begins; ``executors_lost`` may be called on any thread, and may take a while."""

    def acted(self, action: Action) -> None:
        """Take in an action, before it is carried out."""

    def happened(self, event: Event) -> None:
        """Take in an event, before the core does."""

    def wrote(self, state: str, secs: float) -> None:
        """Take in that a state was written, in the thread that commits."""

    def progressed(self, progress: Any) -> None:
        """Take in the progress: a :class:`Progress`, or the PlainReport of a plain topology."""


@attrs.frozen
class Parts:
    """The parts of a run."""

    topology_id: str
    threads: Threads
    coordinator: Coordinator
    source: Begins
    planner: JobPlanner
    runner: JobRunner
    committer: GroupCommitter
    coordinator_state: CoordinatorState
    late: deque[RuleError] = attrs.field(factory=deque)
    """What users' threads did after their batches were over. Any thread may append: a deque needs no lock for that."""
    snapshots: SnapshotWriter | None = None
    observer: Observer | None = None
    on_progress: OnProgress | None = None
    """Called with the progress several times a second."""
