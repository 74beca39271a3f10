"""The journal: each topology in a folder has its own, and so has each incarnation of one."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaState, read_tables
from tests.acceptance.topologies import CountTuples
from tests.crashes import dying
from tests.full_disk import no_descriptor_left, no_file_larger_than
from tests.topologies import committing
from txtopo import Config, Fields, Topology
from txtopo.api.components.planned import Planned, Turn
from txtopo.errors import ConfigError, DivergenceError, LostLead, StopError
from txtopo.files.folder import LocalFolder
from txtopo.files.places import folder_at
from txtopo.journal import journal, search
from txtopo.journal.backfills import set_backfills_aside
from txtopo.journal.journal import (
    JournalEntry,
    JournalHeader,
    JournalPart,
    JournalTransaction,
    JournalWriter,
    begin_journal,
    counting_entries,
    find_journal,
    journal_files,
    read_journal,
)
from txtopo.journal.search import JournalFiles
from txtopo.testing.inline import run_inline


def topology(name: str, output: Path) -> Topology:
    spout = MemoryTransactionalSpout({0: [["a"], ["b"], ["c"]]}, Fields("word"), 1)
    total = DeltaState(output / name, key=Fields("name: string"), value=Fields("n: long"))
    return committing(spout, CountTuples(), topology_id=name, total=total)


@pytest.mark.slow
def test_two_topologies_in_one_folder(tmp_path: Path) -> None:
    """Each has a journal of its own, whichever ran first."""
    for name in ("one", "two", "one", "two"):
        run_inline(topology(name, tmp_path))
    for name in ("one", "two"):
        parts = read_journal(find_journal(folder_at(tmp_path / "_txtopo"), name))
        assert [part.header.topology for part in parts] == [name, name]
        assert [each.txid for part in parts for e in part.entries for each in e.transactions] == [1, 2, 3]
        assert read_tables(tmp_path, topology=name).txid == 3


def txids_in(parts: list[JournalPart]) -> list[int]:
    return [each.txid for part in parts for entry in part.entries for each in entry.transactions]


@pytest.mark.slow
@pytest.mark.parametrize("anew", ["one", "two"])
def test_a_topology_begun_anew_leaves_the_journals_of_others(command_line, tmp_path: Path, anew: str) -> None:
    """Names depend on no other topology: neither takes the other's place, and both are proved to the end."""
    command_line.write_module(
        "both",
        f"""
from pathlib import Path
from tests.journal.test_journal import topology as one_of
def topology(name: str):
    return one_of(name, Path({str(tmp_path)!r}))
""",
    )
    other = "two" if anew == "one" else "one"
    for name in ("one", "two"):
        run_inline(topology(name, tmp_path), until=2)
    command_line.told("repair", "both", "--start-anew", "--yes", "--set", f"name={anew}")
    for name in (other, anew):
        run_inline(topology(name, tmp_path))
        assert txids_in(read_journal(find_journal(folder_at(tmp_path / "_txtopo"), name))) == [1, 2, 3]
        assert "3 transactions, 1 to 3, each once" in command_line.told("audit", ".", "--topology", name)
    assert journal.asides(folder_at(tmp_path / "_txtopo"), anew) == [1]
    assert journal.asides(folder_at(tmp_path / "_txtopo"), other) == []
    aside = tmp_path / "_txtopo" / "journal.before-repair-1" / anew
    assert txids_in(read_journal(LocalFolder(aside))) == [1, 2]


def test_what_old_repairs_have_set_aside_goes(tmp_path: Path) -> None:
    """That of the last ones stays, and that of other topologies."""
    for number in range(1, journal.ASIDES_MAX + 3):
        for name in ("one", "two") if number == 1 else ("one",):
            enter(
                JournalWriter(find_journal(folder_at(tmp_path), name), attrs.evolve(HEADER, topology=name), 1 << 20), 1
            )
            (tmp_path / "backfill" / name / "words").mkdir(parents=True)
            journal.set_aside(folder_at(tmp_path), name, number)
            set_backfills_aside(folder_at(tmp_path), name, None, number)
    assert sorted(journal.asides(folder_at(tmp_path), "one")) == list(range(3, journal.ASIDES_MAX + 3))
    assert journal.asides(folder_at(tmp_path), "two") == [1]
    assert len(list(tmp_path.glob("backfill.before-repair-*/one"))) == journal.ASIDES_MAX
    assert not (tmp_path / "journal.before-repair-2").exists()


