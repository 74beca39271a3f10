"""What outlives the coordinators of a schedule: coordinator state, the journal, and tables."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from state.stores.memory import MemoryPlace, MemoryStore
from txtopo.api.components.planned import Planned
from txtopo.api.state import State
from txtopo.api.store import Store
from txtopo.files.records import from_json
from txtopo.journal.entries import JournalHeader, JournalPart
from txtopo.testing.simulation.process import SimulatedJournal
from txtopo.testing.simulation.tables.state import SimulatedState
from txtopo.testing.simulation.tables.table import SimulatedTable
from txtopo.transactional.recovery.points import KeptPoints


class Durable:
    """What is durable of a topology, and what it says; nothing here draws, strikes or checks."""

    def __init__(self, topology_id: str, make_table: Callable[[str], SimulatedTable]) -> None:
        self.topology_id = topology_id
        self.tables: dict[str, SimulatedTable] = {}
        self.states: dict[str, SimulatedState] = {}
        self._make_table = make_table
        self._place: Any = MemoryPlace()
        self._journal: list[SimulatedJournal] = []

    def store(self) -> Store:
        """Return the store as one more process opens it."""
        store: Store = MemoryStore(self._place)
        return store

    def free_lead(self) -> None:
        """Let the lead become free, whoever has it."""
        self._place.forget_holder(self.topology_id)

    def has_epoch(self, epoch: int) -> bool:
        """Whether this epoch is the last one that was begun."""
        return bool(self._place.epochs[self.topology_id] == epoch)

    def _value(self, path: str) -> bytes | None:
        value: bytes | None = self._place.values.get(f"{self.topology_id}/{path}")
        return value

    @property
    def committed(self) -> int:
        """The last transaction that is committed; 0 if none is."""
        value = self._value("committed")
        return 0 if value is None else int(_decoded(value)["txid"])

    @property
    def has_committed_input(self) -> bool:
        """Whether the last transaction that is committed has input."""
        value = self._value("committed")
        return value is None or from_json(_decoded(value)["planned"], Planned).has_input

    @property
    def is_going_back(self) -> bool:
        """Whether somebody has begun to go back, and has not ended it."""
        return self._value("repair") is not None

    @property
    def points(self) -> KeptPoints | None:
        """The points on record, up to the last transaction that is committed; None if no record was ever made."""
        value = self._value("points")
        return None if value is None else from_json(_decoded(value), KeptPoints).until(self.committed)

    def metadata_of(self, txid: int) -> tuple[Any, Planned] | None:
        """Return the metadata of a transaction, and what was planned with it."""
        value = self._value(f"metadata/{txid:020d}")
        if value is None:
            return None
        metadata, planned = value.split(b"\n")
        return _decoded(metadata), from_json(_decoded(planned), Planned)

    def begin_journal(self, header: JournalHeader, on_cut: Callable[[], None]) -> SimulatedJournal:
        """Begin one coordinator's part of the journal; ``on_cut`` is called when a part is gone."""
        part = SimulatedJournal(header, self._journal, on_cut)
        self._journal.append(part)
        return part

    def journal(self) -> list[JournalPart]:
        """Return the journal as a reader finds it."""
        parts = (JournalPart(each.header, tuple(each.entries)) for each in self._journal)
        return sorted(parts, key=lambda part: part.header.epoch)

    @property
    def journal_begins_after(self) -> int:
        """The transaction that the journal begins after; the first part need not be that of the lowest one.

        A coordinator that was paused in its start may put an old header when the parts after it are cut.
        """
        parts = self.journal()
        return min((part.header.committed for part in parts if part.entries or part is parts[-1]), default=0)

    def state(self, name: str, of: State) -> SimulatedState:
        """Return the state with this name, whose table is made when it is first asked for."""
        if name not in self.states:
            self.tables[name] = self._make_table(name)
            self.states[name] = SimulatedState(of, self.tables[name])
        return self.states[name]


@functools.lru_cache(maxsize=10_000)
def _decoded(value: bytes) -> Any:
    """Return a decoded value; callers share it and must not change it."""
    return json.loads(value)
