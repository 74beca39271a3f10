"""Commands on a topology with states in a database: what can be right is done, the rest is refused by name."""

import pytest

from state import SqlRows, SqlState
from txtopo import Config, Fields
from txtopo.cli.target import load_target
from txtopo.testing.inline import run_inline

MODULE = """
from committers import AppendCommitter, ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaState, SqlRows, SqlState
from txtopo import Fields, TransactionalTopologyBuilder

ROWS = [[f"w{number % 3}", number] for number in range(12)]
WORD, N = Fields("word: string"), Fields("n: long")
URL = "sqlite:///base.db"


def topology(keyed: str = "yes", id: str = "base"):
    spout = MemoryTransactionalSpout(ROWS, WORD + N, 2)
    builder = TransactionalTopologyBuilder(id, "rows", spout)
    builder.set_committer_bolt("into-log", AppendCommitter("log")).shuffle_grouping("rows")
    builder.set_state("log", SqlRows(URL, "log", WORD + N))
    builder.set_committer_bolt("into-table", ReduceCommitter("table", "word", "n")).fields_grouping("rows", WORD)
    builder.set_state("table", DeltaState("table", WORD, N))
    if keyed == "yes":
        builder.set_committer_bolt("into-totals", ReduceCommitter("totals", "word", "n")).fields_grouping("rows", WORD)
        builder.set_state("totals", SqlState(URL, "totals", WORD, N))
    return builder.build()
"""
WORD, N = Fields("word: string"), Fields("n: long")
URL = "sqlite:///base.db"
LOG = SqlRows(URL, "log", Fields("word: string", "n: long"))
TOTALS = SqlState(URL, "totals", WORD, N)


@pytest.fixture
def run(command_line):
    """Return what runs the topology, with the keyed state or without, up to a transaction."""
    command_line.write_module("base", MODULE)

    def run(keyed="yes", until=None, **options):
        target = load_target("base", {"keyed": keyed, **options})
        run_inline(target.topology, Config(group_transactions_max=2), until=until)

    return run


def logged():
    return sorted(row["n"] for row in LOG.snapshot().to_pylist())


@pytest.mark.slow
def test_rows_go_back(command_line, run):
    """Rows that transactions have appended go with them, and are there once when these have run again."""
    run("no", 4)
    assert logged() == list(range(8))
    dry = command_line.told("rewind", "base", "2", "--dry-run", "--set", "keyed=no")
    assert "what it had after transaction 2, 4 rows would go, 0 come back, 0 change back" in dry
    told = command_line.told("rewind", "base", "2", "--yes", "--set", "keyed=no")
    assert "log" in told
    assert logged() == list(range(4))
    for _ in range(2):
        run("no")
    assert logged() == list(range(12))
    assert "each once" in command_line.told("audit", "base", "--set", "keyed=no")
    command_line.told("rewind", "base", "0", "--yes", "--set", "keyed=no")
    assert logged() == []
    run("no")
    assert logged() == list(range(12))


@pytest.mark.slow
def test_values_by_key_do_not(command_line, run):
    """A keyed state has no earlier values: a rewind that needs them is refused by name, and changes nothing."""
    run(until=4)
    refused = command_line("rewind", "base", "2", "--yes")
    assert refused.exit_code == 1
    assert "'totals'" in refused.output
    assert logged() == list(range(8))
    command_line.told("rewind", "base", "0", "--yes")
    assert (logged(), TOTALS.snapshot().num_rows) == ([], 0)
    run()
    assert {row["word"]: row["n"] for row in TOTALS.snapshot().to_pylist()} == {"w0": 18, "w1": 22, "w2": 26}
    assert logged() == list(range(12))


def test_a_fork_begins_empty_beside_it(command_line, run):
    """A fork has tables of its own in the same database, with what comes after."""
    run(until=4)
    assert "state 'totals': begins empty" in command_line.told("fork", "base", "4", "side")
    assert logged() == list(range(8))


@pytest.mark.slow
def test_a_rename_and_starting_anew(command_line, run):
    """The tables get the topology's other id; and are kept under other names where it starts anew."""
    run(until=4)
    command_line.told("rename", "base", "--set", "id=other", "--yes")
    assert LOG.table().describe().topology_id == TOTALS.table().describe().topology_id == "other"
    run(id="other")
    assert logged() == list(range(12))
    command_line.told("repair", "base", "--set", "id=other", "--start-anew", "--yes")
    assert (LOG.table().describe(), LOG.table().asides()) == (None, [1])
    run(id="other")
    assert logged() == list(range(12))


@pytest.mark.slow
def test_what_is_restored_is_found(command_line, run, tmp_path):
    """A database that was restored from a backup is behind, and nothing is written to it."""
    run(until=2)
    database = tmp_path / "base.db"
    backup = database.read_bytes()
    run(until=4)
    database.write_bytes(backup)
    with pytest.raises(Exception, match="behind the coordinator state"):
        run()
    assert "behind" in command_line("repair", "base").output
