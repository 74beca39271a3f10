"""A cluster in this process: plain topologies without Spark, sockets or waiting, on a clock that tests move.

The workers are those that run on Spark. A thread calls their loops in turn, encodes and decodes their frames, and a
test can kill a worker. So the workers take what a test feeds at once; only timeouts and ticks wait for
:meth:`InlineCluster.advance_time`. The cluster asks a spout's wait strategy, but its waits take no time.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Self

import cloudpickle

from txtopo.config import Config
from txtopo.errors import InputError, TopologyError, TxtopoError
from txtopo.plain.tasks.metrics import Counts, by_component
from txtopo.plain.worker import TIMERS_SECS, Worker, WorkerStatus
from txtopo.settings.setting import TopologyKind
from txtopo.testing.feeders import WAIT_SECS, wait_until
from txtopo.topology.plans.assignment import Assignment, assign
from txtopo.topology.plans.plain_plan import PlainPlan
from txtopo.topology.topology import PlainTopology

_QUIET_PASSES_MAX = 500
"""The most passes of a step of simulated time: an endless spout is never quiet."""

_PAUSE_SECS = 0.001
_CALL_SECS = 10.0
"""How long simulated time waits for slow calls; one that is stuck must not stop it."""


class InlineCluster:
    """Runs plain topologies in this process; use it by ``with``.

    Args:
        workers: how many workers a topology has whose configuration does not say.
        simulated_time: whether time passes only by :meth:`advance_time`.
        seed: of the random numbers that ids and shuffles are drawn from.
    """

    def __init__(self, workers: int = 2, *, simulated_time: bool = True, seed: int = 0) -> None:
        self._workers = workers
        self.is_simulated = simulated_time
        self._now = 0.0
        self._rng = random.Random(seed)  # noqa: S311 - a test is repeatable
        self._topologies: list[InlineTopology] = []
        self._lock = threading.RLock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._drive, name="txtopo-inline-cluster", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop every running topology without waiting for pending tuple trees."""
        try:
            for topology in list(self._topologies):
                topology.stop(wait_secs=0)
        finally:
            self._is_over.set()
            self._thread.join(WAIT_SECS)

    def submit(
        self, topology: PlainTopology, config: Config | Mapping[str, Any] | None = None, *, active: bool = True
    ) -> InlineTopology:
        """Run a topology.

        Args:
            topology: what ``TopologyBuilder.build()`` returned.
            config: its configuration.
            active: False: nothing is opened or prepared before ``activate``.

        Raises:
            TopologyError: it is a transactional topology.
            ConfigError: a setting is for transactional topologies.
            UserCodeError: a component cannot be prepared.
        """
        if not isinstance(topology, PlainTopology):
            raise TopologyError(
                f"an InlineCluster runs plain topologies, not {topology!r}; run a transactional one by run_inline"
            )
        given = config if isinstance(config, Config) else Config(config)
        of_kind = given.of_kind(TopologyKind.PLAIN)
        workers = of_kind.workers if "topology.workers" in given.given else self._workers
        with self._lock:
            running = InlineTopology(self, topology.plan, of_kind, workers, self._lock, self._rng)
            if active:
                running.activate()
            self._topologies.append(running)
        return running

    def advance_time(self, secs: float) -> None:
        """Let simulated time pass in small steps; all workers finish one before the next begins.

        Raises:
            ValueError: the cluster runs in real time.
        """
        if not self.is_simulated:
            raise ValueError("this cluster runs in real time; make it with simulated_time=True")
        with self._lock:
            end = self._now + secs
            while True:
                self._come_to_rest()
                if self._now >= end:
                    return
                self._now = min(end, self._now + TIMERS_SECS)

    def now(self) -> float:
        """Return the time, in seconds."""
        return self._now if self.is_simulated else time.monotonic()

    def remove(self, topology: InlineTopology) -> None:
        """Forget a topology that has stopped."""
        with self._lock:
            if topology in self._topologies:
                self._topologies.remove(topology)

    def _come_to_rest(self) -> None:
        """Run until no worker does anything. Simulated time waits for slow calls, which take real time."""
        passes, end = 0, time.monotonic() + _CALL_SECS
        while passes < _QUIET_PASSES_MAX:
            if self._run_pass():
                passes += 1
            elif any(topology.is_offloading for topology in self._topologies) and time.monotonic() < end:
                time.sleep(_PAUSE_SECS)
            else:
                return

    def _run_pass(self) -> bool:
        passes = [topology.run_pass() for topology in list(self._topologies)]
        return any(passes)

    def _drive(self) -> None:
        while not self._is_over.is_set():
            with self._lock:
                has_worked = self._run_pass()
            self._is_over.wait(0 if has_worked else _PAUSE_SECS)


