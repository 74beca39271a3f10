"""Promise 9: a reader that asks for a consistent view never sees one table at N and another at N - 1."""

import json
import os
import shutil
import threading
import time

import pytest
from deltalake import DeltaTable

from state import DeltaState, TransactionalValue, read_table, read_tables
from state.delta.log.entries import log_entries
from state.delta.log.ownership import Owner
from state.delta.read.points import TableVersions
from tests.acceptance.topologies import counts_of
from tests.crashes import Crash, run_with_crash
from tests.journals import journal_in, opened_journal
from tests.state.delta.delta_tables import maintain, scheduled_tables
from tests.state.delta.two_tables import DATA, Reader, two_tables
from txtopo import Fields
from txtopo.errors import ConfigError, DivergenceError, StateAccessError
from txtopo.files.places import folder_at
from txtopo.journal.ending import METADATA_DIR, read_end
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalTable, JournalTransaction
from txtopo.journal.folders import find_journal
from txtopo.journal.writer import JournalWriter


@pytest.mark.slow
@pytest.mark.parametrize("opaque", [False, True], ids=["repeatable", "opaque"])
def test_a_view_at_every_failpoint(tmp_path, opaque):
    """One process, a reader at each failpoint that it reaches: both tables are as of the same transaction."""
    reader = Reader(tmp_path)
    assert run_with_crash(lambda: two_tables(tmp_path, opaque=opaque), Crash(look=reader))
    reader()
    assert reader.reads > 20
    assert reader.txid == 4
    assert sum(read_table(tmp_path / "words")["n"].to_pylist()) == sum(counts_of(DATA).values())


@pytest.mark.slow
def test_a_reader_beside_the_run(tmp_path):
    """A reader in a thread of its own, whatever the run is doing meanwhile, through a crash and upkeep too."""
    reader, is_over, errors = Reader(tmp_path), threading.Event(), []

    def read():
        while not is_over.is_set():
            try:
                reader()
            except BaseException as error:  # noqa: BLE001 - shown by the test
                errors.append(error)
                return

    thread = threading.Thread(target=read)
    thread.start()
    make = lambda: two_tables(tmp_path, upkeep_every_writes=1, files_max=1)
    for at in (30, 45, 0):
        run_with_crash(make, Crash(at))
    is_over.set()
    thread.join()
    assert errors == []
    reader()
    assert reader.txid == 4


@pytest.mark.slow
def test_upkeep_takes_nothing_that_a_view_needs(tmp_path, monkeypatch):
    """With files and logs older than any retention, and a vacuum that keeps nothing, a reader never fails."""

    def vacuum_all(past, _files_secs):
        own = DeltaTable(past._location.address)
        own.vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)
        return []

    def age():
        long_ago = time.time() - 90 * 24 * 3600
        for file in tmp_path.rglob("*"):
            if METADATA_DIR not in file.parts:
                os.utime(file, (long_ago, long_ago))

    def look():
        reader()
        age()

    monkeypatch.setattr("state.delta.upkeep.past.TablePast.old_outside", vacuum_all)
    reader = Reader(tmp_path)
    often = {"upkeep_every_writes": 1, "vacuum_retention_hours": 168}
    make = lambda: scheduled_tables(two_tables(tmp_path, **often), clean_up_checkpoints=1)
    for at in (43, 59, 0):
        run_with_crash(make, Crash(at, look))
    reader()
    assert (reader.txid, reader.reads > 30) == (4, True)
    with pytest.raises(StateAccessError, match=r"; (ask for (a later|one of)|the oldest point is 4)"):
        read_tables(tmp_path, 1)


