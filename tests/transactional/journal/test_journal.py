"""The journal: each topology in a folder has its own, and so has each incarnation of one."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaState, read_tables
from tests.acceptance.topologies import CountTuples
from tests.full_disk import no_file_larger_than
from tests.topologies import committing
from txtopo import Fields, Topology
from txtopo.errors import StopError
from txtopo.files.folder import LocalFolder
from txtopo.testing.inline import run_inline
from txtopo.transactional.core.events import Planned, Turn
from txtopo.transactional.journal import ending as journal_end, journal
from txtopo.transactional.journal.journal import (
    JournalEntry,
    JournalHeader,
    JournalPart,
    JournalTransaction,
    JournalWriter,
    counting_entries,
    find_journal,
    journal_files,
    read_journal,
)


def topology(name: str, output: Path) -> Topology:
    spout = MemoryTransactionalSpout({0: [["a"], ["b"], ["c"]]}, Fields("word"), 1)
    total = DeltaState(output / name, key=Fields("name: string"), value=Fields("n: long"))
    return committing(spout, CountTuples(), topology_id=name, total=total)


def test_two_topologies_in_one_folder(tmp_path: Path) -> None:
    """Each has a journal of its own, whichever ran first."""
    for name in ("one", "two", "one", "two"):
        run_inline(topology(name, tmp_path))
    for name in ("one", "two"):
        parts = read_journal(find_journal(tmp_path / "_txtopo", name))
        assert [part.header.topology for part in parts] == [name, name]
        assert [each.txid for part in parts for e in part.entries for each in e.transactions] == [1, 2, 3]
    assert read_tables(tmp_path).txid == 3


def test_a_new_life_begins_a_new_journal(tmp_path: Path) -> None:
    """When tables and coordinator state were deleted, and the journal was not, the former one is moved aside."""
    run_inline(topology("one", tmp_path))
    shutil.rmtree(tmp_path / "one")
    for path in (tmp_path / "_txtopo").glob("coordinator.sqlite*"):
        path.unlink()
    run_inline(topology("one", tmp_path))
    parts = read_journal(find_journal(tmp_path / "_txtopo", "one"))
    assert [(part.header.epoch, part.header.committed) for part in parts] == [(1, 0)]
    assert len(list((tmp_path / "_txtopo").glob("journal.before-life-*"))) == 1


def test_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    """The run stops and says what to do; nothing of the group is committed."""
    header = JournalHeader("t", "life", 1, "repeatable", 0, None, {}, {})
    writer = JournalWriter(LocalFolder(tmp_path / "journal"), header, 1 << 20)
    (file,) = (tmp_path / "journal").iterdir()
    with no_file_larger_than(file.stat().st_size + 10), pytest.raises(StopError, match="Free some disk space"):
        writer.enter(JournalEntry({}, (JournalTransaction(1, 1, None, {}),)))
    assert read_journal(LocalFolder(tmp_path / "journal"))[0].entries == ()


def part(epoch: int, committed: int, *groups: tuple[int, int]) -> JournalPart:
    """The part of a coordinator that found ``committed`` committed, and entered some groups (first, last)."""
    header = JournalHeader("t", "life", epoch, "repeatable", committed, None, {}, {})
    transactions = [
        tuple(JournalTransaction(txid, epoch, None, {}) for txid in range(first, last + 1)) for first, last in groups
    ]
    return JournalPart(header, tuple(JournalEntry({}, each) for each in transactions))


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


def test_the_oldest_files_go_and_no_more_than_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest entries are kept, as many as fit; the header of what is left says all of what came before it."""
    monkeypatch.setattr(journal, "PART_BYTES_MAX", 1)  # each entry in a file of its own
    header = JournalHeader("t", "life", 1, "repeatable", 0, None, {}, {"words": None, "idle": None})
    writer = JournalWriter(LocalFolder(tmp_path / "journal"), header, 1500)
    for txid in range(1, 21):
        transaction = JournalTransaction(txid, 1, "m" * 100, {}, planned=Planned(1000 + txid, Turn.INPUT))
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
        planned=Planned(1000 + before, Turn.INPUT),
        states={"words": before, "idle": None},
        format=kept.header.format,
    )


def test_a_coordinator_removes_no_file_of_its_successors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that leads no more may not know yet, and its journal may be too large: it takes only from its own past."""
    monkeypatch.setattr(journal, "PART_BYTES_MAX", 1)
    header = JournalHeader("t", "life", 1, "repeatable", 0, None, {}, {})
    folder = LocalFolder(tmp_path)
    former, *_ = [JournalWriter(folder, attrs.evolve(header, epoch=epoch), 1) for epoch in (1, 2, 3)]
    for txid in (1, 2, 3):
        former.enter(JournalEntry({}, (JournalTransaction(txid, 1, None, {}),)))
    names = [file.path for file in journal_files(folder)]
    assert names == ["0000000001-000003.jsonl", "0000000002-000000.jsonl", "0000000003-000000.jsonl"]


@pytest.mark.parametrize("block_bytes", [1, 7, 64 * 1024])
def test_lines_are_read_backwards(tmp_path, monkeypatch, block_bytes):
    """Whatever their lengths and the blocks that are read, each whole line comes once, the last one first."""
    monkeypatch.setattr(journal_end, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "lines"
    for lines in ([], [b"one"], [b"one", b"", b"three" * 5], [b"x" * n for n in range(20)]):
        for cut_off in (b"", b"not whole"):
            path.write_bytes(b"header\n" + b"".join(line + b"\n" for line in lines) + cut_off)
            folder = LocalFolder(tmp_path)
            (file,) = folder.list()
            assert list(journal_end._lines_backwards(folder, file, len(b"header\n"))) == lines[::-1]
