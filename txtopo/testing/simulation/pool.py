"""Real-time mode in one process: the pool and its workers' bodies, with deaths, zombies, broken links and doubles.

Everything travels as bytes, in order between any two processes, and the world's randomness picks what comes next.
:class:`PooledRunner` is a job runner: it makes moves until a job has ended.
"""

from __future__ import annotations

import functools
import pickle
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import StateFailure
from txtopo.failpoints import ProcessDeath
from txtopo.testing.checkers import require
from txtopo.testing.simulation.faults import CrashError, Fault
from txtopo.transactional.jobs.job_runner import JobRunner, OnAnswer, at_the_end
from txtopo.transactional.jobs.pool import (
    Action,
    Answer,
    Cancelled,
    EndJob,
    EndWorker,
    Event,
    FromBody,
    Joined,
    Lose,
    Lost,
    Pool,
    Tell,
    Ticked,
    ToBody,
    Told,
)
from txtopo.transactional.jobs.pool_answers import collected, compute_asked, computed, job_asked
from txtopo.transactional.jobs.pool_body import PoolBody
from txtopo.transactional.jobs.stage_run import Job, Report
from txtopo.transactional.tasks.factory import TaskFactory
from txtopo.workers.messages import Peer
from txtopo.workers.peer_directory import Arrival, PeerDirectory

MOVES_MAX = 200_000
"""Moves within which a job goes on, however often its workers die."""

DEATHS_MAX = 2
"""RestartLimit between two answers; the core stops a run after five losses in a row."""


class _Worker:
    """One incarnation of a worker, and what is on its way to it."""

    def __init__(self, runner: PooledRunner, number: int, incarnation: int) -> None:
        self.number = number
        self.incarnation = incarnation
        self.is_dead = False
        """Whether it counts as dead; its process may go on."""
        self.directory = PeerDirectory()
        self.orders: deque[ToBody | tuple[int, Peer]] = deque()
        """From the driver: what the pool says, or a death with its successor."""
        self.frames: dict[int, deque[bytes]] = defaultdict(deque)
        """By the incarnation of the sender."""
        self.body = PoolBody(
            number,
            runner.make_factory(),
            send=lambda worker, frame: runner.send(self, worker, frame),
            tell=lambda message: runner.told.append((number, incarnation, message)),
            settle=lambda: None,
            probe=ProgressProbe(),
            memory_max=runner.memory_max,
        )

    def readable(self) -> Iterator[int]:
        """Yield the senders whose next frame it would read now, and drop those of the dead."""
        for sender, frames in self.frames.items():
            verdict = self.directory.judge(sender, self.incarnation)
            if verdict is Arrival.STALE:
                frames.clear()
            elif frames and verdict is Arrival.READ:
                yield sender

    def take_order(self) -> None:
        """Hear the driver's next message."""
        order = self.orders.popleft()
        if not isinstance(order, tuple):
            self.body.hear(order)
            return
        dead, successor = order
        self.frames.pop(dead, None)
        self.directory.replace(dead, successor)
        self.body.worker_replaced(successor.worker, dead, successor.incarnation)

    def take_frame(self, sender: int) -> None:
        """Read the next frame of another worker."""
        self.body.receive(self.frames[sender].popleft())


