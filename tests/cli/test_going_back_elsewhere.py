"""Rewind, fork and diff with input from a real Kafka broker and coordinator state in a real ZooKeeper."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from state import read_tables
from txtopo.testing.inline import run_inline
from txtopo.topology.loading import load_target

MODULE = """
from spouts.kafka import OpaqueKafkaSpout, TransactionalKafkaSpout
from state import DeltaRows, DeltaState
from committers import AppendCommitter
from tests.acceptance.topologies import CountTuples
from txtopo import Config, Fields, TransactionalTopologyBuilder

def topology(servers: str, topic: str, opaque: str = "no"):
    kind = OpaqueKafkaSpout if opaque == "yes" else TransactionalKafkaSpout
    spout = kind(servers, topic, Fields("word: string"), batch_records_max=2, until_end=True, publish_group=topic)
    builder = TransactionalTopologyBuilder(topic, "kafka", spout, 1)
    builder.set_committer_bolt("count", CountTuples(), 1).global_grouping("kafka")
    builder.set_committer_bolt("copy", AppendCommitter("rows"), 1).shuffle_grouping("kafka")
    builder.set_state("total", DeltaState("out/total", key=Fields("name: string"), value=Fields("n: long")))
    builder.set_state("rows", DeltaRows("out/rows", Fields("word: string")))
    return builder.build()

def config():
    return Config(group_transactions_max=1, max_spout_pending=2)
"""


def published(servers: str, group: str) -> int:
    """Return the sum of the offsets that a group has on a topic of its own name."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        partitions = [TopicPartition(group, partition) for partition in range(2)]
        return sum(max(0, each.offset) for each in consumer.committed(partitions, timeout=30))
    finally:
        consumer.close()


@pytest.mark.long
@pytest.mark.parametrize("opaque", ["no", "yes"])
def test_with_kafka_and_zookeeper(command_line, kafka, zookeeper, tmp_path, opaque):
    """All goes back together; the published group follows with the next run, and a fork leaves it alone."""
    topic = f"going-back-{opaque}"
    kafka.create_topic(topic, 2)
    for partition in range(2):
        kafka.produce(topic, [b'{"word": "%d-%d"}' % (partition, n) for n in range(10)], partition)
    values = {
        "servers": kafka.servers,
        "topic": topic,
        "opaque": opaque,
        "topology.state.store": "zookeeper",
        "transactional.zookeeper.servers": zookeeper.hosts,
    }
    command_line.write_module("clicks", MODULE)
    sets = [each for name, value in values.items() for each in ("--set", f"{name}={value}")]

    def run(until: int | None = None) -> None:
        target = load_target("clicks", values, tmp_path)
        run_inline(target.topology, target.config, until=until)

    run()
    last = read_tables("out").txid
    assert last >= 5
    assert published(kafka.servers, topic) == 20
    assert "transactions 3 to" in command_line.told("rewind", "clicks", "2", "--dry-run", *sets)
    command_line.told("fork", "clicks", "2", "side", *sets)
    command_line.told("rewind", "clicks", "2", "--yes", *sets)
    assert read_tables("out").txid == 2
    run(until=3)
    assert published(kafka.servers, topic) <= 12
    command_line.told("run", "clicks", *sets, "--fork", "side")
    assert published(kafka.servers, topic) <= 12
    run()
    assert published(kafka.servers, topic) == 20
    for folder in ("out", "side"):
        command_line.told("audit", folder)
        rows = read_tables(folder).tables["rows"]["word"].to_pylist()
        assert sorted(rows) == sorted(f"{partition}-{n}" for partition in range(2) for n in range(10))
    assert "✔" in command_line.told("diff", "out", "side")
