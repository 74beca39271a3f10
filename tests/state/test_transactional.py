"""Tests of the state for coordinators and emitters; the rotating rules proper are in tests/storm."""

import pytest

from state.stores.memory import MemoryPlace, MemoryStore
from state.stores.sqlite import SqliteStore
from state.stores.zookeeper import ZooKeeperStore
from state.transactional import RotatingTransactionalState, TransactionalState
from txtopo.errors import LostLead, StateAccessError

ROOT = "topology/user/spout"


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def store(request, tmp_path):
    match request.param:
        case "memory":
            store = MemoryStore()
        case "sqlite":
            store = SqliteStore(tmp_path / "store.db")
        case "zookeeper":
            server = request.getfixturevalue("zookeeper")
            store = ZooKeeperStore(server.hosts, request.getfixturevalue("root"), session_timeout_secs=10.0)
    yield store
    store.close()


@pytest.fixture
def state(store):
    return TransactionalState(store, store.take_lead("topology", "test"), ROOT)


@pytest.mark.parametrize(
    "value",
    [None, 0, 7, 1.5, True, "", "Wörter 🌪", [], [1, [2]], {}, {"from": 3, "to": None, "in": {"a": [1]}}],
)
def test_value_is_read_back(state, value):
    """Every value that JSON can hold is read back as it was set, over every store."""
    state.set_data("some/path", value)
    assert state.get_data("some/path") == value


def test_values_lie_below_the_root(store, state):
    """A state keeps to its root, as JSON text that people can read."""
    state.set_data("meta/1", {"from": 0})
    assert store.read(f"{ROOT}/meta/1") == b'{"from":0}'
    assert store.children("topology") == ["user"]


def test_list_and_delete(state):
    """Names are listed sorted; deleting takes all below; what is not there is empty, None, and no error."""
    for path in ("b", "a/x", "a/y"):
        state.set_data(path, 1)
    assert (state.list("a"), state.list("never"), state.get_data("never")) == (["x", "y"], [], None)
    state.delete("a")
    state.delete("never")
    assert (state.list("a"), state.get_data("a/x"), state.get_data("b")) == ([], None, 1)


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), float("nan"), {"deep": {"in": b"it"}}, {(1, 2): 3}])
def test_value_that_is_no_json_is_refused(state, value):
    """A value that JSON cannot hold is refused, with its path, and the old value stays."""
    state.set_data("a", 1)
    with pytest.raises(StateAccessError, match=f"'{ROOT}/a' cannot be kept as JSON"):
        state.set_data("a", value)
    assert state.get_data("a") == 1


def test_endless_value_is_refused(state):
    """A value that holds itself is refused like one that JSON cannot hold."""
    endless = []
    endless.append(endless)
    with pytest.raises(StateAccessError, match="cannot be kept as JSON"):
        state.set_data("a", endless)


def test_too_long_value_is_refused(state):
    """A value too long for a store is refused with its path."""
    with pytest.raises(StateAccessError, match=f"'{ROOT}/a' has"):
        state.set_data("a", "x" * 600_000)


def test_closed_state_is_refused(store, state):
    """After close() neither reads nor writes; the store and the lead stay open."""
    state.set_data("a", 1)
    state.close()
    for use in (lambda: state.get_data("a"), lambda: state.list(""), lambda: state.set_data("a", 2)):
        with pytest.raises(StateAccessError, match="is closed"):
            use()
    assert store.read(f"{ROOT}/a") == b"1"


def test_state_without_a_lead_reads_only(store, state):
    """An emitter on another process reads without a lead, and is told who may write."""
    state.set_data("a", 1)
    reader = TransactionalState(store, None, ROOT)
    assert reader.get_data("a") == 1
    for use in (lambda: reader.set_data("a", 2), lambda: reader.delete("a")):
        with pytest.raises(StateAccessError, match="read-only"):
            use()


def test_root_outside_the_topology_is_refused(store):
    """A state whose root belongs to another topology cannot write there."""
    state = TransactionalState(store, store.take_lead("topology", "test"), "other/user")
    with pytest.raises(StateAccessError, match="outside topology"):
        state.set_data("a", 1)


def test_failed_write_leaves_the_rotating_state_as_it_was():
    """What could not be written durably is not remembered either."""
    place = MemoryPlace()
    first, second = MemoryStore(place), MemoryStore(place)
    state = TransactionalState(first, first.take_lead("topology", "first"), ROOT)
    rotating = RotatingTransactionalState(state, "meta")
    rotating.get_state(1, lambda *_: "one")
    place.forget_holder("topology")
    second.take_lead("topology", "second")
    for use in (
        lambda: rotating.get_state(2, lambda *_: "two"),
        lambda: rotating.override_state(1, "other"),
        lambda: rotating.remove_state(1),
        lambda: rotating.cleanup_before(2),
    ):
        with pytest.raises(LostLead):
            use()
    assert (rotating.has_cache(2), rotating.get_last_state()) == (False, "one")


def test_changing_what_was_returned_changes_nothing(state):
    """The value is the durable one at every call, as it would be after a restart."""
    rotating = RotatingTransactionalState(state, "meta")
    first = rotating.get_state(1, lambda *_: {"offsets": (1, 2)})
    first["offsets"].append(3)
    assert rotating.get_state(1, lambda *_: None) == {"offsets": [1, 2]}


def test_initializer_may_change_its_argument(state):
    """An initializer that changes the previous value in place does not change the previous entry."""
    rotating = RotatingTransactionalState(state, "meta")
    rotating.get_state(1, lambda *_: {"to": 1})

    def step(txid, previous):
        previous["to"] = txid
        return previous

    assert rotating.get_state(2, step) == {"to": 2}
    assert rotating.get_state(1, step) == {"to": 1}


def test_entries_are_bounded(state):
    """More entries than entries_max are refused with what to do, before the initializer is called."""
    rotating = RotatingTransactionalState(state, "meta", entries_max=3)
    for txid in (1, 2, 3):
        rotating.get_state(txid, lambda txid, _: txid)
    called = []
    for use in (
        lambda: rotating.get_state(4, lambda *arguments: called.append(arguments)),
        lambda: rotating.override_state(4, "four"),
    ):
        with pytest.raises(StateAccessError, match=r"holds 3 transactions, from 1 on.*cleanup_before"):
            use()
    rotating.override_state(3, "three")
    rotating.cleanup_before(2)
    assert rotating.get_state(4, lambda txid, previous: previous) == "three"
    assert called == []
    with pytest.raises(StateAccessError, match="holds 3 transactions, more than entries_max"):
        RotatingTransactionalState(state, "meta", entries_max=2)
    assert RotatingTransactionalState(state, "meta", entries_max=3).has_cache(3)


def test_other_data_among_the_txids_is_refused(state):
    """A path that holds something else than txids is not taken for a rotating state."""
    state.set_data("meta/partition-1", 1)
    with pytest.raises(StateAccessError, match=r"'partition-1' below .*/meta is not a txid"):
        RotatingTransactionalState(state, "meta")
