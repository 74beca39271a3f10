"""Promise 12: coordinator state and tables that do not belong together are refused, and repaired."""

import contextlib
import json
import pathlib
import shutil
from urllib.parse import unquote

import attrs
import pytest
from deltalake import DeltaTable

from committers import Count, ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaState, MemoryState, MemoryStore, SqliteStore, TransactionalValue, read_table
from state.delta.upkeep.rounds import LogUpkeep
from tests.acceptance.topologies import counts_of
from tests.bolts import Collecting
from tests.crashes import dying
from tests.journals import opened_journal
from tests.topologies import committing
from tests.transactional.recovery.divergences import DATA, TRANSACTIONS, Place, keep_notes_beside
from txtopo import Config, Fields, TransactionalTopology, TransactionalTopologyBuilder
from txtopo.api.store import Delete, Put
from txtopo.errors import DivergenceError, LostLead, TxtopoError
from txtopo.journal.journal import read_journal
from txtopo.testing.inline import run_inline
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, Group, StateMark
from txtopo.transactional.recovery.divergence import CoordinatorRecord, DivergenceKind, find_mismatched, find_refolded
from txtopo.transactional.recovery.plans import StartAnew
from txtopo.transactional.recovery.recover import recover

WAY_OUT = "txtopo repair"


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    return Place(tmp_path)


def refused(place: Place, *says: str, way_out: str = WAY_OUT) -> None:
    """Check that a run is refused, twice, in these words, and that nothing was changed by it."""
    before = place.seen()
    for _ in range(2):
        with pytest.raises(DivergenceError) as refusal:
            place.run()
        for words in (*says, way_out):
            assert words in str(refusal.value)
        assert place.seen() == before


# Coordinator state


@pytest.mark.slow
def test_a_wiped_store_is_made_anew_from_the_journal(place):
    """Without coordinator state the tables' transactions would count twice; the journal knows how far they are."""
    place.run(3)
    place.wipe_store()
    refused(place, "is at transaction 3", "no coordinator state (it is at transaction 0)", "'words'", "'total'")
    diagnosis = place.repair()
    assert (diagnosis.is_safe, diagnosis.go_to.txid, diagnosis.rolled_back) == (True, 3, ())
    place.finish(TRANSACTIONS - 3)


@pytest.mark.slow
def test_attempts_rise_over_a_wiped_store(place):
    """The store made anew begins above every epoch that a table has seen, so attempts rise, too."""
    for txid in (1, 2, 3):
        place.run(txid)
    epoch = max(table.describe().epoch for table in place.subject().tables().values())
    place.wipe_store()
    place.repair()
    assert min(table.describe().epoch for table in place.subject().tables().values()) > epoch
    place.finish()


@pytest.mark.slow
def test_an_older_store_is_refused_and_brought_up_to_the_journal(place):
    """A store that was restored is behind the tables; what the journal knows since is not run again."""
    place.run(2)
    place.back_up("_txtopo")
    place.run(4)
    place.restore_store()
    refused(place, "is at transaction 4, ahead of", "coordinator state is at transaction 2", "last write at 2")
    diagnosis = place.repair()
    assert (diagnosis.is_safe, diagnosis.go_to.txid) == (True, 4)
    place.finish(TRANSACTIONS - 4)


@pytest.mark.slow
def test_a_store_older_by_epochs_only_is_no_lost_lead(place):
    """Where the store is older and no transaction is missing, the epochs tell; nobody else leads, and it says so."""
    place.run(3)
    place.back_up("_txtopo")
    for _ in range(4):
        place.run(3)
    place.restore_store()
    refused(place, "is at transaction 3", "coordinator state is at transaction 3", "epoch 5 has opened it")
    diagnosis = place.repair()
    assert (diagnosis.is_safe, diagnosis.go_to.is_as_it_is) == (True, True)
    place.finish()


