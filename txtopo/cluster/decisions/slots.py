"""One driver slot of a supervisor: a pure state machine.

A supervisor looks at each of its slots again and again: what ZooKeeper wants there, what the process does, the time.
:func:`step` takes that in and returns the slot's next state with actions, which the supervisor carries out in order.

::

    EMPTY ──assigned──▶ FETCHING ──code is here──▶ STARTING ──it runs──────────▶ RUNNING
      ▲                                               │ exited, or silent           │ exited, or silent
      │                                               ▼                             │
      │◀──────────────── WAITING (backoff) ◀──────────┴─────────────────────────────┘
      │ no longer wanted: from every state; from STARTING and RUNNING through
      └── STOPPING ──SIGTERM, later SIGKILL──▶ the process is gone

Who does what:

- *The driver* beats from its first moment on, in the stage ``starting`` until its topology runs. It watches its
  topology's record, begins no transaction unless the status is ACTIVE, and stops in good order when it becomes KILLED.
  It exits with one of :class:`DriverExit`.
- *The supervisor* launches drivers as processes that outlive it, and writes for each what it needs to find it again:
  process id, the time that the process was started (ids are used again), launch id, assignment. Started again, it makes
  a slot in STARTING or RUNNING of what it finds alive (:func:`adopted`): no driver is started twice.
- *Nimbus* reads the :class:`~txtopo.cluster.decisions.assignment.Ending` that the action :class:`Report` writes. The
  slot then waits (ENDED) until its assignment is taken away.

The supervisor restarts a driver that lost its lead or ZooKeeper, got a signal or failed otherwise, in the same slot: at
once if its topology has run, then after longer and longer waits, until a driver has run for ``backoff_reset_secs``. It
reports a driver that ends ``retries_max`` times in a row before its topology runs: KEEPS_FAILING.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import attrs

from txtopo.cluster.decisions.assignment import Assignment, Ending, EndingKind


class DriverExit(enum.IntEnum):
    """The exit statuses of a driver process."""

    FINISHED = 0
    """The input is exhausted."""
    ERROR = 1
    """Something failed that may succeed next time: lost lead, ZooKeeper or Spark away."""
    BROKEN_RULE = 65
    """A RuleError or a DivergenceError: no start will ever help."""
    STOPPED = 75
    """It stopped in good order, as asked."""


class SlotState(enum.Enum):
    """The state of a slot."""

    EMPTY = "empty"
    FETCHING = "fetching"
    """An assignment is here; its code is not yet."""
    STARTING = "starting"
    """A driver was launched, and its topology does not run yet."""
    RUNNING = "running"
    STOPPING = "stopping"
    """SIGTERM was sent; SIGKILL follows."""
    WAITING = "waiting"
    """The driver ended and is launched again when the backoff is over."""
    ENDED = "ended"
    """The driver's end was reported; nimbus decides."""


@attrs.frozen
class SlotLimits:
    """Settings of a supervisor, in seconds.

    Args:
        start_timeout_secs: ``supervisor.worker.start.timeout.secs``: from launch until the topology runs.
        silence_secs: ``supervisor.worker.timeout.secs``: how long a driver that has beaten may be silent.
        shutdown_secs: ``supervisor.worker.shutdown.sleep.secs``: from SIGTERM to SIGKILL.
        backoff_secs: the first wait before a restart; it doubles up to ``backoff_max_secs``. A driver whose topology
            has run is started again without it the first time.
        backoff_max_secs: the longest.
        backoff_reset_secs: ``supervisor.worker.backoff.reset.secs``: after so long a run, earlier ends are forgotten.
        retries_max: ``supervisor.worker.start.retries``: launches in a row that may end before the topology runs.
        isolation_secs: how long the supervisor may be cut off from ZooKeeper before it stops its drivers; less than
            ``nimbus.task.timeout.secs``, so that they end before nimbus starts them elsewhere.
    """

    start_timeout_secs: float = 120.0
    silence_secs: float = 30.0
    shutdown_secs: float = 3.0
    backoff_secs: float = 0.5
    backoff_max_secs: float = 10.0
    backoff_reset_secs: float = 30.0
    retries_max: int = 3
    isolation_secs: float = 20.0


@attrs.frozen
class DriverSlot:
    """A slot as its supervisor knows it. Times are of the supervisor's monotonic clock, in seconds.

    Args:
        number: of the slot, from 0.
        state: see :class:`SlotState`.
        assignment: what the process, or the fetched code, is for.
        since: when the state was entered.
        failures: launches in a row that ended; the backoff grows with it.
        failed_starts: those of them that ended before the topology ran.
        until: when WAITING is over.
        why: why the last driver was stopped or ended, if it was not the user's wish.
    """

    number: int
    state: SlotState = SlotState.EMPTY
    assignment: Assignment | None = None
    since: float = 0.0
    failures: int = 0
    failed_starts: int = 0
    until: float = 0.0
    why: str = ""


