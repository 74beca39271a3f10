"""``txtopo backfill``: what it says, and a ``kill -9`` in the middle."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

import examples
import txtopo.cli.backfill
from tests.engine.backfills import WORLD
from txtopo.testing.inline import inline_environment, run_inline
from txtopo.topology.loading import load_target

ROOT = pathlib.Path(examples.__file__).parent.parent

MODULE = """
import pathlib
from tests.engine.backfills import WORLD, counting

WORLD.rows = [f"w{n % 3}" for n in range(12)]

def topology(output: str = ".", more: str = ""):
    return counting(pathlib.Path(output), "words", *filter(None, [more]))
"""


@pytest.fixture
def inline(monkeypatch):
    """Run what the command runs in this process."""
    monkeypatch.setattr(txtopo.cli.backfill, "_environment", lambda *_: inline_environment())
    yield
    WORLD.__init__()


@pytest.fixture
def module(command_line, tmp_path):
    command_line.write_module("counting", MODULE)
    run_inline(load_target("counting", {}).topology)
    return "counting"


ADDED = ("--set", "more=lengths")

INLINE = """
import txtopo.cli.backfill
from txtopo.cli.main import main
from txtopo.testing.inline import inline_environment

txtopo.cli.backfill._environment = lambda *_: inline_environment()
main()
"""
"""The command in a process of its own, without Spark."""


def test_a_state_gets_its_history(command_line, module, inline):
    """It says what runs, where it joined, and how to go on."""
    told = command_line.told("backfill", module, "lengths", *ADDED)
    assert "topology 't': backfill of 'lengths', from transaction 1\n  runs again: rows, upper, count-lengths\n" in told
    end = "joined the topology at transaction 12: 'lengths'; to continue: txtopo run counting --set more=lengths\n"
    assert told.endswith(end)
    assert "lengths: " in command_line.told("audit", ".")
    again = command_line.refusal("backfill", module, "lengths", *ADDED)
    assert "topology 't' has state 'lengths' already: there is nothing to backfill" in again


def test_mistakes_are_said_in_a_line(command_line, module, inline):
    assert "has no state 'lengths'" in command_line.refusal("backfill", module, "lengths")
    assert "--from" in command_line.refusal("backfill", module, "lengths", *ADDED, "--from", "0", status=2)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["group.decide.after", "backfill.enter.after"])
def test_a_kill_in_the_middle_goes_on(command_line, module, inline, point):
    """``kill -9`` leaves a topology that starts as before, and that the same command joins."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TXTOPO_FAILPOINTS": f"{point}=kill"}
    command = [sys.executable, "-c", INLINE, "backfill", module, "lengths", *ADDED]
    assert subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False).returncode == -9
    WORLD.rows.append("w0")
    run_inline(load_target(module, {}).topology)
    assert "joined the topology at transaction 13" in command_line.told("backfill", module, "lengths", *ADDED)
    assert "backfilled up to transaction 13" in command_line.told("audit", ".")