@pytest.mark.slow
def test_a_store_restored_from_exactly_one_lead_earlier(place):
    """The next lead would have the very epoch that has opened the tables last; it is refused before it opens them."""
    place.run(3)
    place.back_up("_txtopo")
    place.run(3)
    place.restore_store()
    before = place.seen()
    with pytest.raises(DivergenceError, match="epoch 2 has opened it, but the coordinator state is at epoch 1"):
        place.run()
    assert place.seen() == before
    place.repair()
    place.finish()


@pytest.mark.slow
def test_store_and_journal_restored_together(place):
    """If nothing tells what the tables hold beyond the store, they are rolled back, which is asked for."""
    place.run(2)
    place.back_up("_txtopo")
    place.run(4)
    as_of_2 = place.words_as_of(2)
    place.restore("_txtopo")
    refused(place, "is at transaction 4, ahead of", "last write at 2")
    diagnosis = place.repair()
    assert (diagnosis.is_safe, diagnosis.go_to.txid, diagnosis.rolled_back) == (False, 2, ("words", "total"))
    assert place.txids() == {"words": 2, "total": 2}
    assert place.words_as_of(2) == as_of_2
    place.finish(TRANSACTIONS - 2)


@pytest.mark.slow
def test_store_and_journal_wiped(place):
    """Without a journal nothing is guessed: what is missing is named, and starting anew keeps the old tables."""
    place.run(3)
    rows = place.words_as_of(3)
    shutil.rmtree(place.metadata_dir)
    refused(place, "transaction 3", "transaction 0")
    diagnosis = place.diagnosis()
    assert (diagnosis.go_to, diagnosis.journal_txid, diagnosis.anew) == (None, None, StartAnew(1))
    place.repair(lambda diagnosis: diagnosis.anew)
    place.finish(TRANSACTIONS)
    aside = read_table(place.folder / "words.before-repair-1").to_pylist()
    assert sorted(aside, key=lambda row: row["word"]) == rows


@pytest.mark.slow
def test_a_store_wiped_before_the_first_transaction(place):
    """Tables that nothing was written to need no journal."""
    place.run(0)
    shutil.rmtree(place.metadata_dir)
    refused(place, "is at transaction 0", "no coordinator state")
    assert place.repair().is_safe
    place.finish()


@pytest.mark.slow
def test_coordinator_state_of_another_life(place):
    """Coordinator state that was begun anew with other tables does not take the old ones for its own."""
    place.run(4)
    place.back_up("words", "total", "_txtopo")
    for name in ("words", "total", "_txtopo"):
        shutil.rmtree(place.folder / name)
    place.run(2)
    place.restore("words", "total")
    refused(
        place,
        "is at transaction 4 and belongs to incarnation",
        "coordinator state is at transaction 2",
        "in incarnation",
    )
    assert place.diagnosis().go_to is None
    shutil.rmtree(place.metadata_dir / "journal")
    shutil.copytree(place.folder / "backup" / "_txtopo" / "journal", place.metadata_dir / "journal")
    diagnosis = place.repair()
    assert (diagnosis.go_to.txid, diagnosis.is_safe) == (4, False), "the other life is given up: that is asked for"
    place.finish()


@pytest.mark.slow
def test_a_topology_begun_anew_by_hand(place):
    """Who removes tables and coordinator state, and leaves the journal, begins anew; the journals do not mix."""
    place.run(3)
    place.wipe_store()
    for name in ("words", "total"):
        shutil.rmtree(place.folder / name)
    place.run(2)
    assert len({part.header.incarnation for part in read_journal(opened_journal(place.folder))}) == 1
    place.wipe_store()
    assert (place.diagnosis().is_safe, place.repair().go_to.txid) == (True, 2)
    place.finish()


@pytest.mark.slow
def test_missing_metadata_is_begun_anew(place):
    """Metadata of begun transactions that is damaged stops the run; what was never committed is begun anew."""
    place.run(3)
    place.crash("group.decide.before")
    store = SqliteStore(place.store)
    lead = store.take_lead("words", "a clumsy hand")
    lead.write([Delete(f"words/metadata/{store.children('words/metadata')[0]}")])
    store.close()
    with pytest.raises(DivergenceError, match="metadata of transaction 4 is missing"):
        place.run()
    diagnosis = place.repair()
    assert (diagnosis.is_safe, diagnosis.go_to.txid) == (True, 3)
    place.finish()


