"""What a run has around it, of which a simulator passes another one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import attrs

from state.delta.keyed.state import DeltaState
from txtopo.api.data.fields import Fields
from txtopo.api.state import State
from txtopo.api.store import Store
from txtopo.assembly.feed.feed import Feed
from txtopo.assembly.parts import Observer
from txtopo.assembly.threads import ThreadPools, Threads
from txtopo.config import Config
from txtopo.journal.entries import JournalHeader
from txtopo.topology.plans.plan import Plan
from txtopo.transactional.commit.groups import Journal
from txtopo.transactional.commit.phases import RunCommitPhases, run_commit_phases
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.limits import Limits
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.transactional.tasks.factory import prototypes_of

MakeRunner = Callable[[Plan, Config, dict[str, bytes]], AbstractContextManager[JobRunner]]


def _ignore_stage(_stage: str) -> None:
    pass


@attrs.frozen
class Environment:
    """The environment of a run; a simulator passes another one than ``run`` does."""

    make_runner: MakeRunner
    make_threads: Callable[[int], Threads] = ThreadPools
    """Creates the threads and the clock, given the number of jobs in flight."""
    make_coordinator: Callable[[Limits], Coordinator] = Coordinator
    make_store: Callable[[], Store] | None = None
    """None for the store in the configuration."""
    make_dead_letters: Callable[[Any, Fields, Fields], State] = DeltaState
    """Creates the state for dead letters, given path, key and value."""
    make_prototypes: Callable[[Plan], dict[str, bytes]] = prototypes_of
    make_journal: Callable[[JournalHeader], Journal | None] | None = None
    """None for a folder beside the tables, if there are any."""
    make_feed: Callable[[Threads], Feed] | None = None
    """Creates what begins transactions; None for the spout's coordinator."""
    run_phases: RunCommitPhases = run_commit_phases
    runs_ahead: bool | None = None
    """Whether commit phases run beside the writes of the group before, by ``run_commit_phases``; None: in a bucket."""
    on_stage: Callable[[str], None] = _ignore_stage
    """Called with the name of each step before the run begins."""
    observer: Observer = attrs.field(factory=Observer)

    @property
    def has_files(self) -> bool:
        """Whether a run leaves files beside its tables: its journal, snapshots and what holds of the past."""
        return self.make_journal is None