class PooledRunner(JobRunner):
    """Runs jobs in simulated workers, whose bodies are those of real ones.

    ``rates`` says how probable a fault is in each move, 0 if it is missing there; it may be changed between two jobs.
    ``deaths`` counts them.
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
        self.make_factory = make_factory
        self.memory_max = memory_max
        self.rates = rates or {}
        self.deaths = 0
        self._deaths_in_a_row = 0
        self.told: deque[tuple[int, int, FromBody]] = deque()
        """(Worker, incarnation, message) on the way to the pool, in the order in which they were sent."""
        self.pool = Pool()
        self._random = random
        self._next_incarnation = workers
        self._numbers = 0
        self._now = 0.0
        self._living: dict[int, _Worker] = {}
        self._zombies: list[_Worker] = []
        self._broken: tuple[_Worker, _Worker] | None = None
        """The sender and the receiver of a link that is broken, until one of them is ended."""
        self._joining = [(number, number) for number in range(workers)]
        self._seen: deque[Action] = deque()
        """The pool's actions for whoever waits for a job."""

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
        number = self._number()
        self._handle(job_asked(number, job, pickle.dumps(job, 5)))
        ended: set[int] = set()

        def take(timeout_secs: float | None) -> Action | None:
            if timeout_secs is not None and self._random.random() < 0.5:  # noqa: PLR2004 - a coin
                self._now += timeout_secs
                return None
            action = self._next_of(number)
            if isinstance(action, (Answer, Lose)):
                self.check(action.index not in ended, "each attempt is answered once or lost once")
                ended.add(action.index)
            return action

        reports = collected(job, take, on_answer, lambda: self._now)
        self.check(len(ended) == len(job.attempts), "a job ends when each attempt is answered or lost")
        return reports

    def compute(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Compute in the workers."""
        if not items:
            return []
        number = self._number()
        self._handle(compute_asked(function, items)(number))
        try:
            return computed(len(items), lambda _: self._next_of(number))
        except StateFailure:
            self._handle(Cancelled(number))
            raise

    def cancel(self, job_id: int) -> None:
        """Do nothing: a job runs to its end within :meth:`run`."""

    def close(self) -> None:
        """Close the bodies."""
        for worker in (*self._living.values(), *self._zombies):
            worker.body.close()

    # Moves.

    def move(self) -> None:
        """Let one thing happen."""
        self._now += 0.01
        may_die = bool(self._living) and self._deaths_in_a_row < DEATHS_MAX
        if may_die and self.strikes(Fault.DEADWORKERS):
            self._lose(self._random.choice(list(self._living.values())), is_silent=False)
        elif may_die and self.strikes(Fault.SILENTWORKERS):
            self._lose(self._random.choice(list(self._living.values())), is_silent=True)
        elif may_die and len(self._living) > 1 and self._broken is None and self.strikes(Fault.BROKENLINKS):
            self._break_link(*self._random.sample(list(self._living.values()), 2))
        else:
            choices = list(self._choices())
            if choices:
                self._random.choice(choices)()
            else:
                self._now += 1.0
                self._handle(Ticked())

    def settle(self) -> None:
        """Let everything that is on its way arrive, without further faults."""
        self.rates, before = {}, self.rates
        while choices := list(self._choices()):
            self._random.choice(choices)()
        self.rates = before
        self.hear_all()

    def hear_all(self) -> None:
        """Let the workers hear all that the driver has said, and check that they keep nothing."""
        for worker in self._living.values():
            while worker.orders:
                worker.take_order()
        is_kept = self.pool.jobs or any(worker.body.job_ids() for worker in self._living.values())
        self.check(not is_kept, "nothing is kept of a job that has ended")

    def _choices(self) -> Iterator[Callable[[], Any]]:
        if self._joining:
            yield self._join
        if self.told:
            yield self._deliver
        if self._broken is not None:
            yield self._end_of_link
        for worker in (*self._living.values(), *self._zombies):
            if worker.orders:
                yield worker.take_order
            for sender in list(worker.readable()):
                yield functools.partial(worker.take_frame, sender)
            if worker.body.pending() or worker.body.queued_bytes():
                yield functools.partial(self._work, worker)
            if worker.is_dead:
                yield functools.partial(self._zombies.remove, worker)

    def _work(self, worker: _Worker) -> None:
        """Let a worker do its next piece of work, in which it may die."""
        said = len(self.told)
        try:
            worker.body.run_pass()
        except CrashError:  # of the process that has these workers
            raise
        except ProcessDeath:
            if worker.is_dead:
                self._zombies.remove(worker)
                return
            while len(self.told) > said and self._random.random() < 0.5:  # noqa: PLR2004 - a coin
                self._deliver()  # what it has said last may still come
            self._lose(worker, is_silent=False)

    def _join(self) -> None:
        number, incarnation = self._joining.pop(self._random.randrange(len(self._joining)))
        worker = _Worker(self, number, incarnation)
        known = [Peer(each.number, each.incarnation, ("", 0)) for each in self._living.values()]
        known += [Peer(other, successor, None) for other, successor in self._joining]
        worker.directory.welcome(incarnation, known)
        self._living[number] = worker
        self._handle(Joined(number, incarnation))

    def _lose(self, worker: _Worker, *, is_silent: bool) -> None:
        self.deaths += 1
        self._deaths_in_a_row += 1
        worker.is_dead = True
        del self._living[worker.number]
        if is_silent:
            self._zombies.append(worker)
        successor = Peer(worker.number, self._next_incarnation, None)
        self._next_incarnation += 1
        for other in self._living.values():
            other.orders.append((worker.incarnation, successor))
        self._handle(Lost(worker.number, worker.incarnation, "killed"))
        self._joining.append((worker.number, successor.incarnation))

    def _break_link(self, sender: _Worker, receiver: _Worker) -> None:
        """Break a link; of the frames on it, the first ones arrive."""
        frames = receiver.frames[sender.incarnation]
        for _ in range(self._random.randint(0, len(frames))):
            frames.pop()
        self._broken = sender, receiver

    def _end_of_link(self) -> None:
        """End one of the two ends of the broken link, as supervision does, unless one has died."""
        assert self._broken is not None, "chosen while one is"
        ends, self._broken = self._broken, None
        if not any(end.is_dead for end in ends):
            self._lose(self._random.choice(ends), is_silent=False)

    def _deliver(self) -> None:
        worker, incarnation, message = self.told.popleft()
        living = self._living.get(worker)
        is_alive = living is not None and living.incarnation == incarnation
        for _ in range(1 + self.strikes(Fault.DOUBLEDFRAMES)):
            seen = len(self._seen)
            self._handle(Told(worker, incarnation, message))
            self.check(is_alive or len(self._seen) == seen, "an answer of a dead incarnation changes nothing")

    def send(self, sender: _Worker, worker: int, frame: bytes) -> None:
        """Put a frame on its way to the incarnation that the sender knows."""
        receiver = self._living.get(worker)
        if self._broken == (sender, receiver):
            return
        expected = next(peer.incarnation for peer in sender.directory if peer.worker == worker)
        if receiver is not None and receiver.incarnation == expected:
            for _ in range(1 + self.strikes(Fault.DOUBLEDFRAMES)):
                receiver.frames[sender.incarnation].append(frame)

    # The pool.

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _next_of(self, number: int) -> Action:
        """Let things happen until there is an answer, a loss or the end of a job."""
        for _ in range(MOVES_MAX):
            while self._seen:
                action = self._seen.popleft()
                if isinstance(action, (Answer, Lose, EndJob)) and action.job == number:
                    return action
            self.move()
        raise AssertionError(f"job {number} does not go on")

    def _handle(self, event: Event) -> None:
        for action in self.pool.handle(event, self._now):
            match action:
                case Tell(worker, incarnation, message):
                    living = self._living.get(worker)
                    if living is not None and living.incarnation == incarnation:
                        living.orders.append(message)
                case EndWorker(worker, incarnation):
                    self._lose(self._living[worker], is_silent=False)
                case _:
                    if isinstance(action, Answer):
                        self._deaths_in_a_row = 0
                    self._seen.append(action)
        held = (job for calls in self.pool.held().values() for job, _ in calls)
        self.check(set(held) <= set(self.pool.jobs), "no worker holds a call of a job that has ended")
