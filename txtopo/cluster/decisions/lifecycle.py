"""The life of a submitted topology: one table of statuses and events.

A leader applies an event to a topology's record and stores the result; nothing else decides on a status. A record
holds a wait as a deadline, so a new leader has no timer to arm. The deadline is wall-clock time of the leader that
wrote it: if the next leader's clock is ahead by some seconds, the wait is that much shorter, otherwise longer.

::

                  activate / deactivate
        ACTIVE ◀───────────────────────▶ INACTIVE
          │ ▲                              │ ▲
          │ └──────── do rebalance ──┐     │ │
          ├────────── rebalance ──▶ REBALANCING
          ├── finished ──▶ FINISHED         all of them ──kill──▶ KILLED ──remove──▶ gone
          └── failed, code lost ──▶ FAILED ──code back──▶ what it was before

Differences from Storm: a second kill replaces the deadline of the first (in Storm the earlier one counts); FINISHED and
FAILED are new, and keep neither a driver nor the name. A topology that failed because its code was lost comes back
with it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from txtopo.errors import TransitionError


class Status(enum.Enum):
    """The status of a submitted topology."""

    ACTIVE = "ACTIVE"
    """Its driver runs transactions."""
    INACTIVE = "INACTIVE"
    """Its driver begins no transaction, and commits those in flight."""
    REBALANCING = "REBALANCING"
    """As INACTIVE; after the wait a new driver starts, with changed settings."""
    KILLED = "KILLED"
    """Its driver stops in good order; after the wait the driver is ended and the topology removed."""
    FINISHED = "FINISHED"
    """Its input is exhausted: its driver has ended and is not started again."""
    FAILED = "FAILED"
    """It cannot go on: ``reason`` says why. Its driver ends and is not started again."""


RUNS = frozenset({Status.ACTIVE, Status.INACTIVE, Status.REBALANCING, Status.KILLED})
"""The statuses in which a topology has, or should have, a driver; and in which its name is taken."""

NEEDS_CODE = frozenset({Status.ACTIVE, Status.INACTIVE, Status.REBALANCING})
"""The statuses in which a leader must hold the code: a driver may have to be started anywhere."""


class Event(enum.Enum):
    """What happens to a topology."""

    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"
    REBALANCE = "rebalance"
    KILL = "kill"
    REMOVE = "remove"
    """The wait of a kill is over."""
    DO_REBALANCE = "do rebalance"
    """The wait of a rebalance is over, or its driver has failed meanwhile."""
    FINISHED = "finished"
    """The driver ended because the input is exhausted."""
    FAILED = "failed"
    """The driver cannot run, here or anywhere."""
    CODE_LOST = "code lost"
    """Nobody live has held the code for ``nimbus.code.lost.secs``."""
    CODE_BACK = "code back"
    """A live nimbus holds the code again."""


REQUESTS = frozenset({Event.ACTIVATE, Event.DEACTIVATE, Event.REBALANCE, Event.KILL})
"""What users ask for."""


class Outcome(enum.Enum):
    """What the table says about an event, if not simply the next status."""

    UNCHANGED = "unchanged"
    REFUSED = "refused"
    """The user's request raises TransitionError."""
    PREVIOUS = "previous"
    """The status before the present one."""
    REMOVED = "removed"
    """Everything about the topology is removed."""
    IF_LOST = "if lost"
    """The previous status, if it was the loss of its code that failed it."""


_ENDS: Mapping[Event, Status | Outcome] = {
    Event.KILL: Status.KILLED,
    Event.FINISHED: Status.FINISHED,
    Event.FAILED: Status.FAILED,
    Event.CODE_LOST: Status.FAILED,
}
_REBALANCES = {Event.REBALANCE: Status.REBALANCING}

TRANSITIONS: Mapping[Status, Mapping[Event, Status | Outcome]] = {
    Status.ACTIVE: {Event.ACTIVATE: Outcome.UNCHANGED, Event.DEACTIVATE: Status.INACTIVE, **_REBALANCES, **_ENDS},
    Status.INACTIVE: {Event.ACTIVATE: Status.ACTIVE, Event.DEACTIVATE: Outcome.UNCHANGED, **_REBALANCES, **_ENDS},
    Status.REBALANCING: {Event.DO_REBALANCE: Outcome.PREVIOUS, **_ENDS},
    Status.KILLED: {Event.KILL: Status.KILLED, Event.REMOVE: Outcome.REMOVED},
    Status.FINISHED: {Event.KILL: Status.KILLED},
    Status.FAILED: {Event.KILL: Status.KILLED, Event.CODE_BACK: Outcome.IF_LOST},
}
"""The table. A request that is not in it is refused; another event that is not in it changes nothing."""


