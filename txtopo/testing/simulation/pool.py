"""Real-time mode in one process: the pool owns the workers of a fabric, which die, pause and lose links.

:class:`PooledRunner` is a job runner: it makes moves until a job has ended.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import StateFailure
from txtopo.testing.checkers import require
from txtopo.testing.simulation.fabric import STEP_SECS, Fabric, Process
from txtopo.testing.simulation.faults import Fault
from txtopo.transactional.jobs.job_runner import JobRunner, OnAnswer, at_the_end
from txtopo.transactional.jobs.pool import Action, Answer, Event, FromBody, Lose
from txtopo.transactional.jobs.pool_answers import collected, compute_asked, computed, job_asked
from txtopo.transactional.jobs.pool_body import PoolBody
from txtopo.transactional.jobs.pool_owner import Asker, PoolOwner
from txtopo.transactional.jobs.stage_run import Job, Report
from txtopo.transactional.tasks.factory import TaskFactory
from txtopo.workers.supervisor import SILENCE_SECS

MOVES_MAX = 200_000
"""Moves within which a job goes on, however often its workers die."""
LET_PASS = 0.02
"""How probable it is that some time passes in a move."""
FAULTS_MAX = 2
"""Faults between two answers that end a worker; the core stops a run after five losses in a row."""


class _CheckedOwner(PoolOwner):
    """The pool, which may hear what a body says twice, and whose promises are checked."""

    def __init__(self, runner: PooledRunner) -> None:
        super().__init__(runner.fabric.post, lambda: runner.fabric.now)
        self._runner = runner

    def heard(self, worker: int, generation: int, message: FromBody) -> None:
        """Take an answer, once or twice."""
        for _ in range(1 + self._runner.strikes(Fault.DOUBLEDFRAMES)):
            super().heard(worker, generation, message)

    def handle(self, event: Event) -> None:
        """Give an event to the pool."""
        super().handle(event)
        jobs = {job for calls in self.pool.calls().values() for job, _ in calls}
        self._runner.check(jobs <= set(self.pool.jobs), "no worker holds a call of a job that has ended")


class PooledRunner(JobRunner):
    """Runs jobs in simulated workers, whose bodies and supervision are those of real ones.

    ``rates`` says how probable a fault is in each move, 0 if it is missing there; it may be changed between two jobs.
    """

    def __init__(
        self,
        make_factory: Callable[[], TaskFactory],
        workers: int,
        random: Random,
        rates: Mapping[Fault, float] | None = None,
        memory_max: int = 1 << 12,
    ) -> None:
        self.slots = workers
        self.rates = rates or {}
        self._make_factory = make_factory
        self._memory_max = memory_max
        self._random = random
        self._faults_in_a_row = 0
        self._bodies: dict[int, PoolBody] = {}
        """By generation."""
        self.fabric = Fabric(workers, random, self._make_body, is_owned=True, arrive=self._arrive)
        self.owner = self.fabric.owner = _CheckedOwner(self)
        self.fabric.begin()

    # What a schedule of a whole topology replaces.

    def strikes(self, fault: Fault) -> bool:
        """Draw whether a fault strikes now."""
        return self._random.random() < self.rates.get(fault, 0.0)

    def check(self, holds: bool, promise: str) -> None:  # noqa: FBT001 - as ``require``
        """Raise a Violation if a promise does not hold."""
        require(holds, promise)

    # A job runner.

    def run(self, job: Job, on_progress: Callable[[], None], on_answer: OnAnswer = at_the_end) -> Sequence[Report]:
        """Make moves until a job has ended."""
        del on_progress
        asker, content = Asker(), pickle.dumps(job, 5)
        self.owner.ask(lambda number: job_asked(number, job, content), asker)
        ended: set[int] = set()

        def take(timeout_secs: float | None) -> Action | None:
            if timeout_secs is not None and self._random.random() < 0.5:  # noqa: PLR2004 - a coin
                self.fabric.let_pass(timeout_secs)
                return None
            action = self._take(asker)
            if isinstance(action, (Answer, Lose)):
                self.check(action.index not in ended, "each attempt is answered once or lost once")
                ended.add(action.index)
            return action

        reports = collected(job, take, on_answer, lambda: self.fabric.now)
        self.check(len(ended) == len(job.attempts), "a job ends when each attempt is answered or lost")
        return reports

    def compute(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Compute in the workers."""
        if not items:
            return []
        asker = Asker()
        number = self.owner.ask(compute_asked(function, items), asker)
        try:
            return computed(len(items), lambda _: self._take(asker))
        except StateFailure:
            self.owner.cancel(number)
            raise

    def executors_lost(self) -> int:
        """Return how many workers were lost."""
        return self.owner.workers_lost

    def cancel(self, job_id: int) -> None:
        """Do nothing: a job runs to its end within :meth:`run`."""

    def close(self) -> None:
        """Close the bodies."""
        for body in self._bodies.values():
            body.close()

    # Moves.

    def come_to_rest(self) -> None:
        """Let everything that is on its way arrive, without further faults, and check that nothing is kept."""
        self.fabric.end_faults()
        self.fabric.rest(may_end=False)
        living = [self._bodies[process.generation] for process in self.fabric.processes if process.body is not None]
        is_kept = self.owner.pool.jobs or any(body.job_ids() for body in living)
        self.check(not is_kept, "nothing is kept of a job that has ended")

    def _take(self, asker: Asker) -> Action | None:
        for _ in range(MOVES_MAX):
            if not asker.actions.empty():
                action = asker.take(None)
                if isinstance(action, Answer):
                    self._faults_in_a_row = 0
                return action
            self._move()
        raise AssertionError("a job does not go on")

    def _move(self) -> None:
        self.fabric.now += STEP_SECS
        living = [process for process in self.fabric.processes if process.body is not None and process.wakes_at is None]
        if living and self._faults_in_a_row < FAULTS_MAX:
            if self.strikes(Fault.DEADWORKERS):
                self._strike(self.fabric.kill, living)
            elif self.strikes(Fault.SILENTWORKERS):
                self._strike(self.fabric.pause, living)
            elif len(living) > 1 and self.strikes(Fault.BROKENLINKS):
                self._strike(self.fabric.break_link, living)
        if self._random.random() < LET_PASS:
            self.fabric.let_pass(SILENCE_SECS / 4)
        self.fabric.step()

    def _strike(self, how: Callable[[Process], None], living: Sequence[Process]) -> None:
        self._faults_in_a_row += 1
        how(self._random.choice(living))

    # What the fabric asks.

    def _make_body(self, process: Process) -> PoolBody:
        body = self._bodies[process.generation] = PoolBody(
            process.number,
            self._make_factory(),
            send=process.send,
            tell=process.tell,
            flush=lambda: None,
            probe=ProgressProbe(),
            memory_max=self._memory_max,
        )
        return body

    def _arrive(self, process: Process, sender: int, frame: bytes) -> None:
        """Let a frame arrive once or twice."""
        for _ in range(1 + self.strikes(Fault.DOUBLEDFRAMES)):
            process.receive(sender, frame)
