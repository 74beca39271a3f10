"""Topologies that read each other's tables."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from committers import AppendCommitter
from spouts import DeltaTransactionalSpout, MemoryTransactionalSpout, TransactionalSpout
from state import DeltaRows, read_table
from tests.crashes import Crash, run_with_crash
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder

NUMBER = Fields("n: long")
COUNT = 12


def copying(folder: Path, stage: int) -> TransactionalTopology:
    """The first one makes a table of numbers; each other one copies the table before it."""
    spout: TransactionalSpout = MemoryTransactionalSpout(list(range(COUNT)), NUMBER, 1)
    if stage:
        spout = DeltaTransactionalSpout(str(folder / f"rows{stage - 1}"), NUMBER, batch_files_max=2)
    builder = TransactionalTopologyBuilder(f"stage{stage}", "numbers", spout)
    builder.set_bolt("append", AppendCommitter("rows"), 2).shuffle_grouping("numbers")
    builder.set_state("rows", DeltaRows(folder / f"rows{stage}", NUMBER))
    return builder.build()


STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), max_size=12)


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
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
