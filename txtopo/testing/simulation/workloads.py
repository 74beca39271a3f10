"""Workloads: the faults of a schedule. Each is one kind; a schedule draws some, and a rate for each.

A workload strikes at failpoints, between two moves of a schedule, or at the answers of a job. It first asks the world
whether it may, so that a failing schedule can be replayed without the faults that do not matter.
"""

from __future__ import annotations

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
    """A process dies here; no code of txtopo catches it."""


@attrs.define(eq=False)
class Workload(ABC):
    """One kind of fault; ``rate`` is the probability that it strikes where it can."""

    rate: float

    def __str__(self) -> str:
        """Return what the command line calls it."""
        return type(self).__name__.lower()

    def is_at(self, failpoint: str) -> bool:  # noqa: ARG002 - used where a subclass overrides it
        """Whether it may strike at a failpoint."""
        return False

    def reach(self, world: World, failpoint: str) -> None:
        """Strike, perhaps, at one of these failpoints: raise, or let something else happen first."""

    def move(self, world: World) -> None:
        """Strike, perhaps, before the next move."""

    def post(self, world: World, delivery: Delivery, job_id: int) -> None:
        """Strike, perhaps, at the answers of a job: change the delivery, or add another one."""

    def run_job(self, world: World, *, is_done: bool) -> None:
        """Strike, perhaps, at a job before its work or after it: raise to lose it."""


class Crashes(Workload):
    """A process dies at any failpoint, or between any two moves."""

    def is_at(self, failpoint: str) -> bool:
        """Strike at txtopo's own steps."""
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
    """A spout or bolt raises FailedException in either phase."""

    def is_at(self, failpoint: str) -> bool:
        """Strike in the user's code."""
        return failpoint in USER_POINTS

    def reach(self, world: World, failpoint: str) -> None:
        """Fail the transaction."""
        if world.strikes(self, f"at {failpoint}"):
            raise FailedException("the simulator told it to fail")


class StoreErrors(Workload):
    """The store does not answer, and its write may have been made or not."""

    def is_at(self, failpoint: str) -> bool:
        """Strike at the store's steps."""
        return failpoint.startswith(STORE_STEPS)

    def reach(self, world: World, failpoint: str) -> None:
        """Raise before or after a write: the coordinator cannot tell which."""
        if world.strikes(self, f"at {failpoint}"):
            raise StopError("the simulator told the store not to answer")


class TableErrors(Workload):
    """A Delta write fails, or lands and its answer is lost."""

    def is_at(self, failpoint: str) -> bool:
        """Strike at the tables' steps."""
        return failpoint.startswith(TABLE_STEPS)

    def reach(self, world: World, failpoint: str) -> None:
        """Raise before or after a write."""
        if world.strikes(self, f"at {failpoint}"):
            raise FailedException("the simulator told the table not to answer")


class Pauses(Workload):
    """A process stops at a failpoint, loses its lead, and goes on as a zombie."""

    def is_at(self, failpoint: str) -> bool:
        """Strike at txtopo's own steps."""
        return failpoint not in USER_POINTS

    def reach(self, world: World, failpoint: str) -> None:
        """Run a successor inside the failpoint."""
        if world.can_pause and world.strikes(self, f"at {failpoint}"):
            world.pause_current()


class LostLeads(Workload):
    """Another process takes the lead, and the first one works on beside it."""

    def move(self, world: World) -> None:
        """Start a successor."""
        if world.can_pause and world.strikes(self, "between two moves"):
            world.take_lead_away()


class LostJobs(Workload):
    """A job is lost, before or after its work."""

    def run_job(self, world: World, *, is_done: bool) -> None:
        """Lose the job."""
        if world.strikes(self, "after it was done" if is_done else "before it was done"):
            raise JobFailure("the simulator lost the job")


class LateAnswers(Workload):
    """The answers of a job come late, some of them after the timeout."""

    def post(self, world: World, delivery: Delivery, job_id: int) -> None:
        """Delay a delivery by up to three timeouts."""
        if world.strikes(self, f"of job {job_id}"):
            delivery.due_ms = world.clock.now_ms + world.random.randrange(3 * world.timeout_ms)


class LostAnswers(Workload):
    """The answers of a job never come; the job is found lost after its timeout."""

    def post(self, world: World, delivery: Delivery, job_id: int) -> None:
        """Replace the answers by the loss of the job."""
        if world.strikes(self, f"of job {job_id}"):
            # Some event must end the job: the thread of a real job ends when the job is cancelled.
            delivery.events = (JobLost(job_id, "its answers were lost"),)
            delivery.due_ms = world.clock.now_ms + 2 * world.timeout_ms


class DoubledAnswers(Workload):
    """The answers of a job come a second time, later."""

    def post(self, world: World, delivery: Delivery, job_id: int) -> None:
        """Post a copy."""
        if world.strikes(self, f"of job {job_id}"):
            events = tuple(event for event in delivery.events if isinstance(event, (Processed, JobEnded)))
            due_ms = world.clock.now_ms + world.random.randrange(2 * world.timeout_ms)
            world.moving.threads.deliveries.append(Delivery(events, None, due_ms))


class ClockJumps(Workload):
    """The clock jumps ahead, perhaps past a timeout."""

    def move(self, world: World) -> None:
        """Advance the clock by up to two timeouts."""
        if world.strikes(self, "ahead"):
            world.clock.now_ms += world.random.randrange(2 * world.timeout_ms)


class SlowWork(Workload):
    """Submitted work does not begin for a while."""

    def move(self, world: World) -> None:
        """Let the run loop read a later clock while work waits."""
        works: list[Work] = world.moving.threads.works
        if works and world.strikes(self, "waits"):
            world.clock.now_ms += world.random.randrange(world.timeout_ms)
            world.moving.tick()


class StopRequests(Workload):
    """A user requests a clean stop."""

    def move(self, world: World) -> None:
        """Request it."""
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
"""The middle rate of each workload; a schedule draws its own around it."""
