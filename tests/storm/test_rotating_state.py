"""Storm's test-rotating-transactional-state (transactional_test.clj), and the rest of that class's rules."""

import pytest

from state.stores.memory import MemoryPlace, MemoryStore
from state.stores.sqlite import SqliteStore
from state.stores.zookeeper import ZooKeeperStore
from state.transactional import RotatingTransactionalState, TransactionalState
from txtopo.errors import RuleError, StateAccessError


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def open_state(request, tmp_path):
    """Open the user state of "id1" over a store, as often as asked for: as many runs of a coordinator."""
    memory = MemoryPlace()

    def open_store():
        match request.param:
            case "memory":
                return MemoryStore(memory)
            case "sqlite":
                return SqliteStore(tmp_path / "store.db")
            case _:
                server = request.getfixturevalue("zookeeper")
                return ZooKeeperStore(server.hosts, request.getfixturevalue("root"), 2.0)

    stores = []

    def open_state():
        for store in stores:
            store.close()
        stores.append(open_store())
        return TransactionalState(stores[-1], stores[-1].take_lead("id1", "test"), "id1/user")

    yield open_state
    stores[-1].close()


class Initializer:
    """Returns what it holds, and remembers what it was called with."""

    def __init__(self, value):
        self.value = value
        self.calls = []

    def __call__(self, txid, previous):
        self.calls.append((txid, previous))
        return self.value


def test_rotating_transactional_state(open_state):
    """Storm's test, line by line: strict order against not strict order."""
    state = open_state()
    strict_rotating = RotatingTransactionalState(state, "strict", True)
    unstrict_rotating = RotatingTransactionalState(state, "unstrict", False)
    init = Initializer(10)
    assert strict_rotating.get_state(1, init) == 10
    assert strict_rotating.get_state(2, init) == 10
    init.value = 20
    assert strict_rotating.get_state(3, init) == 20
    assert strict_rotating.get_state(1, init) == 10

    with pytest.raises(RuleError):
        strict_rotating.get_state(5, init)
    assert strict_rotating.get_state(4, init) == 20
    assert len(state.list("strict")) == 4
    strict_rotating.cleanup_before(3)
    assert len(state.list("strict")) == 2

    assert strict_rotating.get_state_or_create(5, init) is None
    assert strict_rotating.get_state_or_create(5, init) == 20
    assert strict_rotating.get_state_or_create(6, init) is None
    strict_rotating.cleanup_before(6)
    assert len(state.list("strict")) == 1

    assert unstrict_rotating.get_state(10, init) == 20
    assert unstrict_rotating.get_state(20, init) == 20
    assert unstrict_rotating.get_state(12, init) is None
    assert unstrict_rotating.get_state(19, init) is None
    assert unstrict_rotating.get_state(12, init) is None
    assert unstrict_rotating.get_state(21, init) == 20
    state.close()


def test_initializer_gets_txid_and_previous_state(open_state):
    """A new state is made from its txid and the nearest state below it, which may be a skipped one."""
    rotating = RotatingTransactionalState(open_state(), "meta")
    init = Initializer("first")
    rotating.get_state(10, init)
    init.value = "second"
    rotating.get_state(12, init)
    rotating.get_state(12, init)
    rotating.get_state(11, init)
    rotating.remove_state(12)
    rotating.get_state(13, init)
    assert init.calls == [(10, None), (12, "first"), (13, None)]


def test_entries_survive_a_restart(open_state):
    """A new coordinator finds every entry again, skipped ones too, and goes on in order."""
    rotating = RotatingTransactionalState(open_state(), "meta")
    init = Initializer({"to": 9})
    for txid in (9, 10, 100, 99):
        rotating.get_state(txid, init)
    rotating.cleanup_before(10)

    again = RotatingTransactionalState(open_state(), "meta")
    assert [again.has_cache(txid) for txid in (9, 10, 99, 100)] == [False, True, True, True]
    assert (again.get_last_state(), again.get_state(99, init)) == ({"to": 9}, None)
    assert again.get_state_or_create(10, init) == {"to": 9}
    assert again.get_state_or_create(101, init) is None
    assert init.calls == [(9, None), (10, {"to": 9}), (100, {"to": 9}), (101, {"to": 9})]


def test_last_override_and_remove(open_state):
    """The last state is the highest txid's; any can be overridden, whatever the order, and removed."""
    state = open_state()
    rotating = RotatingTransactionalState(state, "meta", strict_order=True)
    assert rotating.get_last_state() is None
    rotating.override_state(7, "seven")
    rotating.override_state(10, "ten")
    assert rotating.get_last_state() == "ten"
    rotating.override_state(7, "other")
    rotating.remove_state(10)
    rotating.remove_state(10)
    assert (rotating.get_last_state(), rotating.has_cache(10), state.list("meta")) == ("other", False, ["7"])
    assert rotating.get_state(8, Initializer("eight")) == "eight"


@pytest.mark.parametrize(
    ("present", "asked", "named"),
    [
        ([], 2, "2 cannot be created: there is no state of transaction 1"),
        ([1, 2], 4, "that of transaction 2, not of 3"),
    ],
)
def test_strict_order_names_both_txids(open_state, present, asked, named):
    """A gap in a strictly ordered state is refused with both txids, and nothing is kept or initialized."""
    rotating = RotatingTransactionalState(open_state(), "meta", strict_order=True)
    init = Initializer("value")
    for txid in present:
        rotating.get_state(txid, init)
    with pytest.raises(StateAccessError, match=named) as refused:
        rotating.get_state(asked, init)
    assert (refused.value.txid, rotating.has_cache(asked), len(init.calls)) == (asked, False, len(present))


def test_strict_order_refuses_to_skip(open_state):
    """In a strictly ordered state a txid below a later one is refused, where a loose one skips it."""
    rotating = RotatingTransactionalState(open_state(), "meta", strict_order=True)
    rotating.override_state(2, "two")
    rotating.override_state(1, "one")
    rotating.override_state(4, "four")
    with pytest.raises(StateAccessError, match="transaction 3 cannot be created: the later transaction 4"):
        rotating.get_state(3, Initializer("three"))
