"""``txtopo fork``: a second topology from a transaction on, beside the first, whatever dies or is removed meanwhile."""

import errno
import importlib
import os
import pathlib
import shutil
import sys

import attrs
import pytest
from deltalake import DeltaTable

from state import read_table, read_tables
from tests.acceptance.topologies import CountWords, counts_of, make_data, read_words, words_topology
from tests.crashes import dying
from tests.journals import opened_journal
from tests.state.delta.two_tables import two_tables
from txtopo import Config
from txtopo.errors import ConfigError
from txtopo.failpoints import ProcessDeath, armed
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.journal.journal import counting_entries, read_journal
from txtopo.testing.inline import run_inline
from txtopo.topology.topology import TransactionalTopology

DATA = make_data(2, 20)
TRANSACTIONS = 6
CONFIG = Config(group_transactions_max=1)

MODULE = """
from tests.acceptance.topologies import make_data, words_topology

def topology(output: str = "out", topology_id: str = "words"):
    return words_topology(output, make_data(2, 20), take=4, topology_id=topology_id)
"""

WITH_OWN_VALUES = """
from spouts import MemoryTransactionalSpout
from state import DeltaState, TransactionalState
from tests.acceptance.topologies import CountTuples
from tests.journals import opened_journal
from txtopo import Coordinator, Fields, TransactionalTopologyBuilder

class Keeping(Coordinator):
    def __init__(self, inner):
        self.inner = inner

    def open_store(self, store, lead, root):
        self.state = TransactionalState(store, lead, root)

    def initialize_transaction(self, txid, previous):
        self.state.set_data("last/txid", txid)
        return self.inner.initialize_transaction(txid, previous)

    def resume(self, txid, metadata):
        assert self.state.get_data("last/txid") in {None, txid}
        self.inner.resume(txid, metadata)

    def is_exhausted(self):
        return self.inner.is_exhausted()

class Spout(MemoryTransactionalSpout):
    def coordinator(self, config, context):
        return Keeping(super().coordinator(config, context))

def topology():
    spout = Spout([[str(n)] for n in range(12)], Fields("word"), 2)
    builder = TransactionalTopologyBuilder("keeping", "spout", spout)
    builder.set_committer_bolt("count", CountTuples(), 1).shuffle_grouping("spout")
    builder.set_state("total", DeltaState("out/total", key=Fields("name: string"), value=Fields("n: long")))
    return builder.build()
"""


@attrs.frozen
class Both:
    """A topology in the folder ``out``, and its forks beside it."""

    folder: pathlib.Path

    def topology(self, fork: str | None = None):
        topology = words_topology(self.folder / "out", DATA, take=4)
        if fork is None:
            return topology, CONFIG
        plan, config = moved(topology.plan, CONFIG, folder_at(self.folder / fork))
        return TransactionalTopology(plan), config

    def run(self, fork: str | None = None, until: int | None = None):
        return run_inline(*self.topology(fork), until=until)

    def rows(self, of: str, txid: int | None = None):
        view = read_tables(self.folder / of, txid)
        return {name: sorted(map(str, rows.to_pylist())) for name, rows in view.tables.items()}

    def journal(self, of: str):
        return read_journal(opened_journal(self.folder / of))

    def planned(self, of: str):
        """Return each transaction with its metadata, and when it was planned."""
        entries = counting_entries(self.journal(of), lambda _: True)
        return [
            (transaction.txid, transaction.metadata, transaction.planned)
            for entry in entries
            for transaction in entry.transactions
        ]

    def seen(self, of: str = "out"):
        """Return every file of a folder, but for the ones that SQLite makes for who reads its store."""
        files = (path for path in (self.folder / of).rglob("*") if not path.name.startswith("coordinator.sqlite"))
        return {str(path): path.stat().st_mtime_ns for path in files if path.is_file()}


@pytest.fixture
def both(command_line, tmp_path):
    command_line.write_module("counting", MODULE)
    return Both(tmp_path)


