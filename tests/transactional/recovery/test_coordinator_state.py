"""The coordinator state: what is durable of a begun transaction."""

from __future__ import annotations

import time
from typing import Any

import pytest

from state import MemoryStore
from txtopo.api.store import VALUE_BYTES_MAX, Put
from txtopo.errors import RuleError
from txtopo.transactional.core.events import Planned, TransactionMetadata, Turn
from txtopo.transactional.recovery.coordinator_state import CoordinatorState, as_json


def opened(store: MemoryStore) -> CoordinatorState:
    """Return it as the next leader finds it."""
    store.place.forget_holder("t")
    return CoordinatorState(store, store.take_lead("t", "test"), "t")


@pytest.mark.parametrize("metadata", [None, {"a\nb": ["\n", 1]}, "line\n", 0.5])
def test_begun_transactions_are_read_as_they_were_saved(metadata: Any) -> None:
    """Whatever the metadata holds, it and the time come back to the next leader."""
    store = MemoryStore()
    begun = (TransactionMetadata(4, metadata, Planned(5)), TransactionMetadata(5, metadata, Planned(6, Turn.QUIET)))
    opened(store).save_metadata(begun)
    assert opened(store).begun(3) == begun


def test_transactions_that_earlier_versions_have_begun() -> None:
    """They have no time: they count as planned now, but not after one that follows them and has a time."""
    store = MemoryStore()
    lead = store.take_lead("t", "an earlier version")
    lead.write([Put(f"t/metadata/{txid:020d}", b'{"end":%d}' % txid) for txid in (4, 5)])
    before = time.time_ns() // 1_000_000
    found = opened(store).begun(3)
    assert [each.metadata for each in found] == [{"end": 4}, {"end": 5}]
    assert all(before <= each.planned.at_ms <= time.time_ns() // 1_000_000 for each in found)
    opened(store).save_metadata([TransactionMetadata(6, 6, Planned(77))])
    assert [each.planned for each in opened(store).begun(3)] == [Planned(77)] * 3


def test_the_largest_metadata_fits_with_its_time() -> None:
    """What the source accepts the store takes, with the longest time."""
    fitting = "x" * (VALUE_BYTES_MAX - 102)
    assert as_json(fitting) == fitting
    opened(MemoryStore()).save_metadata([TransactionMetadata(1, fitting, Planned(10**18, Turn.INPUT))])
    with pytest.raises(RuleError, match="keep offsets in it"):
        as_json(fitting + "x")
