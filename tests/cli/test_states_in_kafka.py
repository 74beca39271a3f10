"""Commands on a topology that writes a topic: what is published stays, so what would undo it is refused by name."""

from __future__ import annotations

from tests.state.kafka.test_state import values
from txtopo import Config
from txtopo.cli.target import load_target
from txtopo.files.places import folder_at
from txtopo.testing.inline import run_inline
from txtopo.topology.topology import TransactionalTopology

MODULE = """
from committers import AppendCommitter, ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaState, KafkaState
from txtopo import Fields, TransactionalTopologyBuilder

ROWS = [[f"k{number % 3}", str(number)] for number in range(12)]
FIELDS = Fields("key: string", "value: string")


def topology(servers: str = "", topic: str = "", again: str = "no"):
    builder = TransactionalTopologyBuilder("out", "rows", MemoryTransactionalSpout(ROWS, FIELDS, 2))
    builder.set_committer_bolt("into-topic", AppendCommitter("topic")).global_grouping("rows")
    builder.set_state("topic", KafkaState(servers, topic, FIELDS, publishes_again=again == "yes"))
    newest = ReduceCommitter("table", "key", "value", max)
    builder.set_committer_bolt("into-table", newest).fields_grouping("rows", Fields("key"))
    builder.set_state("table", DeltaState("table", Fields("key: string"), Fields("value: string")))
    return builder.build()
"""


def test_what_is_published_stays(command_line, kafka):
    """A rewind is refused, and where the user asks for it publishes again; a fork writes to a topic of its own."""
    from txtopo.fork.forking import moved

    kafka.create_topic("published", 1)
    command_line.write_module("out", MODULE)
    options = {"servers": kafka.servers, "topic": "published"}
    sets = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    config = Config(group_transactions_max=2)

    def published(topic="published"):
        return [int(value) for value in values(kafka.servers, topic, 1)[0]]

    run_inline(load_target("out", options).topology, config, until=4)
    assert published() == list(range(8))
    for txid in ("2", "0"):
        refused = command_line("rewind", "out", txid, "--yes", *sets)
        assert refused.exit_code == 1
        assert "'topic' can't go back to" in refused.output
    refused = command_line("repair", "out", "--start-anew", "--yes", *sets)
    assert "can't be moved" in refused.output
    assert "begins empty" in command_line.told("fork", "out", "4", "side", *sets)
    target = load_target("out", options)
    plan, forked = moved(target.topology.plan, config, folder_at("side"))
    run_inline(TransactionalTopology(plan), forked)
    assert published(plan.states["topic"].topic) == list(range(8, 12))
    assert published() == list(range(8))
    again = (*sets, "--set", "again=yes")
    command_line.told("rewind", "out", "2", "--yes", *again)
    run_inline(load_target("out", {**options, "again": "yes"}).topology, config)
    assert published() == [*range(8), *range(4, 12)]
    assert "each once" in command_line.told("audit", "out", *again)
