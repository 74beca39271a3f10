"""Sources that never end, and Kafka: what is there when a schedule begins is the input, and nothing outside is touched."""

import datetime as dt
import json
import re
from pathlib import Path

import pytest

from committers.kafka import KafkaBolt
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from spouts.kafka import ExponentialBackoff, KafkaSpout
from spouts.kafka.planner import FIRST_QUESTIONS
from state import MemoryState
from tests.budgets import examples
from tests.simulation.subjects import Total
from tests.spouts.kafka.in_memory import OpaqueInMemory, TransactionalInMemory
from tests.topologies import committing
from txtopo import (
    BasicBolt,
    Config,
    Coordinator,
    Emitter,
    FailedException,
    Fields,
    TransactionalSpout,
)
from txtopo.errors import ConfigError, TopologyError
from txtopo.testing import MemoryLog
from txtopo.testing.simulation.plain.world import make_plain_subject
from txtopo.testing.simulation.schedules import make_subject, run_schedules
from txtopo.topology.builders.plain_builder import TopologyBuilder

WORDS = """
from pathlib import Path

from committers import ReduceCommitter
from spouts import FilesTransactionalSpout
from state import DeltaState
from txtopo import Fields, TransactionalTopologyBuilder


def topology(watch=True):
    files = FilesTransactionalSpout("in", Fields("word: string", "n: long"), "json", batch_files_max=1, watch=watch)
    builder = TransactionalTopologyBuilder("words", "files", files)
    builder.set_bolt("sum", ReduceCommitter("words", "word", "n")).fields_grouping("files", Fields("word"))
    builder.set_state("words", DeltaState("out/words", key=Fields("word: string"), value=Fields("n: long")))
    return builder.build()
"""


@pytest.mark.long
@pytest.mark.parametrize("files", [1, 5, 20])
def test_a_watched_folder(command_line, files):
    """However many files are there, as many transactions are simulated, at most as many as ``--until`` says."""
    command_line.write_module("words", WORDS)
    write_files(command_line.folder / "in", files)
    result = command_line("simulate", "words", "--seeds", "60", "--processes", "1")
    assert result.exit_code == 0, result.output
    assert "every promise held" in result.output
    steps = command_line("simulate", "words", "--seed", "0").output
    assert f"txid {min(files, 12)}," in steps
    assert f"txid {min(files, 12) + 1}," not in steps
    again = [command_line("simulate", "words", "--seed", "3").output for _ in range(2)]
    assert without_log_ids(again[0]) == without_log_ids(again[1])


def without_log_ids(steps: str) -> str:
    return re.sub(r"[0-9a-f]{32}", "", steps)


@pytest.mark.slow
def test_a_watched_folder_without_files(command_line):
    """There is nothing to check: one line says so."""
    command_line.write_module("words", WORDS)
    (command_line.folder / "in").mkdir()
    result = command_line("simulate", "words")
    assert result.exit_code == 2
    assert "'files' gives no transaction in a simulated run" in result.stderr
    assert len(result.output.splitlines()) == 1


def write_files(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.json").write_text(json.dumps({"word": "cat", "n": number}))


class Queue(TransactionalSpout):
    """Gives a number in a transaction, as long as there are any, and then waits for ever."""

    output_fields = Fields("attempt", "delta")

    def __init__(self, available: int) -> None:
        self.available = available

    def coordinator(self, config, context):
        return QueueCoordinator(self.available)

    def emitter(self, config, context):
        return QueueEmitter()


class QueueCoordinator(Coordinator):
    def __init__(self, available: int) -> None:
        self.available = available
        self.taken = 0

    def resume(self, txid, metadata):
        self.taken = metadata or 0

    def is_ready(self):
        return self.taken < self.available

    def is_exhausted(self):
        return False

    def initialize_transaction(self, txid, previous_metadata):
        self.taken = (previous_metadata or 0) + 1
        return self.taken


class QueueEmitter(Emitter):
    def emit_batch(self, attempt, metadata, collector):
        collector.emit((attempt, metadata))


def summing(spout, quiet_after=None, *, at_end=False):
    total = Total()
    total.quiet_after, total.at_end = quiet_after, at_end
    return committing(spout, total, topology_id="summing", total=MemoryState(Fields("name"), Fields("n")))


@pytest.mark.slow
def test_a_source_of_ones_own_that_never_ends():
    """What it had to give is committed, whatever fails."""
    subject = make_subject(summing(Queue(5)), until=12)
    result = run_schedules(subject, range(1, 1 + examples(60)), processes=1)
    assert [(failure.seed, failure.violation) for failure in result.failures] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quiet_after", "until"), [(dt.timedelta(milliseconds=30), None), (dt.timedelta(seconds=2), 12)]
)
def test_a_quiet_source(quiet_after, until):
    """However many transactions without input begin, all input is taken once, and each attempt has the same time."""
    subject = make_subject(summing(Queue(5), quiet_after), until=until)
    assert subject.oracle.transactions > 5
    result = run_schedules(subject, range(1, 1 + examples(60)), processes=1)
    assert [(failure.seed, failure.violation) for failure in result.failures] == []