class Tables:
    """Two tables and a journal that are written by hand, so that a moment stands still."""

    def __init__(self, folder):
        self.folder = folder
        self.states = {
            name: DeltaState(
                folder / name, Fields("k: string"), Fields("n: long"), upkeep_every_writes=1, vacuum_retention_hours=168
            )
            for name in ("x", "y")
        }
        self.opened = {}

    def lead(self, epoch, committed):
        self.opened = {name: state.open("t", name, "life", epoch) for name, state in self.states.items()}
        tables = {name: JournalTable(name, opened.identity) for name, opened in self.opened.items()}
        states = {name: opened.last_txid for name, opened in self.opened.items()}
        header = JournalHeader("t", "life", epoch, {"spout": "repeatable"}, committed, None, tables, states)
        return JournalWriter(find_journal(folder_at(self.folder / METADATA_DIR), "t"), header, 1 << 30)

    def enter(self, journal, first, last, *names):
        transactions = tuple(JournalTransaction(txid, 1, None, {}) for txid in range(first, last + 1))
        journal.enter(JournalEntry(dict.fromkeys(names, (1, 0)), transactions))

    def write(self, name, txid):
        opened = self.opened[name]
        opened.write(txid, {"k": TransactionalValue(txid, txid)})
        maintain(opened)

    def seen(self, txid=None, **options):
        view = read_tables(self.folder, txid, **options)
        return view.txid, {name: table["n"].to_pylist() for name, table in view.tables.items()}


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path)


@pytest.mark.slow
def test_a_table_that_rests_while_another_moves(tables):
    """A table that was not written for long is as it was, at each view, whatever its log has lost meanwhile."""
    journal = tables.lead(1, 0)
    tables.enter(journal, 1, 1, "y")
    tables.write("y", 1)
    for txid in range(2, 20):
        tables.enter(journal, txid, txid, "x")
        assert tables.seen() == (txid - 1, {"x": [txid - 1] if txid > 2 else [], "y": [1]})
        tables.write("x", txid)
    assert tables.seen() == (19, {"x": [19], "y": [1]})


def test_a_group_between_two_tables(tables):
    """While one table has a group and the other not, both are shown from before it."""
    journal = tables.lead(1, 0)
    tables.enter(journal, 1, 4, "x", "y")
    assert tables.seen() == (0, {"x": [], "y": []})
    tables.write("x", 4)
    assert tables.seen() == (0, {"x": [], "y": []})
    tables.write("y", 4)
    assert tables.seen() == (4, {"x": [4], "y": [4]})
    tables.enter(journal, 5, 8, "x", "y")
    tables.write("x", 8)
    assert tables.seen() == (4, {"x": [4], "y": [4]})
    with pytest.raises(StateAccessError, match="the last one in all of them is 4"):
        tables.seen(5)


def test_what_nobody_knows_to_be_committed_is_not_shown_as_such(tables):
    """A group that writes no table has left no trace outside the journal, so the one before it is the last."""
    journal = tables.lead(1, 0)
    tables.enter(journal, 1, 1, "x")
    tables.write("x", 1)
    tables.enter(journal, 2, 3)
    assert tables.seen() == (1, {"x": [1], "y": []})
    tables.enter(journal, 4, 4, "y")
    assert tables.seen() == (3, {"x": [1], "y": []})


@pytest.mark.slow
def test_a_past_view(tables):
    """The nearest to a transaction in the middle of a group is what was before that group; the view says so."""
    journal = tables.lead(1, 0)
    for first, last, names in ((1, 3, "xy"), (4, 6, "x"), (7, 9, "xy")):
        tables.enter(journal, first, last, *names)
        for name in names:
            tables.write(name, last)
    assert tables.seen(9) == (9, {"x": [9], "y": [9]})
    assert tables.seen(8, nearest=True) == (6, {"x": [6], "y": [3]})
    assert tables.seen(5, nearest=True) == (3, {"x": [3], "y": [3]})
    assert tables.seen(2, nearest=True) == (0, {"x": [], "y": []})
    with pytest.raises(StateAccessError, match="as of 6 and as of 9"):
        tables.seen(8)
    assert tables.seen(6) == (6, {"x": [6], "y": [3]})


