"""A store in memory, for tests, for the simulator, and as the model that the other stores are compared with.

A :class:`MemoryPlace` corresponds to the disk of other stores: it outlives the stores that are opened on it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import attrs

from state.stores.holder import Holder, loss, refusal
from state.stores.paths import checked_changes, checked_path, checked_topology_id
from txtopo.api.arguments import checked_arguments
from txtopo.api.store import Change, Delete, Lead, Put, Store


@attrs.define(eq=False)
class MemoryPlace:
    """The values, epochs and holders of memory stores; stores on the same place share them."""

    values: dict[str, bytes] = attrs.field(factory=dict)
    epochs: dict[str, int] = attrs.field(factory=dict)
    holders: dict[str, Holder] = attrs.field(factory=dict)
    lock: threading.RLock = attrs.field(factory=threading.RLock)

    def forget_holder(self, topology_id: str) -> None:
        """Free a lead without notifying its holder, as when a process dies or loses its connection."""
        with self.lock:
            self.holders.pop(topology_id, None)


class MemoryStore(Store):
    """A store that lives as long as its place.

    Without a place, it makes a new one.
    """

    @checked_arguments
    def __init__(self, place: MemoryPlace | None = None) -> None:
        self.place = place if place is not None else MemoryPlace()
        self._leads: list[MemoryLead] = []

    def read(self, path: str) -> bytes | None:
        """Return the value at ``path``, or None."""
        with self.place.lock:
            return self.place.values.get(checked_path(path))

    def children(self, path: str) -> list[str]:
        """Return the sorted names directly below ``path`` (``""``: the topology ids)."""
        with self.place.lock:
            return names_below(self.place.values, checked_path(path) if path else "")

    def take_lead(self, topology_id: str, owner: str, epoch_min: int = 1) -> Lead:
        """Take the lead of a topology, and increment its epoch; see :meth:`Store.take_lead`."""
        checked_topology_id(topology_id)
        with self.place.lock:
            holder = self.place.holders.get(topology_id)
            if holder is not None:
                raise refusal(topology_id, holder)
            holder = Holder.of_this_process(owner)
            epoch = max(self.place.epochs.get(topology_id, 0) + 1, epoch_min)
            self.place.epochs[topology_id] = epoch
            self.place.holders[topology_id] = holder
            lead = MemoryLead(self.place, topology_id, holder, epoch)
            self._leads.append(lead)
            return lead

    def close(self) -> None:
        """Release the leads that were taken here."""
        for lead in self._leads:
            lead.release()


class MemoryLead(Lead):
    """The lead of a topology in a memory store; made by :meth:`MemoryStore.take_lead`."""

    def __init__(self, place: MemoryPlace, topology_id: str, holder: Holder, epoch: int) -> None:
        self._place = place
        self._topology_id = topology_id
        self._holder = holder
        self._epoch = epoch
        self._released = False

    @property
    def epoch(self) -> int:
        """The epoch: one more than that of the last lead, unless a higher one was requested."""
        return self._epoch

    def write(self, changes: Sequence[Change]) -> None:
        """Apply all changes in order, as one step; see :meth:`Lead.write`."""
        changes = checked_changes(self._topology_id, changes)
        with self._place.lock:
            stored = self._place.epochs[self._topology_id]
            if self._released or stored != self._epoch:
                raise loss(self._topology_id, self._epoch, stored)
            for change in changes:
                apply_change(self._place.values, change)

    def is_held(self) -> bool:
        """Whether no later lead was taken, and this one was not released."""
        with self._place.lock:
            return not self._released and self._place.epochs[self._topology_id] == self._epoch

    def release(self) -> None:
        """Give up the lead; a second call does nothing."""
        with self._place.lock:
            self._released = True
            if self._place.holders.get(self._topology_id) == self._holder:
                del self._place.holders[self._topology_id]


def names_below(paths: Iterable[str], path: str) -> list[str]:
    """Return the sorted names directly below a path; below ``""`` the first names."""
    prefix = f"{path}/" if path else ""
    return sorted({other[len(prefix) :].split("/", 1)[0] for other in paths if other.startswith(prefix)})


def apply_change(values: dict[str, bytes], change: Change) -> None:
    """Apply one change to a plain dictionary; this defines the behaviour of every store."""
    match change:
        case Put(path, value):
            values[path] = bytes(value)  # a bytearray may be changed later on
        case Delete(path):
            for below in [below for below in values if below == path or below.startswith(f"{path}/")]:
                del values[below]
