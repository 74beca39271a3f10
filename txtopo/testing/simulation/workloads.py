"""Workloads: the faults of a schedule. Each is one idea; a schedule draws some, and a rate for each.

A workload strikes at failpoints, between two moves of a schedule, or at a letter on its way. It asks the
world whether it may, so that a failing schedule can be replayed without the faults that do not matter.
"""

from __future__ import annotations

import math
import random
from abc import ABC
from typing import TYPE_CHECKING

import attrs

from txtopo.errors import FailedException, JobFailure, StopError
from txtopo.failpoints import ProcessDeath
from txtopo.testing.simulation.threads import Delivery, Work
from txtopo.transactional.core.events import JobEnded, JobLost, Processed

if TYPE_CHECKING:
    from txtopo.testing.simulation.world import World

USER_POINTS = frozenset({"spout.emit", "bolt.execute", "bolt.finish"})
STORE_STEPS = (
    "lead.take",
    "spout.keep",
    "metadata.save",
    "group.begin",
    "group.commit",
    "recovery.drop",
    "recovery.commit",
    "recovery.confirm",
)
TABLE_STEPS = ("table.open", "table.write", "table.maintain", "recovery.write", "group.stage", "delta.write.landed")


class CrashError(ProcessDeath):
    """A process dies here; nothing of ours catches it."""


@attrs.define(eq=False)
class Workload(ABC):
    """One kind of fault.

    Args:
        rate: how probably it strikes where it can.
    """

    rate: float

    def __str__(self) -> str:
        """Return what the command line calls it."""
        return type(self).__name__.lower()

    def is_at(self, failpoint: str) -> bool:  # noqa: ARG002 - of a workload that is at some
        """Whether it may strike at a failpoint."""
        return False

    def reach(self, world: World, failpoint: str) -> None:
        """A coordinator reaches one of these failpoints; an exception strikes it there."""

    def move(self, world: World) -> None:
        """The schedule makes its next move."""

    def post(self, world: World, delivery: Delivery, job_id: int) -> None:
        """A job's answers are on their way; the letter may be changed, or taken out of the threads."""

    def run_job(self, world: World, *, is_done: bool) -> None:
        """A job begins, or is done; an exception loses it."""


class Crashes(Workload):
    """A process dies at any failpoint, or between any two actions."""

    def is_at(self, failpoint: str) -> bool:
        """Strike at our own steps."""
        return failpoint not in USER_POINTS

    def reach(self, world: World, failpoint: str) -> None:
        """Die before or after a durable step."""
        if world.strikes(self, f"at {failpoint}"):
            world.kill_current()

    def move(self, world: World) -> None:
        """Die between two moves."""
        if world.strikes(self, "between two moves"):
            world.kill(world.moving)


class Failures(Workload):
    """A spout or bolt raises FailedException in either phase; its place is drawn before the phase begins."""

    def passed(self, draw: random.Random) -> int:
        """Draw the number of failpoints before it strikes, with the distribution of a draw at each failpoint."""
        return int(math.log(1 - draw.random()) / math.log(1 - self.rate))


class StoreErrors(Workload):
    """The store does not answer: a write has been made, or has not."""

    def is_at(self, failpoint: str) -> bool:
        """Strike at the store's steps."""
        return failpoint.startswith(STORE_STEPS)

    def reach(self, world: World, failpoint: str) -> None:
        """Raise before or after a write."""
        if world.strikes(self, f"at {failpoint}"):
            raise StopError("the simulator told the store not to answer")


class TableErrors(Workload):
    """A table's write fails, or lands without its answer."""

    def is_at(self, failpoint: str) -> bool:
        """Strike at the tables' steps."""
        return failpoint.startswith(TABLE_STEPS)

    def reach(self, world: World, failpoint: str) -> None:
        """Raise before or after a write."""
        if world.strikes(self, f"at {failpoint}"):
            raise FailedException("the simulator told the table not to answer")


