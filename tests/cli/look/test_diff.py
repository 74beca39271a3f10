"""``txtopo diff``: where two outputs differ as of the same transaction, in numbers, samples and the exit status."""

import pytest

from committers import AppendCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState
from tests.acceptance.topologies import CountWords, Partial
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.testing.inline import run_inline

WORDS = ["fig", "plum", "fig", "kiwi", "fig", "plum", "lime", "fig"]


class CountsFigsTwice(CountWords):
    """Has a bug."""

    def execute(self, tuple):
        self.counts[tuple["word"]] += tuple["n"] * (2 if tuple["word"] == "fig" else 1)


def words(output, committer=None, *, data=WORDS):
    """Return a topology of a keyed table and a table of rows, with two words in each transaction."""
    builder = TransactionalTopologyBuilder(
        "words", "spout", MemoryTransactionalSpout([[w] for w in data], Fields("word: string"), 2)
    )
    builder.set_bolt("partial", Partial(), 1).shuffle_grouping("spout")
    builder.set_committer_bolt("count", committer or CountWords(), 1).fields_grouping("partial", Fields("word"))
    builder.set_committer_bolt("append", AppendCommitter("log"), 1).shuffle_grouping("spout")
    builder.set_state("words", DeltaState(output / "words", key=Fields("word: string"), value=Fields("n: long")))
    builder.set_state("log", DeltaRows(output / "log", Fields("word: string")))
    return builder.build()


@pytest.fixture
def outputs(command_line, tmp_path):
    """Return what makes the outputs ``a`` and ``b``."""

    def run(name, committer=None, until=None, group=1, data=WORDS):
        run_inline(words(tmp_path / name, committer, data=data), Config(group_transactions_max=group), until=until)

    run("a")
    return run


def lines(result, status):
    assert result.exit_code == status, result.output
    return result.stdout.splitlines()


@pytest.mark.slow
def test_the_same(command_line, outputs):
    """Equal tables are counted, and the status is 0; one topology may be behind the other, or group otherwise."""
    outputs("b", until=3)
    assert lines(command_line("diff", "a", "b"), 0) == [
        "A, a, is at transaction 4; B, b, at 3",
        "as of transaction 3",
        "words: 3 rows equal",
        "log: 6 rows equal",
        "✔ the same",
    ]
    outputs("c", group=2)
    assert "as of transaction 4" in lines(command_line("diff", "a", "c"), 0)


@pytest.mark.slow
def test_a_bug_is_found(command_line, outputs):
    """Rows that differ are told by key, and what a range of transactions wrote can be told alone."""
    outputs("b", CountsFigsTwice())
    assert lines(command_line("diff", "a", "b"), 1)[1:] == [
        "as of transaction 4",
        "words: 1 row with other values, 3 rows equal",
        "  differs    word=fig  n: 4 in A, 8 in B",
        "log: 8 rows equal",
        "✘ different",
    ]
    told = lines(command_line("diff", "a", "b", "--from", "2", "--to", "2", "--limit", "0"), 1)
    assert told[1:3] == ["words: 1 row with other values, 1 row equal", "log: 2 rows equal"]


@pytest.mark.slow
def test_rows_of_one_table(command_line, outputs):
    """Keys and rows that only one has are shown, in the order of the keys and up to a limit."""
    outputs("b", data=[*WORDS[:6], "pear", "fig"])
    assert lines(command_line("diff", "a", "b", "--limit", "1"), 1)[2:-1] == [
        "words: 1 row only in A, 1 row only in B, 3 rows equal",
        "  only in A  word=lime  n=1",
        "  only in B  word=pear  n=1",
        "log: 1 row only in A, 1 row only in B, 7 rows equal",
        "  only in A  word=lime",
        "  only in B  word=pear",
    ]
    assert lines(command_line("diff", "a", "b", "log", "--limit", "0"), 1)[1:] == [
        "as of transaction 4",
        "log: 1 row only in A, 1 row only in B, 7 rows equal",
        "✘ different",
    ]
    assert lines(command_line("diff", "a", "b", "--to", "3"), 0)[-1] == "✔ the same"
    assert lines(command_line("diff", "a", "b", "--from", "1", "--to", "3"), 0)[-1] == "✔ the same"
    assert lines(command_line("diff", "a", "b", "--from", "4"), 1)[2].startswith(
        "words: 1 row only in A, 1 row only in B"
    )


@pytest.mark.slow
def test_single_tables(command_line, outputs):
    """Two tables are compared as of the last transaction of both."""
    outputs("b", CountsFigsTwice(), until=3)
    assert lines(command_line("diff", "a/words", "b/words"), 1) == [
        "as of transaction 3",
        "words: 1 row with other values, 2 rows equal",
        "  differs    word=fig  n: 3 in A, 6 in B",
        "✘ different",
    ]
    outputs("c", CountWords())
    assert lines(command_line("diff", "a/words", "c/words", "--txids"), 0) == ["words: 4 rows equal", "✔ the same"]


@pytest.mark.slow
def test_outputs_that_share_no_end_of_a_group(command_line, outputs):
    """It says up to where the one that is behind is to run."""
    outputs("b", group=1, until=1)
    outputs("b", group=2, until=3)
    outputs("c", group=1, until=2)
    assert lines(command_line("diff", "b", "c"), 0)[:3] == [
        "A, b, is at transaction 3; B, c, at 2",
        "to compare them later, run B with --until 3",
        "as of transaction 1",
    ]


def test_what_cannot_be_compared(command_line, outputs):
    """It is said in a line, with what to do."""
    assert "A and B must both be tables" in command_line.refusal("diff", "a", "a/words", status=2)
    assert "--from 3 is after --to 2" in command_line.refusal("diff", "a", "a", "--from", "3", "--to", "2", status=2)
    assert "there is no journal" in command_line.refusal("diff", "a", "nothing", status=2)
    assert "a and a have no table 'wörter' in common, only words, log" in command_line.refusal(
        "diff", "a", "a", "words", "wörter", status=2
    )
    assert "TABLE is for two folders" in command_line.refusal("diff", "a/log", "a/log", "log", status=2)
    assert "is 4" in command_line.refusal("diff", "a", "a", "--to", "9", status=2)
    for address in ("hdfs://x", "s3://"):
        said = command_line.refusal("diff", address, "a/words", status=2)
        assert "cannot be read; it may be damaged, or out of reach" in said


UNDONE = """
from pathlib import Path
from tests.cli.look.test_diff import words

def topology():
    return words(Path("b"))
"""


@pytest.mark.slow
def test_ends_of_groups_that_were_undone_do_not_count(command_line, outputs):
    """Starts at 2 and at 3 count no longer once a rewind has gone back to 1: the tables may have no version of them."""
    for until in (1, 2, 3):
        outputs("b", until=until)
    command_line.write_module("undone", UNDONE)
    command_line.told("rewind", "undone", "1", "--yes")
    outputs("b", group=3)
    outputs("c", until=2)
    told = lines(command_line("diff", "b", "c"), 0)
    assert told[0] == "A, b, is at transaction 4; B, c, at 2"
    assert (told[-4], told[-1]) == ("as of transaction 1", "✔ the same")