@pytest.mark.slow
def test_a_fork_goes_on_by_itself(command_line, both):
    """It has the tables and the input from the transaction on; the first topology is only read."""
    both.run(until=5)
    before = both.seen()
    said = command_line.told("fork", "counting", "3", "side")
    assert said.splitlines() == [
        "topology 'words' is forked after transaction 3, as 'words-fork' in side",
        "  table of state 'words': at transaction 3, side/words",
        "  table of state 'total': at transaction 3, side/total",
        "the same input again: transactions 4 to 5",
        "to run it: txtopo run counting --fork side",
    ]
    assert both.seen() == before
    assert both.rows("side") == both.rows("out", 3)
    assert both.run("side", until=5).transactions == 2
    assert both.rows("side") == both.rows("out")
    assert both.planned("side") == both.planned("out")[3:]
    assert both.run("side").transactions == both.run().transactions == TRANSACTIONS - 5
    assert read_words(both.folder / "side") == dict(counts_of(DATA))
    for target in (("side",), ("counting", "--fork", "side"), ("counting",)):
        assert "every transaction was committed once" in command_line.told("audit", *target)
    assert "nothing to repair" in command_line.told("repair", "counting", "--fork", "side")
    assert "the same" in command_line.told("replay", "counting", "4", "--fork", "side")


@pytest.mark.slow
def test_a_fork_from_the_beginning_and_a_fork_of_a_fork(command_line, both):
    """Transaction 0 is one as well; a fork is a topology like any other."""
    both.run(until=3)
    command_line.told("fork", "counting", "0", "anew", "--id", "first")
    assert both.run("anew").transactions == TRANSACTIONS
    assert read_words(both.folder / "anew") == dict(counts_of(DATA))
    said = command_line.told("fork", "counting", "4", "further", "--fork", "anew")
    assert "topology 'first' is forked after transaction 4, as 'first-fork' in further" in said
    assert both.run("further").transactions == TRANSACTIONS - 4
    assert both.rows("further") == both.rows("anew")


class CountsCatsTwice(CountWords):
    """Has a bug."""

    def execute(self, tuple):
        self.counts[tuple["word"]] += tuple["n"] * (2 if tuple["word"].startswith("cat") else 1)


@pytest.mark.slow
def test_a_fix_runs_beside_the_truth(command_line, both):
    """A bug is found by comparing the topology with its fork in which the bug is mended."""
    run_inline(words_topology(both.folder / "out", DATA, take=4, committer=CountsCatsTwice()), CONFIG, until=5)
    command_line.told("fork", "counting", "0", "mended")
    both.run("mended", until=5)
    told = command_line("diff", "out", "mended")
    assert (told.exit_code, "as of transaction 5" in told.stdout) == (1, True)
    differing = [line.split()[1] for line in told.stdout.splitlines() if line.startswith("  differs")]
    assert differing[:-1] == [
        f"word={word}" for word in sorted(read_words(both.folder / "mended")) if word.startswith("cat")
    ]
    assert differing[-1] == "name=all"
    both.run("mended")
    assert read_words(both.folder / "mended") == dict(counts_of(DATA))


@pytest.mark.slow
def test_a_fork_of_an_opaque_spout(command_line, tmp_path):
    """It begins its transactions anew, and counts everything once."""
    command_line.write_module(
        "opaque",
        "import pathlib\nfrom tests.state.delta.two_tables import two_tables\n"
        "def topology():\n    return two_tables(pathlib.Path('out'), opaque=True)\n",
    )
    topology = two_tables(tmp_path / "out", opaque=True)
    run_inline(topology, CONFIG, until=3)
    assert "the same input again" not in command_line.told("fork", "opaque", "2", "side")
    plan, config = moved(topology.plan, CONFIG, folder_at(tmp_path / "side"))
    run_inline(TransactionalTopology(plan), config)
    run_inline(topology, CONFIG)
    assert command_line.told("diff", "out", "side").endswith("✔ the same\n")
    assert "every transaction was committed once" in command_line.told("audit", "side")