# Tables


@pytest.mark.slow
def test_a_removed_table(place):
    """A table that was removed is missed, not begun anew; repair can only have it brought back, or start anew."""
    place.run(3)
    place.back_up("words")
    shutil.rmtree(place.folder / "words")
    refused(place, "'words'", "is gone", "transaction 0", "coordinator state is at transaction 3", "last write at 3")
    assert not (place.folder / "words").exists()
    diagnosis = place.diagnosis()
    assert diagnosis.go_to is None
    assert any("'words', which had transaction 3, is gone" in obstacle for obstacle in diagnosis.obstacles)
    shutil.copytree(place.folder / "backup" / "words", place.folder / "words")
    place.finish()


@pytest.mark.slow
def test_starting_anew_after_a_table_is_lost(place):
    """What is left of the tables is moved aside, and all input is counted again."""
    place.run(3)
    shutil.rmtree(place.folder / "words")
    place.repair(lambda diagnosis: diagnosis.anew)
    assert not (place.folder / "total").exists()
    place.finish(TRANSACTIONS)
    assert read_table(place.folder / "total.before-repair-1")["txid"].to_pylist() == [3]
    assert any((place.metadata_dir / "journal.before-repair-1").glob("*/*.jsonl"))


@pytest.mark.slow
def test_a_table_restored_to_an_earlier_moment(place):
    """One table is behind: the others are rolled back to it, and the transactions since run again."""
    place.run(2)
    place.back_up("words")
    place.run(4)
    place.restore("words")
    refused(place, "is at transaction 2, behind", "coordinator state is at transaction 4", "last write at 4")
    diagnosis = place.repair()
    assert (diagnosis.is_safe, diagnosis.go_to.txid, diagnosis.rolled_back) == (False, 2, ("total",))
    place.finish(TRANSACTIONS - 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tool", ["append", *(pytest.param(tool, marks=pytest.mark.slow) for tool in ("update", "delete", "restore"))]
)
def test_what_somebody_else_wrote_between_two_runs(place, tool):
    """A version of somebody else's is seen at the start, whatever made it, also one that equals an older one."""
    place.run(4)
    table = DeltaTable(place.folder / "words")
    match tool:
        case "append":
            place.append_word()
        case "update":
            table.update({"n": "n + 1"})
        case "delete":
            table.delete("n > 1")
        case "restore":
            table.restore(table.version() - 1)
    operation = "WRITE" if tool == "append" else tool.upper()
    version = DeltaTable(place.folder / "words").version()
    refused(
        place,
        f"{operation} made version {version}",
        "is at transaction 4",
        "coordinator state is at transaction 4",
        "--accept-foreign-writes",
    )
    diagnosis = place.repair()
    assert (diagnosis.is_safe, diagnosis.rolled_back, diagnosis.go_to.is_as_it_is) == (False, ("words",), True)
    place.finish(TRANSACTIONS - 4)


@pytest.mark.slow
def test_what_somebody_else_wrote_is_accepted(place):
    """Accepted rows stay, and a later start does not complain of them."""
    place.run(4)
    place.append_word("intruder", 1000)
    place.repair(lambda diagnosis: diagnosis.adopt)
    for until in (4, 5, None):
        place.run(until)
    counts = {row["word"]: row["n"] for row in read_table(place.folder / "words").to_pylist()}
    assert counts == counts_of(DATA) | {"intruder": 1000}


@pytest.mark.slow
def test_what_was_accepted_is_not_rolled_back(place):
    """Rolling back to the transaction that rows were accepted after keeps them."""
    place.run(4)
    place.append_word("intruder", 1000)
    place.repair(lambda diagnosis: diagnosis.adopt)
    place.run(5)
    place.append_word("second", 1)
    place.repair()
    place.run()
    counts = {row["word"]: row["n"] for row in read_table(place.folder / "words").to_pylist()}
    assert counts == counts_of(DATA) | {"intruder": 1000}


