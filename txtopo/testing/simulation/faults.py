"""The faults of a schedule of a transactional topology; a schedule draws some kinds, and a rate for each.

A fault strikes at failpoints, between two moves of a schedule, at a job, or at the answers of a job. It first asks the
world whether it may, so that a failing schedule can be replayed without the faults that do not matter.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from txtopo.errors import FailedException, JobFailure, StopError
from txtopo.failpoints import ProcessDeath
from txtopo.testing.simulation.threads import Delivery
from txtopo.transactional.core.events import JobEnded, JobLost, Processed

if TYPE_CHECKING:
    from txtopo.testing.simulation.world import World

_USER_POINTS = frozenset({"spout.emit", "bolt.execute", "bolt.finish"})
_WORKER_POINTS = ("pool.",)
_STORE_STEPS = (
    "lead.take",
    "spout.keep",
    "metadata.save",
    "group.decide",
    "group.commit",
    "recovery.commit",
    "recovery.confirm",
)
_TABLE_STEPS = ("table.open", "table.write", "table.maintain", "recovery.write", "table.prepare", "delta.write.landed")


class CrashError(ProcessDeath):
    """A process dies here; no code of txtopo catches it."""


class Fault(enum.Enum):
    """A kind of fault, with its name on the command line."""

    CRASHES = "crashes"
    """A process dies at any failpoint, or between any two moves."""
    FAILURES = "failures"
    """A spout or bolt raises FailedException in either phase."""
    STOREERRORS = "storeerrors"
    """The store does not answer, and its write may have been made or not: the coordinator cannot tell."""
    TABLEERRORS = "tableerrors"
    """A Delta write fails, or lands and its answer is lost."""
    PAUSES = "pauses"
    """A process stops at a failpoint, loses its lead to a successor, and goes on as a zombie."""
    LOSTLEADS = "lostleads"
    """Another process takes the lead, and the first one works on beside it."""
    LOSTJOBS = "lostjobs"
    """A job is lost, before or after its work."""
    DEADEXECUTORS = "deadexecutors"
    """An executor dies that has several jobs: all that are not done are lost together."""
    LATEANSWERS = "lateanswers"
    """The answers of a job come late, some of them after the timeout."""
    LOSTANSWERS = "lostanswers"
    """The answers of a job never come; the job is found lost after its timeout."""
    DOUBLEDANSWERS = "doubledanswers"
    """The answers of a job come a second time, later."""
    CLOCKJUMPS = "clockjumps"
    """The clock jumps ahead by up to two timeouts."""
    SLOWWORK = "slowwork"
    """Submitted work does not begin for a while."""
    STOPREQUESTS = "stoprequests"
    """A user requests a clean stop."""
    OTHERTUPLES = "othertuples"
    """Partitions of an opaque source come and go, so that a replay carries other tuples."""
    DEADWORKERS = "deadworkers"
    """In real-time mode, a worker dies: anywhere, or around an answer."""
    SILENTWORKERS = "silentworkers"
    """In real-time mode, a worker counts as dead, and works on for a while."""
    BROKENLINKS = "brokenlinks"
    """In real-time mode, the connection between two workers breaks while both live; one of them is ended for it."""
    DOUBLEDFRAMES = "doubledframes"
    """In real-time mode, what a worker says comes twice: to the pool, or to another worker."""


RATES: dict[Fault, float] = {
    Fault.CRASHES: 0.03,
    Fault.FAILURES: 0.02,
    Fault.STOREERRORS: 0.03,
    Fault.TABLEERRORS: 0.1,
    Fault.PAUSES: 0.03,
    Fault.LOSTLEADS: 0.01,
    Fault.LOSTJOBS: 0.1,
    Fault.DEADEXECUTORS: 0.1,
    Fault.LATEANSWERS: 0.15,
    Fault.LOSTANSWERS: 0.1,
    Fault.DOUBLEDANSWERS: 0.2,
    Fault.CLOCKJUMPS: 0.04,
    Fault.SLOWWORK: 0.05,
    Fault.STOPREQUESTS: 0.01,
    Fault.OTHERTUPLES: 0.1,
    Fault.DEADWORKERS: 0.02,
    Fault.SILENTWORKERS: 0.02,
    Fault.BROKENLINKS: 0.02,
    Fault.DOUBLEDFRAMES: 0.1,
}
"""The middle rate of each kind, where it can strike; a schedule draws its own around it."""

MOVING: dict[Fault, str] = {
    Fault.CRASHES: "between two moves",
    Fault.LOSTLEADS: "between two moves",
    Fault.CLOCKJUMPS: "ahead",
    Fault.SLOWWORK: "waits",
    Fault.STOPREQUESTS: "asked for",
    Fault.OTHERTUPLES: "from now on",
}
"""The kinds that strike between two moves, with what the log says."""
ANSWERING = frozenset({Fault.LATEANSWERS, Fault.LOSTANSWERS, Fault.DOUBLEDANSWERS})
"""The kinds that strike at the answers of a job."""
OF_WORKERS = frozenset({Fault.DEADWORKERS, Fault.SILENTWORKERS, Fault.BROKENLINKS, Fault.DOUBLEDFRAMES})
"""The kinds that strike in real-time mode only."""


def is_at(fault: Fault, failpoint: str) -> bool:
    """Whether a kind of fault may strike at a failpoint."""
    match fault:
        case Fault.CRASHES | Fault.PAUSES:
            return failpoint not in _USER_POINTS and not failpoint.startswith(_WORKER_POINTS)
        case Fault.FAILURES:
            return failpoint in _USER_POINTS
        case Fault.STOREERRORS:
            return failpoint.startswith(_STORE_STEPS)
        case Fault.TABLEERRORS:
            return failpoint.startswith(_TABLE_STEPS)
        case Fault.DEADWORKERS:
            return failpoint.startswith(_WORKER_POINTS)
        case _:
            return False


def reach(world: World, fault: Fault, failpoint: str) -> None:
    """Strike, perhaps, at a failpoint: raise, or let something else happen first."""
    if (fault is Fault.PAUSES and not world.can_pause) or not world.strikes(fault, "at", failpoint):
        return
    match fault:
        case Fault.CRASHES:
            world.kill_current()
        case Fault.PAUSES:
            world.pause_current()
        case Fault.STOREERRORS:
            raise StopError("the simulator told the store not to answer")
        case Fault.TABLEERRORS:
            raise FailedException("the simulator told the table not to answer")
        case Fault.DEADWORKERS:
            raise ProcessDeath
        case _:
            raise FailedException("the simulator told it to fail")


def move(world: World, fault: Fault) -> None:
    """Strike, perhaps, before the next move."""
    process = world.moving
    can_strike = {
        Fault.LOSTLEADS: world.can_pause,
        Fault.SLOWWORK: bool(process.threads.works),
        Fault.OTHERTUPLES: world.can_switch,
    }
    if not can_strike.get(fault, True) or not world.strikes(fault, MOVING[fault]):
        return
    match fault:
        case Fault.CRASHES:
            world.kill(process)
        case Fault.LOSTLEADS:
            world.take_lead_away()
        case Fault.CLOCKJUMPS:
            world.clock.now_ms += world.random.randrange(2 * world.timeout_ms)
        case Fault.SLOWWORK:  # the run loop reads a later clock while work waits
            world.clock.now_ms += world.random.randrange(world.timeout_ms)
            process.tick()
        case Fault.STOPREQUESTS:
            process.request_stop()
        case _:
            world.switch_partition()


def lose_job(world: World, *, is_done: bool) -> None:
    """Lose a job, perhaps, before its work or after it."""
    if world.strikes(Fault.LOSTJOBS, "after it was done" if is_done else "before it was done"):
        raise JobFailure("the simulator lost the job")
    if not is_done and world.strikes(Fault.DEADEXECUTORS, "with this job and all that wait"):
        world.moving.threads.lose_jobs()
        raise JobFailure("the simulator killed an executor")


def answer(world: World, fault: Fault, delivery: Delivery, job_id: int) -> None:
    """Strike, perhaps, at the answers of a job: change the delivery, or add another one."""
    if not world.strikes(fault, "of job", job_id):
        return
    match fault:
        case Fault.LATEANSWERS:
            delivery.due_ms = world.clock.now_ms + world.random.randrange(3 * world.timeout_ms)
        case Fault.LOSTANSWERS:
            # Some event must end the job: the thread of a real job ends when the job is cancelled.
            delivery.events = (JobLost(job_id, "its answers were lost"),)
            delivery.due_ms = world.clock.now_ms + 2 * world.timeout_ms
        case _:
            events = tuple(event for event in delivery.events if isinstance(event, (Processed, JobEnded)))
            due_ms = world.clock.now_ms + world.random.randrange(2 * world.timeout_ms)
            world.moving.threads.deliveries.append(Delivery(events, None, due_ms))
