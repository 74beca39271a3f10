"""Commands on a plain topology: it is drawn in every form; commands for transactions say that it has none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TARGET = "examples.word_count"


@pytest.mark.parametrize("form", ["text", "mermaid", "dot"])
def test_every_component_and_edge_is_drawn(command_line, form):
    """Each form names components and groupings."""
    result = command_line("show", TARGET, "--format", form)
    assert result.exit_code == 0
    for word in ("sentences", "split", "count", "counts", "shuffle grouping", "fields(word) grouping", "2 tasks"):
        assert word in result.stdout


@pytest.mark.parametrize("command", [("audit", TARGET), ("explain", TARGET, "1"), ("replay", TARGET, "1")])
def test_commands_for_transactions(command_line, command):
    """They are refused with the reason, before anything is read or written."""
    result = command_line(*command)
    assert result.exit_code != 0
    assert "'word-count' is a plain topology, which has no transactions" in result.stderr


def test_until(command_line):
    """``--until`` names a transaction, so it is refused."""
    result = command_line("run", TARGET, "--until", "3")
    assert result.exit_code != 0
    assert "leave --until out" in result.stderr


@pytest.mark.parametrize("target", [(TARGET,), ("examples.single_join", "--set", "people=8")])
def test_simulate(command_line, target):
    """Every promise holds in some schedules of the examples; the faults are counted."""
    result = command_line("simulate", *target, "--seeds", "60", "--processes", "1")
    assert result.exit_code == 0, result.output
    assert "60 schedules in" in result.output
    assert "every promise held" in result.output
    for kind in ("kills", "pauses", "failures", "clockjumps"):
        assert kind in result.output


@pytest.mark.slow
def test_a_simulated_schedule_can_be_repeated():
    """The same seed makes the same schedule, in whatever process, with whatever salt of Python's hashes."""
    command = [sys.executable, "-m", "txtopo.cli", "simulate", TARGET, "--seed", "16"]
    traces = [
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": salt}).stdout
        for salt in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert traces[0].count(b"\n") > 100


def test_simulate_refuses_what_is_for_transactions(command_line):
    """The bolts of a plain topology always run; the kinds of fault are its own."""
    assert "--run-all is for transactional topologies" in command_line("simulate", TARGET, "--run-all").stderr
    result = command_line("simulate", TARGET, "--only", "lostleads")
    assert "there are kills, errors, pauses" in result.stderr


def test_simulate_refuses_a_spout_that_emits_nothing(command_line):
    """There is nothing to check: it says so rather than that every promise held."""
    result = command_line("simulate", TARGET, "--set", "sentences=0")
    assert result.exit_code != 0
    assert "the spouts of 'word-count' emit nothing in a simulated run" in result.stderr