@pytest.mark.slow
def test_upkeep_by_somebody_else_is_harmless(place):
    """Versions that change no row are no divergence."""
    place.run(4)
    table = DeltaTable(place.folder / "words")
    table.optimize.compact()
    table.vacuum(24 * 7, dry_run=False)
    place.finish()


@pytest.mark.slow
def test_a_table_restored_without_a_transaction_missing(place):
    """A copy that lacks upkeep alone holds the same rows: nothing is wrong with it."""
    place.run(4)
    place.back_up("words")
    for _ in range(3):
        place.run(4)
    place.run(5)
    place.back_up("total")
    place.run(5)
    place.restore("total")
    place.finish()


@pytest.mark.slow
def test_a_change_below_a_newer_version_of_upkeep(place):
    """A foreign version is seen wherever it stands among harmless ones."""
    place.run(4)
    place.append_word()
    DeltaTable(place.folder / "words").optimize.compact()
    DeltaTable(place.folder / "words").vacuum(24 * 7, dry_run=False)
    refused(place, "WRITE made version", "transaction 4")
    place.repair()
    place.finish()


@pytest.mark.slow
def test_a_table_of_another_topology(place):
    """It is refused by name, is not moved by any repair, and the way out is another path."""
    place.run(3)
    shutil.rmtree(place.folder / "words")
    other = DeltaState(place.folder / "words", Fields("word: string"), Fields("n: long"))
    opened = other.open("another", "words", "its-life", 1)
    opened.write(7, {"a": TransactionalValue(7, 1)})
    says = ("topology 'another'", "is at transaction 7", "coordinator state is at transaction 3", "another path")
    refused(place, *says, way_out="txtopo rename")
    diagnosis = place.diagnosis()
    assert (diagnosis.go_to, diagnosis.anew, diagnosis.adopt) == (None, None, None)


@pytest.mark.slow
def test_one_cause_is_one_sentence(place, tmp_path):
    """Of two tables: a topology that was renamed, and a store that is forgotten, which the last run has named."""
    place.run(3)
    topology = place.topology()
    renamed = TransactionalTopology(attrs.evolve(topology.plan, topology_id="other"))
    with pytest.raises(
        DivergenceError, match=r"^states 'words' and 'total': .* topology 'words', not to 'other'\."
    ) as error:
        run_inline(renamed)
    assert str(error.value).count("topology 'words'") == 1
    shutil.move(place.store, tmp_path / "kept")
    with pytest.raises(DivergenceError, match=r"^states 'words' and 'total': ") as error:
        place.run()
    assert str(error.value).count("it was wiped") == 1
    assert f"the last run has kept it in {place.store}" in str(error.value)


@pytest.mark.slow
def test_a_table_of_another_life(place):
    """A table of the same topology, of an incarnation that ended, is refused with both txids."""
    place.run(4)
    place.back_up("words")
    place.repair(lambda diagnosis: diagnosis.anew)
    place.run(2)
    place.restore("words")
    refused(place, "is at transaction 4 and belongs to incarnation", "coordinator state is at transaction 2")
    assert place.diagnosis().go_to is None
    place.repair(lambda diagnosis: diagnosis.anew)
    place.finish()


@pytest.mark.slow
def test_something_else_in_place_of_a_table(place):
    """What txtopo did not make is told from a table, and both sides' txids are told."""
    place.run(3)
    shutil.rmtree(place.folder / "words")
    (place.folder / "words").mkdir()
    (place.folder / "words" / "letter.txt").write_text("dear")
    refused(place, "letter.txt", "coordinator state is at transaction 3")
    assert place.diagnosis().anew is None


def test_a_folder_of_others_at_the_first_start(place):
    """Nothing was lost there: a newcomer is told of the folder, and not of coordinator state to restore."""
    (place.folder / "words").mkdir()
    (place.folder / "words" / "letter.txt").write_text("dear")
    with pytest.raises(DivergenceError) as refusal:
        place.run()
    assert str(refusal.value) == (
        f"state 'words' of topology 'words': {place.folder}/words is not a Delta table, and it is not empty: it contains "
        "letter.txt. Give the state another path; or, if the table is no longer needed, remove it; or, if it belongs to "
        "coordinator state that was lost, restore that, or try 'txtopo repair'. Nothing was written."
    )


