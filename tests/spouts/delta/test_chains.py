"""Topologies that read each other's tables."""

import re
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from polars import col

from committers import AppendCommitter, ReduceCommitter
from spouts import DeltaTransactionalSpout, MemoryTransactionalSpout, TransactionalSpout
from state import DeltaRows, DeltaState, read_table
from tests.budgets import examples
from tests.cli.conftest import CommandLine, command_line
from tests.crashes import Crash, run_with_crash
from txtopo import Config, Fields, TransactionalTopology, TransactionalTopologyBuilder
from txtopo.errors import InputError
from txtopo.streams import Flow
from txtopo.testing import run_inline

__all__ = ["command_line"]

NUMBER = Fields("n: long")
COUNT = 12

GROUPS = Config(group_transactions_max=2, history_recent_secs=24 * 3600)  # whoever reads later on a busy machine


def copying(folder: Path, stage: int, factor: int = 1, count: int = COUNT) -> TransactionalTopology:
    """The first one makes a table of numbers; each other one copies the table before it."""
    numbers = [number * factor for number in range(count)]
    spout: TransactionalSpout = MemoryTransactionalSpout(numbers, NUMBER, 1)
    if stage:
        spout = DeltaTransactionalSpout(str(folder / f"rows{stage - 1}"), NUMBER, batch_files_max=2)
    builder = TransactionalTopologyBuilder(f"stage{stage}", "numbers", spout)
    builder.set_bolt("append", AppendCommitter("rows"), 2).shuffle_grouping("numbers")
    builder.set_state("rows", DeltaRows(folder / f"rows{stage}", NUMBER))
    return builder.build()


STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), max_size=12)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(15))
@given(steps=STEPS)
def test_three_that_die(steps: list[tuple[int, int]]) -> None:
    """Whichever of three dies wherever, and however often: the last table has each number once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stage, at in [*steps, (0, 0), (1, 0), (2, 0)]:
            if stage and not (folder / f"rows{stage - 1}" / "_delta_log").exists():
                continue
            run_with_crash(lambda stage=stage: copying(folder, stage), Crash(at))
        assert sorted(read_table(folder / "rows2")["n"].to_pylist()) == list(range(COUNT))


MODULE = """
from pathlib import Path
from tests.spouts.delta.test_chains import {made}

def topology(stage: int = 0, factor: int = 1):
    return {made}(Path("."), stage, factor)
"""


def totals(folder: Path, stage: int, factor: int = 1, count: int = COUNT) -> TransactionalTopology:
    """The first one has the sum of numbers by their last digit; each other one copies the table before it."""
    if not stage:
        rows = [[number % 3, number * factor] for number in range(count)]
        spout = MemoryTransactionalSpout(rows, Fields("digit: long", "n: long"), 1)
        builder = TransactionalTopologyBuilder("stage0", "numbers", spout)
        builder.set_committer_bolt("sum", ReduceCommitter("rows", "digit", "n"), 2).fields_grouping(
            "numbers", Fields("digit")
        )
        builder.set_state("rows", DeltaState(folder / "rows0", Fields("digit: long"), Fields("n: long")))
        return builder.build()
    flow = Flow(f"stage{stage}", output=str(folder))
    fields = Fields("digit: long", "n: long", "_change_type: string", "_commit_version: long")
    changes = flow.source("changes", DeltaTransactionalSpout(str(folder / f"rows{stage - 1}"), fields, changes="emit"))
    changes = changes.filter(col("_change_type") != "update_preimage")
    changes = changes.with_columns(deleted=col("_change_type") == "delete")
    changes.apply_changes(f"rows{stage}", key="digit", sequence="_commit_version", deleted="deleted")
    return flow.build()


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("made", [copying, totals])
@pytest.mark.parametrize("at_once", [1, 2])
def test_the_first_goes_back(
    command_line: CommandLine, made: Callable[..., TransactionalTopology], at_once: int
) -> None:
    """The next one is told, refuses, and names the way; whoever follows it has what the first makes now, each time."""
    command_line.write_module("chain", MODULE.format(made=made.__name__))
    for count in range(4, COUNT + 1, 4):
        for stage in range(3):
            run_inline(made(Path(), stage, 1, count), GROUPS)
    for factor in range(2, 4):
        for _ in range(at_once):
            command_line.told("rewind", "chain", str(COUNT // 2), "--yes")
            run_inline(made(Path(), 0, factor), GROUPS)
        for stage in (1, 2):
            with pytest.raises(InputError, match=f"topology 'stage{stage - 1}' has gone back") as refused:
                run_inline(made(Path(), stage, 1), GROUPS)
            way = re.search(r"run again: txtopo (rewind MODULE --to '[^']*')", str(refused.value))
            assert way is not None, refused.value
            command = [{"MODULE": "chain"}.get(each, each) for each in shlex.split(way[1])]
            command_line.told(*command, "--yes", "--set", f"stage={stage}")
            run_inline(made(Path(), stage, 1), GROUPS)
            first, copy = (read_table(f"rows{each}") for each in (0, stage))
            assert sorted(copy["n"].to_pylist()) == sorted(first["n"].to_pylist())
