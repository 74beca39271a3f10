"""Records come back from JSON as they went, by the names that files of earlier versions have."""

from __future__ import annotations

import json

import pytest

from txtopo.journal.journal import JournalEntry, JournalHeader, JournalTable, JournalTransaction
from txtopo.records import DAMAGE, from_json, to_json
from txtopo.recovery.coordinator_state import CommittedMark, StateMark

HEADER = JournalHeader(
    "t", "ab12", 3, "opaque", 7, {"from": 1}, {"s": JournalTable("s", "id")}, {"s": 7, "u": None}, {"u": 5}
)
ENTRY = JournalEntry(
    {"s": (2, 1)},
    (
        JournalTransaction(8, 1, [1, {"a": None}], {"spout": (3, 2**63), "bolt": (0, None)}, {"p": (0, None)}),
        JournalTransaction(9, 2, None, {}, is_dead_letter=True, skipped={"p": ((1, 2),)}),
    ),
)


@pytest.mark.parametrize(
    "record", [HEADER, ENTRY, CommittedMark(3, "m", {"s": StateMark("id", None, 4, 2, 1)})], ids=repr
)
def test_round_trip(record) -> None:
    """What is read is what was written."""
    assert from_json(json.loads(json.dumps(to_json(record))), type(record)) == record


def test_written_names() -> None:
    """An incarnation is written under its first name."""
    written = to_json(HEADER)
    assert (written["life"], "incarnation" in written) == ("ab12", False)


def test_a_former_version() -> None:
    """A field that came later has its default; one that is no more is passed over."""
    mark = from_json(
        {"txid": 3, "metadata": 1, "states": {"s": {"identity": "id", "txid": 3}}, "gone": 0}, CommittedMark
    )
    assert mark == CommittedMark(3, 1, {"s": StateMark("id", 3)})


@pytest.mark.parametrize(
    "value",
    [[], 7, {}, {"states": {}, "transactions": [{"txid": 1}]}, {"states": {"s": [1]}, "transactions": []}],
    ids=repr,
)
def test_damage(value) -> None:
    """What is no such record raises what a reader of a file expects."""
    with pytest.raises(DAMAGE):
        from_json(value, JournalEntry)