def test_racing_first_starts(tmp_path: Path) -> None:
    """A second coordinator of the same epoch, of another store, replaces nothing of the first one's."""
    header = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, {}, {})
    writer = JournalWriter(LocalFolder(tmp_path), header, 1 << 20)
    writer.enter(JournalEntry({}, (JournalTransaction(1, 1, None, {}),)))
    with pytest.raises(StopError, match="another coordinator has epoch 1"):
        JournalWriter(LocalFolder(tmp_path), header, 1 << 20)
    writer.enter(JournalEntry({}, (JournalTransaction(2, 1, None, {}),)))
    assert txids_in(read_journal(LocalFolder(tmp_path))) == [1, 2]


def test_dead_letters_of_two_topologies(tmp_path: Path) -> None:
    """By default both would be in one table: the second one is told which setting gives them another."""
    config = Config(transaction_max_attempts=2, transaction_max_attempts_policy="SKIP")
    run_inline(topology("one", tmp_path), config)
    with pytest.raises(
        DivergenceError, match=r"topology 'one'.*; else set topology\.dead\.letter\.path to another one"
    ):
        run_inline(topology("two", tmp_path), config)
    run_inline(topology("two", tmp_path), config.with_settings({"topology.dead.letter.path": str(tmp_path / "other")}))


def test_readers_say_which_topology(command_line, tmp_path: Path) -> None:
    """Where a folder has the tables of several, none is chosen by chance."""
    (tmp_path / "a").mkdir()
    for name, until in (("one", 1), ("two", 2)):
        run_inline(topology(name, tmp_path / "a"), until=until)
    run_inline(topology("one", tmp_path / "b"), until=2)
    with pytest.raises(ConfigError, match=r"several topologies: 'one', 'two'; choose one .* topology="):
        read_tables(tmp_path / "a")
    with pytest.raises(ConfigError, match="no record of a topology 'six'; it has records of 'one', 'two'"):
        read_tables(tmp_path / "a", topology="six")
    assert [read_tables(tmp_path / "a", topology=name).txid for name in ("one", "two")] == [1, 2]
    for words in (("state", "a", "--consistent"), ("diff", "a", "b"), ("audit", "a"), ("explain", "a", "1")):
        assert "several topologies: 'one', 'two'; choose one with --topology" in command_line(*words).output
    assert "as of transaction 2" in command_line.told("state", "a", "--consistent", "--topology", "two")
    assert "the same" in command_line.told("diff", "a", "b", "--topology", "one")
    beside = command_line.told("diff", "a", "a", "--topology", "one", "--topology", "two")
    assert "A, a, is at transaction 1; B, a, at 2" in beside


def test_a_new_incarnation_begins_a_new_journal(tmp_path: Path) -> None:
    """When tables and coordinator state were deleted, and the journal was not, the former one is moved aside."""
    run_inline(topology("one", tmp_path))
    shutil.rmtree(tmp_path / "one")
    for path in (tmp_path / "_txtopo").glob("coordinator.sqlite*"):
        path.unlink()
    run_inline(topology("one", tmp_path))
    parts = read_journal(find_journal(folder_at(tmp_path / "_txtopo"), "one"))
    assert [(part.header.epoch, part.header.committed) for part in parts] == [(1, 0)]
    assert len(list((tmp_path / "_txtopo").glob("journal.before-incarnation-*"))) == 1


def lives(metadata_dir: Path) -> dict[str, list[tuple[str, int]]]:
    """Return by the name of each folder of journals, incarnation and epoch of each file of the topology's."""
    folders = sorted(metadata_dir.glob("journal*/t"))
    headers = {path.parent.name: [header for _, header in JournalFiles(LocalFolder(path)).known()] for path in folders}
    return {name: [(each.incarnation, each.epoch) for each in own] for name, own in headers.items()}


def test_a_file_of_an_earlier_incarnation_with_a_higher_epoch(tmp_path: Path) -> None:
    """It goes aside alone, whoever has left it: the journal that has begun since stays, and goes on."""
    folder = find_journal(folder_at(tmp_path), "t")
    for life, epoch in (("former", 6), ("former", 7), ("new", 1)):
        JournalWriter(folder, attrs.evolve(HEADER, incarnation=life, epoch=epoch), 1 << 20)
    (tmp_path / "journal" / "t" / "0000000008-000000.jsonl").write_bytes(b"not whole")
    for epoch in (2, 3):
        begun = begin_journal(folder_at(tmp_path), "t", "new")
        JournalWriter(begun, attrs.evolve(HEADER, incarnation="new", epoch=epoch), 1 << 20)
    assert lives(tmp_path) == {
        "journal": [("new", 1), ("new", 2), ("new", 3)],
        "journal.before-incarnation-new": [("former", 6), ("former", 7)],
    }
    assert [header.epoch for _, header in JournalFiles(begun).known()] == [1, 2, 3]


