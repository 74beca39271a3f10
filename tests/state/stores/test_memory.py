"""Tests of the store in memory, the model of the others."""

import pytest

from state.stores.memory import MemoryPlace, MemoryStore
from txtopo.api.store import Delete, Put, Store
from txtopo.testing.conformance.store import StoreConformance, StorePlace


class MemoryStorePlace(StorePlace):
    def __init__(self) -> None:
        self.memory = MemoryPlace()

    def open(self) -> Store:
        return MemoryStore(self.memory)

    def usurp(self, topology_id: str, holder: Store) -> None:
        self.memory.forget_holder(topology_id)


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def place(self) -> StorePlace:
        return MemoryStorePlace()


def test_stores_without_a_place_share_nothing():
    """A store that is given no place has one of its own."""
    first, second = MemoryStore(), MemoryStore()
    first.take_lead("a", "test").write([Put("a/x", b"v")])
    assert second.take_lead("a", "test").epoch == 1
    assert second.children("") == []


def test_place_can_be_looked_into():
    """A place holds what was written as plain values, for a simulator's checkers."""
    place = MemoryPlace()
    lead = MemoryStore(place).take_lead("a", "test")
    lead.write([Put("a/x", b"v"), Put("a/y", b"w"), Delete("a/x")])
    assert (place.values, place.epochs, place.holders["a"].owner) == ({"a/y": b"w"}, {"a": 1}, "test")
