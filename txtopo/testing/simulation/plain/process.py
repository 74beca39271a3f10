"""A simulated process of a worker: the real worker, with simulated sockets."""

from __future__ import annotations

import enum
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence, Set as AbstractSet
from typing import assert_never

import cloudpickle

from txtopo.api.data.tuples import TupleSource
from txtopo.config import Config
from txtopo.errors import TxtopoError
from txtopo.plain.worker import Worker
from txtopo.testing.simulation.plain.ledger import Ledger, Life
from txtopo.testing.simulation.plain.watching import CollectorObserver, SimulatedOffloading, Watcher, watched
from txtopo.testing.simulation.schedule import Schedule
from txtopo.testing.simulation.sources import Outside
from txtopo.topology.plans.assignment import Assignment
from txtopo.topology.plans.plain_plan import PlainPlan
from txtopo.workers.events import Event, Received
from txtopo.workers.messages import (
    Failed,
    Health,
    Heartbeat,
    Hello,
    LinkBroken,
    PeerJoined,
    PeerReplaced,
    SetActive,
    Stop,
    Stopped,
    Tell,
    ToWorker,
    Welcome,
)
from txtopo.workers.peer_directory import PeerDirectory


class Fault(enum.Enum):
    """A kind of fault, with its name on the command line."""

    KILLS = "kills"
    ERRORS = "errors"
    PAUSES = "pauses"
    LINKS = "links"
    LOSSES = "losses"
    DOUBLES = "doubles"
    FAILURES = "failures"
    CLOCKJUMPS = "clockjumps"


class BrokenError(TxtopoError):
    """An exception in a component, raised by the schedule."""


class Surroundings(Schedule):
    """A schedule as its processes see it: what they ask of the world around them, and tell it."""

    plan: PlainPlan
    config: Config
    assignment: Assignment
    prototypes: Mapping[str, bytes]
    spout_tasks: AbstractSet[int]
    outside: Outside
    ledger: Ledger
    processes: list[Process]
    """The living ones."""

    @abstractmethod
    def clock(self) -> float:
        """Return the time, in seconds."""

    @abstractmethod
    def may_emit(self) -> bool:
        """Whether spouts may still emit roots."""

    @abstractmethod
    def call_ends(self) -> bool:
        """Draw whether a slow call ends now."""

    @abstractmethod
    def source_of(self, source: TupleSource) -> TupleSource:
        """Return a tuple's source as components know it: without the field for tokens."""

    @abstractmethod
    def welcomed(self, process: Process) -> None:
        """Record a process that knows its incarnation."""

    @abstractmethod
    def send(self, sender: int, receiver: int, frame: bytes) -> None:
        """Put a frame in transit."""

    @abstractmethod
    def stopped(self, process: Process) -> None:
        """End a worker that was told to stop."""

    @abstractmethod
    def end_process(self, process: Process, error: Exception | None) -> None:
        """End a process, cleanly or by an error."""