@attrs.frozen
class Seen:
    """What a supervisor sees when it looks at a slot.

    Args:
        now: its monotonic time, in seconds.
        wanted: the assignment for this slot in ZooKeeper, as last read.
        has_code: whether the code of ``wanted`` is here, checked.
        is_process_alive: whether the slot's process lives.
        exit_status: its exit status: negative for a signal, None if unknown (it ended while no supervisor ran).
        has_run: whether the driver of this launch has beaten in a stage after ``starting``.
        beat_age_secs: the time since its last heartbeat, by the supervisor's own clock; None before the first.
        cut_off_secs: how long ZooKeeper has not been reachable; 0 while it is.
        error: the last words of the driver, for reports.
        detail: what the driver did last, as its heartbeat said.
    """

    now: float
    wanted: Assignment | None = None
    has_code: bool = False
    is_process_alive: bool = False
    exit_status: int | None = None
    has_run: bool = False
    beat_age_secs: float | None = None
    cut_off_secs: float = 0.0
    error: str = ""
    detail: str = ""


@attrs.frozen
class FetchCode:
    """Fetch the code of a topology, in the background; asked for again and again until it is here."""

    topology: str


@attrs.frozen
class Launch:
    """Start a driver for an assignment; record what finds it again before it is started."""

    assignment: Assignment


@attrs.frozen
class Terminate:
    """Send SIGTERM to the process group: the driver stops in good order."""


@attrs.frozen
class Kill:
    """Send SIGKILL to the process group."""


@attrs.frozen
class Report:
    """Write an ending to ZooKeeper, and try again until it is there."""

    assignment: Assignment
    ending: Ending


@attrs.frozen
class CleanUp:
    """Remove what was recorded about the process of a slot."""


Action = FetchCode | Launch | Terminate | Kill | Report | CleanUp


def adopted(number: int, assignment: Assignment, has_run: bool, now: float) -> DriverSlot:  # noqa: FBT001 - a fact
    """Return the slot of a driver whose folder a supervisor finds when it starts; ``now`` is monotonic time."""
    return DriverSlot(number, SlotState.RUNNING if has_run else SlotState.STARTING, assignment, now)


def step(slot: DriverSlot, view: Seen, limits: SlotLimits) -> tuple[DriverSlot, Sequence[Action]]:
    """Return a slot's next state, and the actions to carry out in order."""
    match slot.state:
        case SlotState.EMPTY:
            return _look_for_work(slot, view)
        case SlotState.FETCHING:
            return _fetching(slot, view)
        case SlotState.STARTING | SlotState.RUNNING:
            return _with_process(slot, view, limits)
        case SlotState.STOPPING:
            return _stopping(slot, view, limits)
        case SlotState.WAITING:
            if not _is_wanted(slot, view):
                return _emptied(slot, view)
            if view.now < slot.until or view.cut_off_secs:
                return slot, []
            # By way of FETCHING, for the disk may have damaged the code since: then it is fetched again.
            return _fetching(attrs.evolve(slot, state=SlotState.FETCHING, since=view.now), view)
        case SlotState.ENDED:
            return (slot, []) if _is_wanted(slot, view) else _emptied(slot, view)


def _look_for_work(slot: DriverSlot, view: Seen) -> tuple[DriverSlot, Sequence[Action]]:
    # A supervisor without ZooKeeper knows only an old assignment: another one may have the topology by now.
    if view.wanted is None or view.cut_off_secs:
        return slot, []
    fetching = attrs.evolve(
        slot, state=SlotState.FETCHING, assignment=view.wanted, since=view.now, failures=0, failed_starts=0
    )
    return _fetching(fetching, view)


def _fetching(slot: DriverSlot, view: Seen) -> tuple[DriverSlot, Sequence[Action]]:
    assignment = _assignment(slot)
    if not _is_wanted(slot, view):
        return _emptied(slot, view)
    if view.has_code and not view.cut_off_secs:
        return _launched(slot, view)
    return slot, [FetchCode(assignment.topology)]


def _with_process(slot: DriverSlot, view: Seen, limits: SlotLimits) -> tuple[DriverSlot, Sequence[Action]]:
    if not view.is_process_alive:
        return _exited(slot, view, limits)
    why = _why_to_stop(slot, view, limits)
    if why is not None:
        return attrs.evolve(slot, state=SlotState.STOPPING, since=view.now, why=why), [Terminate()]
    if slot.state is SlotState.STARTING and view.has_run:
        return attrs.evolve(slot, state=SlotState.RUNNING, since=view.now, failed_starts=0), []
    # Only a long run resets the backoff: a driver that dies soon after each start would otherwise restart at once.
    if slot.state is SlotState.RUNNING and slot.failures and view.now - slot.since > limits.backoff_reset_secs:
        return attrs.evolve(slot, failures=0), []
    return slot, []