@pytest.mark.slow
def test_a_transaction_within_a_commit_group(command_line, both):
    """No table has a version of it, so the fork goes on from the end of the group before."""
    both.run(until=1)
    run_inline(both.topology()[0], Config(group_transactions_max=5))
    ends = sorted({entry.last for entry in counting_entries(both.journal("out"), lambda _: True)})
    within = next(txid for txid in range(2, TRANSACTIONS) if txid not in ends)
    before, after = max(end for end in ends if end < within), min(end for end in ends if end > within)
    why, point, forked, *_ = command_line.told("fork", "counting", str(within), "side").splitlines()
    assert why == f"a later transaction is not possible: transactions {before + 1} to {after} were written together"
    assert point.startswith(f"it is forked at the newest point before: {before}, planned ")
    assert forked == f"topology 'words' is forked after transaction {before}, as 'words-fork' in side"
    assert both.run("side").transactions == TRANSACTIONS - before


@pytest.mark.slow
def test_a_fork_keeps_its_rows_whatever_becomes_of_the_original(command_line, both):
    """Vacuum, compaction, even a removal of the first topology takes nothing from the fork."""
    both.run(until=4)
    command_line.told("fork", "counting", "2", "side")
    then = both.rows("side")
    table = DeltaTable(both.folder / "out" / "words")
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    both.run()
    assert both.rows("side") == then
    shutil.rmtree(both.folder / "out")
    assert both.rows("side") == then
    both.run("side")
    assert read_words(both.folder / "side") == dict(counts_of(DATA))


def test_files_are_copied_where_they_cannot_be_linked(command_line, both, monkeypatch):
    """On another file system, say, the fork is the same."""
    both.run(until=4)
    link = os.link

    def refusing(source, target):
        if str(target).endswith(".parquet"):
            raise OSError(errno.EXDEV, "another device")
        link(source, target)

    monkeypatch.setattr(os, "link", refusing)
    command_line.told("fork", "counting", "3", "side")
    assert both.rows("side") == both.rows("out", 3)
    assert all(path.stat().st_nlink == 1 for path in (both.folder / "side").rglob("*.parquet"))


@pytest.mark.slow
def test_a_fork_beside_a_running_topology(command_line, both):
    """Wherever a run is, even between two tables, a fork has all tables as of one transaction."""
    forks = {}

    def look(name):
        if not name.startswith(("fork.", "bolt.", "spout.", "folder.")) and name not in forks and not looking:
            looking.append(name)
            forks[name] = None
            result = command_line("fork", "counting", "3", f"side-{len(forks)}")
            forks[name] = f"side-{len(forks)}" if result.exit_code == 0 else result.stderr
            looking.clear()

    looking: list[str] = []
    both.run(until=4)
    with armed(look):
        both.run()
    then = both.rows("out", 3)
    assert {"table.write.before", "table.write.after", "group.decide.after", "table.open.before"} <= forks.keys()
    assert [name for name, fork in forks.items() if fork is None or both.rows(fork) != then] == []


@pytest.mark.slow
def test_a_fork_that_dies_anywhere_is_made_by_the_next_try(command_line, both):
    """No run starts with what is left, and the same command makes the fork."""
    both.run(until=4)
    reached: list[str] = []
    with armed(reached.append):
        command_line.told("fork", "counting", "3", "whole")
    assert {
        f"fork.{step}.{side}" for step in ("begin", "table", "journal", "state", "end") for side in ("before", "after")
    } <= {*reached}
    then, ended = both.rows("out", 3), reached.index("fork.end.after")
    for at in range(len(reached)):
        left = [*reached[:at], "death"]

        def die(name, left=left):
            if left.pop(0) != name:
                raise ProcessDeath(name)

        with armed(die), pytest.raises(ProcessDeath):
            command_line("fork", "counting", "3", "side")
        if at < ended - 1:  # before the file that names the fork as finished is replaced
            with pytest.raises(ConfigError, match=r"holds no fork|is not finished"):
                both.topology("side")
            command_line.told("fork", "counting", "3", "side")
        assert both.rows("side") == then
        assert both.run("side", until=4).transactions == 1
        assert both.rows("side") == both.rows("out")
        shutil.rmtree(both.folder / "side")