class Pauses(Workload):
    """A process stops at a failpoint, loses its lead meanwhile, and goes on as a zombie."""

    def is_at(self, failpoint: str) -> bool:
        """Strike at our own steps."""
        return failpoint not in USER_POINTS

    def reach(self, world: World, failpoint: str) -> None:
        """Let a successor work inside the failpoint."""
        if world.can_pause and world.strikes(self, f"at {failpoint}"):
            world.pause_current()


class LostLeads(Workload):
    """The lead is lost and taken by another process, beside which the first one works on."""

    def move(self, world: World) -> None:
        """Start a successor."""
        if world.can_pause and world.strikes(self, "between two moves"):
            world.take_lead_away()


class LostJobs(Workload):
    """A job is lost, before or after it was done."""

    def run_job(self, world: World, *, is_done: bool) -> None:
        """Lose the job."""
        if world.strikes(self, "after it was done" if is_done else "before it was done"):
            raise JobFailure("the simulator lost the job")


class LateAnswers(Workload):
    """Slow work: answers come long after, past the timeout too."""

    def post(self, world: World, delivery: Delivery, job_id: int) -> None:
        """Hold a letter back."""
        if world.strikes(self, f"of job {job_id}"):
            delivery.due_ms = world.clock.now_ms + world.random.randrange(3 * world.timeout_ms)


class LostAnswers(Workload):
    """Answers never come; the job is found lost when it is cancelled."""

    def post(self, world: World, delivery: Delivery, job_id: int) -> None:
        """Lose a letter."""
        if world.strikes(self, f"of job {job_id}"):
            delivery.events = (JobLost(job_id, "its answers were lost"),)
            delivery.due_ms = world.clock.now_ms + 2 * world.timeout_ms


class DoubledAnswers(Workload):
    """Answers come a second time, later."""

    def post(self, world: World, delivery: Delivery, job_id: int) -> None:
        """Post a copy."""
        if world.strikes(self, f"of job {job_id}"):
            events = tuple(event for event in delivery.events if isinstance(event, (Processed, JobEnded)))
            due_ms = world.clock.now_ms + world.random.randrange(2 * world.timeout_ms)
            world.moving.threads.deliveries.append(Delivery(events, None, due_ms))


class ClockJumps(Workload):
    """Time leaps ahead, past timeouts."""

    def move(self, world: World) -> None:
        """Leap."""
        if world.strikes(self, "ahead"):
            world.clock.now_ms += world.random.randrange(2 * world.timeout_ms)


class SlowWork(Workload):
    """Work that was submitted is not begun for a while."""

    def move(self, world: World) -> None:
        """Let the run loop look at the clock while work waits."""
        works: list[Work] = world.moving.threads.works
        if works and world.strikes(self, "waits"):
            world.clock.now_ms += world.random.randrange(world.timeout_ms)
            world.moving.tick()


class StopRequests(Workload):
    """Somebody asks for an orderly stop."""

    def move(self, world: World) -> None:
        """Ask."""
        if world.strikes(self, "asked for"):
            world.moving.request_stop()


class OtherTuples(Workload):
    """Partitions of an opaque source come and go, so that a replay carries other tuples."""

    def move(self, world: World) -> None:
        """Switch a partition."""
        if world.can_switch and world.strikes(self, "from now on"):
            world.switch_partition()


RATES: dict[type[Workload], float] = {
    Crashes: 0.03,
    Failures: 0.02,
    StoreErrors: 0.03,
    TableErrors: 0.1,
    Pauses: 0.03,
    LostLeads: 0.01,
    LostJobs: 0.1,
    LateAnswers: 0.15,
    LostAnswers: 0.1,
    DoubledAnswers: 0.2,
    ClockJumps: 0.04,
    SlowWork: 0.05,
    StopRequests: 0.01,
    OtherTuples: 0.1,
}
"""The middle rate of each workload; a schedule draws its own round it."""
