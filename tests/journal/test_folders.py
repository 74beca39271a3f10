"""The folders of journals: each topology in a metadata directory has its own, and so has each incarnation of one."""

import shutil
from pathlib import Path

import attrs
import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaState, read_tables
from tests.acceptance.topologies import CountTuples
from tests.journals import HEADER, LATER_MS, enter, txids_in
from tests.topologies import committing
from txtopo import Config, Fields, Topology
from txtopo.errors import ConfigError, DivergenceError, StopError
from txtopo.files.folder import LocalFolder
from txtopo.files.places import folder_at
from txtopo.journal import folders
from txtopo.journal.backfills import set_backfills_aside
from txtopo.journal.folders import begin_journal, find_journal
from txtopo.journal.journal import read_journal
from txtopo.journal.search import JournalFiles
from txtopo.journal.writer import JournalWriter
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
        assert [transaction.txid for part in parts for e in part.entries for transaction in e.transactions] == [1, 2, 3]
        assert read_tables(tmp_path, topology=name).txid == 3


@pytest.mark.slow
@pytest.mark.parametrize("anew", ["one", "two"])
def test_a_topology_begun_anew_leaves_the_journals_of_others(command_line, tmp_path: Path, anew: str) -> None:
    """Names depend on no other topology: neither takes the other's place, and both are proved to the end."""
    command_line.write_module(
        "both",
        f"""
from pathlib import Path
from tests.journal.test_folders import topology as one_of
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
    assert folders.asides(folder_at(tmp_path / "_txtopo"), anew) == [1]
    assert folders.asides(folder_at(tmp_path / "_txtopo"), other) == []
    aside = tmp_path / "_txtopo" / "journal.before-repair-1" / anew
    assert txids_in(read_journal(LocalFolder(aside))) == [1, 2]


def test_what_old_repairs_have_set_aside_goes(tmp_path: Path) -> None:
    """That of the last ones stays, and that of other topologies."""
    for number in range(1, folders.ASIDES_MAX + 3):
        for name in ("one", "two") if number == 1 else ("one",):
            enter(
                JournalWriter(find_journal(folder_at(tmp_path), name), attrs.evolve(HEADER, topology=name), 1 << 20), 1
            )
            (tmp_path / "backfill" / name / "words").mkdir(parents=True)
            folders.set_aside(folder_at(tmp_path), name, number)
            set_backfills_aside(folder_at(tmp_path), name, None, number)
    assert sorted(folders.asides(folder_at(tmp_path), "one")) == list(range(3, folders.ASIDES_MAX + 3))
    assert folders.asides(folder_at(tmp_path), "two") == [1]
    assert len(list(tmp_path.glob("backfill.before-repair-*/one"))) == folders.ASIDES_MAX
    assert not (tmp_path / "journal.before-repair-2").exists()


@pytest.mark.slow
def test_dead_letters_of_two_topologies(tmp_path: Path) -> None:
    """By default both would be in one table: the second one is told which setting gives them another."""
    config = Config(transaction_max_attempts=2, transaction_max_attempts_policy="SKIP")
    run_inline(topology("one", tmp_path), config)
    with pytest.raises(
        DivergenceError, match=r"topology 'one'.*; else set topology\.dead\.letter\.path to another one"
    ):
        run_inline(topology("two", tmp_path), config)
    run_inline(topology("two", tmp_path), config.with_settings({"topology.dead.letter.path": str(tmp_path / "other")}))


@pytest.mark.slow
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


@pytest.mark.slow
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
    headers = {
        path.parent.name: [header for _, header in JournalFiles(LocalFolder(path)).complete_files()] for path in folders
    }
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
    assert [header.epoch for _, header in JournalFiles(begun).complete_files()] == [1, 2, 3]


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
