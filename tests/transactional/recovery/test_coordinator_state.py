"""The coordinator state: what is durable of a begun transaction."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from state import MemoryStore, SqliteStore
from state.stores.memory import MemoryLead, MemoryPlace
from txtopo.api.components.planned import BeginReason, Planned
from txtopo.api.store import VALUE_BYTES_MAX, Delete, Put
from txtopo.errors import DivergenceError, RuleError
from txtopo.journal.folders import ASIDES_MAX
from txtopo.journal.turns import Timeline
from txtopo.transactional.core.events import TransactionMetadata
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, Group
from txtopo.transactional.recovery.large_notes import NotePlace
from txtopo.transactional.recovery.plans import (
    StartAnew,
    end_by_replacing,
    end_by_setting_aside,
    end_plan,
    record_plan,
    recorded_plan,
    remove_all,
)
from txtopo.transactional.recovery.values import as_json


def opened(store: MemoryStore) -> CoordinatorState:
    """Return it as the next leader finds it."""
    store.place.forget_holder("t")
    return CoordinatorState(store, store.take_lead("t", "test"), "t")


NOTES = {"one": {"values": "é" * VALUE_BYTES_MAX}, "two": None}


@pytest.fixture(params=["memory", "sqlite"])
def reopened(request, tmp_path) -> Iterator[Callable[[], CoordinatorState]]:
    """Return what opens a store again, as the next leader."""
    place, stores = MemoryPlace(), []

    def again() -> CoordinatorState:
        if stores:
            stores.pop().close()
        stores.append(MemoryStore(place) if request.param == "memory" else SqliteStore(tmp_path / "store"))
        return CoordinatorState(stores[0], stores[0].take_lead("t", "test"), "t")

    yield again
    stores.pop().close()


def test_a_note_without_a_table_is_cut_into_values(reopened) -> None:
    """It is whole for the next leader, and gone with the write that comes after its group."""
    former = reopened()
    former.decide(Group(1, 3, ("one", "two"), None, ("one", "two"), notes=NOTES))
    leader = reopened()
    group = leader.group()
    assert group is not None
    assert (group.notes, group.apart) == (None, NotePlace(parts=7))
    assert leader.notes_of(group) == NOTES
    leader.commit(CommittedMark(3), 1)
    # What was begun before the commit is durable is not taken with it.
    leader.decide(Group(4, 4, ("one",), None, ("one",), notes=NOTES))
    leader = reopened()
    assert leader.notes_of(attrs.evolve(group, first=4, last=4)) == NOTES
    leader.commit(CommittedMark(4), 4)
    leader.flush()
    leader.remove_notes()
    store, *_ = leader.source_place
    assert store.children("t/note") == []


def test_the_values_of_a_note_that_was_decided_by_this_leader_go_with_its_group() -> None:
    """Not only a recovery removes them."""
    store = MemoryStore()
    leader = opened(store)
    for txid in (1, 2, 3):
        leader.decide(Group(txid, txid, ("one",), None, ("one",), notes=NOTES))
        leader.commit(CommittedMark(txid), txid)
        assert [int(name) for name in store.children("t/note")] == [txid]
    leader.flush()
    assert store.children("t/note") == []


def test_a_note_that_was_cut_off_is_of_no_group() -> None:
    """A crash between its values leaves some, and the group undecided; the next recovery removes them."""
    store = MemoryStore()
    leader = opened(store)
    leader.values.write([Put("t/note/00000000000000000001/000000", b"x")])
    leader = opened(store)
    assert leader.group() is None
    leader.remove_notes()
    assert store.children("t/note") == []


def test_a_part_of_a_note_is_lost() -> None:
    """Then the group can't be finished, and the error says where the note was."""
    store = MemoryStore()
    leader = opened(store)
    leader.decide(Group(1, 3, ("one",), None, ("one",), notes=NOTES))
    leader.values.write([Delete("t/note/00000000000000000003/000001")])
    leader = opened(store)
    group = leader.group()
    assert group is not None
    with pytest.raises(DivergenceError, match=r"in 7 values of the store, can't be read \(1 are missing\)"):
        leader.notes_of(group)


