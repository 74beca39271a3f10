"""The spouts over Kafka keep the promises of their kinds, on a real broker and on topics in memory."""

import itertools

import pytest

from spouts.kafka import OpaqueKafkaSpout, TransactionalKafkaSpout
from tests.spouts.kafka.in_memory import OpaqueInMemory, TransactionalInMemory
from tests.waiting import wait_for
from txtopo import Fields
from txtopo.testing import MemoryLog, OpaquePartitionedTransactionalSpoutConformance, TransactionalSpoutConformance

_numbers = itertools.count()


def fill(world, append, topic: str) -> None:
    """Several transactions of three offsets: a partition with gaps, a short one, an empty one."""
    world.create_topic(topic, 3)
    append(topic, [(b"a", b"%d" % number) for number in range(8)], 0)
    append(topic, [(b"b", b"%d" % number) for number in range(4)], 1)


def memory() -> MemoryLog:
    world = MemoryLog()
    fill(world, world.append, "t")
    world.skip("t", 5)
    world.append("t", [b"transaction"] * 4)
    world.skip("t", 1)
    return world


def real(kafka) -> str:
    topic = f"conformance-{next(_numbers)}"
    fill(kafka, kafka.produce, topic)
    kafka.produce(topic, [b"transaction"] * 4, 0, transactional_id=topic)
    wait_for("the end of Kafka's transaction", lambda: kafka.end_offsets(topic)[0] == 8 + 4 + 1)
    return topic


FIELDS = Fields("key: binary", "value: binary", "partition: int", "offset: long")


class TestTransactionalInMemory(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self):
        return TransactionalInMemory(memory(), "t", FIELDS, batch_records_max=3, until_end=True)


class TestEndlessTransactionalInMemory(TransactionalSpoutConformance):
    is_endless = True

    @pytest.fixture
    def spout(self):
        return TransactionalInMemory(memory(), "t", Fields("value"), batch_records_max=3)


class TestOpaqueInMemory(OpaquePartitionedTransactionalSpoutConformance):
    @pytest.fixture
    def spout(self):
        return OpaqueInMemory(memory(), "t", FIELDS, batch_records_max=3, until_end=True)


class TestEndlessOpaqueInMemory(OpaquePartitionedTransactionalSpoutConformance):
    is_endless = True

    @pytest.fixture
    def spout(self):
        return OpaqueInMemory(memory(), "t", Fields("value"), batch_records_max=3)


@pytest.mark.slow
class TestTransactional(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, kafka):
        return TransactionalKafkaSpout(kafka.servers, real(kafka), batch_records_max=3, until_end=True)


@pytest.mark.slow
class TestOpaque(OpaquePartitionedTransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, kafka):
        return OpaqueKafkaSpout(kafka.servers, real(kafka), batch_records_max=3, until_end=True)
