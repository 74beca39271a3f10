"""Which supervisor runs which topology's driver: a pure function of what ZooKeeper says and of heartbeats.

A topology has one driver, in one *driver slot* of one supervisor. Its :class:`Assignment` has a number that rises with
every new one. The driver's heartbeats and the report of its end carry that number, so a late message of an earlier
driver has no effect.

Three rules:

1. *A driver is moved only when its heartbeat stops* (or its supervisor reports that it keeps failing at its start),
   never because the supervisor's node vanished: a supervisor that is started again finds the driver running.
2. *A nimbus judges heartbeats by their change only, on its own clock.* The clocks of machines need not agree.
   ::

       t=0   the nimbus sees a beat with count 7: the driver is alive
       t=29  still 7: alive, for nimbus.task.timeout.secs is 30
       t=31  still 7: dead, whatever time the beat itself states

3. *A slot never gets two topologies.*

A round spreads its assignments evenly. A topology returns to a supervisor where its driver has just died only if no
other has a free slot.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence, Set as AbstractSet

import attrs

from txtopo.cluster.decisions.lifecycle import RUNS, Event, Request, Status, Topology


@attrs.frozen
class Assignment:
    """Where a topology's driver runs; ``/assignments/<id>`` in ZooKeeper.

    Args:
        topology: the topology's id in the cluster.
        number: rises with each assignment of the topology, from 1.
        supervisor: the supervisor's id.
        slot: the number of its driver slot, from 0.
        revision: the topology's revision that it was made for.
        assigned_at: the leader's wall-clock time, for display only.
        failed_at: the supervisors on which the driver kept failing at its start, in a row.
    """

    topology: str
    number: int
    supervisor: str
    slot: int
    revision: int = 0
    assigned_at: float = 0.0
    failed_at: tuple[str, ...] = ()

    @property
    def place(self) -> Slot:
        """The slot that the driver has."""
        return Slot(self.supervisor, self.slot)


@attrs.frozen(order=True)
class Slot:
    """A place for one driver."""

    supervisor: str
    number: int


@attrs.frozen
class SupervisorInfo:
    """A live supervisor; ``/supervisors/<id>`` in ZooKeeper, ephemeral.

    Its id is in its folder, so it survives a restart. ``address`` is the ``host:port`` of its HTTP server;
    ``started_at`` is wall-clock time, for display only.
    """

    id: str
    address: str
    slots: int
    started_at: float = 0.0
    version: str = ""


@attrs.frozen
class Heartbeat:
    """A sign of life of a driver; ``/workerbeats/<id>/<assignment number>`` in ZooKeeper. The driver writes it.

    Args:
        launch: which launch of the driver it is; a restarted driver has another.
        count: rises with every beat.
        stage: what the driver is doing, in words: ``starting``, ``running``, ``inactive``, ``stopping``.
        at: the driver's wall-clock time, for display only.
        supervisor: the id of the supervisor that started it.
        pid: its process id.
        figures: numbers to show: transactions committed and the like.
        detail: what it does at the moment, more exactly, and for how long; why earlier starts failed. To show.
    """

    launch: str
    count: int
    stage: str = ""
    at: float = 0.0
    supervisor: str = ""
    pid: int = 0
    figures: dict[str, float] = attrs.field(factory=dict)
    detail: str = ""


class EndingKind(enum.Enum):
    """How the driver of an assignment ended, as its supervisor reports."""

    FINISHED = "finished"
    """It exited with 0: the input is exhausted."""
    FAILED = "failed"
    """It cannot run anywhere: a broken rule, or state and tables that diverge."""
    KEEPS_FAILING = "keeps failing"
    """It failed at its start too often in this slot. Elsewhere it may run."""


@attrs.frozen
class Ending:
    """A supervisor's report; ``/endings/<id>/<assignment number>`` in ZooKeeper. It outlives the supervisor.

    ``at`` is the supervisor's wall-clock time, for display only.
    """

    kind: EndingKind
    reason: str = ""
    at: float = 0.0


@attrs.frozen
class AssignmentLimits:
    """Settings of a leader, in seconds.

    Args:
        task_timeout_secs: ``nimbus.task.timeout.secs``.
        task_launch_secs: ``nimbus.task.launch.secs``: how long a new assignment may be without a heartbeat.
        moves_max: ``nimbus.task.moves.max``: how many supervisors may report that a driver keeps failing.
    """

    task_timeout_secs: float = 30.0
    task_launch_secs: float = 120.0
    moves_max: int = 3


@attrs.define
class _LastBeat:
    """What a nimbus has seen of one assignment's driver; times are of its own monotonic clock."""

    first_seen: float
    last_change: float | None = None
    beat: tuple[str, int] | None = None