class InlineTopology:
    """A topology that runs in an :class:`InlineCluster`; made by its ``submit``."""

    def __init__(  # noqa: PLR0913, PLR0917 - what the cluster knows of it
        self,
        cluster: InlineCluster,
        plan: PlainPlan,
        config: Config,
        workers: int,
        lock: threading.RLock,
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._lock = lock
        self._rng = rng
        self._plan = plan.limited(config)
        self._prototypes = {component.id: cloudpickle.dumps(component.component) for component in self._plan.components}
        self._is_active = False
        self._is_over = self._has_given_up = False
        self._is_quiet = False
        self._emitted_at_last_wait = 0
        self._restarted_at: deque[float] = deque()
        self._next_generation = 0
        self._lost: list[tuple[str, Counts]] = []
        self.errors: list[TxtopoError] = []
        """The exceptions of components that ended workers, FailedException excepted."""
        self._begin(assign(self._plan, workers, config.acker_executors))

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return self._assignment.workers

    def activate(self) -> None:
        """Call the spouts; the first time, open them and prepare the bolts."""
        self._set_active(is_active=True)

    def deactivate(self) -> None:
        """Stop calling the spouts' ``next_tuple``; pending tuple trees continue."""
        self._set_active(is_active=False)

    def tracked_wait(self, emitted: int = 1, timeout_secs: float = WAIT_SECS) -> None:
        """Wait until the spouts have emitted so many tuples more than at the last wait, and all was worked off.

        Raises:
            TimeoutError: they have not.
        """
        wanted = self._emitted_at_last_wait + emitted

        def is_done() -> bool:
            return self._is_quiet and self._spouts_emitted() >= wanted

        self.wait_for(is_done, f"{emitted} more tuples from the spouts, worked off", timeout_secs)
        with self._lock:
            self._emitted_at_last_wait = self._spouts_emitted()

    def wait_for(self, condition: Callable[[], bool], what: str, timeout_secs: float = WAIT_SECS) -> None:
        """Wait until a condition holds.

        Raises:
            TimeoutError: it does not; the message says what was waited for.
            TxtopoError: what ended the topology, if its workers died too often.
        """

        def holds() -> bool:
            with self._lock:
                if condition():
                    return True
                self.raise_if_given_up()
                return False

        if not wait_until(holds, timeout_secs):
            raise TimeoutError(f"topology {self._plan.topology_id!r}: no {what} within {timeout_secs:g} s")

    def wait(self, timeout_secs: float = WAIT_SECS) -> None:
        """Wait until every spout is exhausted and nothing is pending, then stop.

        Raises:
            TimeoutError: they are not.
            TxtopoError: what ended the topology, if its workers died too often.
        """
        self.wait_for(lambda: self.is_done, "end of all spouts", timeout_secs)
        self.stop()

    @property
    def is_done(self) -> bool:
        """Whether every spout is exhausted, nothing is pending, and no tuple is on its way; or it was stopped."""
        with self._lock:
            if self._has_given_up:
                return False
            return self._is_over or (self._is_quiet and all(worker.is_done() for worker in self._workers))

    def raise_if_given_up(self) -> None:
        """Raise what ended the topology, if its workers died more often than ``topology.worker.max.restarts`` allows.

        Raises:
            TxtopoError: the last of :attr:`errors`.
        """
        if self._has_given_up:
            raise self.errors[-1]

    def statistics(self) -> Mapping[str, Counts]:
        """Return the counts of each component's tasks, those of dead workers included."""
        with self._lock:
            return by_component([*self._lost, *(count for status in self.statuses() for count in status.counts)])

    def statuses(self) -> list[WorkerStatus]:
        """Return what the workers say of themselves."""
        with self._lock:
            return [worker.status() for worker in self._workers]

    def kill_worker(self, worker: int) -> None:
        """Let a worker die, with all that its tasks hold, and start another in its place.

        Frames that it has sent arrive; those that are on the way to it are lost.
        """
        with self._lock:
            self._replace(worker)

    def rebalance(self, workers: int) -> None:
        """Move the tasks to another number of workers: deactivate, wait for pending tuple trees, start again there.

        Every component begins anew; the tasks keep their ids.
        """
        with self._lock:
            was_active = self._is_active
        self.deactivate()
        self._drain(self._config.message_timeout_secs)
        with self._lock:
            self._close_workers()
            self._begin(assign(self._plan, workers, self._config.acker_executors))
            if was_active:
                self.activate()

    def stop(self, wait_secs: float | None = None) -> None:
        """Deactivate, wait for pending tuple trees, and close.

        Args:
            wait_secs: how long to wait, of the cluster's time; None: the message timeout. Trees that are open then are
                neither acked nor failed.
        """
        if self._is_over:
            return
        self.deactivate()
        self._drain(self._config.message_timeout_secs if wait_secs is None else wait_secs)
        with self._lock:
            self._is_over = True
            self._cluster.remove(self)
            self._close_workers()

    def run_pass(self) -> bool:
        """Deliver frames, and give every worker its turn; return whether any did something."""
        if self._is_over:
            return False
        has_worked = False
        for number in range(self.workers):
            try:
                # One worker's error must not keep the others from their turn.
                has_worked |= self._run_worker(number)
            except TxtopoError as error:
                self._died_of(number, error)
                has_worked = True
        self._is_quiet = not has_worked and not any(self._inboxes) and not self.is_offloading
        return has_worked

    @property
    def is_offloading(self) -> bool:
        """Whether slow calls of components are under way, in separate threads."""
        return any(worker.offloaded() for worker in self._workers)

    def _run_worker(self, number: int) -> bool:
        inbox, worker = self._inboxes[number], self._workers[number]
        frames = len(inbox)  # frames that come during this turn wait for the next one
        for _ in range(frames):
            worker.receive(inbox.popleft())
        return worker.run_pass() or bool(frames)

    def _died_of(self, number: int, error: TxtopoError) -> None:
        """Restart a worker whose component raised an exception; give up if that happens too often."""
        died_of: TxtopoError | None = error
        while died_of is not None:
            self.errors.append(died_of)
            if isinstance(died_of, InputError) or self._is_too_often():  # as a run's supervisor does
                self._is_over = self._has_given_up = True
                self._cluster.remove(self)
                return
            died_of = None
            try:
                self._replace(number)
            except TxtopoError as again:  # its components can't be prepared any more
                died_of = again

    def _is_too_often(self) -> bool:
        now = self._cluster.now()
        self._restarted_at.append(now)
        while self._restarted_at[0] <= now - self._config.worker_restart_period_secs:
            self._restarted_at.popleft()
        return len(self._restarted_at) > int(self._config.worker_max_restarts)

    def _begin(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._inboxes: list[deque[bytes]] = [deque() for _ in range(assignment.workers)]
        self._generations = {worker: self._new_generation() for worker in range(assignment.workers)}
        self._workers = [self._make_worker(worker) for worker in range(assignment.workers)]

    def _new_generation(self) -> int:
        self._next_generation += 1
        return self._next_generation - 1

    def _make_worker(self, number: int) -> Worker:
        return Worker(
            self._plan,
            self._assignment,
            number,
            self._config,
            self._generations,
            make_object=lambda component: cloudpickle.loads(self._prototypes[component]),
            send=lambda to, data: self._inboxes[to].append(data),
            clock=self._cluster.now,
            rng=random.Random(self._rng.getrandbits(64)),  # noqa: S311 - as above
        )

    def _replace(self, number: int) -> None:
        dead, self._generations[number] = self._generations[number], self._new_generation()
        self._lost.extend(self._workers[number].status().counts)
        self._inboxes[number].clear()  # frames on the way to a dead process are lost
        for worker in self._workers:
            if worker.number != number:
                worker.worker_replaced(number, dead, self._generations[number])
        self._workers[number] = self._make_worker(number)
        if self._is_active:
            self._workers[number].set_active(is_active=True)

    def _set_active(self, *, is_active: bool) -> None:
        with self._lock:
            self._is_active = is_active
            for worker in self._workers:
                worker.set_active(is_active=is_active)

    def _drain(self, wait_secs: float) -> None:
        """Wait until nothing is pending and all queues are empty, or the time is over."""
        end = self._cluster.now() + wait_secs
        while self._cluster.now() < end:
            with self._lock:
                for _ in range(_QUIET_PASSES_MAX):  # a cycle may never be quiet: then time passes anyway
                    if not self.run_pass():
                        break
                if self._is_quiet and all(worker.is_idle() and not worker.pending() for worker in self._workers):
                    return
            if self._cluster.is_simulated:
                self._cluster.advance_time(TIMERS_SECS)
            else:
                time.sleep(_PAUSE_SECS)

    def _close_workers(self) -> None:
        for worker in self._workers:
            self._lost.extend(worker.status().counts)
            worker.close()
        self._workers = []

    def _spouts_emitted(self) -> int:
        counts = self.statistics()
        return sum(sum(counts[spout.id].emitted.values()) for spout in self._plan.spouts if spout.id in counts)
