"""A topology that reads another one's table of rows: each row once, and a refusal once the other one has gone back."""

import pathlib

import pytest

from state import read_table
from txtopo.errors import InputError
from txtopo.testing.inline import run_inline
from txtopo.topology.user_code.loading import load_target

FIRST = """
from committers import AppendCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaRows
from txtopo import Config, Fields, TransactionalTopologyBuilder

def topology():
    spout = MemoryTransactionalSpout([[n] for n in range(100)], Fields("n: long"), 10)
    builder = TransactionalTopologyBuilder("first", "numbers", spout)
    builder.set_bolt("append", AppendCommitter("rows"), 2).shuffle_grouping("numbers")
    builder.set_state("rows", DeltaRows("first/rows", Fields("n: long")))
    return builder.build()

def config():
    return Config(group_transactions_max=1)
"""

SECOND = """
from committers import AppendCommitter
from spouts import DeltaTransactionalSpout
from state import DeltaRows
from txtopo import Fields, TransactionalTopologyBuilder

def topology():
    fields = Fields("n: long", "txid: long")
    builder = TransactionalTopologyBuilder("second", "first", DeltaTransactionalSpout("first/rows", fields), 2)
    builder.set_bolt("append", AppendCommitter("copy"), 2).shuffle_grouping("first")
    builder.set_state("copy", DeltaRows("second/copy", Fields("n: long", "of: long")))
    return builder.build()
"""


@pytest.mark.slow
def test_the_other_one_goes_on_and_goes_back(command_line, tmp_path: pathlib.Path) -> None:
    """Rows come as they are committed, with their transaction, through upkeep of the table; what was undone is told."""
    command_line.write_module("first", FIRST)
    command_line.write_module("second", SECOND)

    def run(name: str, until: int | None = None) -> None:
        target = load_target(name, {}, tmp_path)
        run_inline(target.topology, target.config, until=until)

    for until in (3, 7, None):
        run("first", until)
        run("second")
        rows = read_table("first/rows").select(["n", "txid"]).to_pylist()
        copied = read_table("second/copy").select(["n", "of"]).to_pylist()
        assert sorted((each["n"], each["of"]) for each in copied) == sorted((row["n"], row["txid"]) for row in rows)
    assert len(copied) == 100
    assert "✔" in command_line.told("audit", "second")
    command_line.told("rewind", "first", "8", "--yes")
    run("first")
    with pytest.raises(
        InputError, match=r"'first' has gone back: version \d+ of the table at .*first/rows brings back"
    ):
        run("second")
    assert read_table("second/copy").num_rows == 100