@pytest.mark.slow
def test_what_was_vacuumed_is_not_promised(place):
    """If the version to go back to is gone, repair says so and changes nothing."""
    place.run(2)
    place.back_up("words")
    place.run(4)
    place.restore("words")
    newest = {unquote(uri) for uri in DeltaTable(place.folder / "total").file_uris()}
    for file in (place.folder / "total" / "_data").iterdir():
        if not any(uri.endswith(file.name) for uri in newest):
            file.unlink()
    before = place.seen()
    diagnosis = place.diagnosis()
    assert diagnosis.go_to is None
    assert any("vacuumed" in obstacle and "'total'" in obstacle for obstacle in diagnosis.obstacles)
    assert place.seen() == before


@pytest.mark.slow
def test_a_table_declared_otherwise_before_its_first_transaction(tmp_path):
    """Its folder may be removed: the error says so, and the next run makes it anew."""

    def run(kind):
        spout = MemoryTransactionalSpout(DATA, Fields("word"), 4)
        table = DeltaState(tmp_path / "total", Fields(f"word: {kind}"), Fields("n: long"))
        committer = ReduceCommitter("total", "word", values={"n": Count()})
        return run_inline(committing(spout, committer, topology_id="words", total=table))

    with pytest.raises(TxtopoError, match="does not fit"):
        run("long")
    with pytest.raises(DivergenceError, match="remove its folder"):
        run("string")
    shutil.rmtree(tmp_path / "total")
    assert run("string").transactions == TRANSACTIONS


def run_at(root: pathlib.Path, first: str, second: str, *, until: int = 4, kind: str = "string") -> None:
    """Run a topology with two tables at some paths below a folder; the second has a key of a type."""
    builder = TransactionalTopologyBuilder("words", "spout", MemoryTransactionalSpout(DATA, Fields("word"), 4))
    for name, path, key in (("first", first, "string"), ("second", second, kind)):
        committer = ReduceCommitter(name, "word", values={"n": Count()})
        builder.set_committer_bolt(f"count-{name}", committer).global_grouping("spout")
        builder.set_state(name, DeltaState(root / path, Fields(f"word: {key}"), Fields("n: long")))
    run_inline(builder.build(), until=until)


@pytest.mark.slow
def test_a_table_at_another_path(tmp_path):
    """It goes on if the table is moved there; the refusal says so; the first one goes with the coordinator state."""
    run_at(tmp_path, "one", "two", until=2)
    with pytest.raises(DivergenceError, match="elsewhere if the state's path has changed: then move it here"):
        run_at(tmp_path, "one", "new/two")
    (tmp_path / "new").mkdir()
    (tmp_path / "two").rename(tmp_path / "new" / "two")
    run_at(tmp_path, "one", "new/two", until=3)
    (tmp_path / "one").rename(tmp_path / "new" / "one")
    with pytest.raises(DivergenceError, match=r"than beside the first table or in topology\.state\.dir"):
        run_at(tmp_path, "new/one", "new/two")
    shutil.rmtree(tmp_path / "new" / "_txtopo", ignore_errors=True)
    (tmp_path / "_txtopo").rename(tmp_path / "new" / "_txtopo")
    run_at(tmp_path, "new/one", "new/two", until=4)
    assert [max(read_table(tmp_path / "new" / name)["txid"].to_pylist()) for name in ("one", "two")] == [4, 4]


@pytest.mark.slow
def test_a_table_declared_otherwise(tmp_path):
    """The way out is another name and another path: another path alone is refused, too."""
    run_at(tmp_path, "one", "two", until=2)
    with pytest.raises(DivergenceError, match="Declare the state as it was, or give it another name and another path"):
        run_at(tmp_path, "one", "two", kind="binary")
    with pytest.raises(DivergenceError, match=r"'second' .* is gone, or elsewhere"):
        run_at(tmp_path, "one", "new", kind="binary")


