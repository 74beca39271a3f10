"""A column that somebody has added to a table: its older versions do not have it, and are not damaged for that."""

import shutil

import pytest
from deltalake import DeltaTable, Field as Column

from committers import AppendCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState, read_table, read_tables
from txtopo import BatchBolt, Config, Fields, ICommitter, TransactionalTopologyBuilder
from txtopo.testing.inline import run_inline


class Keep(BatchBolt, ICommitter):
    """Keeps the last number of each word, and a note if there is a column for it."""

    def __init__(self, has_note: bool) -> None:
        self.has_note = has_note

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("words")
        self.rows = []

    def execute(self, tuple):
        self.rows.append((tuple["word"], tuple["n"]))

    def finish_batch(self):
        for word, n in self.rows:
            self.state.put(word, (n, "later") if self.has_note else n)


def topology(folder, has_note: bool):
    rows = [[f"w{n % 2}", n] for n in range(6)]
    spout = MemoryTransactionalSpout(rows, Fields("word: string", "n: long"), 1)
    builder = TransactionalTopologyBuilder("t", "rows", spout)
    builder.set_committer_bolt("keep", Keep(has_note), 1).global_grouping("rows")
    value = Fields("n: long", "note: string") if has_note else Fields("n: long")
    builder.set_state("words", DeltaState(folder / "words", Fields("word: string"), value))
    builder.set_bolt("append", AppendCommitter("all")).global_grouping("rows")
    builder.set_state("all", DeltaRows(folder / "all", Fields("word: string", "n: long")))
    return builder.build()


def run(folder, until, *, has_note=False):
    run_inline(topology(folder, has_note), Config(group_transactions_max=1), until=until)


@pytest.fixture
def repair(command_line, tmp_path):
    command_line.write_module(
        "noted",
        "import pathlib\nfrom tests.state.delta.read import test_added_column\n"
        f"def topology():\n    return test_added_column.topology(pathlib.Path({str(tmp_path)!r}), True)\n",
    )
    return lambda *options: command_line("repair", "noted", "--yes", *options)


@pytest.mark.slow
def test_audited_and_read(command_line, tmp_path, repair):
    """The audit compares what the versions have, and a reader of an older one finds nulls."""
    run(tmp_path, 3)
    DeltaTable(tmp_path / "words").alter.add_columns([Column("note", "string")])
    assert repair("--accept-foreign-writes").exit_code == 0
    run(tmp_path, 5, has_note=True)
    result = command_line("audit", str(tmp_path))
    assert (result.exit_code, "words: 5 groups" in result.output) == (0, True), result.output
    now = {row["word"]: row["note"] for row in read_table(tmp_path / "words").to_pylist()}
    assert now == {"w0": "later", "w1": "later"}
    for rows in (read_table(tmp_path / "words", 2), read_tables(tmp_path, 2).tables["words"]):
        assert {(row["word"], row["n"], row["note"]) for row in rows.to_pylist()} == {("w0", 0, None), ("w1", 1, None)}


def test_a_change_is_found_all_the_same(command_line, tmp_path, repair):
    """A value that somebody else changed, and nobody has accepted, is no new column."""
    run(tmp_path, 3)
    DeltaTable(tmp_path / "words").alter.add_columns([Column("note", "string")])
    assert repair("--accept-foreign-writes").exit_code == 0
    DeltaTable(tmp_path / "words").update(updates={"note": "'x'"}, predicate="word = 'w1'")
    result = command_line("audit", str(tmp_path))
    assert (result.exit_code, "UPDATE" in result.output) == (1, True)


@pytest.mark.slow
def test_rolled_back_to_before_it(tmp_path, repair):
    """The column stays, without values."""
    run(tmp_path, 3)
    shutil.copytree(tmp_path / "all", tmp_path / "backup")
    DeltaTable(tmp_path / "words").alter.add_columns([Column("note", "string")])
    assert repair("--accept-foreign-writes").exit_code == 0
    run(tmp_path, 5, has_note=True)
    shutil.rmtree(tmp_path / "all")
    shutil.move(tmp_path / "backup", tmp_path / "all")
    result = repair()
    assert "'words' to transaction 3" in result.output, result.output
    assert {row["note"] for row in read_table(tmp_path / "words").to_pylist()} == {None}
    run(tmp_path, 6, has_note=True)
    assert {row["word"]: row["n"] for row in read_table(tmp_path / "words").to_pylist()} == {"w0": 4, "w1": 5}
