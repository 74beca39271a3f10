"""States and threads of a bolt's own: what they put counts once, and nothing is put after the batch."""

import sys
from collections.abc import Callable, Iterator

import pytest

from state import MemoryState
from tests.transactional.commit.own_threads import THREADS, work_beside_own_threads
from txtopo import Fields
from txtopo.api.map_state import MapState
from txtopo.api.values import StateKind
from txtopo.errors import StateAccessError
from txtopo.transactional.commit.views import GroupState
from txtopo.transactional.commit.write_buffer import group_state
from txtopo.transactional.tasks.state_handle import StateHandle

ROUNDS = 300


@pytest.fixture(autouse=True)
def threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def group_of(kind: StateKind = StateKind.TRANSACTIONAL) -> GroupState:
    return group_state(MemoryState(Fields("k"), Fields("v"), kind).open("topology", "s", "life", 1))


def add_one(old: int | None) -> int:
    return (old or 0) + 1


def by_update(state: MapState, thread: int) -> None:
    state.update("all", add_one)
    state.update(f"own-{thread}", add_one)


def in_bulk(state: MapState, thread: int) -> None:
    state.multi_update(["all", f"own-{thread}"], add_one)


def by_reduce(state: MapState, thread: int) -> None:
    state.multi_reduce({"all": 1, f"own-{thread}": 1}, lambda one, other: one + other)


def mixed(state: MapState, thread: int) -> None:
    (by_update, in_bulk, by_reduce)[thread % 3](state, thread)
    state.get("all")
    state.put(f"put-{thread}", 1)
    state.remove(f"put-{thread}")


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", [StateKind.TRANSACTIONAL, StateKind.OPAQUE])
@pytest.mark.parametrize("how", [by_update, in_bulk, by_reduce, mixed])
def test_threads(how: Callable[[MapState, int], None], kind: StateKind) -> None:
    """Threads that a bolt waits for update keys of their own and keys they share, each time once."""
    group = group_of(kind)
    for txid in (1, 2):
        view = group.begin(txid)

        def work(thread: int) -> None:
            handle = StateHandle("bolt", "s", view, None)  # noqa: B023 - called here
            for _ in range(ROUNDS):
                how(handle, thread)

        work_beside_own_threads(work)
        view.check()
        view.finish()
    counts = {key: group.written[key].value for key in ("all", *(f"own-{n}" for n in range(THREADS + 1)))}
    assert counts == {"all": 2 * (THREADS + 1) * ROUNDS, **{f"own-{n}": 2 * ROUNDS for n in range(THREADS + 1)}}


def test_over() -> None:
    """A thread that was not waited for is told, and what it puts then is in no transaction."""
    group = group_of()
    view = group.begin(1)
    handle = StateHandle("bolt", "s", view, None)
    handle.update("a", add_one)
    view.finish()
    with pytest.raises(StateAccessError, match="used after"):
        handle.update("a", add_one)
    assert group.written["a"].value == 1


def test_an_update_that_reads() -> None:
    """A function that looks at the state which it updates does not wait for itself."""
    view = group_of().begin(1)
    handle = StateHandle("bolt", "s", view, None)
    handle.put("a", 5)
    assert handle.update("b", lambda _: handle.get("a").value + 1) == 6
