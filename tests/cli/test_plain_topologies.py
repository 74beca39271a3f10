"""Commands on a plain topology: it is drawn in every form; commands for transactions say that it has none."""

from __future__ import annotations

import json

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
