"""MemoryState: the conformance class, and what is its own."""

import math
import pickle
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from state.memory import SNAPSHOT_WRITES_MAX, MemoryState
from txtopo.api.data.fields import Fields
from txtopo.api.state import State
from txtopo.api.values import StateKind, TransactionalValue
from txtopo.errors import FieldsError, StateAccessError
from txtopo.testing.conformance.state import COUNT, WORD, StateConformance, StatePlace, rows_of


class MemoryPlace(StatePlace):
    """Keeps the one object of each declaration, as a program does that runs twice."""

    def __init__(self) -> None:
        self._states: dict[tuple[Fields, Fields, StateKind], MemoryState] = {}

    def state(self, key: Fields = WORD, value: Fields = COUNT, kind: StateKind = StateKind.TRANSACTIONAL) -> State:
        declared = (key, value, kind)
        if declared not in self._states:
            self._states[declared] = MemoryState(key, value, kind)
        return self._states[declared]


class TestMemoryState(StateConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> StatePlace:
        return MemoryPlace()


def test_it_is_not_durable_and_has_no_home():
    """A MemoryState says of itself that it ends with the process."""
    state = MemoryState(WORD, COUNT)
    assert (state.is_durable, state.home) == (False, None)


def test_a_pickled_copy_is_empty_and_apart():
    """Pickling leaves the data behind, and what the copy does stays with the copy."""
    state = MemoryState(WORD, COUNT)
    opened = state.open("topology", "counts", "life", 1)
    opened.write(1, {"a": TransactionalValue(1, 1)})
    copy = pickle.loads(pickle.dumps(state)).open("other", "other", "other", 1)
    assert (copy.last_txid, rows_of(copy)) == (None, [])
    assert copy.identity != opened.identity
    assert rows_of(opened) == [("a", 1, 1)]


def test_fields_without_types_take_any_value():
    """Untyped fields take any hashable key and any value, and snapshots show what Arrow has no type for."""
    state = MemoryState(Fields("who", "what"), Fields("x"))
    opened = state.open("topology", "things", "life", 1)
    thing = {1, 2}
    opened.write(1, {("a", 1): TransactionalValue(1, thing), ("b", 2.5): TransactionalValue(1, 7)})
    assert opened.multi_get([("a", 1), ("b", 2.5), ("c", 0)]) == [
        TransactionalValue(1, thing),
        TransactionalValue(1, 7),
        None,
    ]
    assert opened.snapshot()["x"].to_pylist() == ["{1, 2}", "7"]


def test_a_key_that_is_removed():
    """It is gone, for everybody who looks; a snapshot from before still has it."""
    state = MemoryState(WORD, COUNT)
    opened = state.open("topology", "counts", "life", 1)
    opened.write(1, {"a": TransactionalValue(1, 1), "b": TransactionalValue(1, 2)})
    opened.write(2, {"a": None})
    assert opened.multi_get(["a", "b"]) == [None, TransactionalValue(1, 2)]
    assert list(state.items()) == ["b"]
    assert state.snapshot(1).num_rows == 2


def test_a_key_that_is_removed_and_was_never_there():
    """A snapshot from before is as it was."""
    opened = MemoryState(WORD, COUNT).open("topology", "counts", "life", 1)
    opened.write(1, {"a": TransactionalValue(1, 1)})
    opened.write(2, {"b": None})
    assert rows_of(opened, 1) == [("a", 1, 1)]


@pytest.mark.parametrize("key", [math.nan, np.float32("nan"), Decimal("nan")])
def test_no_key_is_nan(key):
    """It equals no key, so what is put for it would never be found again."""
    with pytest.raises(FieldsError, match="a key is NaN"):
        MemoryState().open("topology", "counts", "life", 1).multi_get([1.5, key])


def test_snapshots_go_back_a_bounded_way():
    """The oldest writes are forgotten, and a snapshot of them is refused rather than wrong."""
    opened = MemoryState(WORD, COUNT).open("topology", "counts", "life", 1)
    for txid in range(1, SNAPSHOT_WRITES_MAX + 3):
        opened.write(txid, {"a": TransactionalValue(txid, txid)})
    assert rows_of(opened, 2) == [("a", 2, 2)]
    with pytest.raises(StateAccessError, match="no longer keeps"):
        opened.snapshot(1)
