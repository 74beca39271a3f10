"""The processes of a simulated world: each has a coordinator with a checked core, and runs its own jobs."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import attrs

from txtopo.api.store import Store
from txtopo.assembly.assembly import assembled
from txtopo.assembly.environment import Environment
from txtopo.attempts import TransactionAttempt
from txtopo.config import Config
from txtopo.errors import JobFailure
from txtopo.failpoints import durable_step
from txtopo.journal.entries import JournalEntry, JournalHeader
from txtopo.journal.writer import KeptJournal, first_needed
from txtopo.testing.checkers import CoreChecker
from txtopo.testing.simulation.faults import Fault
from txtopo.testing.simulation.pool import PooledRunner
from txtopo.testing.simulation.schedule import Log, Schedule
from txtopo.testing.simulation.threads import Clock, SimulatedThreads
from txtopo.topology.topology import TransactionalTopology
from txtopo.transactional.core.actions import Action, AssignedAttempt, StopReason
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.events import Event
from txtopo.transactional.core.limits import Limits
from txtopo.transactional.jobs.inline_runner import LocalJobRunner
from txtopo.transactional.jobs.job_runner import JobRunner, OnAnswer, at_the_end
from txtopo.transactional.jobs.stage_run import Job, Report
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.tasks.factory import TaskFactory

SLOTS_HERE = 2
"""How many partitions of a job there are if it does not run in workers."""
WORKERS_MAX = 3


class Surroundings(Schedule):
    """A schedule as its processes see it: what they ask of the world around them, and tell it."""

    clock: Clock
    is_real_time: bool

    @abstractmethod
    def is_eager(self) -> bool:
        """Draw whether work runs the moment it is submitted."""

    @abstractmethod
    def lose_job(self, *, is_done: bool) -> None:
        """Lose a job, perhaps, before its work or after it."""

    @abstractmethod
    def emits(self, process: Process, assigned: AssignedAttempt) -> None:
        """Check an attempt that is about to emit."""

    @abstractmethod
    def failed(self, txids: set[int], struck: int) -> None:
        """Check the failed transactions of a job, in which ``struck`` faults have struck."""

    @abstractmethod
    def keeping(self) -> AbstractContextManager[None]:
        """Record a violation even if the code under test swallows it."""


class ObservedCoordinator(Coordinator):
    """A coordinator whose events and actions are checked."""

    def __init__(self, limits: Limits, checker: CoreChecker, log: Log | None) -> None:
        super().__init__(limits)
        self._checker = checker
        self._log = log

    def handle(self, *events: Event, at_secs: float = 0.0) -> list[Action]:
        """Handle events, and check the actions."""
        self._checker.hear(self, events)
        actions = super().handle(*events, at_secs=at_secs)
        self._checker.see(self, actions)
        if self._log is not None:
            for event in events:
                self._log(f">> {event}")
            for action in actions:
                self._log(f"<< {action}")
        return actions


class SimulatedRunner(JobRunner):
    """Runs jobs in the calling process, or in simulated workers, and checks their attempts."""

    def __init__(self, world: Surroundings, process: Process, make_factory: Callable[[], TaskFactory]) -> None:
        self._world = world
        self._process = process
        self._make_factory = make_factory
        self._cancelled: set[int] = set()
        self._inner = (
            SimulatedPool(world, self._task_factory)
            if world.is_real_time
            else LocalJobRunner([self._task_factory()] * SLOTS_HERE)
        )
        self.slots = self._inner.slots

    def _task_factory(self) -> TaskFactory:
        factory = self._make_factory()
        factory.record_late = lambda error: self.record_late(error)  # noqa: PLW0108 - the run sets it later
        return factory

    def run(self, job: Job, on_progress: Callable[[], None], on_answer: OnAnswer = at_the_end) -> Sequence[Report]:
        """Run a job to its end."""
        if job.job_id in self._cancelled:
            raise JobFailure("it was cancelled")
        if self._process.threads.is_lost:
            raise JobFailure("its executor died at another job")
        on_progress()
        self._process.job_id = job.job_id
        for assigned in job.attempts:
            self._world.emits(self._process, assigned)
        self._world.lose_job(is_done=False)
        struck = len(self._world.struck)
        failed: set[int] = set()

        def take(reports: Sequence[Report], lost: Mapping[TransactionAttempt, str]) -> None:
            failed.update(report.attempt.txid for report in reports if report.failure is not None)
            on_answer(reports, lost)

        reports = self._inner.run(job, on_progress, at_the_end if on_answer is at_the_end else take)
        failed.update(report.attempt.txid for report in reports if report.failure is not None)
        self._world.failed(failed, len(self._world.struck) - struck)
        self._world.lose_job(is_done=True)
        return reports

    def cancel(self, job_id: int) -> None:
        """Refuse a job that has not begun; one that has begun ends within :meth:`run`."""
        self._cancelled.add(job_id)

    def close(self) -> None:
        """Close the emitters."""
        self._inner.close()


class SimulatedPool(PooledRunner):
    """Runs jobs in workers that the world strikes, one job at a time."""

    def __init__(self, world: Surroundings, make_factory: Callable[[], TaskFactory]) -> None:
        super().__init__(make_factory, world.random.randrange(1, WORKERS_MAX + 1), world.random, memory_max=1 << 20)
        self._world = world

    def strikes(self, fault: Fault) -> bool:
        """Let the world draw, as for every other fault."""
        return self._world.strikes(fault)

    def check(self, holds: bool, promise: str) -> None:  # noqa: FBT001 - as ``require``
        """Let the world keep a violation."""
        with self._world.keeping():
            super().check(holds, promise)

    def close(self) -> None:
        """See that nothing is left, and close the bodies."""
        self.come_to_rest()
        super().close()


class Process:
    """One coordinator, from its start to its end or death."""

    def __init__(self, world: Surroundings, number: int) -> None:
        self.number = number
        self.threads = SimulatedThreads(world.clock, world.is_eager)
        self.epoch = 0
        self.is_over = False
        self.is_paused = False
        self.job_id = 0
        self.reason: StopReason | None = None
        self._world = world
        self._stack = contextlib.ExitStack()
        self._run_loop: Any = None

    @property
    def is_running(self) -> bool:
        """Whether it can make a step."""
        return not self.is_over and not self.is_paused

    def begin(
        self, topology: TransactionalTopology, config: Config, environment: Environment, until: int | None
    ) -> None:
        """Take the lead, recover, and start the core."""
        run = assembled(topology, config, environment, until=until)
        assembly = self._stack.enter_context(run)
        self._run_loop = assembly.run_loop
        self._run_loop.start(assembly.start)

    def rewind(self, topology_id: str, store: Store, go: Callable[[CoordinatorState], None]) -> None:
        """Take the lead, and go back instead of beginning."""
        self._stack.callback(store.close)
        lead = store.take_lead(topology_id, "the simulator")
        self.epoch = lead.epoch
        go(CoordinatorState(store, lead, topology_id))
        self.is_over = True
        self._stack.close()

    def request_stop(self) -> None:
        """Request a clean stop."""
        self._run_loop.request_stop()

    def tick(self) -> None:
        """Let the run loop read the clock and handle delivered events."""
        if self._run_loop.is_running:
            self._run_loop.step()

    def work(self, choose: Callable[[Sequence[Any]], Any], post: Callable[[Any, int], None]) -> bool:
        """Do one piece of work or make one delivery; return False if nothing waits."""
        threads = self.threads
        works, deliveries = threads.doable(), threads.deliverable()
        if not works and not deliveries:
            return False
        chosen = choose([*works, *deliveries])
        if chosen in works:
            posted = len(threads.deliveries)
            threads.do(chosen)
            # Faults strike at the answers of a job. Its progress and its loss come as single events.
            for delivery in threads.deliveries[posted:]:
                if delivery.order is None and len(delivery.events) > 1:
                    post(delivery, self.job_id)
        else:
            threads.deliver(chosen)
            self.tick()
        return True

    def end(self) -> StopReason | None:
        """End if the core has stopped; return the reason or raise the error of the stop, or return None."""
        if self._run_loop.is_running:
            return None
        self.is_over = True
        with self._stack:
            self._run_loop.shut_down()
            self.reason = StopReason(self._run_loop.end().reason)
            return self.reason

    def die(self) -> None:
        """Die without any clean-up."""
        self.is_over = True
        self.threads.works.clear()
        self.threads.deliveries.clear()


@attrs.frozen(eq=False)
class SimulatedJournal(KeptJournal):
    """One coordinator's part of the journal; ``parts`` are those of all."""

    header: JournalHeader
    parts: list[SimulatedJournal]
    on_cut: Callable[[], None]
    """Called when a part is gone."""
    entries: list[JournalEntry] = attrs.field(factory=list)

    def end_part(self) -> None:
        """Do nothing: each coordinator has one part."""

    def keep_after(self, txid: int, before_ms: int, before_any: Callable[[], None]) -> None:
        """Remove old parts; see :meth:`KeptJournal.keep_after`."""
        own = sorted(
            (part for part in self.parts if part.header.epoch <= self.header.epoch), key=lambda part: part.header.epoch
        )
        first = first_needed(own, lambda part: part.header, txid, before_ms)
        if first:
            before_any()
        for part in own[:first]:
            with durable_step("journal.cut"):
                if part in self.parts:  # otherwise a successor was faster
                    self.parts.remove(part)
                self.on_cut()

    def enter(self, entry: JournalEntry) -> None:
        """Append an entry."""
        self.entries.append(entry)

    def decided(self) -> None:
        """Do nothing: each entry is durable at once."""
