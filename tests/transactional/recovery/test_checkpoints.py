"""Which transactions of a journal everything can be brought to."""

import attrs
import pytest

from txtopo.api.state import TableDescription
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalPart, JournalTransaction
from txtopo.transactional.recovery.checkpoints import checkpoints_in
from txtopo.transactional.recovery.coordinator_state import CommittedMark, StateMark
from txtopo.transactional.recovery.divergence import marks_of_topology

HEADER = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, {}, {"a": None, "b": None})


def group(txid: int, *states: str) -> JournalEntry:
    return JournalEntry(dict.fromkeys(states, (1, 0)), (JournalTransaction(txid, 1, None, {}),))


def at(txid: int | None) -> TableDescription:
    return TableDescription("t", "a", "life", "id", txid, 1, 9, None)


@pytest.mark.parametrize(
    ("decided", "a", "b", "last"),
    [(2, 1, 1, 2), (1, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 2, 2, 2), (1, 3, 2, 2), (0, 2, None, 1)],
)
def test_the_last_group(decided, a, b, last):
    """It counts if it is known to be decided, or if all tables that it wrote have reached it."""
    part = JournalPart(HEADER, (group(1, "a", "b"), group(2, "a", "b")))
    found = checkpoints_in([part], "t", "life", ("a", "b"), {"a": at(a), "b": at(b)}, decided=decided)
    assert [each.txid for each in found] == [*range(last, -1, -1)]


def test_a_group_that_wrote_no_table_that_is_known():
    """Nothing shows that it was decided."""
    part = JournalPart(HEADER, (group(1, "a"), group(2, "gone")))
    assert [each.txid for each in checkpoints_in([part], "t", "life", ("a",), {"a": at(1)})] == [1, 0]


def test_states_that_came_and_went():
    """Where the topology has gone back, those that came later are none of it; of one that has left, its last is known."""
    header = attrs.evolve(HEADER, epoch=2, committed=2, states={"a": 2, "b": 1, "later": None})
    back = attrs.evolve(HEADER, epoch=3, committed=1, states={"a": 1})
    parts = [
        JournalPart(HEADER, (group(1, "a", "b"), group(2, "a"))),
        JournalPart(header, (group(3, "a", "later"),)),
        JournalPart(back, (group(2, "a"),)),
    ]
    found = {each.txid: dict(each.states) for each in checkpoints_in(parts, "t", "life", (), {}, decided=2)}
    assert found == {
        2: {"a": StateMark("", 2), "b": StateMark("", 1, left_after=1)},
        1: {"a": StateMark("", 1), "b": StateMark("", 1)},
        0: {"a": StateMark("", None), "b": StateMark("", None)},
    }


def test_a_state_that_has_left_left_once():
    """Its mark says after which transaction, however many follow; one that comes back is there."""
    gone, here = StateMark("x", 3, left_after=4), StateMark("y", 9)
    committed = CommittedMark(9, states={"gone": gone, "here": here})
    assert marks_of_topology(committed, ["new"]) == {
        "new": StateMark("", None),
        "gone": gone,
        "here": attrs.evolve(here, left_after=9),
    }
    assert marks_of_topology(committed, ["gone", "here"]) == {"gone": StateMark("x", 3), "here": here}
