"""KafkaSpout in a running topology on a real broker: what only a real log does."""

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from spouts.kafka import ExponentialBackoff, KafkaSpout
from spouts.kafka.confluent.connection import BrokerConnection
from spouts.kafka.confluent.consumer import BrokerConsumer
from spouts.kafka.confluent.log import BrokerLog
from spouts.kafka.log import ConsumerSettings, StoredOffset, TopicPartition
from spouts.kafka.topics import PatternTopicFilter
from txtopo import Config, Fields, OutputCollector, RichBolt, TopologyBuilder, Tuple
from txtopo.errors import SourceFailure
from txtopo.servers.kafka import KafkaBroker
from txtopo.testing import InlineCluster, InlineTopology
from txtopo.testing.feeders import Shared
from txtopo.text.client_properties import ClientProperties

pytestmark = pytest.mark.slow

WAIT_SECS = 240.0
_numbers = itertools.count()


class Seen(Shared):
    """What the bolts have acked, and a way to let them fail."""

    def __init__(self) -> None:
        super().__init__()
        self.acked: Counter[tuple[str, int, int]] = Counter()
        self.fails: Callable[[tuple[str, int, int]], bool] = lambda place: False
        self.failed: Counter[tuple[str, int, int]] = Counter()


class Note(RichBolt):
    """Acks or fails each tuple, as the test says."""

    output_fields = None

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def prepare(self, config: Any, context: Any, collector: OutputCollector) -> None:
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        place = tuple["topic"], tuple["partition"], tuple["offset"]
        if self._seen.fails(place):
            self._seen.failed[place] += 1
            self._collector.fail(tuple)
        else:
            self._seen.acked[place] += 1
            self._collector.ack(tuple)


@pytest.fixture
def cluster() -> Iterator[InlineCluster]:
    with InlineCluster(simulated_time=False) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"spout-{next(_numbers)}"


def run(cluster: InlineCluster, broker: KafkaBroker, topics: Any, seen: Seen, **settings: Any) -> InlineTopology:
    defaults = {"offset_commit_period_ms": 100, "partition_refresh_period_ms": 200, "group_id": "g-" + str(topics)}
    spout = KafkaSpout(broker.servers, topics, Fields("topic", "partition", "offset"), **{**defaults, **settings})
    builder = TopologyBuilder("on-a-broker")
    builder.set_spout("kafka", spout, 2)
    builder.set_bolt("note", Note(seen)).shuffle_grouping("kafka")
    return cluster.submit(builder.build(), Config({"topology.max.spout.pending": 100}))


def committed(broker: KafkaBroker, group: str, topic: str, partitions: int = 1) -> dict[int, int]:
    log = BrokerLog(BrokerConnection(broker.servers, ClientProperties()), 10.0)
    try:
        found = log.stored([TopicPartition(topic, number) for number in range(partitions)], group)
    except SourceFailure:  # a broker that has just started has no coordinator of groups yet
        return {}
    finally:
        log.close()
    return {each.partition: stored.offset for each, stored in found.items()}


def wait_for_end(running: InlineTopology, broker: KafkaBroker, topic: str, partitions: int = 1) -> None:
    running.wait_for(
        lambda: committed(broker, f"g-{topic}", topic, partitions) == broker.end_offsets(topic), "log end", WAIT_SECS
    )


def test_transactions_and_aborts(cluster, kafka, topic):
    """Records of aborted transactions are not emitted, and the group reaches the end behind the last marker."""
    kafka.create_topic(topic)
    kafka.produce(topic, ["a", "b"], transactional_id=topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, "aborted")
    producer.flush()
    producer.abort_transaction()
    kafka.produce(topic, ["c"], transactional_id=topic)
    seen = Seen()
    wait_for_end(run(cluster, kafka, topic, seen), kafka, topic)
    assert [offset for _, _, offset in sorted(seen.acked)] == [0, 1, 5]
    assert kafka.end_offsets(topic) == {0: 7}