class HeartbeatCache:
    """Judges which drivers are alive, by when this nimbus last saw their heartbeats change.

    A new leader starts with an empty cache, so every driver gets the full grace again: an election kills nobody.
    """

    def __init__(self) -> None:
        self._last_beats: dict[tuple[str, int], _LastBeat] = {}

    def update(
        self, assignments: Mapping[str, Assignment], beats: Mapping[tuple[str, int], Heartbeat], now: float
    ) -> None:
        """Record what ZooKeeper says at monotonic time ``now``; ``beats`` go by topology and assignment number."""
        keys = {(assignment.topology, assignment.number) for assignment in assignments.values()}
        # Keys without an assignment go, so the cache is never larger than the cluster.
        self._last_beats = {key: self._last_beats.get(key) or _LastBeat(now) for key in sorted(keys)}
        for key, last in self._last_beats.items():
            beat = beats.get(key)
            # The launch too: a driver that was started again counts from 1 again, and may be at the number last seen.
            if beat is not None and last.beat != (beat.launch, beat.count):
                last.beat = (beat.launch, beat.count)
                last.last_change = now

    def is_alive(self, assignment: Assignment, limits: AssignmentLimits, now: float) -> bool:
        """Whether the heartbeat changed in time; before the first one, whether the time for the launch is not over."""
        last = self._last_beats.get((assignment.topology, assignment.number))
        if last is None:
            return True  # made in this round, and not seen yet
        if last.last_change is None:
            return now - last.first_seen <= limits.task_launch_secs
        return now - last.last_change <= limits.task_timeout_secs


@attrs.frozen
class Assign:
    """Store an assignment."""

    assignment: Assignment
    why: str


@attrs.frozen
class Unassign:
    """Remove an assignment: the driver is to end, or is dead and has nowhere to go."""

    assignment: Assignment
    why: str


@attrs.frozen
class Apply:
    """Apply an event to a topology."""

    topology: str
    request: Request


Decision = Assign | Unassign | Apply


@attrs.frozen
class ClusterView:
    """What a leader has read, by topology or supervisor id."""

    topologies: Mapping[str, Topology]
    assignments: Mapping[str, Assignment]
    supervisors: Mapping[str, SupervisorInfo]
    endings: Mapping[tuple[str, int], Ending] = attrs.field(factory=dict)
    numbers: Mapping[str, int] = attrs.field(factory=dict)
    """The highest assignment number that each topology has ever had."""


def decide(
    view: ClusterView,
    alive: AbstractSet[str],
    limits: AssignmentLimits,
    now: float,
    ready: AbstractSet[str] | None = None,
) -> Sequence[Decision]:
    """Return what to change, in order.

    ``alive`` are the topologies whose driver lives, by the :class:`HeartbeatCache`; ``ready`` those whose code some
    live nimbus holds (None: all); ``now`` is wall-clock time, which assignments record for display.
    """
    round_ = _Round(view, limits, now)
    # All kept slots are known before the first one is given away: look at everything, then place.
    for topology in sorted(view.topologies.values(), key=lambda topology: (topology.launched_at, topology.id)):
        round_.consider(topology, topology.id in alive, is_ready=ready is None or topology.id in ready)
    round_.drop_orphans()
    round_.place_waiting()
    return round_.decisions


@attrs.frozen
class _Waiting:
    """A topology that needs a slot in this round."""

    topology: Topology
    old: Assignment | None
    avoided: frozenset[str]
    failed_at: tuple[str, ...]
    why: str


