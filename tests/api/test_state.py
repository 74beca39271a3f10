"""Capabilities: a state that only reads and writes is a state; what it lacks is asked for, never called."""

from pathlib import Path

import pytest

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.crashes import dying
from txtopo.api.components.bolt import BatchBolt, ICommitter
from txtopo.api.data.fields import Fields
from txtopo.api.state import CanBeRepaired, ExpiresRows, FoldsRows, OpenedState, State, TakesRows, UsesExecutors
from txtopo.api.values import StateKind
from txtopo.errors import StateAccessError
from txtopo.testing.conformance.state import COUNT, WORD, StateConformance, StatePlace
from txtopo.testing.inline import run_inline
from txtopo.topology.builders.builder import TransactionalTopologyBuilder


class BareState(State):
    """Keeps what a MemoryState does, and can nothing that a state need not."""

    def __init__(self, key: Fields = WORD, value: Fields = COUNT, kind: StateKind = StateKind.TRANSACTIONAL) -> None:
        self.inner = MemoryState(key, value, kind)
        self.key, self.value, self.kind = key, value, kind

    @property
    def is_durable(self) -> bool:
        return False

    def open(self, topology_id, name, incarnation, epoch):
        return BareOpened(self.inner.open(topology_id, name, incarnation, epoch))

    def snapshot(self, txid=None):
        return self.inner.snapshot(txid)


class BareOpened(OpenedState):
    """Seven methods, and no more."""

    def __init__(self, inner: OpenedState) -> None:
        self._inner = inner
        self.declared = inner.declared

    @property
    def identity(self):
        return self._inner.identity

    @property
    def last_txid(self):
        return self._inner.last_txid

    def multi_get(self, keys):
        return self._inner.multi_get(keys)

    def check(self, values):
        self._inner.check(values)

    def write(self, txid, values):
        self._inner.write(txid, values)

    def snapshot(self, txid=None):
        return self._inner.snapshot(txid)


class BarePlace(StatePlace):
    def __init__(self) -> None:
        self._states = {}

    def state(self, key=WORD, value=COUNT, kind=StateKind.TRANSACTIONAL):
        declared = (key, value, kind)
        return self._states.setdefault(declared, BareState(key, value, kind))


class TestBareState(StateConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> StatePlace:
        return BarePlace()


class Count(BatchBolt, ICommitter):
    """Counts words, in one way or the other."""

    def __init__(self, state: str, *, rows: bool = False) -> None:
        self.state, self.rows, self.seen = state, rows, []

    def execute(self, tuple):
        self.seen.append(tuple[1])

    def finish_batch(self):
        state = self.context.state(self.state)
        if self.rows:
            state.append([("a",)])
        state.multi_reduce({word: self.seen.count(word) for word in set(self.seen)}, lambda old, new: old + new)


def topology(*bolts, **states):
    spout = MemoryTransactionalSpout({0: [("a",), ("b",), ("a",)]}, Fields("attempt", "word"), 1)
    builder = TransactionalTopologyBuilder("bare", "spout", spout)
    for number, bolt in enumerate(bolts):
        builder.set_bolt(f"count{number}", bolt).shuffle_grouping("spout")
    for name, state in states.items():
        builder.set_state(name, state)
    return builder.build()


def test_a_state_that_reads_and_writes_is_enough():
    """A topology with one state runs on seven methods."""
    state = BareState()
    run_inline(topology(Count("counts"), counts=state))
    assert {key: kept.value for key, kept in state.inner.items().items()} == {"a": 2, "b": 1}


def test_several_states_that_only_write(tmp_path):
    """A state that can't hide what it writes is no exception: its values are in the note until it is their turn."""
    counts, others = BareState(), BareState()
    made = topology(Count("counts"), Count("others"), counts=counts, others=others)
    with dying("table.write.before", 2):
        run_inline(made)
    assert [len(state.inner.items()) for state in (counts, others)] == [2, 0]
    run_inline(made)
    assert [{key: kept.value for key, kept in state.inner.items().items()} for state in (counts, others)] == [
        {"a": 2, "b": 1}
    ] * 2


def test_rows_are_refused_where_none_are_taken():
    """A state that takes no rows refuses them in words of its own."""
    with pytest.raises(StateAccessError, match="keeps values by key"):
        run_inline(topology(Count("counts", rows=True), counts=BareState()))


def test_what_inherits_a_capability_has_it():
    """What only has methods of that name has none, and half a capability can't be made."""
    bare = BareState().open("topology", "counts", "incarnation", 1)
    every = (FoldsRows, TakesRows, ExpiresRows, UsesExecutors, CanBeRepaired)
    assert [isinstance(bare, each) for each in every] == [False] * 5

    class OfThatName(BareOpened):
        def reducible_rows(self, values, reduction): ...
        def rows_to_put(self, txid, values): ...
        def fold(self, parts, reduction): ...

    class Folding(OfThatName, FoldsRows): ...

    class Half(BareOpened, FoldsRows):
        def fold(self, parts, reduction): ...

    assert [isinstance(each(bare), FoldsRows) for each in (OfThatName, Folding)] == [False, True]
    with pytest.raises(TypeError, match="reducible_rows"):
        Half(bare)
