"""What the cluster wants of a supervisor, as ZooKeeper said last: that counts while it does not answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from txtopo.cluster.decisions.assignment import Assignment, Heartbeat, SupervisorInfo
from txtopo.cluster.decisions.lifecycle import Status
from txtopo.cluster.state import ClusterState
from txtopo.errors import Unreachable

_LOG = logging.getLogger(__name__)


class AssignedDrivers:
    """Announces a supervisor, and reads which drivers it is to run; ``on_change`` is called when that has changed."""

    def __init__(self, state: ClusterState, record: SupervisorInfo, on_change: Callable[[], None]) -> None:
        self.read_at = time.monotonic()
        """When ZooKeeper answered last."""
        self.beats: Mapping[str, Heartbeat] = {}
        """By topology, the heartbeats of the drivers that are wanted here."""
        self._state = state
        self._record = record
        self._on_change = on_change
        self._assignments: Mapping[int, Assignment] = {}
        self._statuses: Mapping[str, Status] = {}
        self._ended: frozenset[str] = frozenset()

    def read(self) -> bool:
        """Read what ZooKeeper says; return whether it answered."""
        if not self._state.session.is_connected:
            return False
        now, state = time.monotonic(), self._state
        try:
            state.announce_supervisor(self._record)
            state.watch(("assignments", "storms"), self._on_change)  # before the reads: see ``ClusterState.watch``
            mine = {
                assignment.slot: assignment
                for assignment in state.assignments().values()
                if assignment.supervisor == self._record.id
            }
            statuses = {name: topology.status for name, topology in state.topologies().items()}
            beats = {
                assignment.topology: state.heartbeat(assignment.topology, assignment.number)
                for assignment in mine.values()
            }
            endings = {
                assignment.topology: state.ending(assignment.topology, assignment.number)
                for assignment in mine.values()
            }
        except Unreachable as error:
            _LOG.warning("%s", error)
            return False
        self.read_at, self._assignments, self._statuses = now, mine, statuses
        self.beats = {topology: beat for topology, beat in beats.items() if beat is not None}
        self._ended = frozenset(topology for topology, ending in endings.items() if ending is not None)
        return True

    def on(self, slot: int) -> Assignment | None:
        """Return the assignment of a slot."""
        return self._assignments.get(slot)

    def to_start(self, slot: int, *, is_new: bool) -> Assignment | None:
        """Return the assignment that a slot without a process is to start; ``is_new``: it knows of no driver there.

        Nothing starts for a killed topology, nor after a reported end: a supervisor that was started again has
        forgotten it, and nimbus may not have taken the assignment away yet.
        """
        wanted = self._assignments.get(slot)
        if wanted is None or self._statuses.get(wanted.topology) in {None, Status.KILLED}:
            return None
        return None if is_new and wanted.topology in self._ended else wanted
