"""Keeps the code on a nimbus' disk what ZooKeeper says is published, and says which of it the disk holds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Set as AbstractSet

from txtopo.cluster.code.distribution import ClusterConnection
from txtopo.cluster.code_store import Manifest
from txtopo.cluster.decisions.lifecycle import NEEDS_CODE
from txtopo.cluster.nimbus.election import LeaderElector
from txtopo.cluster.state import NimbusInfo
from txtopo.failpoints import durable_step

_LOG = logging.getLogger(__name__)


class CodeSync:
    """Fetches, checks and removes code; queues for the lead once this nimbus has all that it needs.

    ``under_way`` holds the ids of topologies whose submission is under way, whose code is not to be removed;
    ``on_change`` is called, in another thread, when ZooKeeper reports a change.
    """

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        connection: ClusterConnection,
        elector: LeaderElector,
        record: NimbusInfo,
        *,
        freq_secs: float,
        under_way: AbstractSet[str],
        on_change: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._state, self._store = connection.state, connection.store
        self._elector = elector
        self._record = record
        self._freq_secs = freq_secs
        self._under_way = under_way
        self._on_change = on_change
        self._checked_at = time.monotonic()

    def may_lead(self) -> bool:
        """Whether this nimbus has all needed code that any live nimbus holds.

        Code that no live nimbus holds does not count: otherwise nobody could lead, and nobody could report the loss.
        """
        needed = {topology.id for topology in self._state.topologies().values() if topology.status in NEEDS_CODE}
        fetchable = {topology for topology, holders in self._state.live_holders().items() if holders}
        return needed & fetchable <= set(self._store.topologies())

    def step(self) -> float:
        """Fetch missing code, remove old code, record what is there; return how long to wait for news, in seconds."""
        # Watched before anything is read: what changes afterwards wakes this loop again.
        self._state.watch(("code-distributor", "nimbuses"), self._on_change)
        # Read the disk first, then ZooKeeper. A submission that ends between the two reads is under way in the first
        # and published in the second; the other way round, this loop would take its code for nobody's and remove it.
        held_topologies = set(self._store.topologies()) - self._under_way
        published, holders = self._state.manifests(), self._state.holders()
        if time.monotonic() - self._checked_at >= self._freq_secs:
            self._checked_at = time.monotonic()
            self._store.check_next(published)
        address = self._record.address
        announced = {topology for topology, addresses in holders.items() if address in addresses}
        for topology in sorted(announced - set(self._store.topologies())):
            # This disk lost the code. The record must go before the announcement below makes this nimbus count as a
            # live holder: others would wait for code that nobody has.
            self._state.drop(topology, address)
            announced.discard(topology)
        self._state.announce_nimbus(self._record)
        for topology in sorted(held_topologies - set(published)):
            _LOG.info("the code of %s is no longer needed", topology)
            self._store.remove(topology)
        for topology, manifest in sorted(published.items()):
            if self._has_fetched(topology, manifest) and topology not in announced:
                # Only after the code is durable here. A crash in between is harmless: the next sync records it.
                with durable_step("nimbus.hold"):
                    self._state.hold(topology, address)
        if not self._elector.is_queued() and self.may_lead():
            self._elector.add_to_leader_lock_queue()
        return self._freq_secs

    def _has_fetched(self, topology: str, manifest: Manifest) -> bool:
        if not self._store.has(topology):
            with self._connection.tries_again(topology), durable_step("nimbus.keep"):
                self._connection.fetch(manifest)
        return self._store.has(topology)