def test_some_tables(tables):
    """A moment that one of the others does not keep, or whose begin is later, can be seen; of all, N is the same."""
    journal = tables.lead(1, 0)
    for first, last, names in ((1, 3, "x"), (4, 6, "xy"), (7, 9, "xy")):
        tables.enter(journal, first, last, *names)
        for name in names[: 1 if last == 9 else 2]:
            tables.write(name, last)
    assert tables.seen(states=["x"]) == (6, {"x": [6]}), "table y does not have 9 yet"
    assert tables.seen(3, states=["y"]) == (3, {"y": []})
    with pytest.raises(ConfigError, match="no table of state 'z'; it has: x, y"):
        tables.seen(states=["x", "z"])


def test_a_void_entry_of_a_coordinator_before(tables):
    """What an older coordinator entered and a new one dropped is never asked again."""
    journal = tables.lead(1, 0)
    tables.enter(journal, 1, 8, "x")
    newer = tables.lead(2, 0)
    tables.enter(newer, 1, 2, "x", "y")
    tables.write("x", 2)
    tables.enter(journal, 9, 12, "x")  # a zombie's
    assert tables.seen() == (0, {"x": [], "y": []})
    tables.write("y", 2)
    assert tables.seen() == (2, {"x": [2], "y": [2]})


def test_a_reader_that_was_overtaken_begins_anew(tables, monkeypatch):
    """A reader that has the old end of the journal finds a newer coordinator's writes, and does not believe them."""
    journal = tables.lead(1, 0)
    tables.enter(journal, 1, 8, "x")
    old = read_end(opened_journal(tables.folder))
    newer = tables.lead(2, 0)
    tables.enter(newer, 1, 8, "x", "y")
    tables.write("x", 8)
    ends = [old]

    def read_end_late(folder):
        return ends.pop() if ends else read_end(folder)

    monkeypatch.setattr("txtopo.journal.ending.read_end", read_end_late)
    assert tables.seen() == (0, {"x": [], "y": []})
    assert ends == []


def test_a_header_that_was_cut_off_does_not_count(tables):
    """A coordinator whose header is not whole has written nothing: the one before is asked."""
    journal = tables.lead(1, 0)
    tables.enter(journal, 1, 1, "x")
    tables.write("x", 1)
    with (journal_in(tables.folder) / "0000000001-000000.jsonl").open("ab") as file:
        file.write(b'{"states":{')
    (journal_in(tables.folder) / "0000000002-000000.jsonl").write_bytes(b'{"topology":"t"')
    assert tables.seen() == (1, {"x": [1], "y": []})


def test_the_end_of_a_long_file(tables):
    """The last entry is found behind others of any length."""
    journal = tables.lead(1, 0)
    for txid, length in enumerate((1, 200_000, 70_000, 5, 130_000), 1):
        metadata = "m" * length
        journal.enter(JournalEntry({}, (JournalTransaction(txid, 1, metadata, {}),)))
        end = read_end(opened_journal(tables.folder))
        assert (end.last.first, end.last.transactions[0].metadata) == (txid, metadata)


def test_what_is_no_output_folder_is_refused(tmp_path):
    """There must be a journal; its own folder is as good as the one that holds it."""
    with pytest.raises(ConfigError, match="there is no journal"):
        read_tables(tmp_path)
    Tables(tmp_path).lead(1, 0)
    assert read_tables(tmp_path / METADATA_DIR).txid == 0


def test_a_table_that_was_replaced_is_refused(tables, tmp_path):
    """A table that another incarnation of the topology has made in the same place is not taken for the journal's."""
    tables.lead(1, 0)
    file = next(journal_in(tmp_path).iterdir())
    header = json.loads(file.read_text())
    header["tables"]["x"]["identity"] = "another"
    file.write_text(json.dumps(header) + "\n")
    with pytest.raises(DivergenceError, match="state 'x'"):
        tables.seen()


