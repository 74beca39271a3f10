"""Commands on a plain topology: it is drawn in every form; commands for transactions say that it has none."""

from __future__ import annotations

import json
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


def test_json(command_line):
    """Programs read ids, tasks, streams and edges."""
    graph = json.loads(command_line("show", TARGET, "--format", "json").stdout)
    assert (graph["topology"], graph["kind"]) == ("word-count", "plain")
    assert [component["tasks"] for component in graph["components"]] == [[1, 2], [3, 4], [5, 6], [7]]
    assert {"source": "count", "stream": "default", "target": "counts", "grouping": "global"} in graph["edges"]


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


def test_a_failing_schedule_is_shrunk_and_can_be_replayed(command_line, tmp_path, monkeypatch):
    """A spout that can't bear a failure is found; what is printed replays it, with few faults in it."""
    (tmp_path / "unforgiving.py").write_text(UNFORGIVING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = command_line("simulate", "unforgiving", "--seeds", "200", "--processes", "1")
    assert result.exit_code == 1, result.output
    line = next(line for line in result.output.splitlines() if line.startswith("to replay it: "))
    command = line.removeprefix("to replay it: txtopo ").split()
    assert len(command[command.index("--faults") + 1].split(",")) <= 3
    again = command_line(*command)
    assert again.exit_code == 1
    assert "nothing may fail" in again.output


UNFORGIVING = """
from txtopo import BasicBolt, Fields, Spout, TopologyBuilder


class Unforgiving(Spout):
    output_fields = Fields("n")

    def open(self, config, context, collector):
        self.collector = collector

    def next_tuple(self):
        self.collector.emit([1], message_id=1)

    def fail(self, message_id):
        raise ValueError("nothing may fail")


class Take(BasicBolt):
    def execute(self, tuple, collector):
        pass


def topology():
    builder = TopologyBuilder("unforgiving")
    builder.set_spout("spout", Unforgiving())
    builder.set_bolt("bolt", Take(), 2).shuffle_grouping("spout")
    return builder.build()
"""


def test_simulate_refuses_what_is_for_transactions(command_line):
    """The kinds of fault are a plain topology's own."""
    result = command_line("simulate", TARGET, "--only", "lostleads")
    assert "there are kills, errors, pauses" in result.stderr


def test_simulate_refuses_a_spout_that_emits_nothing(command_line):
    """There is nothing to check: it says so rather than that every promise held."""
    result = command_line("simulate", TARGET, "--set", "sentences=0")
    assert result.exit_code != 0
    assert "the spouts of 'word-count' emit nothing in a simulated run" in result.stderr
