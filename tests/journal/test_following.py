"""A follower of a journal reads what is committed, once and in order, while others write it."""

import attrs
import pytest

from txtopo.api.components.planned import Planned
from txtopo.errors import ConfigError, DivergenceError
from txtopo.files.folder import LocalFolder
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalTransaction
from txtopo.journal.following import JournalFollower
from txtopo.journal.writer import JournalWriter

HEADER = JournalHeader("top", "life", 1, {"spout": "repeatable"}, 0, None, {}, {})


class Written:
    """A journal in a folder, written by one coordinator after another."""

    def __init__(self, path) -> None:
        self.path = path
        self.folder = LocalFolder(path)

    def begin(self, epoch: int, committed: int, **changes) -> None:
        planned = Planned(committed * 10)
        header = attrs.evolve(HEADER, epoch=epoch, committed=committed, metadata=committed, planned=planned, **changes)
        self.epoch, self.writer = epoch, JournalWriter(self.folder, header, 1 << 40)

    def enter(self, first: int, last: int) -> None:
        transactions = (
            JournalTransaction(txid, self.epoch, txid, {}, planned=Planned(txid * 10))
            for txid in range(first, last + 1)
        )
        self.writer.enter(JournalEntry({"t": (1, 0)}, tuple(transactions)))


@pytest.fixture
def journal(tmp_path):
    journal = Written(tmp_path)
    journal.begin(1, 0)
    return journal


def read(follower, committed=0):
    return [(each.txid, each.attempt) for each in follower.read(committed)]


def test_a_group_counts_once_another_one_follows_it(journal):
    """Or once somebody who leads says that it is committed."""
    follower = JournalFollower(journal.folder, 0)
    assert read(follower) == []
    journal.enter(1, 2)
    assert read(follower) == []
    journal.enter(3, 3)
    assert read(follower) == [(1, 1), (2, 1)]
    assert (read(follower), follower.after) == ([], 2)
    assert read(follower, committed=3) == [(3, 1)]
    assert read(follower, committed=3) == []


@pytest.mark.parametrize(("found", "last"), [(3, [(3, 1), (4, 2)]), (2, [(3, 2), (4, 2)])])
def test_a_new_coordinator_says_whether_the_last_group_is_committed(journal, found, last):
    """What it has not found is read as it ran again."""
    follower = JournalFollower(journal.folder, 0)
    journal.enter(1, 2)
    journal.enter(3, 3)
    assert read(follower) == [(1, 1), (2, 1)]
    journal.begin(2, found)
    journal.enter(found + 1, 3) if found < 3 else None
    journal.enter(4, 4)
    journal.enter(5, 5)
    seen = []
    while got := read(follower):
        seen += got
    assert seen == last


def test_it_begins_in_the_middle_and_tells_what_was_before(journal):
    """A group may be in the middle of which it begins; the transaction before may be in a header, too."""
    journal.enter(1, 4)
    journal.begin(2, 4)
    journal.enter(5, 6)
    journal.enter(7, 7)
    follower = JournalFollower(journal.folder, 2)
    assert read(follower) == [(3, 1), (4, 1)]
    assert (follower.metadata, follower.planned) == (2, Planned(20))
    follower = JournalFollower(journal.folder, 4)
    assert read(follower) == [(5, 2), (6, 2)]
    assert (follower.metadata, follower.planned) == (4, Planned(40))


def test_a_topology_that_goes_back_is_noticed(journal):
    """What was read is no longer what the topology has."""
    follower = JournalFollower(journal.folder, 0)
    for first, last in ((1, 3), (4, 5), (6, 6)):
        journal.enter(first, last)
    assert len(read(follower)) == 5
    journal.begin(2, 3)
    with pytest.raises(DivergenceError, match="gone back behind transaction 5"):
        follower.read()
    late = JournalFollower(journal.folder, 0)
    assert [txid for txid, _ in read(late)] == [1, 2, 3]
    assert read(late) == []


def test_what_is_missing_is_said(journal):
    """A journal without its beginning, and one with a gap."""
    journal.enter(1, 2)
    journal.begin(2, 7)
    journal.enter(8, 8)
    journal.enter(9, 9)
    follower = JournalFollower(journal.folder, 0)
    assert len(read(follower)) == 2
    with pytest.raises(DivergenceError, match="lacks transactions 3 to 7"):
        follower.read()
    (journal.path / "0000000001-000000.jsonl").unlink()
    with pytest.raises(ConfigError, match="begins with transaction 8, so it does not say what transaction 1 was"):
        JournalFollower(journal.folder, 0)
    assert read(JournalFollower(journal.folder, 7)) == [(8, 2)]


def in_files_of_one(journal, *txids):
    for txid in txids:
        journal.enter(txid, txid)
        journal.writer.end_part()


def test_a_journal_that_is_cut_before_it_was_read(journal):
    """What is gone is named; who has read further goes on."""
    in_files_of_one(journal, 1, 2, 3)
    behind, ahead = JournalFollower(journal.folder, 0), JournalFollower(journal.folder, 2)
    in_files_of_one(journal, 4, 5)
    journal.writer.keep_after(2, 1_000, lambda: None)
    with pytest.raises(DivergenceError, match="lacks transactions 1 to 2"):
        behind.read()
    assert read(ahead) == [(3, 1)]


def test_a_journal_that_is_cut_while_it_is_read(journal, monkeypatch):
    """A file that goes between its header and what follows is one that is gone."""
    in_files_of_one(journal, 1, 2, 3)
    follower = JournalFollower(journal.folder, 0)
    get_range = LocalFolder.get_range

    def beside(folder, path, start, length):
        journal.writer.keep_after(2, 1_000, lambda: None)
        return get_range(folder, path, start, length)

    monkeypatch.setattr(LocalFolder, "get_range", beside)
    with pytest.raises(DivergenceError, match="lacks transactions 1 to 2"):
        follower.read()


def test_large_journals_are_read_in_steps(journal):
    """Few bytes and few transactions at a time, and never half a line."""
    for txid in range(1, 12):
        journal.enter(txid, txid)
    follower = JournalFollower(journal.folder, 0, bytes_max=100, transactions_max=4)
    assert [[txid for txid, _ in read(follower)] for _ in range(4)] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10], []]
    with (journal.path / "0000000001-000000.jsonl").open("a") as file:
        file.write('{"states"')
    assert read(follower) == []
