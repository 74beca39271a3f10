"""A process of a plain topology: the real worker, whose components are watched and break when the schedule says so."""

from __future__ import annotations

import enum
import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set as AbstractSet

import cloudpickle

from txtopo.config import Config
from txtopo.plain.worker import Worker
from txtopo.testing.simulation.fabric import BrokenError, Process
from txtopo.testing.simulation.plain.ledger import Account, Ledger
from txtopo.testing.simulation.plain.watching import (
    CollectorObserver,
    SimulatedOffloading,
    WatchedWorld,
    Watcher,
    watched,
)
from txtopo.testing.simulation.schedule import Schedule
from txtopo.testing.simulation.sources import Outside
from txtopo.topology.plans.assignment import Assignment
from txtopo.topology.plans.plain_plan import PlainPlan


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


class Surroundings(Schedule, WatchedWorld):
    """A schedule as its processes see it: what they ask of the world around them, and tell it."""

    plan: PlainPlan
    config: Config
    assignment: Assignment
    prototypes: Mapping[str, bytes]
    spout_tasks: AbstractSet[int]
    outside: Outside
    ledger: Ledger

    @abstractmethod
    def clock(self) -> float:
        """Return the time, in seconds."""


class WatchedProcess(Watcher):
    """What the watched components of one process of a worker ask."""

    def __init__(self, world: Surroundings, process: Process) -> None:
        self.world: Surroundings = world
        self.ledger = world.ledger
        self.account = Account(process.incarnation)
        self._process = process

    def incarnations_of(self, tasks: Sequence[int]) -> list[int]:
        """Return the incarnations of tasks' workers, as this process knows them: a frame goes to these."""
        worker_of = self.world.assignment.worker_of
        here, directory = self._process.number, self._process.directory
        of_task = [worker_of[t] for t in tasks]
        return [self.account.incarnation if n == here else directory[n].incarnation for n in of_task]

    def step(self, where: str) -> None:
        """Draw whether the component raises an exception here."""
        if self.world.strikes(Fault.ERRORS, where, "of worker", self._process.number):
            self.account.is_broken = True
            raise BrokenError("a simulated error")

    def fails(self, where: str) -> bool:
        """Draw whether a bolt fails a tuple here, or a slow call fails."""
        return self.world.strikes(Fault.FAILURES, where, "of worker", self._process.number)

    def make_worker(self) -> Worker:
        """Make the worker of the process."""
        world, process = self.world, self._process

        def make_object(component: str) -> object:
            made = cloudpickle.loads(world.prototypes[component])
            world.outside.stand_in(made)
            return watched(world.plan.by_id[component], made, self)

        return Worker(
            world.plan,
            world.assignment,
            process.number,
            world.config,
            {**process.directory.incarnations, process.number: process.incarnation},
            make_object=make_object,
            send=process.send,
            clock=world.clock,
            rng=random.Random(world.random.getrandbits(64)),  # noqa: S311 - a schedule is repeatable
            observer=CollectorObserver(self),
            offloading=SimulatedOffloading(self, world.spout_tasks),
        )
