"""The table of bad records on the command line: shown, audited, replayed and simulated as any other state."""

import importlib

import pytest

from state import read_table
from txtopo.testing.inline import run_inline

MODULE = """
from committers import AppendCommitter
from spouts import FilesTransactionalSpout
from state import DeltaRows
from txtopo import Fields, TransactionalTopologyBuilder

def topology():
    fields = Fields("n: long")
    spout = FilesTransactionalSpout("in", fields, batch_bytes=100, dead_letter="out/bad")
    builder = TransactionalTopologyBuilder("numbers", "files", spout, 2)
    builder.set_bolt("append", AppendCommitter("rows"), 1).global_grouping("files")
    builder.set_state("rows", DeltaRows("out/rows", fields))
    return builder.build()
"""


@pytest.mark.slow
def test_commands_know_the_table_of_bad_records(command_line):
    """Its committer and its state are drawn, proved, run again and simulated."""
    command_line.write_module("numbered", MODULE)
    (command_line.folder / "in").mkdir()
    for name in "ab":
        lines = ["[]" if n % 4 == 1 else f'{{"n": {n}}}' for n in range(30)]
        (command_line.folder / "in" / f"{name}.json").write_text("\n".join(lines))
    shown = command_line("show", "numbered")
    lines = [line.strip("│├└─ ") for line in shown.stdout.splitlines()]
    at = lines.index("spout.bad-records  committer, batch bolt, 2 tasks  AppendCommitter")
    assert lines[at + 1 : at + 3] == [
        "from files  local or shuffle grouping, stream bad-records, in the same task",
        "keeps spout.bad-records",
    ]
    fields = "(file: string, offset: bigint, line: bigint, text: string, reason: string)"
    assert f"spout.bad-records  DeltaRows, rows: {fields}" in lines
    topology = importlib.import_module("numbered").topology
    report = run_inline(topology())
    assert report.spout_rows == {"spout.bad-records": 16}
    assert len(read_table("out/bad")) == 16
    output = command_line.told("audit", "out")
    assert "spout.bad-records" in output
    for txid in {row["txid"] for row in read_table("out/bad").to_pylist()}:
        command_line.told("replay", "numbered", str(txid))
    command_line.told("simulate", "numbered", "--seeds", "20", "--processes", "1")
    output = command_line.told("repair", "numbered")
    assert "nothing to repair" in output
