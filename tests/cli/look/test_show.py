"""``txtopo show``: the graph with its phases, in three languages."""

import json
import re
import shutil
import subprocess

import pytest


def test_the_tree_has_phases_groupings_streams_and_states(command_line):
    """Each component stands in its phase, with how it is run, what it takes, emits and keeps."""
    result = command_line("show", "examples.transactional_words", "--set", "parallelism=3", "--set", "output=out")
    lines = [line.strip("│├└─ ") for line in result.stdout.splitlines()]
    assert lines == [
        "transactional-words  a replay carries the same tuples",
        "processing phase: works ahead, many transactions at once",
        "spout  spout, 3 tasks  FilesTransactionalSpout",
        "emits (attempt, line: string)",
        "split  batch bolt, 3 tasks  SplitAndCount",
        "from spout  shuffle grouping, in the same task",
        "emits (attempt, word: string, count: bigint)",
        "commit phase: one transaction after another, in txid order",
        "count  committer, batch bolt, 3 tasks  CountUpdater",
        "from split  fields(word) grouping",
        "emits (attempt, word: string, new: bigint, old: bigint)",
        "keeps word-counts",
        "bucketize  basic bolt, 3 tasks  Bucketize",
        "from count  none grouping, in the same task",
        "emits (attempt, bucket: bigint, delta: bigint)",
        "buckets  committer, batch bolt, 3 tasks  BucketUpdater",
        "from bucketize  fields(bucket) grouping",
        "keeps buckets",
        "states",
        "word-counts  DeltaState, transactional: (word: string) to (count: bigint)",
        "in out/word_counts",
        "buckets  DeltaState, transactional: (bucket: bigint) to (count: bigint)",
        "in out/buckets",
    ]


def test_mermaid_has_a_subgraph_for_each_phase(command_line):
    """The flowchart holds each component once, in its phase, and each edge and state."""
    text = command_line("show", "examples.global_count", "--format", "mermaid").stdout
    assert text.startswith("flowchart LR\n  subgraph processing_phase[")
    processing, commit = (part.partition("\n  end")[0] for part in text.split("subgraph ")[1:])
    assert re.findall(r"\n +(c\d)", processing) == ["c0", "c1"]
    assert re.findall(r"\n +(c\d\[\[)", commit) == ["c2[["]
    assert 'c0 -->|"shuffle grouping<br/>(attempt, word)"| c1' in text
    assert 'c1 -->|"global grouping<br/>(attempt, count)"| c2' in text
    assert "c2 -.- s0" in text


def test_graphviz_has_a_cluster_for_each_phase(command_line):
    """The digraph holds each component in its cluster, committers with a double line."""
    text = command_line("show", "examples.global_count", "--format", "graphviz").stdout
    assert text.startswith('digraph "global-count" {')
    assert 'subgraph "cluster_processing" {' in text
    assert '"sum" [label="sum\\ncommitter, batch bolt, 1 task", peripheries=2];' in text
    assert '"spout" -> "partial-count" [label="shuffle grouping\\n(attempt, word)"];' in text
    assert '"sum" -> "state global-count" [style=dashed, dir=none];' in text
    assert text.count("{") == text.count("}")


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_itself_takes_it(command_line):
    text = command_line("show", "examples.transactional_words", "--format", "graphviz").stdout
    drawn = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True)
    assert (drawn.stderr, "</svg>" in drawn.stdout) == ("", True)


def test_a_graph_as_json(command_line):
    graph = json.loads(command_line("show", "examples.ring", "--format", "json").stdout)
    assert [component["id"] for component in graph["components"]] == ["spout", "rethread"]
    assert graph["components"][1]["states"] == ["next", "back"]
    assert graph["edges"] == [{"source": "spout", "stream": "default", "target": "rethread", "grouping": "global"}]
    assert graph["states"]["next"]["key"] == "node: bigint"


def test_a_wrong_format_names_those_of_the_command(command_line):
    assert "there is no format 'csv'; there are text, mermaid, dot, json" in command_line.refusal(
        "show", "examples.ring", "--format", "csv", status=2
    )


KAFKA = """
from spouts.kafka import TransactionalKafkaSpout
from txtopo import BasicBolt, Fields, TransactionalTopologyBuilder


class Drop(BasicBolt):
    output_fields = Fields("attempt")

    def execute(self, tuple, collector):
        pass


spout = TransactionalKafkaSpout("s:1", "t", properties={"sasl.password": "correct-horse"})
builder = TransactionalTopologyBuilder("guarded", "spout", spout)
builder.set_bolt("drop", Drop()).shuffle_grouping("spout")
topology = builder.build()
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_password_is_not_shown(command_line, form):
    """Even if it is written into the topology."""
    command_line.write_module("guarded", KAFKA)
    output = command_line.told("show", "guarded", "--format", form)
    assert "TransactionalKafkaSpout" in output
    assert "correct-horse" not in output


def test_what_a_replay_carries_by_spout(command_line):
    """Each spout is named with its kind if there are several kinds."""
    command_line.write_module("job", MIXED)
    first = command_line("show", "job").stdout.splitlines()[0]
    assert first == (
        "both  orders, payments: a replay carries the same tuples; clicks: opaque spout: a replay may carry different tuples"
    )


MIXED = """
from pathlib import Path

from tests.acceptance.test_several_spouts import opaque_rows, rows, topology as made

def topology():
    return made(Path("out"), orders=rows("a"), clicks=opaque_rows("x"), payments=rows("p"))
"""
