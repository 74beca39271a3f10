"""Whether this nimbus leads, what it remembers of its term, and the lock that orders the decisions of a leader."""

from __future__ import annotations

import logging
import threading
import time

import attrs

from txtopo.cluster.code.distribution import ClusterConnection, CodeDistributor
from txtopo.cluster.decisions.assignment import HeartbeatCache
from txtopo.cluster.decisions.lifecycle import Request, Topology, applied
from txtopo.cluster.nimbus.election import LeaderElector
from txtopo.cluster.state import LeaderWrites
from txtopo.errors import NoLeader, NotLeader, Unreachable
from txtopo.failpoints import durable_step

_LOG = logging.getLogger(__name__)
_POLL_SECS = 0.2
"""A moment: what a request waits for, such as holders of code, takes seconds."""


@attrs.define(eq=False)
class Lead:
    """What a leader remembers during its term; a new term begins with nothing."""

    writes: LeaderWrites
    distributor: CodeDistributor
    heartbeats: HeartbeatCache = attrs.field(factory=HeartbeatCache)

    def apply(self, topology: Topology, request: Request) -> Topology | None:
        """Apply an event, store and return what comes of it: the same object if nothing, None if the topology is gone.

        The caller holds ``Leadership.decisions``.
        """
        after = applied(topology, request, time.time())
        if after is topology:
            return after
        status = "removed" if after is None else after.status.value
        _LOG.info("%s: %s: %s -> %s", topology.id, request.event.value, topology.status.value, status)
        if after is None:
            with durable_step("nimbus.remove"):
                # The record goes last: a crash in between leaves a topology whose deadline has passed, and the next
                # leader removes it again.
                self.clean_up(topology.id)
                self.writes.remove(topology.id)
        else:
            # A crash before this leaves the topology as it was: the next leader applies a deadline, and a user who got
            # no answer may ask again.
            with durable_step("nimbus.store"):
                self.writes.store(after)
        return after

    def clean_up(self, topology: str) -> None:
        """Remove what the distributor has put outside of the daemons' folders for a topology that is not needed.

        Raises:
            NotLeader: the term is over: the next leader may need the topology. Nothing was removed.
        """
        self.writes.check()  # after the reads that say so, for no transaction fences files
        self.distributor.cleanup(topology)


class Leadership:
    """Knows whether this nimbus leads. Nothing here waits longer than a moment once ``stopped`` is set.

    The holder of ``decisions`` may read and write in ZooKeeper, but never waits for a supervisor, for replication or
    for an upload.
    """

    def __init__(
        self, connection: ClusterConnection, elector: LeaderElector, address: str, stopped: threading.Event
    ) -> None:
        self.decisions = threading.RLock()
        self._connection = connection
        self._elector = elector
        self._address = address
        self._stopped = stopped
        self._lead: Lead | None = None

    def current(self) -> Lead | None:
        """Return the memory of the present term; None if this nimbus does not lead."""
        term = self._elector.term()
        with self.decisions:
            if term is None:
                self._lead = None
            elif self._lead is None or self._lead.writes.term != term:
                self._lead = Lead(LeaderWrites(self._connection.state, term), self._connection.distributor)
            return self._lead

    def required(self) -> Lead:
        """Return the memory of the present term; raise NotLeader if this nimbus does not lead."""
        lead = self.current()
        if lead is None:
            raise self.not_leader()
        return lead

    def not_leader(self) -> NotLeader:
        """Return the error that says that another nimbus leads, and which."""
        try:
            leader = self._elector.get_leader_address()
        except (NoLeader, Unreachable):
            leader = None
        leader_text = "nobody leads at the moment" if leader in {None, self._address} else f"{leader} does"
        error = NotLeader(f"the nimbus at {self._address} does not lead; {leader_text}")
        error.leader = None if leader == self._address else leader
        return error

    def wait(self, lead: Lead) -> None:
        """Wait a moment; raise NotLeader if this nimbus no longer leads in that term, or ends."""
        if self._stopped.wait(_POLL_SECS) or self._elector.term() != lead.writes.term:
            # The elector also drops the term for a short break of the connection; ZooKeeper knows whether it is over.
            lead.writes.check()
            if self._stopped.is_set():
                raise self.not_leader()