class _Round:
    def __init__(self, view: ClusterView, limits: AssignmentLimits, now: float) -> None:
        self.decisions: list[Decision] = []
        self._view = view
        self._limits = limits
        self._now = now
        self._waiting: list[_Waiting] = []
        self._used: set[Slot] = set()

    def consider(self, topology: Topology, is_alive: bool, is_ready: bool) -> None:  # noqa: FBT001 - facts, not switches
        old = self._view.assignments.get(topology.id)
        if topology.status not in RUNS:
            if old is not None:
                self.decisions.append(Unassign(old, f"the topology is {topology.status.value}"))
            return
        ending = None if old is None else self._view.endings.get((topology.id, old.number))
        if topology.status is Status.KILLED:
            # The driver needs its assignment to stop in good order; both go when the topology is removed.
            if old is not None:
                self._used.add(old.place)
            return
        if old is None:
            if is_ready:  # without code a supervisor would hold a slot and fetch in vain
                self._waiting.append(_Waiting(topology, None, frozenset(), (), "new"))
        # A driver of a former revision that has failed does not count: this one may have other settings.
        elif ending is not None and (ending.kind is EndingKind.FINISHED or old.revision == topology.revision):
            self._consider_ending(topology, old, ending)
        elif old.revision != topology.revision:
            self._waiting.append(_Waiting(topology, old, frozenset(), (), "rebalanced"))
        elif is_alive:
            self._used.add(old.place)
        else:
            # Its supervisor may be the cause, so any other one comes first.
            why = f"no heartbeat for {self._limits.task_timeout_secs:g} s"
            self._waiting.append(_Waiting(topology, old, frozenset({old.supervisor}), (), why))

    def _consider_ending(self, topology: Topology, old: Assignment, ending: Ending) -> None:
        match ending.kind:
            case EndingKind.FAILED | EndingKind.KEEPS_FAILING if topology.status is Status.REBALANCING:
                self._used.add(old.place)
                self.decisions.append(Apply(topology.id, Request(Event.DO_REBALANCE)))  # no driver is left to wait for
                return
            case EndingKind.FINISHED:
                self.decisions.append(Apply(topology.id, Request(Event.FINISHED)))
            case EndingKind.FAILED:
                self.decisions.append(Apply(topology.id, Request(Event.FAILED, reason=ending.reason)))
            case EndingKind.KEEPS_FAILING:
                failed_at = (*old.failed_at, old.supervisor)
                untried = set(self._view.supervisors) - set(failed_at)
                if len(failed_at) < self._limits.moves_max and untried:
                    why = f"it keeps failing on {old.supervisor}: {ending.reason}"
                    self._waiting.append(_Waiting(topology, old, frozenset(failed_at), failed_at, why))
                    return
                places = ", ".join(failed_at)
                reason = f"the driver keeps failing at its start, on {places}: {ending.reason}"
                self.decisions.append(Apply(topology.id, Request(Event.FAILED, reason=reason)))
        self.decisions.append(Unassign(old, ending.kind.value))

    def drop_orphans(self) -> None:
        for topology, assignment in sorted(self._view.assignments.items()):
            if topology not in self._view.topologies:
                self.decisions.append(Unassign(assignment, "the topology is gone"))

    def place_waiting(self) -> None:
        """Give slots to the topologies that need one: first those that ran already, then new ones."""
        for waiting in sorted(self._waiting, key=lambda waiting: waiting.old is None):
            slot = self._best_slot(waiting)
            if slot is None:
                if waiting.old is not None:
                    self.decisions.append(Unassign(waiting.old, f"{waiting.why}; no slot is free"))
                continue
            self._used.add(slot)
            # From the highest ever, not from the last assignment: that one may have been removed while no slot was
            # free, and a beat of its driver must not pass for one of the new driver.
            number = max(self._view.numbers.get(waiting.topology.id, 0), waiting.old.number if waiting.old else 0) + 1
            assignment = Assignment(
                waiting.topology.id,
                number,
                slot.supervisor,
                slot.number,
                waiting.topology.revision,
                self._now,
                waiting.failed_at,
            )
            self.decisions.append(Assign(assignment, waiting.why))

    def _best_slot(self, waiting: _Waiting) -> Slot | None:
        """Return a free slot of the least loaded supervisor, of an avoided one only as a last resort."""
        load = {name: sum(slot.supervisor == name for slot in self._used) for name in self._view.supervisors}
        free = [
            slot
            for supervisor in self._view.supervisors.values()
            for slot in (Slot(supervisor.id, number) for number in range(supervisor.slots))
            if slot not in self._used
        ]
        old = None if waiting.old is None else waiting.old.place  # of equal ones, a rebalance keeps the old slot
        return min(
            free,
            key=lambda slot: (slot.supervisor in waiting.avoided, load[slot.supervisor], slot != old, slot),
            default=None,
        )
