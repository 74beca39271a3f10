"""``txtopo blame``: the writes of a key, newest first, as far as the versions and the journal reach."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState
from state.delta.log.data_files import DataFolder
from tests.journals import opened_journal
from tests.topologies import committing
from txtopo import BatchBolt, Config, Fields, ICommitter
from txtopo.journal.journal import read_journal
from txtopo.testing.inline import run_inline

ROWS = [["a", 1], ["b", 1], ["a", 2], ["a", 0], ["b", 5], ["c", 3], ["a", 7], ["a", 8]]


class Keep(BatchBolt, ICommitter):
    """Keeps the last number of each name; 0 removes it."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("last")
        self.pairs = context.state("pairs")
        self.rows = []

    def execute(self, tuple):
        self.rows.append((tuple["name"], tuple["n"]))

    def finish_batch(self):
        for name, n in self.rows:
            self.pairs.put((name, n), True)
            if n:
                self.state.put(name, n)
            else:
                self.state.remove(name)


def topology(folder, **options):
    spout = MemoryTransactionalSpout(ROWS, Fields("name: string", "n: long"), 1)
    pair = Fields("name: string", "n: long")
    return committing(
        spout,
        Keep(),
        last=DeltaState(folder / "last", Fields("name: string"), Fields("n: long"), **options),
        pairs=DeltaState(folder / "pairs", pair, Fields("seen: boolean")),
        rows=DeltaRows(folder / "rows", pair),
    )


@pytest.fixture
def run(tmp_path):
    return lambda group=1, **options: run_inline(
        topology(tmp_path / "out"), Config(max_spout_pending=4, group_transactions_max=group), **options
    )


def cells(output):
    """Return the transaction, the group and the value in each line of a write."""
    lines = [line for line in output.splitlines() if line[:1] in " 0123456789" and line.strip()[:1].isdigit()]
    return [(line.split()[0], line.split()[-1]) for line in lines]


@pytest.mark.slow
def test_each_write(command_line, run):
    """Transactions, epochs, input and values come from the journal and the tables, removals among them."""
    run(until=3)
    run()
    told = command_line.told("blame", "out", "a")
    assert cells(told) == [("8", "8"), ("7", "7"), ("4", "removed"), ("3", "2"), ("1", "1")]
    assert told.splitlines()[0] == "state last, name a"
    assert told.splitlines()[-1] == "no earlier transaction wrote it"
    newest = next(line for line in told.splitlines() if line.strip().startswith("8"))
    oldest = next(line for line in told.splitlines() if line.strip().startswith("1"))
    assert (newest.split()[1], oldest.split()[1]) == ("2", "1"), "the epochs"
    assert "0: 7 to 8" in newest
    assert cells(command_line.told("blame", "out", "c")) == [("6", "3")], "somebody else's removal is not its own"
    told = command_line.told("blame", "out", "--limit", "2", "a")
    assert (cells(told)[-1], told.splitlines()[-1]) == (("7", "7"), "and earlier ones; --limit shows more than 2")
    assert cells(command_line.told("blame", "out", "--state", "pairs", "a", "2")) == [("3", "True")]


@pytest.mark.slow
def test_each_file_is_read_once(command_line, tmp_path, monkeypatch):
    """Versions of a table with deletion vectors share files; which of their rows are dead is the version's own."""
    run_inline(topology(tmp_path / "out", deletion_vectors=True), Config(group_transactions_max=1))
    read, portions = [], DataFolder.portions

    def noted(folder, file, *given, **options):
        read.append(file.path)
        return portions(folder, file, *given, **options)

    monkeypatch.setattr(DataFolder, "portions", noted)
    told = command_line.told("blame", "out", "--state", "last", "a")
    assert cells(told) == [("8", "8"), ("7", "7"), ("4", "removed"), ("3", "2"), ("1", "1")]
    assert len(read) == len(set(read)) > 3


def test_groups(command_line, run, tmp_path):
    """Of transactions that were committed together the last one that wrote the key is shown, with its group."""
    run(group=4)
    told = command_line.told("blame", "out", "b")
    groups = {
        entry.first: entry.last for part in read_journal(opened_journal(tmp_path / "out")) for entry in part.entries
    }
    expected = [(5, "5"), (2, "1")]
    shown = [line.split() for line in told.splitlines()[2:-1]]
    assert [(int(line[0]), line[-1]) for line in shown] == expected
    spans = {f"{first}-{last}": range(first, last + 1) for first, last in groups.items() if first < last}
    assert all(int(line[0]) in spans[line[1]] if "-" in line[1] else int(line[0]) in groups for line in shown)
    assert "no write: no earlier transaction wrote it" in command_line.told("blame", "out", "nobody")


@pytest.mark.slow
def test_as_far_as_versions_reach(command_line, run, tmp_path):
    """Where an old version is gone, the last line says so."""
    run(until=4)
    table = DeltaTable(tmp_path / "out" / "last")
    table.create_checkpoint()
    for number in range(table.version()):
        (tmp_path / "out" / "last" / "_delta_log" / f"{number:020d}.json").unlink()
    run()
    told = command_line.told("blame", "out", "b")
    assert cells(told) == [("5", "5"), ("2", "1")]
    assert told.splitlines()[-1].startswith("the table no longer keeps its version of transaction 1, so earlier writes")


def test_a_row_of_somebody_else(command_line, run, tmp_path):
    """One that was accepted is of no transaction, and what was before it is not known."""
    run(until=2)
    table = DeltaTable(tmp_path / "out" / "last")
    write_deltalake(
        table, pa.Table.from_pylist([{"name": "z", "n": 7}], schema=pa.schema(table.schema())), mode="append"
    )
    assert "no write: somebody else has put it there, without a transaction" in command_line.told("blame", "out", "z")


def test_refused(command_line, run):
    """A key that fits no state, an unknown state, and one without keys are named."""
    run()
    refused = command_line.refusal("blame", "out", "a", "b", "c")
    assert "state 'last': its key is name: give 1, not 3; state 'pairs'" in refused
    assert "'x' is not of type int64" in command_line.refusal("blame", "out", "--state", "pairs", "a", "x")
    assert "no table of a state 'none'; there are last, pairs, rows" in command_line.refusal(
        "blame", "out", "--state", "none", "a"
    )
    assert "its table has no keys" in command_line.refusal("blame", "out", "--state", "rows", "a")
