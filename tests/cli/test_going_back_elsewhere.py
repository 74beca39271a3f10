"""Going back with input from Kafka, and with coordinator state in a real ZooKeeper."""

import pathlib
import shutil

import pytest
from confluent_kafka import Consumer, TopicPartition

from state import read_table, read_tables
from tests.journals import journal_in
from tests.variants import variants
from txtopo.testing import MemoryLog
from txtopo.testing.inline import run_inline
from txtopo.topology.user_code.loading import load_target

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


RECORDS, COMMITTED, PART = 24, 12, 6
"""Records of two partitions, transactions, and the last one of the first part of the journal."""

WORLD = MemoryLog()

IN_MEMORY = """
from committers import AppendCommitter
from state import DeltaRows
from tests.cli.test_going_back_elsewhere import WORLD
from tests.spouts.kafka.in_memory import OpaqueInMemory, TransactionalInMemory
from txtopo import Config, Fields, TransactionalTopologyBuilder

def topology(opaque: str = "no"):
    kind = OpaqueInMemory if opaque == "yes" else TransactionalInMemory
    spout = kind(WORLD, "t", Fields("n: long"), batch_records_max=1, until_end=True)
    builder = TransactionalTopologyBuilder("t", "kafka", spout, 1)
    for name in ("rows", "copy"):
        builder.set_committer_bolt(f"to-{name}", AppendCommitter(name), 1).shuffle_grouping("kafka")
        builder.set_state(name, DeltaRows(f"out/{name}", Fields("n: long")))
    return builder.build()

def config():
    return Config(group_transactions_max=1, max_spout_pending=2)
"""


@pytest.fixture(params=["no", "yes"], ids=["transactional", "opaque"])
def retained(command_line, request):
    """Yield a function that runs to the end; then shortens the journal and the topic. A former table is in ``former``."""
    WORLD.create_topic("t", 2)
    for n in range(RECORDS):
        WORLD.append("t", [b'{"n": %d}' % n], n % 2)
    command_line.write_module("clicks", IN_MEMORY)

    def run(until: int | None = None) -> None:
        target = load_target("clicks", {"opaque": request.param})
        run_inline(target.topology, target.config, until=until)

    def prepare(kept: int, *, is_shortened: bool, former: int) -> None:
        for until in sorted({PART, former}):
            run(until)
            if until == former:
                shutil.copytree("out/copy", "former")
        run()
        if is_shortened:
            for part in sorted(journal_in(pathlib.Path("out")).iterdir())[: 1 if former > PART else 2]:
                part.unlink()
        WORLD.delete_records("t", {0: kept, 1: kept})

    prepare.run, prepare.values = run, ("--set", f"opaque={request.param}")
    yield prepare
    WORLD.delete_topic("t")


def check_copied() -> None:
    for name in ("rows", "copy"):
        assert sorted(read_table(f"out/{name}").to_pydict()["n"]) == list(range(RECORDS))


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("kept", "is_shortened"),
    [
        *((kept, True) for kept in (PART - 1, PART + 2, COMMITTED)),
        (PART + 2, False),
        *variants(
            long=[(0, True), (PART, True), *((kept, False) for kept in (0, PART - 1, PART, COMMITTED))],
        ),
    ],
)
def test_retention(command_line, retained, kept, is_shortened):
    """No way back leads past what the topic or the journal no longer has; every other one reads all of it again."""
    retained(kept, is_shortened=is_shortened, former=PART + 3)
    for txid in (0, PART - 1, PART, PART + 2, PART + 3, COMMITTED - 1):
        is_known = txid >= PART or not is_shortened
        is_there = is_known and txid >= kept
        for words in (("rewind", "--dry-run"), ("fork", f"side-{txid}"), ("rewind", "--yes")):
            told = command_line(words[0], "clicks", str(txid), words[1], *retained.values)
            assert (told.exit_code == 0) == is_there, (txid, words, told.output)
            if not is_there:
                gone = "are gone (retention" if is_known else "the journal no longer has transaction"
                assert gone in told.output.replace("can't be forked", gone), (txid, words)
        retained.run()
        check_copied()
    command_line.told("audit", "out")


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("kept", "former", "is_shortened"),
    [
        *((kept, former, True) for kept in (PART - 2, PART, PART + 3, PART + 4) for former in (PART - 2, PART + 3)),
        (PART, PART + 3, False),
        *variants(
            long=[(kept, former, False) for kept in (PART - 2, PART + 3, PART + 4) for former in (PART - 2, PART + 3)]
        ),
    ],
)
def test_retention_and_a_former_table(command_line, retained, kept, is_shortened, former):
    """A repair asks the same: what would be read again is there, or nothing is changed."""
    retained(kept, is_shortened=is_shortened, former=former)
    shutil.rmtree("out/copy")
    shutil.copytree("former", "out/copy")
    before = read_table("out/rows")
    told = command_line("repair", "clicks", "--yes", *retained.values)
    assert (told.exit_code == 0) == (former >= kept and (former > PART or not is_shortened)), told.output
    if told.exit_code:
        assert read_table("out/rows") == before
    else:
        retained.run()
        check_copied()
        command_line.told("audit", "out")