@pytest.mark.slow
def test_versions_are_found_wherever_they_are(tables):
    """The newest version not above a txid, for every txid and any number of versions, and not those that are gone."""
    journal = tables.lead(1, 0)
    del journal
    for txid in range(2, 40, 3):
        tables.opened["x"].write(txid, {"k": TransactionalValue(txid, txid)})
    location = tables.opened["x"]._location
    latest = location.handle()
    for txid in range(42):
        found = TableVersions(location, latest, Owner.of(latest)).as_of(txid)
        assert found.transaction_version("t/x") == max((n for n in range(2, 40, 3) if n <= txid), default=None)
    log = tables.folder / "x" / "_delta_log"
    latest.create_checkpoint()
    for version in range(latest.version()):
        (log / f"{version:020d}.json").unlink()
    history = TableVersions(location, location.handle(), Owner.of(latest))
    assert history.as_of(37) is None
    assert history.as_of(38).version() == history.table.version()


# Tables that do not belong together


@pytest.fixture
def four(tables):
    """Two tables that were written as of 1, 2, 3 and 4, the second one not as of 3."""
    journal = tables.lead(1, 0)
    for txid in (1, 2, 3, 4):
        names = "x" if txid == 3 else "xy"
        tables.enter(journal, txid, txid, *names)
        for name in names:
            tables.opened[name].write(txid, {"k": TransactionalValue(txid, txid)})
    return tables


def test_tables_that_were_restored_to_different_moments(four):
    """Delta's RESTORE brings back rows and leaves the txid: each table that it was done to is named with that."""
    for name, txid in (("x", 3), ("y", 1)):
        table = DeltaTable(four.folder / name)
        versions = {entry.txid: entry.version for entry in log_entries(four.opened[name]._location, table.version())}
        table.restore(versions[txid])
    with pytest.raises(DivergenceError) as refusal:
        four.seen()
    for name in "xy":
        assert f"state '{name}': its table at {four.folder / name} is at transaction 4" in str(refusal.value)
    assert str(refusal.value).count("RESTORE made version") == 2
    assert "txtopo repair" in str(refusal.value)
    assert four.seen(3) == (3, {"x": [3], "y": [2]})


@pytest.mark.parametrize(("name", "txid"), [("x", 1), ("x", 2), ("y", 1)])
def test_a_table_that_was_restored_from_a_copy(four, name, txid):
    """A table whose folder is an earlier one's is behind what the journal has of it."""
    log = four.folder / name / "_delta_log"
    versions = {
        entry.txid: entry.version
        for entry in log_entries(four.opened[name]._location, DeltaTable(four.folder / name).version())
    }
    for file in log.glob("*.json"):
        if int(file.stem) > versions[txid]:
            file.unlink()
    with pytest.raises(
        DivergenceError, match=f"state '{name}': .* is at transaction {txid}, but the journal .* has it at"
    ):
        four.seen()
    assert four.seen(txid)[0] == txid


@pytest.mark.slow
def test_a_table_that_rests_was_restored(tables):
    """What the last entry does not name is looked for in those before, and in the header."""
    journal = tables.lead(1, 0)
    tables.enter(journal, 1, 1, "x", "y")
    for name in "xy":
        tables.write(name, 1)
    for txid in (2, 3, 4):
        tables.enter(journal, txid, txid, "x")
        tables.write("x", txid)
    assert tables.seen() == (4, {"x": [4], "y": [1]})
    newer = tables.lead(2, 4)
    assert tables.seen() == (4, {"x": [4], "y": [1]})
    tables.enter(newer, 5, 5, "x")
    tables.write("x", 5)
    assert tables.seen() == (5, {"x": [5], "y": [1]})
    folder = tables.folder / "y"
    shutil.rmtree(folder)
    first = tables.states["y"].open("t", "y", "life", 1)
    file = next(journal_in(tables.folder).glob("0000000002-*"))
    file.write_text(file.read_text().replace(tables.opened["y"].identity, first.identity))
    with pytest.raises(DivergenceError, match=r"state 'y': .* is at transaction 0, but the journal .* has it at 1"):
        tables.seen()


def test_what_changes_no_row_is_no_restore(four):
    """Compaction and vacuum by somebody else leave the view as it is."""
    table = DeltaTable(four.folder / "x")
    table.optimize.z_order(["k"])
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert four.seen() == (4, {"x": [4], "y": [4]})