# During a run


class Interfering(Collecting):
    """Counts, and writes to its own table behind txtopo's back, once."""

    def __init__(self, path, *, reads):
        super().__init__()
        self.path = path
        self.reads = reads

    def finish_batch(self):
        if self.attempt.txid == 3 and DeltaTable(self.path).history(1)[0]["operation"] != "DELETE":
            DeltaTable(self.path).delete("n < 0 OR n > 0")
        for word in self.words:
            if self.reads:
                self.state.update(word, lambda old: (old or 0) + 1)
            else:
                self.state.put(word, self.attempt.txid)


@pytest.mark.slow
@pytest.mark.parametrize("reads", [True, False], ids=["read", "only written"])
def test_a_write_of_somebody_else_during_a_run(tmp_path, reads):
    """It is refused at the next write of the table, values read or not, and at each start until it is repaired."""

    def run(until=None):
        spout = MemoryTransactionalSpout(DATA, Fields("word"), 4)
        words = DeltaState(tmp_path / "words", Fields("word: string"), Fields("n: long"))
        bolt = Interfering(tmp_path / "words", reads=reads)
        run_inline(
            committing(spout, bolt, topology_id="busy", words=words), Config(group_transactions_max=1), until=until
        )

    with pytest.raises(DivergenceError) as refusal:
        run()
    for words in (
        "DELETE made version",
        "last transaction, 2",
        "nothing of transaction 3",
        "is at transaction 2",
        WAY_OUT,
    ):
        assert words in str(refusal.value)
    assert DeltaTable(tmp_path / "words").transaction_version("busy/words") == 2
    says = r"is at transaction 2.*DELETE made version.*at transaction 2, has decided those up to 3"
    with pytest.raises(DivergenceError, match=says):
        run()


# Crashes


@pytest.mark.slow
def test_a_crash_between_two_tables_is_no_divergence(place):
    """The decided group is finished from what was prepared for the tables that lack it."""
    place.run(3)
    place.crash("table.write.after")
    assert sorted(place.txids().values()) == [3, 4]
    assert place.diagnosis().is_sound
    place.run(4)
    assert sorted(place.txids().values()) == [4, 4]
    place.run()
    place.check_totals()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "group.commit.before",
        pytest.param("group.commit.after", marks=pytest.mark.slow),
        pytest.param("table.open.after", marks=pytest.mark.slow),
        pytest.param("group.decide.after", marks=pytest.mark.slow),
    ],
)
def test_a_crash_round_a_write_is_no_divergence(place, name):
    """A write that landed without its mark, and markers without writes, are our own."""
    place.run(3)
    for _ in range(3):
        place.crash(name)
        assert place.diagnosis().is_sound
    place.finish()


