"""A program that reads records one of which has a header whose name is not UTF-8, and prints what has become of it.

It is run as a process of its own, since confluent-kafka lets such a record end the process that reads it carelessly. The
broker is librdkafka's fake one. Only C can write such a name.
"""

import ctypes
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka

from spouts.kafka import DeadLetter, DeadLetterHook, KafkaRecord, KafkaSpout
from spouts.kafka.confluent.consumer import BrokerConsumer
from spouts.kafka.log import ConsumerSettings
from spouts.kafka.records import BadRecordsTable, record_format
from tests.spouts.kafka.plain.test_broker import Note, Seen
from txtopo import Fields, TopologyBuilder
from txtopo.attempts import TransactionAttempt
from txtopo.testing import InlineCluster, MemoryLog, RecordingCollector
from txtopo.testing.feeders import Shared
from txtopo.testing.memory_log import MemoryLogReader

TOPIC = "odd-headers"
BEFORE, AFTER = 300, 5
"""Enough records come first for Python to specialise the code that reads them."""

HEADERS = "headers: array<struct<key:string,value:binary>>"
_TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADER, _COPY = 1, 3, 4, 7, 9, 2


def produce_odd(servers: str) -> None:
    """Write a record with a header whose name is Latin-1."""
    (library,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
    rdkafka = ctypes.CDLL(str(library))
    rdkafka.rd_kafka_conf_new.restype = rdkafka.rd_kafka_new.restype = ctypes.c_void_p
    settings, reason = ctypes.c_void_p(rdkafka.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    assert rdkafka.rd_kafka_conf_set(settings, b"bootstrap.servers", servers.encode(), reason, 512) == 0, reason.value
    producer = ctypes.c_void_p(rdkafka.rd_kafka_new(0, settings, reason, 512))
    place = _TOPIC, TOPIC.encode(), _PARTITION, 0
    value, header = (_VALUE, b"v", ctypes.c_size_t(1)), (_HEADER, b"caf\xe9", b"x", ctypes.c_ssize_t(1))
    assert rdkafka.rd_kafka_producev(producer, *place, *value, _FLAGS, _COPY, *header, 0) == 0
    assert rdkafka.rd_kafka_flush(producer, 30_000) == 0
    rdkafka.rd_kafka_destroy(producer)


def write(producer: Any, records: int) -> None:
    for _ in range(records):
        producer.produce(TOPIC, b"v", headers=[("h", b"1")], partition=0)
    assert producer.flush(30) == 0


def read(servers: str) -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    messages: list[Any] = []
    while len(messages) < BEFORE + 1 + AFTER:
        messages += [each for each in consumer.consume(100, 1) if each.error() is None]
    consumer.close()
    return messages


def emitted(messages: list[Any], fields: Fields, deserializer: Any) -> dict[str, Any]:
    """Return the numbers of tuples and of bad records, and the reason of the latter."""
    attempt = TransactionAttempt(1, 1)
    collector = RecordingCollector(attempt, fields.with_attempt())
    letters: list[dict[str, Any]] = []
    bad = BadRecordsTable(lambda batch: letters.extend(batch.to_pylist()))
    record_format(fields, deserializer).emit(attempt, messages, bad, collector)
    bad.finish()
    found = [(letter["topic"], letter["partition"], letter["offset"], letter["reason"]) for letter in letters]
    return {"tuples": len(collector.tuples), "bad": found}


class Letters(Shared, DeadLetterHook):
    """Keeps the records that a spout gives up."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[DeadLetter] = []

    def take(self, letters: Sequence[DeadLetter]) -> None:
        self.taken.extend(letters)


def first_header(record: KafkaRecord) -> list[Any]:
    return [record.headers[0][0]]


def plain(servers: str, fields: Fields) -> dict[str, Any]:
    """Return what a plain topology makes of the records."""
    seen, letters = Seen(), Letters()
    log = MemoryLog()
    log.create_topic(TOPIC)
    log.append(TOPIC, [b""] * (BEFORE + 1 + AFTER))

    def connect(settings: ConsumerSettings) -> BrokerConsumer:
        consumer = BrokerConsumer(settings)
        consumer.log = MemoryLogReader(log)  # a mock broker does not answer an administrator's questions
        return consumer

    spout = KafkaSpout(servers, TOPIC, fields, first_poll="earliest", dead_letter=letters, connect=connect)
    builder = TopologyBuilder(f"odd-{len(fields)}")
    builder.set_spout("kafka", spout)
    builder.set_bolt("note", Note(seen)).shuffle_grouping("kafka")
    with InlineCluster(simulated_time=False) as cluster:
        running = cluster.submit(builder.build())
        running.wait_for(lambda: len(seen.acked) + len(letters.taken) == BEFORE + 1 + AFTER, "all records")
        running.stop()
    found = [(each.record.topic, each.record.partition, each.record.offset, each.reason) for each in letters.taken]
    return {"tuples": len(seen.acked), "bad": found}


def main() -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": "fake:9092", "test.mock.num.brokers": 1, "log_level": 3})
    (broker,) = producer.list_topics(timeout=30).brokers.values()
    servers = f"{broker.host}:{broker.port}"
    write(producer, BEFORE)
    produce_odd(servers)
    write(producer, AFTER)
    found = {
        "typed": emitted(read(servers), Fields("offset: long", HEADERS), None),
        "untyped": emitted(read(servers), Fields("offset", "headers"), None),
        "function": emitted(read(servers), Fields("name"), first_header),
        "function of values": emitted(read(servers), Fields("value"), lambda record: [record.value]),
        "other fields": emitted(read(servers), Fields("value"), None),
        "plain": plain(servers, Fields("topic", "partition", "offset", "headers")),
        "plain, other fields": plain(servers, Fields("topic", "partition", "offset")),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