@pytest.mark.slow
@pytest.mark.parametrize("point", ["fork.begin.after", "fork.table.after", "fork.state.after"])
def test_it_is_made_by_its_plan_or_not_at_all(command_line, both, point):
    """An equal number is not the same transaction: what was begun is no fork of another one, or of another timeline."""

    def die(name):
        if name == point:
            raise ProcessDeath(name)

    both.run(until=4)
    with armed(die), pytest.raises(ProcessDeath):
        command_line("fork", "counting", "3", "side")
    refused = command_line.refusal("fork", "counting", "2", "side")
    assert "holds a fork of transaction 3 that is not finished, and it begins there: remove the folder" in refused
    both.run(until=5)
    shutil.copytree("side", "begun")
    command_line.told("fork", "counting", "3", "side")
    assert both.rows("side") == both.rows("out", 3)
    command_line.told("rewind", "counting", "1", "--yes")
    both.run(until=5)
    shutil.rmtree("side")
    shutil.move("begun", "side")
    refused = command_line.refusal("fork", "counting", "3", "side")
    assert "that is not finished, and the topology has gone back since, and that is another one by now" in refused
    shutil.rmtree("side")
    command_line.told("fork", "counting", "3", "side")
    assert both.run("side", until=5).transactions == 2
    assert both.rows("side") == both.rows("out")


@pytest.mark.slow
def test_the_topology_goes_back_while_it_is_made(command_line, both):
    """A fork never has one table of before and another of after, of transactions with the same number: it is refused."""
    command_line.write_module(
        "cutting",
        MODULE.replace('topology_id: str = "words"', "take: int = 4").replace(
            "take=4, topology_id=topology_id", "take=take"
        ),
    )
    both.run(until=4)
    turned = []

    def go_back(name):
        if name == "fork.table.after" and not turned:
            turned.append(name)
            command_line.told("rewind", "cutting", "1", "--yes", "--set", "take=3")
            run_inline(words_topology(both.folder / "out", DATA, take=3), CONFIG, until=4)

    with armed(go_back):
        refused = command_line.refusal("fork", "counting", "3", "side")
    assert "topology 'words' has gone back or has begun anew while the fork was made; nothing is left of it" in refused
    assert not (both.folder / "side").exists()
    command_line.told("fork", "counting", "3", "side")
    assert both.rows("side") == both.rows("out", 3)


@pytest.mark.long
@pytest.mark.parametrize("point", ["fork.shared", "fork.state.after"])
def test_a_kill_in_the_middle(command_line, both, point):
    """``kill -9`` leaves what the same command replaces."""
    both.run(until=4)
    command_line.killed_at(point, "fork", "counting", "3", "side")
    assert "is not finished: run 'txtopo fork' again" in command_line.refusal("run", "counting", "--fork", "side")
    command_line.told("fork", "counting", "3", "side")
    assert both.rows("side") == both.rows("out", 3)


def test_versions_that_are_gone(command_line, both):
    """The newest transaction before, of which all tables are kept, takes the place of one that is not; or none does."""
    both.run(until=4)

    def forget(txid):
        version = DeltaTable(both.folder / "out" / "words")
        while version.transaction_version("words/words") > txid:
            version.load_as_version(version.version() - 1)
        kept = set(DeltaTable(both.folder / "out" / "words").file_uris())
        for path in set(version.file_uris()) - kept:
            pathlib.Path(path).unlink()

    forget(3)
    gone, point, forked, *_ = command_line.told("fork", "counting", "3", "side").splitlines()
    what = "the version of 'words' after transaction 3 is gone (it is of no point, or was vacuumed)"
    assert gone == f"a later transaction is not possible: {what}"
    assert point.startswith("it is forked at the newest point before: 2, planned ")
    assert forked == "topology 'words' is forked after transaction 2, as 'words-fork' in side"
    assert both.rows("side")["words"] == sorted(map(str, read_table("out/words", 2).to_pylist()))
    shutil.rmtree(both.folder / "out" / "total")
    refusal = command_line.refusal("fork", "counting", "3", "other")
    assert "can't be forked at transaction 3 or before: the version of 'words' after transaction 3 is gone" in refusal
    assert "; the table of 'total' is gone, or is another one by now. Give 0 to fork it from the beginning" in refusal
    assert not (both.folder / "other").exists()


