"""The writer of a journal: what it refuses, and which files go."""

from pathlib import Path

import attrs
import pytest

from tests.crashes import dying
from tests.full_disk import no_descriptor_left, no_file_larger_than
from tests.journals import HEADER, LATER_MS, enter, txids_in
from txtopo.api.components.planned import BeginReason, Planned
from txtopo.errors import LostLead, StopError
from txtopo.files.folder import LocalFolder
from txtopo.journal import journal
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalTransaction
from txtopo.journal.journal import journal_files, read_journal
from txtopo.journal.writer import JournalWriter


def test_racing_first_starts(tmp_path: Path) -> None:
    """A second coordinator of the same epoch, of another store, replaces nothing of the first one's."""
    header = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, {}, {})
    writer = JournalWriter(LocalFolder(tmp_path), header, 1 << 20)
    writer.enter(JournalEntry({}, (JournalTransaction(1, 1, None, {}),)))
    with pytest.raises(StopError, match="another coordinator has epoch 1"):
        JournalWriter(LocalFolder(tmp_path), header, 1 << 20)
    writer.enter(JournalEntry({}, (JournalTransaction(2, 1, None, {}),)))
    assert txids_in(read_journal(LocalFolder(tmp_path))) == [1, 2]


def test_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    """The run stops and says what to do; nothing of the group is committed."""
    header = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, {}, {})
    writer = JournalWriter(LocalFolder(tmp_path / "journal"), header, 1 << 20)
    (file,) = (tmp_path / "journal").iterdir()
    with no_file_larger_than(file.stat().st_size + 10), pytest.raises(StopError, match="Free some disk space"):
        writer.enter(JournalEntry({}, (JournalTransaction(1, 1, None, {}),)))
    assert read_journal(LocalFolder(tmp_path / "journal"))[0].entries == ()


def test_no_descriptor_for_the_journal(tmp_path: Path) -> None:
    """It says what is missing: no disk is full."""
    header = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, {}, {})
    writer = JournalWriter(LocalFolder(tmp_path / "journal"), header, 1 << 20)
    with no_descriptor_left(), pytest.raises(StopError, match=r"Too many open files.* Let the process open more files"):
        writer.enter(JournalEntry({}, (JournalTransaction(1, 1, None, {}),)))


def test_the_oldest_files_go_and_no_more_than_needed(tmp_path: Path) -> None:
    """The newest entries are kept, as many as fit; the header of what is left says all of what came before it."""
    header = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, {}, {"words": None, "idle": None})
    writer = JournalWriter(
        LocalFolder(tmp_path / "journal"), header, 1500, part_bytes_max=1
    )  # each entry in a file of its own
    for txid in range(1, 21):
        transaction = JournalTransaction(txid, 1, "m" * 100, {}, planned=Planned(1000 + txid, BeginReason.INPUT))
        writer.enter(JournalEntry({"words": (1, 0)}, (transaction,)))
    sizes = [file.size for file in journal_files(LocalFolder(tmp_path / "journal"))]
    assert 1500 - 2 * max(sizes) <= sum(sizes[:-1]) <= 1500
    (kept,) = read_journal(LocalFolder(tmp_path / "journal"))
    assert [entry.last for entry in kept.entries] == list(range(21 - len(kept.entries), 21))
    before = 20 - len(kept.entries)
    assert kept.header == attrs.evolve(
        header,
        committed=before,
        metadata="m" * 100,
        planned=Planned(1000 + before, BeginReason.INPUT),
        states={"words": before, "idle": None},
        format=kept.header.format,
    )


def test_what_is_held_stays_however_large(tmp_path: Path) -> None:
    """A backfill reads on; once it is further, or over, the size is what counts."""
    folder, held = LocalFolder(tmp_path), [4]
    writer = JournalWriter(folder, HEADER, 1, lambda: held[-1], part_bytes_max=1)
    enter(writer, *range(1, 9))
    assert begins(folder) == [4, 5, 6, 7]
    held.append(6)
    enter(writer, 9)
    assert begins(folder) == [6, 7, 8]
    held.append(None)
    enter(writer, 10)
    assert begins(folder) == [9]


def begins(folder: LocalFolder) -> list[int]:
    """Return what each file of a journal begins after."""
    return [journal.header_of(journal.first_line(folder, file), "").committed for file in journal_files(folder)]


