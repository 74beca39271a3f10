"""Which transactions of a journal count, and what a reader finds beside a cut."""

from pathlib import Path

import pytest

from tests.journals import HEADER, LATER_MS, enter, txids_in
from txtopo.files.folder import LocalFolder
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalPart, JournalTransaction
from txtopo.journal.journal import counting_entries, read_journal
from txtopo.journal.writer import JournalWriter


def part(epoch: int, committed: int, *groups: tuple[int, int]) -> JournalPart:
    """The part of a coordinator that found ``committed`` committed, and entered some groups (first, last)."""
    header = JournalHeader("t", "life", epoch, {"spout": "repeatable"}, committed, None, {}, {})
    transactions = [
        tuple(JournalTransaction(txid, epoch, None, {}) for txid in range(first, last + 1)) for first, last in groups
    ]
    return JournalPart(header, tuple(JournalEntry({}, transaction) for transaction in transactions))


def counted(parts: list[JournalPart], written: int = 99) -> list[int]:
    """The transactions that count if the tables have reached ``written``."""
    entries = counting_entries(parts, lambda entry: entry.last <= written)
    return [transaction.txid for entry in entries for transaction in entry.transactions]


def test_what_a_repair_rolled_back_counts_once() -> None:
    """A repair may take back what several coordinators had committed; each transaction counts as it was done last."""
    before = [part(1, 0, (1, 2), (3, 4)), part(2, 4, (5, 6)), part(3, 6)]
    after = [part(4, 2, (3, 5)), part(5, 5, (6, 6))]
    assert counted([*before, *after]) == [1, 2, 3, 4, 5, 6]
    assert [entry.transactions[0].attempt for entry in counting_entries([*before, *after], lambda _: True)] == [1, 4, 5]


def test_the_last_group_counts_if_it_was_written() -> None:
    """Only the last entry of all may be of a group that was not: of an earlier coordinator's, the next header tells."""
    parts = [part(1, 0, (1, 2), (3, 4)), part(2, 2, (3, 3), (4, 5))]
    assert counted(parts) == [1, 2, 3, 4, 5]
    assert counted(parts, written=4) == [1, 2, 3]
    assert counted([*parts, part(3, 3)], written=4) == [1, 2, 3]
    assert counted([]) == []


def test_a_reader_beside_a_cut_reads_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that go after they were listed, and those before them, are not there for it."""
    folder = LocalFolder(tmp_path)
    writer = JournalWriter(folder, HEADER, 1 << 20)
    for txid in range(1, 6):
        enter(writer, txid)
        writer.end_part()
    get, read = LocalFolder.get, []

    def beside(own, path):
        read.append(path)
        if len(read) == 2:
            writer.keep_after(3, LATER_MS, lambda: None)
        return get(own, path)

    monkeypatch.setattr(LocalFolder, "get", beside)
    (found,) = read_journal(folder)
    assert (found.header.committed, txids_in([found])) == (3, [4, 5])
