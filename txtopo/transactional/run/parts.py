"""The parts of a run that its run loop and its statistics use, and the observer of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import attrs

from txtopo.errors import RuleError
from txtopo.transactional.commit.groups import GroupCommitter, StateWrite
from txtopo.transactional.core.actions import Action
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.events import Event
from txtopo.transactional.core.transactions import FailedAttempt
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.transactional.jobs.jobs import JobPlanner
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.run.report import Progress
from txtopo.transactional.run.snapshot import SnapshotWriter
from txtopo.transactional.run.source import Begins
from txtopo.transactional.run.threads import Threads

OnProgress = Callable[[Progress], None]


class Observer(Protocol):
    """Is told what a run does, for metrics and timelines. *An implementation* must return at once and raise nothing."""

    def entered(self, stage: str) -> None:
        """Take in that a step before the run begins."""

    def leads(self, incarnation: str, epoch: int) -> None:
        """Take in that the run has the lead; a plain topology's runs never do."""

    def began(self, executors_lost: Callable[[], int]) -> None:
        """Take in that the run loop begins; ``executors_lost`` may be called on any thread, and may take a while."""

    def acted(self, action: Action) -> None:
        """Take in an action, before it is carried out."""

    def happened(self, event: Event) -> None:
        """Take in an event, before the core does."""

    def failed(self, failure: FailedAttempt) -> None:
        """Take in that an attempt has failed, whatever the cause, after the core."""

    def wrote(self, state: str, write: StateWrite) -> None:
        """Take in that a state was written, in the thread that commits."""

    def progressed(self, progress: Any) -> None:
        """Take in the progress: a :class:`Progress`, or the PlainReport of a plain topology."""


class Observers:
    """Several observers, or none, as one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def entered(self, stage: str) -> None:
        """See :class:`Observer`."""
        for each in self._observers:
            each.entered(stage)

    def leads(self, incarnation: str, epoch: int) -> None:
        """See :class:`Observer`."""
        for each in self._observers:
            each.leads(incarnation, epoch)

    def began(self, executors_lost: Callable[[], int]) -> None:
        """See :class:`Observer`."""
        for each in self._observers:
            each.began(executors_lost)

    def acted(self, action: Action) -> None:
        """See :class:`Observer`."""
        for each in self._observers:
            each.acted(action)

    def happened(self, event: Event) -> None:
        """See :class:`Observer`."""
        for each in self._observers:
            each.happened(event)

    def failed(self, failure: FailedAttempt) -> None:
        """See :class:`Observer`."""
        for each in self._observers:
            each.failed(failure)

    def wrote(self, state: str, write: StateWrite) -> None:
        """See :class:`Observer`."""
        for each in self._observers:
            each.wrote(state, write)

    def progressed(self, progress: Any) -> None:
        """See :class:`Observer`."""
        for each in self._observers:
            each.progressed(progress)


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