@pytest.mark.slow
@pytest.mark.parametrize("spout", [MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout])
def test_the_end_of_a_source(spout):
    """Whatever fails, there is one transaction after the last of the input."""
    subject = make_subject(summing(spout([1, 2, 3, 4, 5], Fields("delta"), 1), at_end=True))
    result = run_schedules(subject, range(1, 1 + examples(60)), processes=1)
    assert [(failure.seed, failure.violation) for failure in result.failures] == []
    if spout is MemoryTransactionalSpout:
        assert subject.oracle.transactions == 6


def test_a_source_that_never_gives_anything():
    """There is nothing to check."""
    with pytest.raises(TopologyError, match="'spout' gives no transaction"):
        make_subject(summing(Queue(0)), until=12)


class Refusing(BasicBolt):
    output_fields = Fields("key", "value")

    def execute(self, tuple, collector):
        if tuple["value"] == "5":
            raise FailedException("never")
        collector.emit((tuple["value"], tuple["value"]))


def orders(**settings):
    builder = TopologyBuilder("orders")
    builder.set_spout("orders", KafkaSpout("localhost:1", "orders", Fields("value"), **settings), 2)
    builder.set_bolt("refusing", Refusing(), 2).shuffle_grouping("orders")
    builder.set_bolt("out", KafkaBolt("localhost:1", "out")).shuffle_grouping("refusing")
    return builder.build()


def test_a_broker_is_refused():
    """Schedules would commit offsets of the real group; the error says what to give instead."""
    with pytest.raises(ConfigError, match=r"'orders' reads Kafka.*connect=log\.connect"):
        make_plain_subject(orders(), Config())


@pytest.mark.parametrize("kind", [TransactionalInMemory, OpaqueInMemory])
def test_a_broker_that_does_not_answer(kind):
    """It is told at once, before a schedule asks thousands of times and waits in real time for each answer."""
    log = MemoryLog()
    log.create_topic("orders")
    log.append("orders", ["1"])
    log.is_down = True
    topology = summing(kind(log, "orders", Fields("value")))
    with pytest.raises(ConfigError, match="'spout' reads Kafka at memory, which does not answer"):
        make_subject(topology)
    assert log.questions.count("topics") <= FIRST_QUESTIONS


@pytest.mark.slow
@pytest.mark.parametrize("subscribes", [False, True])
def test_kafka_in_memory(subscribes):
    """Each schedule reads the same records, also those that were committed in another one; no log is written to."""
    log = MemoryLog()
    log.create_topic("orders", partitions=2)
    for number in range(20):
        log.append("orders", [str(number)], number % 2)
    settings = {"connect": log.connect, "subscribe": subscribes, "dead_letter": refuse_all}
    topology = orders(retry_service=ExponentialBackoff(retries_max=2), **settings)
    subject = make_plain_subject(topology, Config())
    result = run_schedules(subject, range(1, 1 + examples(200)), processes=1)
    assert [(failure.seed, failure.violation) for failure in result.failures] == []
    told = [steps(subject, seed) for seed in (1, 2, 3)]
    assert [steps(subject, seed) for seed in (1, 2, 3)] == told
    assert any("is acked" in step for each in told for step in each)
    assert log.committed("orders-orders") == {}
    assert log.calls == []


def refuse_all(letter):
    raise AssertionError("nothing is written in a simulated run")


def steps(subject, seed):
    told: list[str] = []
    subject.world(seed, subject.kinds, log=told.append).run()
    return told