@pytest.mark.slow
def test_a_prepared_write_that_is_gone(place):
    """A group that can't be finished is rolled back and run again."""
    place.run(3)
    place.crash("table.write.after")
    (behind,) = (name for name, txid in place.txids().items() if txid == 3)
    newest = max((place.folder / behind / "_data").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()
    refused(place, "is at transaction 3", "4 can't be finished from", "gone", "coordinator state is at transaction 3")
    diagnosis = place.repair()
    assert (diagnosis.is_safe, diagnosis.go_to.txid, len(diagnosis.rolled_back)) == (False, 3, 1)
    place.finish()


@pytest.mark.slow
def test_a_note_whose_file_is_gone(place, monkeypatch):
    """So is a group whose note was too large for the store, and is lost."""
    keep_notes_beside(monkeypatch)
    place.run(3)
    place.crash("table.write.after")
    (note,) = place.folder.glob("*/_data/note-*")
    note.unlink()
    with pytest.raises(
        DivergenceError, match=r"the group of transaction 4 .* is decided, but the note .* can't be read"
    ):
        place.run()
    diagnosis = place.repair()
    assert (diagnosis.is_safe, diagnosis.go_to.txid, len(diagnosis.rolled_back)) == (False, 3, 1)
    place.finish()


@pytest.mark.slow
def test_a_foreign_write_beside_a_group_under_way(place):
    """What somebody else wrote is taken back, and the group is finished by the next run."""
    place.run(3)
    place.crash("table.write.after")
    place.append_word()
    refused(place, "WRITE made version", "coordinator state is at transaction 3")
    diagnosis = place.repair()
    assert (diagnosis.rolled_back, diagnosis.go_to.is_as_it_is) == (("words",), True)
    assert place.diagnosis().is_sound
    place.finish()


@pytest.mark.slow
def test_a_store_wiped_while_a_group_is_under_way(place):
    """A group that the journal can't count, for one table has not got so far, is rolled back and run again."""
    place.run(3)
    place.crash("table.write.after")
    place.wipe_store()
    diagnosis = place.repair()
    assert (diagnosis.is_safe, diagnosis.go_to.txid, len(diagnosis.rolled_back)) == (False, 3, 1)
    place.finish()


STEPS = [f"repair.{step}.{side}" for step in ("begin", "table", "journal", "end") for side in ("before", "after")]


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("remedy", ["go_to", "anew"])
def test_a_repair_that_was_cut_short_is_finished_by_the_next(place, name, remedy):
    """Wherever it is cut, no run begins in between, or all is as before or as after it; the next one finishes it."""
    place.run(2)
    place.back_up("words")
    place.run(4)
    place.restore("words")
    with dying(name):
        place.repair(lambda diagnosis: getattr(diagnosis, remedy))
    if name not in {"repair.begin.before", "repair.end.after"}:
        refused(place, "was interrupted")
    diagnosis = place.diagnosis()
    if diagnosis.unfinished is not None:
        place.repair(lambda diagnosis: diagnosis.unfinished)
    elif not diagnosis.is_sound:
        place.repair(lambda diagnosis: getattr(diagnosis, remedy))
    place.finish()


@pytest.mark.slow
@pytest.mark.parametrize("remedy", ["go_to", "adopt"])
def test_a_repair_that_fails_closes_its_tables(place, remedy, monkeypatch):
    """Each opened table is closed, so that no thread of its upkeep is left behind."""
    place.run(4)
    place.append_word()
    closed = []

    def close(upkeep):
        closed.append(upkeep)

    monkeypatch.setattr(LogUpkeep, "close", close)
    with dying("repair.end.before"):
        place.repair(lambda diagnosis: getattr(diagnosis, remedy))
    assert len(closed) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_rebuilt_store_that_was_cut_short(place, name):
    """Coordinator state that is made anew is there whole, or not at all."""
    place.run(4)
    place.wipe_store()
    with dying(name):
        place.repair()
    diagnosis = place.diagnosis()
    place.repair(lambda diagnosis: diagnosis.unfinished or (None if diagnosis.is_sound else diagnosis.go_to))
    assert diagnosis.is_sound == (name == "repair.end.after")
    place.finish(TRANSACTIONS - 4)


@pytest.mark.slow
def test_repairs_follow_one_another(place):
    """A table that was rolled back and written again tells both times apart: in snapshots, and in later repairs."""
    place.run(2)
    place.back_up("words", "_txtopo")
    place.run(4)
    snapshots = {txid: place.words_as_of(txid) for txid in (1, 2, 3, 4)}
    for _ in range(3):
        place.restore("words")
        place.repair()
        assert place.txids() == {"words": 2, "total": 2}
        place.run(4)
        assert {txid: place.words_as_of(txid) for txid in (1, 2, 3, 4)} == snapshots
        total = DeltaState(place.folder / "total", Fields("name: string"), Fields("n: long"))
        sums = [total.snapshot(txid)["n"].to_pylist() for txid in (1, 2, 3, 4)]
        assert sums == [[sum(row["n"] for row in snapshots[txid])] for txid in (1, 2, 3, 4)]
    place.wipe_store()
    assert place.repair().is_safe
    place.finish(TRANSACTIONS - 4)


# What is kept


@pytest.mark.slow
def test_what_a_repair_replaces_is_kept(place):
    """The coordinator state that was replaced lies beside the new one."""
    place.run(2)
    place.back_up("_txtopo")
    place.run(4)
    place.restore_store()
    place.repair()
    store = SqliteStore(place.store)
    kept = json.loads(store.read("words/before-repair-1/committed"))
    now = json.loads(store.read("words/committed"))
    store.close()
    assert (kept["txid"], now["txid"]) == (2, 4)


def test_marks_without_a_version_are_read():
    """Coordinator state of a time when versions were not noted still reads."""
    store = MemoryStore()
    lead = store.take_lead("t", "test")
    mark = {"txid": 3, "metadata": 5, "states": {"words": {"identity": "x", "txid": 3}}}
    lead.write([Put("t/committed", json.dumps(mark).encode())])
    assert CoordinatorState(store, lead, "t").committed() == CommittedMark(3, 5, {"words": StateMark("x", 3)})


@pytest.mark.slow
def test_a_lead_that_is_lost_is_no_divergence(place):
    """To a coordinator that another one has replaced, the other's epoch is no sign of an older store."""
    place.run(3)
    store = SqliteStore(place.store)
    lead = store.take_lead("words", "zombie")
    coordinator_state = CoordinatorState(store, lead, "words")
    lead.release()
    place.run(4)
    with pytest.raises(LostLead):
        recover("words", place.topology().plan.states, coordinator_state, contextlib.ExitStack())
    store.close()
    place.finish()


# One table, compared with its record


@pytest.mark.parametrize(
    ("recorded", "is_same", "group", "last", "expected"),
    [
        (4, True, None, 4, None),
        (4, True, None, 5, DivergenceKind.AHEAD),
        (4, True, None, 3, DivergenceKind.BEHIND),
        (4, True, None, None, DivergenceKind.BEHIND),
        (4, True, Group(5, 6, ("words", "total"), None, ()), 4, None),
        (4, True, Group(5, 6, ("words", "total"), None, ()), 6, None),
        (4, True, Group(5, 6, ("words", "total"), None, ()), 5, DivergenceKind.BEHIND),
        (4, True, Group(5, 6, ("words", "total"), None, ()), 7, DivergenceKind.AHEAD),
        (4, True, Group(5, 6, ("total",), None, ()), 6, DivergenceKind.AHEAD),
        (4, False, None, 4, DivergenceKind.OTHER_TABLE),
        (4, False, None, None, DivergenceKind.OTHER_TABLE),
        (None, False, None, 2, DivergenceKind.OTHER_TABLE),
        (None, False, None, None, None),
        (None, True, None, None, None),
        (None, True, None, 1, DivergenceKind.AHEAD),
    ],
)
def test_where_a_table_may_be(recorded, is_same, group, last, expected):
    """At its last recorded write, or at the group in progress if that writes it; and it is the one recorded."""
    state = MemoryState()
    opened = state.open("t", "words", "i", 1)
    if last is not None:
        opened.write(last, {"a": TransactionalValue(last, 1)})
    mark = StateMark(opened.identity if is_same else "another", recorded)
    record = CoordinatorRecord("t", "i", 1, CommittedMark(4, None, {"words": mark}), group)
    assert [each.kind for each in find_mismatched(record, {"words": opened})] == [expected] * (expected is not None)


@pytest.mark.parametrize(("recorded", "is_refused"), [(None, False), (0, False), (1, True)])
def test_another_aggregate_behind_a_column(recorded, is_refused):
    """It is refused once the table has a transaction, but not after a rewind to before the first one."""
    committed = CommittedMark(recorded or 0, None, {"words": StateMark("table", recorded)})
    record = CoordinatorRecord("t", "i", 1, committed, None, folds={"table": {"n": ("Sum(n)", 0)}})
    found = find_refolded(record, {"words": {"n": "Max(n)"}})
    assert [each.kind for each in found] == [DivergenceKind.REFOLDED] * is_refused


@pytest.mark.slow
def test_a_table_that_was_removed_after_its_first_transaction(place):
    """One transaction is as much to lose as many."""
    place.run(1)
    shutil.rmtree(place.folder / "words")
    refused(place, "'words'", "is gone", "last write at 1")