def _why_to_stop(slot: DriverSlot, view: Seen, limits: SlotLimits) -> str | None:
    """Return why a driver must stop (empty: its assignment is gone); None if it may go on."""
    if not _is_wanted(slot, view):
        return ""
    if view.cut_off_secs > limits.isolation_secs:
        return f"ZooKeeper has been away for supervisor.isolation.secs, {limits.isolation_secs:g} s"
    if view.beat_age_secs is not None and view.beat_age_secs > limits.silence_secs:
        return f"the driver gave no sign of life for supervisor.worker.timeout.secs, {limits.silence_secs:g} s"
    if slot.state is SlotState.STARTING and not view.has_run and view.now - slot.since > limits.start_timeout_secs:
        last = f"its last stage was: {view.detail}" if view.detail else "it gave no sign of life"
        return (
            "the topology did not run within supervisor.worker.start.timeout.secs, "
            f"{limits.start_timeout_secs:g} s; {last}"
        )
    return None


def _stopping(slot: DriverSlot, view: Seen, limits: SlotLimits) -> tuple[DriverSlot, Sequence[Action]]:
    if view.is_process_alive:
        # Again at every look until it is gone: a process in uninterruptible sleep dies only when it wakes.
        return slot, ([Kill()] if view.now - slot.since >= limits.shutdown_secs else [])
    if not _is_wanted(slot, view):
        return _emptied(slot, view)
    return _exited(slot, view, limits)


def _exited(slot: DriverSlot, view: Seen, limits: SlotLimits) -> tuple[DriverSlot, Sequence[Action]]:
    """Decide what follows when the process has ended: a report, or a wait before the next launch."""
    assignment = _assignment(slot)
    if not _is_wanted(slot, view):
        return _emptied(slot, view)
    ended = attrs.evolve(slot, state=SlotState.ENDED, since=view.now)
    # Report before CleanUp. A supervisor that dies between the two finds the folder with exit.json and reports again;
    # the other way round it would find nothing, and start a finished topology again.
    if view.exit_status == DriverExit.FINISHED:
        return ended, [Report(assignment, Ending(EndingKind.FINISHED)), CleanUp()]
    if view.exit_status == DriverExit.BROKEN_RULE:
        return ended, [Report(assignment, Ending(EndingKind.FAILED, view.error)), CleanUp()]
    reason = view.error or f"it exited with status {view.exit_status}"
    if slot.state is SlotState.STOPPING and slot.why:
        reason = f"{slot.why}; {reason}"
    failures = slot.failures + 1
    # A driver may begin to run and end between two looks, so that this slot was never RUNNING.
    has_run = view.has_run or slot.state is SlotState.RUNNING
    failed_starts = 0 if has_run else slot.failed_starts + 1
    if failed_starts >= limits.retries_max:
        return ended, [Report(assignment, Ending(EndingKind.KEEPS_FAILING, reason)), CleanUp()]
    backoff_secs = min(limits.backoff_secs * 2 ** (failures - 1), limits.backoff_max_secs)
    if has_run and failures == 1:
        backoff_secs = 0.0
    waiting = attrs.evolve(
        slot,
        state=SlotState.WAITING,
        since=view.now,
        failures=failures,
        failed_starts=failed_starts,
        until=view.now + backoff_secs,
        why=reason,
    )
    return waiting, [CleanUp()]


def _launched(slot: DriverSlot, view: Seen) -> tuple[DriverSlot, Sequence[Action]]:
    return attrs.evolve(slot, state=SlotState.STARTING, since=view.now), [Launch(_assignment(slot))]


def _emptied(slot: DriverSlot, view: Seen) -> tuple[DriverSlot, Sequence[Action]]:
    empty, actions = _look_for_work(DriverSlot(slot.number, since=view.now), view)
    return empty, [CleanUp(), *actions]


def _is_wanted(slot: DriverSlot, view: Seen) -> bool:
    """Whether ZooKeeper still has the slot's assignment, by topology and number."""
    mine, assigned = _assignment(slot), view.wanted
    return assigned is not None and (mine.topology, mine.number) == (assigned.topology, assigned.number)


def _assignment(slot: DriverSlot) -> Assignment:
    assert slot.assignment is not None, "only an EMPTY slot has none"
    return slot.assignment