class Process(Watcher):
    """One process of a worker; it follows the rules of :mod:`txtopo.workers.process`.

    ``job`` has started it, and ``channel`` is its control channel to the driver.
    """

    def __init__(self, world: Surroundings, number: int, job: int, channel: int) -> None:
        self.number = number
        self.job = job
        self.channel = channel
        self.ledger = world.ledger
        self.life = Life(-1)
        self.worker: Worker | None = None
        self.from_driver: deque[ToWorker] = deque()
        self.to_driver: deque[Event] = deque([Received(channel, Hello(number, job, "simulated", ("", number)))])
        self.is_alive = True
        self.is_closed = False
        """Whether the driver has closed its control channel."""
        self.wakes_at: float | None = None
        """The time at which it resumes, if it is paused."""
        self.directory = PeerDirectory()
        self.world = world
        self._activity = 0

    # -- what watched components ask

    def incarnations_of(self, tasks: Sequence[int]) -> list[int]:
        """Return the incarnations of tasks' workers, as this process knows them: a frame goes to these."""
        worker_of = self.world.assignment.worker_of
        of_task = [worker_of[t] for t in tasks]
        return [self.life.incarnation if n == self.number else self.directory[n].incarnation for n in of_task]

    def step(self, where: str) -> None:
        """Draw whether the component raises an exception here."""
        if self.world.strikes(Fault.ERRORS, where, "of worker", self.number):
            self.life.is_broken = True
            raise BrokenError("a simulated error")

    def fails(self, where: str) -> bool:
        """Draw whether a bolt fails a tuple here, or a slow call fails."""
        return self.world.strikes(Fault.FAILURES, where, "of worker", self.number)

    def may_emit(self) -> bool:
        """Whether spouts may still emit roots."""
        return self.world.may_emit()

    def call_ends(self) -> bool:
        """Draw whether a slow call ends now."""
        return self.world.call_ends()

    def source_of(self, source: TupleSource) -> TupleSource:
        """Return a tuple's source as components know it: without the field for tokens."""
        return self.world.source_of(source)

    # -- its loop

    def run_pass(self) -> bool:
        """Let the worker run one pass; return whether it did anything."""
        if self.worker is None:
            return False
        try:
            has_worked = self.worker.run_pass()
        except Exception as error:  # noqa: BLE001 - components may raise anything; _end_by raises all but drawn errors
            self._end_by(error)
            return True
        self._judge()
        self._activity += has_worked
        return has_worked

    def beat(self) -> None:
        """Send a heartbeat."""
        self.to_driver.append(
            Received(self.channel, Heartbeat(None if self.worker is None else self._health(self.worker)))
        )

    def obey(self) -> bool:
        """Read the next message of the driver, or the end of its channel; return whether there was one."""
        if not self.from_driver:
            if self.is_closed:
                self.world.end_process(self, RuntimeError("the driver is gone"))
                return True
            return False
        message = self.from_driver.popleft()
        try:
            self._take(message)
        except Exception as error:  # noqa: BLE001 - as in run_pass
            self._end_by(error)
        self._judge()
        return True

    def receive(self, sender: int, frame: bytes) -> None:
        """Hand a frame of another incarnation to the worker."""
        assert self.worker is not None, "frames are read after the welcome"
        self.directory.received[sender] += 1
        self.worker.receive(frame)

    def lose_link(self, peer: int) -> None:
        """Find that the channel from or to another incarnation has ended."""
        if self.directory.lose(peer):
            self.to_driver.append(Received(self.channel, LinkBroken(peer, "a simulated end")))

    def _take(self, message: ToWorker) -> None:
        match message:
            case Welcome(incarnation, peers, is_active):
                self.directory.welcome(incarnation, peers)
                self.life.incarnation = incarnation
                self.worker = self._make_worker(incarnation)
                self.world.welcomed(self)
                if is_active:
                    self.worker.set_active(is_active=True)
            case PeerJoined(peer):
                self.directory.join(peer)
            case PeerReplaced(dead, successor):
                assert self.worker is not None, "a worker is welcomed first"
                self.directory.replace(dead, successor)
                self.worker.worker_replaced(successor.worker, dead, successor.incarnation)
            case SetActive(is_active):
                assert self.worker is not None, "a worker is welcomed first"
                self.worker.set_active(is_active=is_active)
            case Tell(data):
                assert self.worker is not None, "a worker is welcomed first"
                self.worker.hear(data)
            case Stop():
                assert self.worker is not None, "a worker is welcomed first"
                # Before the process ends: its last message comes before the loss of its channel.
                self.to_driver.append(Received(self.channel, Stopped(self._health(self.worker))))
                self.world.stopped(self)
            case _:
                assert_never(message)

    def _make_worker(self, incarnation: int) -> Worker:
        world = self.world

        def make_object(component: str) -> object:
            made = cloudpickle.loads(world.prototypes[component])
            world.outside.stand_in(made)
            return watched(world.plan.by_id[component], made, self)

        return Worker(
            world.plan,
            world.assignment,
            self.number,
            world.config,
            {**self.directory.incarnations, self.number: incarnation},
            make_object=make_object,
            send=self._send,
            clock=world.clock,
            rng=random.Random(world.random.getrandbits(64)),  # noqa: S311 - a schedule is repeatable
            observer=CollectorObserver(self),
            offloading=SimulatedOffloading(self, world.spout_tasks),
        )

    def _send(self, to: int, frame: bytes) -> None:
        incarnation = self.directory[to].incarnation
        self.directory.sent[incarnation] += 1
        self.world.send(self.life.incarnation, incarnation, frame)

    def _health(self, worker: Worker) -> Health:
        return Health(
            is_done=worker.is_done(),
            is_idle=worker.is_idle(),
            pending=worker.pending(),
            acked=worker.acked(),
            activity=self._activity,
            sent=dict(self.directory.sent),
            received=dict(self.directory.received),
            status=None,
        )

    def _judge(self) -> None:
        """Raise the ledger's violation, which the component may have caught."""
        if self.ledger.violation is not None:
            raise self.ledger.violation

    def _end_by(self, error: Exception) -> None:
        """End by an exception that the schedule has drawn; raise the ledger's violation, or any other exception."""
        if self.ledger.violation is not None:
            raise self.ledger.violation from None
        if not isinstance(error, BrokenError):
            raise error
        self.to_driver.append(Received(self.channel, Failed(error, None)))
        self.world.end_process(self, error)