def test_a_table_of_another_topology_in_its_place(command_line, both):
    """It has the same transactions, and other rows: nobody takes them for the topology's."""
    both.run(until=3)
    run_inline(words_topology(both.folder / "another", make_data(2, 24), take=4), CONFIG, until=4)
    shutil.rmtree(both.folder / "out" / "total")
    shutil.copytree(both.folder / "another" / "total", both.folder / "out" / "total")
    refusal = command_line.refusal("fork", "counting", "2", "side")
    assert "the table of 'total' is gone, or is another one by now" in refusal
    assert not (both.folder / "side").exists()


@pytest.mark.slow
def test_what_is_refused_changes_nothing(command_line, both):
    """Each refusal says what is wrong, and leaves the folder as it was."""
    refused = command_line.refusal
    assert "there is no journal" in refused("fork", "counting", "0", "side")
    assert not (both.folder / "out").exists()
    both.run(until=3)
    assert "transaction 9 of topology 'words' is not committed; the last one that is, is 3" in refused(
        "fork", "counting", "9", "side"
    )
    assert "the fork needs another id than 'words'" in refused("fork", "counting", "2", "side", "--id", "words")
    assert not (both.folder / "side").exists()
    (both.folder / "full").mkdir()
    (both.folder / "full" / "mine").touch()
    assert "full is not empty: give the fork a folder of its own" in refused("fork", "counting", "2", "full")
    assert "out is not empty" in refused("fork", "counting", "2", "out")
    assert "side holds no fork: make one with 'txtopo fork'" in refused("run", "counting", "--fork", "side")
    command_line.told("fork", "counting", "2", "side")
    before = both.seen("side")
    assert "holds the fork 'words-fork' already, of transaction 2" in refused("fork", "counting", "3", "side")
    other = ("counting", "--set", "topology_id=others", "--fork", "side")
    assert "is one of topology 'words', not of 'others'" in refused("run", *other)
    assert both.seen("side") == before


@pytest.mark.slow
@pytest.mark.parametrize("step", ["group.decide.after", "table.write.after"])
def test_a_decided_group_that_was_interrupted(command_line, both, step):
    """The refusal says that the next run finishes it; then the fork is made there."""
    both.run(until=2)
    with dying(step):
        both.run()
    refusals = [command_line.refusal("fork", "counting", txid, "side") for txid in ("3", "4")]
    assert ["start one, which finishes" in refusal for refusal in refusals] == [True, False]
    both.run(until=3)
    assert "forked after transaction 3" in command_line.told("fork", "counting", "3", "side")


@pytest.mark.slow
def test_a_first_group_whose_mark_is_not_written_yet(command_line, both):
    """The coordinator state does not know the tables yet, but the journal does, and they have the group."""
    with dying("group.commit.before"):
        both.run()
    command_line.told("fork", "counting", "1", "side")
    both.run("side")
    assert read_words(both.folder / "side") == dict(counts_of(DATA))


@pytest.mark.slow
def test_what_a_spout_keeps(command_line, tmp_path):
    """A fork has what the spout's coordinator keeps, as of the last transaction that the fork takes over."""
    command_line.write_module("keeping", WITH_OWN_VALUES)
    sys.path.insert(0, str(tmp_path))
    keeping = importlib.import_module("keeping")
    run_inline(keeping.topology(), CONFIG, until=5)
    command_line.told("fork", "keeping", "3", "side")
    assert run_inline(keeping.topology(), CONFIG).transactions == 1
    plan, config = moved(keeping.topology().plan, CONFIG, folder_at("side"))
    assert run_inline(TransactionalTopology(plan), config).transactions == 3
    assert read_table("side/total").to_pylist() == read_table("out/total").to_pylist()


@pytest.mark.slow
def test_the_topology_begins_anew_while_it_is_made(command_line, both):
    """Where its journal is aside, nothing says whether it has gone back: a fork is refused."""
    both.run(until=4)

    def set_aside(name):
        if name == "fork.table.after" and (both.folder / "out/_txtopo/journal").exists():
            shutil.move(both.folder / "out/_txtopo/journal", both.folder / "aside")

    with armed(set_aside):
        refused = command_line.refusal("fork", "counting", "3", "side")
    assert "topology 'words' has gone back or has begun anew while the fork was made" in refused
    assert not (both.folder / "side").exists()