def test_files_that_are_not_needed_go(tmp_path: Path) -> None:
    """All before the last one that begins up to a transaction, and never the one that is written."""
    folder, asked = LocalFolder(tmp_path), []
    writer = JournalWriter(folder, HEADER, 1 << 20)
    for txid in range(1, 10):
        enter(writer, txid)
        if txid % 3 == 0:
            writer.end_part()
    assert begins(folder) == [0, 3, 6]
    for txid, expected in ((0, [0, 3, 6]), (2, [0, 3, 6]), (3, [3, 6]), (5, [3, 6]), (9, [6])):
        writer.keep_after(txid, LATER_MS, lambda txid=txid: asked.append(txid))
        assert begins(folder) == expected
    assert asked == [3, 9], "it is asked before files go, and only then"
    assert txids_in(read_journal(folder)) == [7, 8, 9]
    enter(writer, 10)
    writer.keep_after(9, LATER_MS, lambda: None)
    assert (begins(folder), txids_in(read_journal(folder))) == ([9], [10])


def test_a_file_from_before_a_rewind_goes_with_those_that_it_undid(tmp_path: Path) -> None:
    """What is needed of one transaction begins where the topology went back to last."""
    folder = LocalFolder(tmp_path)
    enter(JournalWriter(folder, HEADER, 1 << 20), *range(1, 11))
    enter(JournalWriter(folder, attrs.evolve(HEADER, epoch=2, committed=10), 1 << 20), *range(11, 21))
    writer = JournalWriter(folder, attrs.evolve(HEADER, epoch=3, committed=5, undone_until=20), 1 << 20)
    enter(writer, *range(6, 15))
    writer.keep_after(4, LATER_MS, lambda: None)
    assert begins(folder) == [0, 10, 5]
    writer.keep_after(5, LATER_MS, lambda: None)
    assert begins(folder) == [5]


def test_a_file_that_nobody_can_read_is_no_beginning(tmp_path: Path) -> None:
    """Nobody knows what it has, so it only goes with what comes after it."""
    folder = LocalFolder(tmp_path)
    for epoch in (1, 2):
        enter(JournalWriter(folder, attrs.evolve(HEADER, epoch=epoch, committed=epoch - 1), 1 << 20), epoch)
    (tmp_path / "0000000002-000000.jsonl").write_bytes(b"damaged\n")
    writer = JournalWriter(folder, attrs.evolve(HEADER, epoch=3, committed=2), 1 << 20)
    writer.keep_after(1, LATER_MS, lambda: None)
    assert len(journal_files(folder)) == 3
    writer.keep_after(2, LATER_MS, lambda: None)
    assert begins(folder) == [2]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_cut_that_dies_leaves_a_journal_without_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at) -> None:
    """Each file is gone for good before the next one goes; the next call removes the rest."""
    folder, order = LocalFolder(tmp_path), []
    writer = JournalWriter(folder, HEADER, 1 << 20)
    for txid in range(1, 6):
        enter(writer, txid)
        writer.end_part()
    monkeypatch.setattr("txtopo.files.folder.sync_path", order.append)
    with dying("journal.cut.after", at):
        writer.keep_after(5, LATER_MS, lambda: None)
    assert order == [tmp_path] * at
    assert txids_in(read_journal(folder)) == list(range(at + 1, 6))
    writer = JournalWriter(folder, attrs.evolve(HEADER, epoch=2, committed=5), 1 << 20)
    writer.keep_after(5, LATER_MS, lambda: None)
    assert begins(folder) == [5]


def test_a_coordinator_that_leads_no_more_cuts_nothing(tmp_path: Path) -> None:
    """It is asked just before."""

    def leads_no_more() -> None:
        raise LostLead("another one leads")

    folder = LocalFolder(tmp_path)
    writer = JournalWriter(folder, HEADER, 1 << 20)
    enter(writer, 1)
    writer.end_part()
    enter(writer, 2)
    with pytest.raises(LostLead):
        writer.keep_after(1, LATER_MS, leads_no_more)
    assert begins(folder) == [0, 1]


def test_a_coordinator_removes_no_file_of_its_successors(tmp_path: Path) -> None:
    """One that leads no more may not know yet, and its journal may be too large: it takes only from its own past."""
    header = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, {}, {})
    folder = LocalFolder(tmp_path)
    former, *_ = [JournalWriter(folder, attrs.evolve(header, epoch=epoch), 1, part_bytes_max=1) for epoch in (1, 2, 3)]
    for txid in (1, 2, 3):
        former.enter(JournalEntry({}, (JournalTransaction(txid, 1, None, {}),)))
    names = [file.path for file in journal_files(folder)]
    assert names == ["0000000001-000003.jsonl", "0000000002-000000.jsonl", "0000000003-000000.jsonl"]
