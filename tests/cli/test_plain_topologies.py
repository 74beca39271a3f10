"""Commands on a plain topology: it is drawn in every form; commands for transactions say that it has none."""

import pytest

from tests.processes import ran

TARGET = "examples.word_count"


@pytest.mark.parametrize("form", ["text", "mermaid", "dot"])
def test_every_component_and_edge_is_drawn(command_line, form):
    output = command_line.told("show", TARGET, "--format", form)
    for word in ("sentences", "split", "count", "counts", "shuffle grouping", "fields(word) grouping", "2 tasks"):
        assert word in output


ODD = """
from examples.word_count import Sentences
from txtopo import TopologyBuilder

builder = TopologyBuilder("odd")
builder.set_spout("wörter <b>", Sentences(["a"]))
topology = builder.build()
"""


@pytest.mark.parametrize(
    ("form", "shown"), [("dot", "wörter <b>"), ("mermaid", "wörter &lt;b&gt;"), ("json", "wörter <b>")]
)
def test_names_are_drawn_as_they_are(command_line, form, shown):
    """Letters beyond ASCII stay, and what would be a tag in Mermaid is none."""
    command_line.write_module("odd", ODD)
    assert shown in command_line.told("show", "odd", "--format", form)


@pytest.mark.parametrize(
    ("status", "command"), [(2, ("audit", TARGET)), (1, ("explain", TARGET, "1")), (2, ("replay", TARGET, "1"))]
)
def test_commands_for_transactions(command_line, status, command):
    """They are refused with the reason, before anything is read or written."""
    refusal = command_line.refusal(*command, status=status)
    assert "'word-count' is a plain topology, which has no transactions" in refusal


def test_until(command_line):
    assert "leave --until out" in command_line.refusal("run", TARGET, "--until", "3", status=2)


def test_real_time(command_line):
    """It processes tuple by tuple in any case."""
    assert "leave --real-time out" in command_line.refusal("run", TARGET, "--real-time", status=2)


@pytest.mark.slow
@pytest.mark.parametrize("target", [(TARGET,), ("examples.single_join", "--set", "people=8")])
def test_simulate(command_line, target):
    """Every promise holds in some schedules of the examples; the faults are counted."""
    output = command_line.told("simulate", *target, "--seeds", "60", "--processes", "1")
    assert "60 schedules in" in output
    assert "every promise held" in output
    for kind in ("kills", "pauses", "failures", "clockjumps"):
        assert kind in output


@pytest.mark.slow
def test_a_simulated_schedule_can_be_repeated():
    """The same seed makes the same schedule, in whatever process, with whatever salt of Python's hashes."""
    command = ["-m", "txtopo", "simulate", TARGET, "--seed", "1"]
    traces = [ran(*command, PYTHONHASHSEED=salt).stdout for salt in ("1", "2")]
    assert traces[0] == traces[1]
    assert traces[0].count("\n") > 100


def test_simulate_refuses_what_is_for_transactions(command_line):
    """The kinds of fault are a plain topology's own."""
    result = command_line("simulate", TARGET, "--only", "lostleads")
    assert "there are kills, errors, pauses" in result.stderr


def test_simulate_refuses_a_spout_that_emits_nothing(command_line):
    """There is nothing to check: it says so rather than that every promise held."""
    assert "the spouts of 'word-count' emit nothing in a simulated run" in command_line.refusal(
        "simulate", TARGET, "--set", "sentences=0", status=2
    )