@attrs.frozen
class Topology:
    """The record of a submitted topology; ``/storms/<id>`` in ZooKeeper.

    Args:
        id: ``NAME-NUMBER-SECONDS``: unique forever, also when a name is used again.
        name: its name in the cluster.
        topology_id: the builder's id, by which coordinator state and tables go.
        status: see :class:`Status`.
        launched_at: the wall-clock time of the submission, in seconds.
        wait_secs: the wait of a kill or rebalance that gives none: ``topology.message.timeout.secs`` when submitted.
        settings: what ``--set`` gave, as texts by name; a rebalance changes it.
        deadline: the wall-clock time at which KILLED is removed or REBALANCING is carried out.
        previous: the status to return to from REBALANCING, or from FAILED when the code is back.
        rebalance_settings: the settings that REBALANCING will put in force.
        reason: why it FAILED; why a FINISHED one was not rebalanced.
        is_code_lost: whether it FAILED because nobody live held its code.
        code_lost_at: the wall-clock time at which a leader first found that nobody live held its code; None while
            somebody does. The next leader counts on from there.
        revision: rises with every rebalance that is carried out: a driver of an earlier one is ended.
    """

    id: str
    name: str
    topology_id: str
    status: Status
    launched_at: float
    wait_secs: float = 30.0
    settings: dict[str, str] = attrs.field(factory=dict)
    deadline: float | None = None
    previous: Status | None = None
    rebalance_settings: dict[str, str] = attrs.field(factory=dict)
    reason: str | None = None
    is_code_lost: bool = False
    revision: int = 0
    code_lost_at: float | None = None

    @property
    def holds_name(self) -> bool:
        """Whether no other topology may be submitted under its name and topology id."""
        return self.status in RUNS


@attrs.frozen
class Request:
    """What happens: with ``wait_secs`` of a kill or rebalance (None: the topology's), settings, a failure's reason."""

    event: Event
    wait_secs: float | None = None
    settings: dict[str, str] = attrs.field(factory=dict)
    reason: str | None = None


def applied(topology: Topology, request: Request, now: float) -> Topology | None:
    """Return the record after an event at wall-clock time ``now``.

    The same object if the event changes nothing, None if the topology is to be removed.

    Raises:
        TransitionError: the user asks for what the status forbids.
    """
    # A user must learn that a request has no effect; a late report of a driver is nobody's mistake.
    otherwise = Outcome.REFUSED if request.event in REQUESTS else Outcome.UNCHANGED
    outcome = TRANSITIONS[topology.status].get(request.event, otherwise)
    match outcome:
        case Outcome.UNCHANGED:
            return topology
        case Outcome.REFUSED:
            raise TransitionError(
                f"topology {topology.name!r} is {topology.status.value}: it cannot {request.event.value} now"
            )
        case Outcome.REMOVED:
            return None
        case Outcome.IF_LOST:
            return _returned(topology) if topology.is_code_lost else topology
        case Outcome.PREVIOUS:
            settings = {**topology.settings, **topology.rebalance_settings}
            # The revision makes the next round of assignments replace the driver: see ``assignment``.
            return attrs.evolve(_returned(topology), settings=settings, revision=topology.revision + 1)
        case Status():
            return _entered(topology, outcome, request, now)


def due(topology: Topology, now: float) -> Event | None:
    """Return the event whose deadline has passed, if any."""
    if topology.deadline is None or now < topology.deadline:
        return None
    return Event.REMOVE if topology.status is Status.KILLED else Event.DO_REBALANCE


def after_code_check(
    topology: Topology, *, has_holder: bool, is_running: bool, now: float, lost_secs: float
) -> Topology:
    """Return the record after a look at who holds the code; the same object if nothing changes.

    After ``lost_secs`` without a live holder the topology fails, unless its driver is alive: a running driver has read
    its code, and only its next start would miss it. ``now`` is wall-clock time, in seconds.
    """
    if has_holder:
        topology = attrs.evolve(topology, code_lost_at=None) if topology.code_lost_at is not None else topology
        request_after = applied(topology, Request(Event.CODE_BACK), now)
        assert request_after is not None, "it removes nothing"
        return request_after
    if topology.status not in NEEDS_CODE:
        return topology
    if topology.code_lost_at is None:
        return attrs.evolve(topology, code_lost_at=now)  # in the record, so that the next leader counts on from here
    if is_running or now - topology.code_lost_at < lost_secs:
        return topology
    reason = f"no live nimbus has held its code for {lost_secs:g} s: start one that does, or submit again"
    failed = applied(topology, Request(Event.CODE_LOST, reason=reason), now)
    assert failed is not None, "it removes nothing"
    return failed


def _entered(topology: Topology, status: Status, request: Request, now: float) -> Topology:
    wait_secs = topology.wait_secs if request.wait_secs is None else request.wait_secs
    cleared = attrs.evolve(topology, status=status, deadline=None, rebalance_settings={})
    match status:
        case Status.KILLED:
            # FINISHED and FAILED have no driver to wait for.
            wait_secs = wait_secs if topology.status in RUNS else 0.0
            return attrs.evolve(cleared, deadline=now + wait_secs, previous=None)
        case Status.REBALANCING:
            return attrs.evolve(
                cleared, deadline=now + wait_secs, previous=topology.status, rebalance_settings=dict(request.settings)
            )
        case Status.FAILED:
            is_code_lost = request.event is Event.CODE_LOST
            # Give up a rebalance that waits: when the code is back, perhaps much later, nobody expects its settings.
            before = topology.previous if topology.status is Status.REBALANCING else topology.status
            return attrs.evolve(
                cleared, previous=before if is_code_lost else None, reason=request.reason, is_code_lost=is_code_lost
            )
        case _:
            is_given_up = topology.status is Status.REBALANCING
            reason = "its input was exhausted before it was rebalanced" if is_given_up else None
            return attrs.evolve(cleared, previous=None, reason=reason)


def _returned(topology: Topology) -> Topology:
    assert topology.previous is not None, "it was recorded with the status that is left now"
    return attrs.evolve(
        topology,
        status=topology.previous,
        previous=None,
        deadline=None,
        rebalance_settings={},
        reason=None,
        is_code_lost=False,
    )