def test_head_deleted(cluster, kafka, topic):
    """Records that retention removes while their tuples fail count as done; the others are all processed."""
    kafka.create_topic(topic)
    kafka.produce(topic, [str(number) for number in range(100)])
    seen = Seen()
    seen.fails = lambda place: place[2] in {3, 4}
    running = run(cluster, kafka, topic, seen, retry_service=ExponentialBackoff(50, 50, delay_max_ms=50))
    running.wait_for(lambda: len(seen.acked) == 98 and seen.failed.total() > 4, "all but two", WAIT_SECS)
    running.wait_for(lambda: committed(kafka, f"g-{topic}", topic) == {0: 3}, "commit below the failed", WAIT_SECS)
    kafka.delete_records(topic, {0: 50})
    kafka.produce(topic, ["new"])
    wait_for_end(running, kafka, topic)
    assert {offset for _, _, offset in seen.acked} == set(range(101)) - {3, 4}


def test_topics_and_partitions_that_appear(cluster, kafka, topic):
    """Topics that match a pattern, and partitions, are found while the topology runs, and read from their beginning."""
    seen = Seen()
    running = run(cluster, kafka, f"^{topic}-x[0-9]", seen)
    for number in range(2):
        kafka.create_topic(f"{topic}-x{number}", 1 + number)
        kafka.produce(f"{topic}-x{number}", ["a"] * 10)
    running.wait_for(lambda: len(seen.acked) == 20, "two topics", WAIT_SECS)
    kafka.add_partitions(f"{topic}-x0", 3)
    kafka.produce(f"{topic}-x0", ["b"] * 5, partition=2)
    running.wait_for(lambda: (f"{topic}-x0", 2, 4) in seen.acked, "new partition", WAIT_SECS)
    assert len(seen.acked) == 25


@pytest.mark.long
def test_broker_that_is_away(cluster, tmp_path):
    """While the broker is away the topology lives; when it is back everything goes on, and nothing is left out."""
    with KafkaBroker(tmp_path) as broker:
        broker.create_topic("t", 2)
        for partition in (0, 1):
            broker.produce("t", ["a"] * 200, partition)
        seen = Seen()
        running = run(cluster, broker, "t", seen)
        running.wait_for(lambda: len(seen.acked) == 400, "records", WAIT_SECS)
        broker.kill()
        running.wait_for(lambda: any(status.last_error for status in running.statuses()), "a report", WAIT_SECS)
        broker.start()
        for partition in (0, 1):
            broker.produce("t", ["b"] * 200, partition)
        running.wait_for(lambda: len(seen.acked) == 800, "records", WAIT_SECS)
        wait_for_end(running, broker, "t", 2)
        assert running.errors == []


@pytest.mark.long
def test_polls_do_not_wait_for_other_calls(tmp_path):
    """While the broker is away a commit and a question wait, and a worker's loop goes on."""
    place = TopicPartition("t", 0)
    with KafkaBroker(tmp_path) as broker:
        broker.create_topic("t", 1)
        broker.produce("t", ["a"] * 10)
        client = BrokerConsumer(
            ConsumerSettings(broker.servers, "g", "earliest", ClientProperties(), lambda error: None)
        )
        client.assign({place: 0})
        records = []
        deadline = time.monotonic() + WAIT_SECS
        while len(records) < 10 and time.monotonic() < deadline:
            records += client.poll([place], 0.1, 10).get(place, [])
        first = client.begin_commit({place: StoredOffset(5)})
        while not first.done() and time.monotonic() < deadline:
            client.poll([place], 0.1, 10)
        broker.kill()
        second = client.begin_commit({place: StoredOffset(10)})

        def ask() -> None:
            with contextlib.suppress(SourceFailure):
                client.log.topics(PatternTopicFilter(".*"))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        client.poll([place], 0, 10)
        assert (asking.is_alive(), second.done()) == (True, False)
        broker.start()
        deadline = time.monotonic() + WAIT_SECS
        while not second.done() and time.monotonic() < deadline:
            client.poll([place], 0.1, 10)
        assert second.done()
        asking.join(WAIT_SECS)
        client.close()
