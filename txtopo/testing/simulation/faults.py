"""The faults of a schedule of a transactional topology; a schedule draws some kinds, and a rate for each.

A fault strikes at failpoints, between two moves of a schedule, at a job, or at the answers of a job. What it does there
is done by the :class:`~txtopo.testing.simulation.world.World`.
"""

from __future__ import annotations

import enum

from txtopo.failpoints import ProcessDeath

_USER_POINTS = frozenset({"spout.emit", "bolt.execute", "bolt.finish"})
_WORKER_POINTS = ("pool.",)
UPKEEP = "upkeep"
"""The failpoint before each step of an upkeep."""
FORK = "fork."
"""The failpoints of who makes a fork begin with it."""
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
    AGES = "ages"
    """Much time passes, minutes to days, so that much of the past may be deleted."""
    REWINDS = "rewinds"
    """The topology goes back to a point before it starts again."""
    FORKS = "forks"
    """A fork is made at a point, while the topology deletes or between two moves, and lives on as a topology itself."""
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
    Fault.AGES: 0.1,
    Fault.REWINDS: 0.3,
    Fault.FORKS: 0.003,
    Fault.DEADWORKERS: 0.01,
    Fault.SILENTWORKERS: 0.005,
    Fault.BROKENLINKS: 0.005,
    Fault.DOUBLEDFRAMES: 0.1,
}
"""The middle rate of each kind, where it can strike; a schedule draws its own around it."""

LONG_RATES: dict[Fault, float] = {
    Fault.AGES: 0.1,
    Fault.PAUSES: 0.002,
    Fault.CRASHES: 0.002,
    Fault.REWINDS: 0.3,
    Fault.FORKS: 0.003,
}
"""The middle rates of a schedule of long lives, which has all of these kinds and no others."""

MOVING: dict[Fault, str] = {
    Fault.CRASHES: "between two moves",
    Fault.LOSTLEADS: "between two moves",
    Fault.CLOCKJUMPS: "ahead",
    Fault.SLOWWORK: "waits",
    Fault.STOPREQUESTS: "asked for",
    Fault.OTHERTUPLES: "from now on",
    Fault.AGES: "at once",
    Fault.FORKS: "beside",
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
            # Who makes a fork leads another topology.
            return failpoint not in _USER_POINTS and not failpoint.startswith((*_WORKER_POINTS, FORK))
        case Fault.FAILURES:
            return failpoint in _USER_POINTS
        case Fault.FORKS:
            return failpoint == UPKEEP
        case Fault.STOREERRORS:
            return failpoint.startswith(_STORE_STEPS)
        case Fault.TABLEERRORS:
            return failpoint.startswith(_TABLE_STEPS)
        case Fault.DEADWORKERS:
            return failpoint.startswith(_WORKER_POINTS)
        case _:
            return False