@pytest.mark.parametrize("metadata", [None, {"a\nb": ["\n", 1]}, "line\n", 0.5])
def test_begun_transactions_are_read_as_they_were_saved(metadata: Any) -> None:
    """Whatever the metadata holds, it and the time come back to the next leader."""
    store = MemoryStore()
    begun = (
        TransactionMetadata(4, metadata, Planned(5)),
        TransactionMetadata(5, metadata, Planned(6, BeginReason.QUIET)),
    )
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
    opened(MemoryStore()).save_metadata([TransactionMetadata(1, fitting, Planned(10**18, BeginReason.INPUT))])
    with pytest.raises(RuleError, match="keep offsets in it"):
        as_json(fitting + "x")


OF_SPOUT = [Put("t/source/at", b"1"), Delete("t/source/late")]
ENDS = {
    "replaced": lambda state: end_by_replacing(
        state, "next", {"spout": "opaque"}, CommittedMark(1), Timeline(3), 1, OF_SPOUT
    ),
    "put aside": lambda state: end_by_setting_aside(state, 1),
    "moved to another id": remove_all,
}


def test_copies_of_old_repairs_go() -> None:
    """What the last ones have replaced stays."""
    store = MemoryStore()
    state = opened(store)
    state.begin({"spout": "repeatable"})
    for number in range(1, ASIDES_MAX + 3):
        end_by_replacing(state, "i", {"spout": "repeatable"}, CommittedMark(number), Timeline(), number)
    assert state.values.asides() == list(range(3, ASIDES_MAX + 3))
    assert not [path for path in store.place.values if path.startswith(("t/before-repair-1/", "t/before-repair-2/"))]


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_repair_that_a_store_splits(monkeypatch, end) -> None:
    """Whatever of it a crash leaves, its plan is on record, and the next repair keeps what was before the first."""
    begun = MemoryStore()
    state = opened(begun)
    state.begin({"spout": "repeatable"})
    end_plan(state, CommittedMark(1))
    state.save_metadata([TransactionMetadata(txid, "begun", Planned(5)) for txid in (3, 4)])
    state.decide(Group(2, 3, ("one", "two"), None, ("one", "two"), notes=NOTES))
    state.source_place[1].write([Put("t/source/at", b"9"), Put("t/source/late", b"5")])
    record_plan(state, StartAnew(1))

    def ended(*deaths: int) -> tuple[dict[str, bytes], int]:
        """Return all values after a repair and the number of its changes; before it others died after so many."""
        store = MemoryStore(MemoryPlace({**begun.place.values}))
        for death in deaths:
            with monkeypatch.context() as patched, pytest.raises(InterruptedError):
                patched.setattr(
                    MemoryLead, "write", lambda lead, changes, death=death: write_some(lead, changes[:-1][:death])
                )
                ENDS[end](opened(store))
            assert recorded_plan(opened(store)) == StartAnew(1)
        written: list[int] = []
        with monkeypatch.context() as patched:
            patched.setattr(MemoryLead, "write", lambda *step: (written.append(len(step[1])), write(*step)))
            ENDS[end](opened(store))
        return store.place.values, *written

    write = MemoryLead.write

    def write_some(lead, changes) -> None:
        write(lead, changes)
        raise InterruptedError

    whole, count = ended()
    kept = {path.removeprefix("t/before-repair-1/"): value for path, value in whole.items() if "before" in path}
    former = {path.removeprefix("t/"): value for path, value in begun.place.values.items() if "repair" not in path}
    not_kept = {"replaced": {"format"}, "put aside": set(), "moved to another id": former.keys()}[end]
    assert kept == {name: value for name, value in former.items() if name not in not_kept}
    for death in range(count):
        assert ended(death)[0] == ended(death, death)[0] == whole
