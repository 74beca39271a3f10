"""The leader's rounds: deadlines, lost code, assignments, and what failed submissions left."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Set as AbstractSet

import attrs

from txtopo.cluster.code.distribution import ClusterConnection
from txtopo.cluster.decisions.assignment import Apply, Assign, Assignment, AssignmentLimits, Unassign, decide
from txtopo.cluster.decisions.lifecycle import Request, after_code_check, due
from txtopo.cluster.nimbus.lead import Lead, Leadership
from txtopo.cluster.settings import ClusterConfig
from txtopo.errors import NotLeader
from txtopo.failpoints import durable_step

_LOG = logging.getLogger(__name__)
_WATCHED = ("storms", "code-distributor", "supervisors", "endings", "nimbuses")


class Monitor:
    """Does a leader's rounds of work; rounds of a nimbus that does not lead do nothing.

    ``under_way`` holds the ids of topologies whose submission is under way, whose code is not to be removed;
    ``on_change`` is called, in another thread, when ZooKeeper reports a change.
    """

    def __init__(
        self,
        config: ClusterConfig,
        connection: ClusterConnection,
        leadership: Leadership,
        *,
        under_way: AbstractSet[str],
        on_change: Callable[[], None],
    ) -> None:
        self._state = connection.state
        self._leadership = leadership
        self._freq_secs: float = config["nimbus.monitor.freq.secs"]
        self._lost_secs: float = config["nimbus.code.lost.secs"]
        self._limits = AssignmentLimits(
            config["nimbus.task.timeout.secs"], config["nimbus.task.launch.secs"], config["nimbus.task.moves.max"]
        )
        self._under_way = under_way
        self._on_change = on_change

    def step(self) -> float:
        """Do one round; return how long to wait for news, in seconds."""
        lead = self._leadership.current()
        if lead is None:
            return self._freq_secs
        self._state.watch(_WATCHED, self._on_change)  # before the reads: see ``ClusterState.watch``
        try:
            with self._leadership.decisions:
                # Deadlines first: what they remove or rebalance is assigned in the same round.
                live = self._state.live_holders()
                self._apply_deadlines(lead)
                self._check_code(lead, live)
                self._assign(lead, live)
                self._remove_orphans(lead)
        except NotLeader as error:
            _LOG.warning("%s", error)  # the elector will see it, too, and another term has another ``Lead``
            return self._freq_secs
        return min(self._freq_secs, self._next_deadline_secs())

    def _next_deadline_secs(self) -> float:
        """Return the time until the next topology's wait is over; infinite if none waits."""
        deadlines = [
            topology.deadline for topology in self._state.topologies().values() if topology.deadline is not None
        ]
        return max(0.0, min(deadlines, default=float("inf")) - time.time())

    def _apply_deadlines(self, lead: Lead) -> None:
        for topology in self._state.topologies().values():
            event = due(topology, time.time())
            if event is not None:
                lead.apply(topology, Request(event))

    def _check_code(self, lead: Lead, live: Mapping[str, frozenset[str]]) -> None:
        """Fail topologies whose code no live nimbus has held for long; restore them when one holds it again."""
        running = self._alive(lead, self._state.assignments())
        for topology in self._state.topologies().values():
            judged = after_code_check(
                topology,
                has_holder=bool(live.get(topology.id)),
                is_running=topology.id in running,
                now=time.time(),
                lost_secs=self._lost_secs,
            )
            if judged is not topology:
                if judged.status is not topology.status:
                    _LOG.info("%s: %s -> %s", topology.id, topology.status.value, judged.status.value)
                # After a crash before this, the next leader judges it by the same rule.
                with durable_step("nimbus.store"):
                    lead.writes.store(judged)

    def _alive(self, lead: Lead, assignments: Mapping[str, Assignment]) -> set[str]:
        now = time.monotonic()
        lead.heartbeats.update(assignments, self._state.heartbeats(), now)
        return {
            assignment.topology
            for assignment in assignments.values()
            if lead.heartbeats.is_alive(assignment, self._limits, now)
        }

    def _assign(self, lead: Lead, live: Mapping[str, frozenset[str]]) -> None:
        view = self._state.view()
        alive = self._alive(lead, view.assignments)
        ready = {topology for topology, holders in live.items() if holders}
        for decision in decide(view, alive, self._limits, time.time(), ready):
            match decision:
                case Assign(assignment, why):
                    _LOG.info("%s goes to %s, slot %d: %s", assignment.topology, *attrs.astuple(assignment.place), why)
                    # After a crash before this the next leader decides again; after it, it finds the assignment.
                    with durable_step("nimbus.assign"):
                        lead.writes.assign(assignment)
                case Unassign(assignment, why):
                    _LOG.info("%s leaves %s: %s", assignment.topology, assignment.supervisor, why)
                    lead.writes.unassign(assignment.topology)
                case Apply(topology, request):
                    lead.apply(view.topologies[topology], request)

    def _remove_orphans(self, lead: Lead) -> None:
        """Remove published code without a topology, which a failed submission or a leader's death has left."""
        topologies = self._state.topologies()
        for topology in self._state.manifests():
            if topology not in topologies and topology not in self._under_way:
                _LOG.info("the code of %s is published, but no such topology was submitted: removed", topology)
                # The manifest goes last: after a crash in between, the next leader finds it and cleans up again.
                lead.clean_up(topology)
                lead.writes.remove(topology)
