"""A topic of its own, in memory or on a real broker: what both must promise is tested on each."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from committers.kafka import ConfluentSender
from spouts.kafka.confluent.connection import BrokerConnection
from spouts.kafka.confluent.consumer import BrokerConsumer
from spouts.kafka.confluent.log import BrokerLog
from spouts.kafka.log import ConsumerSettings, KafkaConsumer, TopicPartition
from tests.waiting import wait_for
from txtopo.testing import MemoryLog
from txtopo.testing.memory_log import MemoryLogReader
from txtopo.text.client_properties import ClientProperties

_numbers = itertools.count()


class Place:
    """A topic that is not created yet, and clients of it, which are closed at the end."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.topic = f"place-{next(_numbers)}"
        self.is_real = not isinstance(world, MemoryLog)
        self.servers = world.servers if self.is_real else "memory"
        self.make_sender: Any = ConfluentSender if self.is_real else world.connect_sender
        self.errors: list[Exception] = []
        self.clients: list[Any] = []

    def partition(self, number: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, number)

    def create(self, partitions: int = 1) -> None:
        self.world.create_topic(self.topic, partitions)

    def append(self, values: Any, partition: int = 0) -> None:
        (self.world.produce if self.is_real else self.world.append)(self.topic, values, partition)

    def in_transaction(self, records: int, *, aborts: bool = False) -> None:
        """Write records in a transaction: its marker takes an offset, and so do records that are aborted."""
        end = self.end() + records + 1
        if self.is_real:
            producer = Producer({"bootstrap.servers": self.servers, "transactional.id": self.topic, "log_level": 3})
            producer.init_transactions()
            producer.begin_transaction()
            for _ in range(records):
                producer.produce(self.topic, b"in a transaction", partition=0)
            producer.flush()
            (producer.abort_transaction if aborts else producer.commit_transaction)()
        elif aborts:
            self.world.skip(self.topic, records + 1)
        else:
            self.append([b"in a transaction"] * records)
            self.world.skip(self.topic, 1)
        wait_for("the marker", lambda: self.end() == end)

    def end(self, number: int = 0) -> int:
        return self.world.end_offsets(self.topic)[number]

    def delete_before(self, offset: int) -> None:
        self.world.delete_records(self.topic, {0: offset})

    def settings(self, group: str = "", reset: str = "earliest", **properties: Any) -> ConsumerSettings:
        client = ClientProperties(properties)
        return ConsumerSettings(self.servers, group or self.topic, reset, client, self.errors.append)

    def connect(self, **settings: Any) -> KafkaConsumer:
        made = (BrokerConsumer if self.is_real else self.world.connect)(self.settings(**settings))
        self.clients.append(made)
        return made

    def log(self) -> Any:
        connection = BrokerConnection(self.servers, ClientProperties())
        made = BrokerLog(connection, 10.0) if self.is_real else MemoryLogReader(self.world)
        self.clients.append(made)
        return made

    def read(self, count: int) -> list[Any]:
        """Return the first records of the topic's first partition."""
        reader, records = self.connect(group="reader"), []
        reader.assign({self.partition(): 0})

        def is_enough() -> bool:
            records.extend(reader.poll([self.partition()], 0.1, 100_000).get(self.partition(), []))
            return len(records) >= count

        wait_for(f"{count} records", is_enough)
        return records

    def close(self) -> None:
        for client in self.clients:
            client.close()


@pytest.fixture(params=["memory", pytest.param("broker", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A topic in memory, and one on a broker."""
    made = Place(MemoryLog() if request.param == "memory" else request.getfixturevalue("kafka"))
    yield made
    made.close()


@pytest.fixture
def broker_place(kafka: Any) -> Iterator[Place]:
    """A topic on a broker."""
    made = Place(kafka)
    yield made
    made.close()
