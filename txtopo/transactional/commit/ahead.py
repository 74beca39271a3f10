"""Runs the commit phases of the next group while the writes of a group are made, which wait for a bucket.

In a bucket a group waits for three puts, one after the other, and meanwhile its thread would do nothing. So another one
makes the writes, and this one begins the commit phases of the transactions that come next, in memory: strictly after
those of the group, as always, and nothing is written before the group is.

1. Group 7 holds the transactions 4 and 5, whose phases are over. Another thread prepares, decides and publishes it.
2. Meanwhile 6 is processed, and its commit phase runs. A key that 4 or 5 have put has the value that they gave it. For
   whatever only a state knows, it waits until group 7 is published: nobody uses a state beside its writes.
3. Group 7 is committed. Group 8 holds 6 and 7. The phase of 6 is over; that of 7 runs, and then 6 and 7 are written.

What was begun is dropped if a phase fails, which then fails once more in its group, or if the next group does not begin
with the same attempts, since one was replayed. If the writes fail, the run stops, and nothing of what was begun was
durable. So a crash, or another coordinator, meets the same durable steps in the same order as without it.

``small`` of the benchmarks, at 40 ms a request, goes at 0.94 of the rate on a disk, the median of twelve pairs. Without
this it was 0.82: the thread waited for puts for 2 s of 12. On a disk writes are a tenth of the time, and nothing runs
ahead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol

from txtopo.api.state import OpenedState
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import StalledCommit, TxtopoError
from txtopo.transactional.commit.phases import GroupOutcome, Phases
from txtopo.transactional.commit.views import Writing
from txtopo.transactional.core.actions import AssignedAttempt
from txtopo.transactional.tasks.batch_run import CarriedBolt
from txtopo.transactional.tasks.factory import TaskFactory

LOOK_SECS = 0.01
"""How often it looks whether the next transaction is processed."""

Following = Callable[[int], tuple[AssignedAttempt, Callable[[], Sequence[CarriedBolt]]] | None]
"""Returns a transaction, by its txid, that is processed and waits for its commit, and what loads its bolts."""

InPhases = Callable[[], AbstractContextManager[object]]
"""Returns the context of commit phases."""


class AheadThreads(Protocol):
    """What it needs of the threads of a run."""

    def write(self, work: Callable[[], None]) -> Future[None]:
        """Make a group's writes beside its thread, if possible."""

    def wait_in_phases(self, writing: Future[None]) -> None:
        """Wait in commit phases for writes; meanwhile they don't count as running."""

    def wait(self, writing: Future[None], secs: float) -> None:
        """Wait for writes, but not for longer."""


class Ahead:
    """Runs phases ahead, at most of ``transactions_max`` transactions."""

    def __init__(
        self,
        task_factory: TaskFactory,
        states: Mapping[str, OpenedState],
        threads: AheadThreads,
        transactions_max: int,
    ) -> None:
        self._task_factory = task_factory
        self._states = states
        self._threads = threads
        self._transactions_max = transactions_max
        self._begun: Phases | None = None

    def take(self, group: Sequence[AssignedAttempt]) -> Phases | None:
        """Return the phases that have run of a group's first transactions, once; None if none have."""
        phases, self._begun = self._begun, None
        attempts = [attempt.attempt for attempt in group]
        has_begun = phases is not None and phases.finished and phases.finished == attempts[: len(phases.finished)]
        return phases if has_begun else None

    def write(
        self,
        write: Callable[[], None],
        group: GroupOutcome,
        following: Following,
        probe: ProgressProbe,
        in_phases: InPhases = contextlib.nullcontext,
    ) -> None:
        """Make the writes of a group; meanwhile begin the phases of what follows it, each in its context."""
        writing = self._threads.write(write)
        # What follows a transaction that is to be replayed can't begin before it.
        if group.failed is None:
            try:
                with probe.current():
                    self._begun = self._run(writing, group, following, probe, in_phases)
            except StalledCommit:
                raise
            except TxtopoError:  # it fails once more in its group
                pass
        writing.result()

    def _run(
        self,
        writing: Future[None],
        group: GroupOutcome,
        following: Following,
        probe: ProgressProbe,
        in_phases: InPhases,
    ) -> Phases:
        phases = Phases(
            self._task_factory, self._states, probe, _BackgroundWrites(self._threads, writing, probe), group.states
        )
        txid = group.finished[-1].txid + 1
        while not writing.done() and len(phases.finished) < self._transactions_max:
            next_group = following(txid)
            if next_group is None:
                self._threads.wait(writing, LOOK_SECS)
                continue
            assigned, load = next_group
            with in_phases():  # not while it only waits: then a write is slow, and no phase hangs
                phases.run(assigned, load())
            txid += 1
        return phases


class _BackgroundWrites(Writing):
    """The writes of a group that are made beside the phases of the next one."""

    def __init__(self, threads: AheadThreads, writing: Future[None], probe: ProgressProbe) -> None:
        self._threads = threads
        self._writing = writing
        self._probe = probe

    @property
    def is_over(self) -> bool:
        """Whether they are made, or have failed."""
        return self._writing.done()

    def wait(self) -> None:
        """Return once they are made."""
        if not self._writing.done():
            self._threads.wait_in_phases(self._writing)
            self._probe.step()  # a phase has its whole timeout from here on