def test_a_coordinator_whose_journal_was_moved_begins_no_file(tmp_path: Path) -> None:
    """It would be the newest of the journal of another incarnation, whose epochs have begun again."""
    former = JournalWriter(
        find_journal(folder_at(tmp_path), "t"), attrs.evolve(HEADER, incarnation="former", epoch=7), 1 << 20
    )
    enter(former, 1)
    former.end_part()
    JournalWriter(begin_journal(folder_at(tmp_path), "t", "new"), attrs.evolve(HEADER, incarnation="new"), 1 << 20)
    with pytest.raises(StopError, match="was removed or replaced"):
        enter(former, 2)
    assert lives(tmp_path)["journal"] == [("new", 1)]


@pytest.mark.parametrize("life", ["life", "new"])
def test_a_start_beside_a_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, life: str) -> None:
    """A coordinator that does not know yet that it leads no more removes files that the start has listed."""
    folder = find_journal(folder_at(tmp_path), "t")
    former = JournalWriter(folder, HEADER, 1 << 20)
    for txid in range(1, 6):
        enter(former, txid)
        former.end_part()
    get_range, read = LocalFolder.get_range, []

    def beside(own, path, start, length):
        read.append(path)
        if len(read) == 2:
            former.keep_after(3, LATER_MS, lambda: None)
        return get_range(own, path, start, length)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFolder, "get_range", beside)
        begun = begin_journal(folder_at(tmp_path), "t", life)
    started = JournalWriter(begun, attrs.evolve(HEADER, incarnation=life, epoch=2, committed=5), 1 << 20)
    enter(started, 6)
    assert txids_in(read_journal(folder)) == ([6] if life == "new" else [4, 5, 6])


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


def part(epoch: int, committed: int, *groups: tuple[int, int]) -> JournalPart:
    """The part of a coordinator that found ``committed`` committed, and entered some groups (first, last)."""
    header = JournalHeader("t", "life", epoch, {"spout": "repeatable"}, committed, None, {}, {})
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


def test_the_oldest_files_go_and_no_more_than_needed(tmp_path: Path) -> None:
    """The newest entries are kept, as many as fit; the header of what is left says all of what came before it."""
    header = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, {}, {"words": None, "idle": None})
    writer = JournalWriter(
        LocalFolder(tmp_path / "journal"), header, 1500, part_bytes_max=1
    )  # each entry in a file of its own
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


LATER_MS = 1
HEADER = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, {}, {})


def enter(writer: JournalWriter, *txids: int) -> None:
    for txid in txids:
        writer.enter(JournalEntry({}, (JournalTransaction(txid, 1, None, {}),)))


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


def test_a_coordinator_removes_no_file_of_its_successors(tmp_path: Path) -> None:
    """One that leads no more may not know yet, and its journal may be too large: it takes only from its own past."""
    header = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, {}, {})
    folder = LocalFolder(tmp_path)
    former, *_ = [JournalWriter(folder, attrs.evolve(header, epoch=epoch), 1, part_bytes_max=1) for epoch in (1, 2, 3)]
    for txid in (1, 2, 3):
        former.enter(JournalEntry({}, (JournalTransaction(txid, 1, None, {}),)))
    names = [file.path for file in journal_files(folder)]
    assert names == ["0000000001-000003.jsonl", "0000000002-000000.jsonl", "0000000003-000000.jsonl"]


@pytest.mark.parametrize("block_bytes", [1, 7, 64 * 1024])
def test_lines_are_read_backwards(tmp_path, monkeypatch, block_bytes):
    """Whatever their lengths and the blocks that are read, each whole line comes once, the last one first."""
    monkeypatch.setattr(search, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "lines"
    for lines in ([], [b"one"], [b"one", b"", b"three" * 5], [b"x" * n for n in range(20)]):
        for cut_off in (b"", b"not whole"):
            path.write_bytes(b"header\n" + b"".join(line + b"\n" for line in lines) + cut_off)
            folder = LocalFolder(tmp_path)
            (file,) = folder.list()
            assert list(search.lines_backwards(folder, file, len(b"header\n"), file.size)) == lines[::-1]
