"""Records come back from JSON as they went, by the names that files of earlier versions have."""

import json

import attrs
import pytest

from txtopo.files.records import DAMAGE, from_json, from_request, read_json, to_json, written_as
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalTable, JournalTransaction
from txtopo.transactional.recovery.coordinator_state import CommittedMark, StateMark

HEADER = JournalHeader(
    "t",
    "ab12",
    3,
    {"one": "opaque", "two": "repeatable"},
    7,
    {"one": {"from": 1}},
    {"s": JournalTable("s", "id")},
    {"s": 7, "u": None},
    {"u": 5},
)
ENTRY = JournalEntry(
    {"s": (2, 1)},
    (
        JournalTransaction(
            8, 1, [1, {"a": None}], {"spout": (3, 2**63), "bolt": (0, None)}, {"one": {"p": (0, None)}, "two": None}
        ),
        JournalTransaction(9, 2, None, {}, is_dead_letter=True, skipped={"one": {"p": ((1, 2),)}}),
    ),
)


@pytest.mark.parametrize(
    "record", [HEADER, ENTRY, CommittedMark(3, "m", {"s": StateMark("id", None, 4, 2, 1)})], ids=repr
)
def test_round_trip(record) -> None:
    """What is read is what was written."""
    assert from_json(json.loads(json.dumps(to_json(record))), type(record)) == record


@attrs.frozen
class Renamed:
    """A record with a field that has another name in JSON."""

    is_open: bool = attrs.field(metadata=written_as("isOpen"))


def test_written_names() -> None:
    """A field may have another name in JSON, and is read by that."""
    written = to_json(Renamed(True))
    assert (written, from_json(written, Renamed)) == ({"isOpen": True}, Renamed(True))


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


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        '{"a":' * 60_000,
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e999",
        "9" * 5_000,
        '{"a": 1, "a": 2}',
        "",
        "{",
        "\ufeff{}",
    ],
    ids=lambda text: text[:12],
)
def test_text_of_others_that_is_no_json(text: str) -> None:
    """It is a ValueError, whatever Python's reader makes of it."""
    with pytest.raises(ValueError):  # noqa: PT011 - the text is Python's own
        read_json(text)


@attrs.frozen
class Asked:
    name: str
    secs: float = 1.0
    is_active: bool = True
    count: int = 0
    settings: dict[str, str] = attrs.field(factory=dict)


def test_record_of_others() -> None:
    """What fits is read; a whole number is a number of seconds, too."""
    assert from_request({"name": "a", "secs": 3, "settings": {"b": "c"}, "more": 1}, Asked) == Asked(
        "a", 3.0, settings={"b": "c"}
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": 1},
        {"name": None},
        {"name": ["a"]},
        {"is_active": "maybe"},
        {"is_active": 1},
        {"secs": "1"},
        {"secs": True},
        {"secs": 10**400},
        {"count": 1.5},
        {"count": True},
        {"settings": []},
        {"settings": "ab"},
        {"settings": {"a": 1}},
        {"settings": {"a": None}},
    ],
)
def test_field_of_another_type(wrong: dict[str, object]) -> None:
    """It is refused, not converted: "maybe" is not true."""
    with pytest.raises(DAMAGE):
        from_request({"name": "a", **wrong}, Asked)
