"""The end of a journal tells what is certainly committed."""

import attrs
import pytest

from txtopo.files.folder import LocalFolder
from txtopo.journal.ending import JournalEnd, last_writes
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalTransaction
from txtopo.journal.writer import JournalWriter

HEADER = JournalHeader("top", "life", 1, {"spout": "repeatable"}, 3, None, {}, {})


@pytest.mark.parametrize(
    ("states", "txids", "expected"),
    [
        (("t", "u"), {"t": 6, "u": 6}, 6),
        (("t", "u"), {"t": 6, "u": 3}, 3),
        (("t", "u"), {"t": 6, "u": None}, 3),
        (("t",), {"t": 6, "u": 1}, 6),
        (("t", "away"), {"t": 6}, 6),
        ((), {"t": 3}, 3),
    ],
)
def test_the_last_group_counts_once_all_of_its_tables_have_it(states, txids, expected):
    """Of tables that are there; a group that wrote none can't be verified. Otherwise the group before it is the last."""
    transactions = tuple(JournalTransaction(txid, 1, None, {}) for txid in (4, 5, 6))
    end = JournalEnd(HEADER, JournalEntry(dict.fromkeys(states, (1, 0)), transactions))
    assert end.bound(txids) == expected


@pytest.mark.parametrize(
    ("txid", "expected"),
    [
        (2, None),
        (3, {"t": 2, "u": None}),
        (4, {"t": 2, "u": None}),
        (5, {"t": 5, "u": None}),
        (6, {"t": 5, "u": 6}),
        (9, {"t": 9, "u": 6}),
    ],
)
def test_the_last_write_of_each_state(tmp_path, txid, expected):
    """Up to a transaction, from the newest file only: not before what its coordinator found."""
    journal = JournalWriter(LocalFolder(tmp_path), attrs.evolve(HEADER, states={"t": 2, "u": None}), 1 << 20)
    for first, last, state in ((4, 5, "t"), (6, 6, "u"), (7, 9, "t")):
        transactions = tuple(JournalTransaction(number, 1, None, {}) for number in range(first, last + 1))
        journal.enter(JournalEntry({state: (1, 0)}, transactions))
    assert last_writes(LocalFolder(tmp_path), HEADER.epoch, ("t", "u"), txid) == expected
    assert last_writes(LocalFolder(tmp_path), HEADER.epoch + 1, ("t", "u"), txid) is None


def test_a_journal_without_entries_ends_at_its_header():
    """What its coordinator found is committed."""
    assert JournalEnd(HEADER, None).bound({}) == 3
