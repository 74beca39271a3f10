"""The end of a journal tells what is certainly committed."""

from __future__ import annotations

import pytest

from txtopo.transactional.journal.ending import JournalEnd
from txtopo.transactional.journal.journal import JournalEntry, JournalHeader, JournalTransaction

HEADER = JournalHeader("top", "life", 1, "repeatable", 3, None, {}, {})


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
    transactions = tuple(JournalTransaction(txid, 1, None, {}, None) for txid in (4, 5, 6))
    end = JournalEnd(HEADER, JournalEntry(dict.fromkeys(states, (1, 0)), transactions))
    assert end.bound(txids) == expected


def test_a_journal_without_entries_ends_at_its_header():
    """What its coordinator found is committed."""
    assert JournalEnd(HEADER, None).bound({}) == 3
