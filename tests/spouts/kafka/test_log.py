"""What the spouts need of a cluster: the same on a real broker and on topics in memory, which stand in for one."""

from __future__ import annotations

import itertools
import threading
import time

import attrs
import pytest
from confluent_kafka import Consumer, Producer

from spouts.kafka.confluent import BrokerLog
from spouts.kafka.log import LogRange, Lost, Span, StoredOffset, TopicChoice, TopicPartition
from txtopo.client_properties import ClientProperties
from txtopo.errors import ConfigError, InputError, SourceFailure
from txtopo.kafka_connection import KafkaConnection
from txtopo.testing import KafkaBroker, MemoryLog
from txtopo.testing.memory_log import MemoryLogReader

_numbers = itertools.count()
DEADLINE_SECS = 120.0


@attrs.frozen
class Place:
    """A log under test, and a topic in it of two partitions."""

    world: object
    log: object
    topic: str

    @property
    def is_real(self) -> bool:
        return isinstance(self.log, BrokerLog)

    def partition(self, number: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, number)

    def end(self, number: int = 0) -> int:
        return self.log.ends([self.partition(number)])[self.partition(number)]

    def append(self, records: int, number: int = 0) -> None:
        write = self.world.produce if self.is_real else self.world.append
        write(self.topic, [b"x"] * records, number)

    def aborted(self, records: int) -> None:
        """Write records of a transaction that is aborted."""
        if not self.is_real:
            self.world.skip(self.topic, records + 1)
            return
        before = self.end()
        producer = Producer({"bootstrap.servers": self.world.servers, "transactional.id": self.topic, "log_level": 3})
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(self.topic, b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
        wait_until(lambda: self.end() == before + records + 1, "the marker is missing")

    def committed(self, records: int) -> None:
        """Write records of a transaction."""
        before = self.end()
        if self.is_real:
            self.world.produce(self.topic, [b"committed"] * records, 0, transactional_id=self.topic)
        else:
            self.append(records)
            self.world.skip(self.topic, 1)
        wait_until(lambda: self.end() == before + records + 1, "the marker is missing")

    def offsets(self, start: int, end: int, number: int = 0, on_lost=None) -> list[int]:
        """Read a span, and return the offsets of its records."""
        return [offset for _, offset in self.read([Span(self.partition(number), start, end)], on_lost)]

    def read(self, spans, on_lost=None) -> list[tuple[int, int]]:
        chunks = self.log.read(spans, on_lost or self.refuse)
        return [(span.partition.partition, message.offset()) for span, messages in chunks for message in messages]

    @staticmethod
    def refuse(lost: Lost) -> None:
        raise InputError(str(lost))


def broker_log(servers: str, timeout_secs: float = 10.0) -> BrokerLog:
    return BrokerLog(KafkaConnection(servers, ClientProperties()), timeout_secs)


def wait_until(condition, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.fixture(params=["memory", pytest.param("broker", marks=pytest.mark.slow)])
def place(request):
    topic = f"log-{next(_numbers)}"
    world = MemoryLog() if request.param == "memory" else request.getfixturevalue("kafka")
    world.create_topic(topic, 2)
    log = MemoryLogReader(world) if request.param == "memory" else broker_log(world.servers)
    yield Place(world, log, topic)
    log.close()


def test_topics_by_name_and_by_pattern(place):
    """With their ids and partitions; a pattern must match the whole name."""
    place.world.create_topic(f"{place.topic}-more")
    (topic,) = place.log.topics(TopicChoice.of(place.topic))
    assert (topic.name, topic.partitions) == (place.topic, 2)
    assert topic.id
    assert [each.name for each in place.log.topics(TopicChoice.of(f"^{place.topic}"))] == [place.topic]
    assert len(place.log.topics(TopicChoice.of(f"^{place.topic}.*"))) == 2
    assert place.log.topics(TopicChoice.of(["nonsense"])) == []


def test_a_topic_made_anew_has_another_id(place):
    """Although it has the same name."""
    (before,) = place.log.topics(TopicChoice.of(place.topic))
    place.world.delete_topic(place.topic)
    place.world.create_topic(place.topic, 2)
    (after,) = place.log.topics(TopicChoice.of(place.topic))
    assert before.id != after.id


def test_offsets(place):
    """Where logs begin and end, what was there at a time, and what a group has stored."""
    both = [place.partition(0), place.partition(1)]
    place.append(5, 0)
    place.world.delete_records(place.topic, {0: 2})
    assert place.log.starts(both) == {both[0]: 2, both[1]: 0}
    assert place.log.ends(both) == {both[0]: 5, both[1]: 0}
    assert place.log.ranges(both) == {both[0]: LogRange(2, 5), both[1]: LogRange(0, 0)}
    assert place.log.at(both, 1) == {both[0]: 2, both[1]: 0}
    assert place.log.at(both, 2**42) == {both[0]: 5, both[1]: 0}
    wait_until(lambda: _stores(place, {both[0]: 3}), "the coordinator of groups is missing")
    assert place.log.stored(both, place.topic) == {both[0]: StoredOffset(3)}


def test_offsets_of_partitions_that_are_gone(place):
    """Are left out, and those of the others are stored: a deleted topic has no lag to show."""
    there, gone = place.partition(0), TopicPartition(f"{place.topic}-gone", 0)
    wait_until(lambda: _stores(place, {there: 3, gone: 4, place.partition(7): 5}), "the coordinator is missing")
    assert place.log.stored([there], place.topic) == {there: StoredOffset(3)}


def test_no_partitions():
    """Asked about none, it answers with nothing, and without a broker: Kafka refuses empty questions."""
    log = broker_log("127.0.0.1:1")
    assert [log.starts([]), log.ranges([]), log.at([], 1), log.stored([], "group")] == [{}] * 4
    log.store({}, "group")
    log.close()


@pytest.mark.slow
def test_offsets_that_cannot_be_stored(kafka):
    """Are an error, although Kafka has answered: each partition has an answer of its own."""
    topic = f"log-{next(_numbers)}"
    kafka.create_topic(topic)
    log = broker_log(kafka.servers)
    member = Consumer({"bootstrap.servers": kafka.servers, "group.id": topic})
    member.subscribe([topic])
    wait_until(lambda: member.poll(0.1) or member.assignment(), "the member has no partition")
    with pytest.raises(SourceFailure, match="nknown member"):  # a group with members takes offsets of them only
        log.store({TopicPartition(topic, 0): 3}, topic)
    member.close()
    log.close()


def test_a_span_is_read_exactly(place):
    """Whatever its ends cut."""
    place.append(100, 0)
    assert place.offsets(0, 100) == list(range(100))
    assert place.offsets(17, 63) == list(range(17, 63))
    assert place.offsets(99, 100) == [99]


def test_aborted_records_and_markers_are_gaps(place):
    """They count as offsets; a span of nothing else is read at once, and is empty."""
    place.committed(3)  # 0 to 2, marker 3
    place.aborted(4)  # 4 to 7, marker 8
    place.committed(2)  # 9 and 10, marker 11
    assert place.offsets(0, 12) == [0, 1, 2, 9, 10]
    assert place.offsets(3, 9) == []
    assert place.offsets(5, 6) == []
    assert place.offsets(11, 12) == []
    assert place.offsets(10, 12) == [10]


@pytest.mark.slow
def test_the_end_is_that_of_committed_records(kafka):
    """Records of a transaction that is not finished can't be read yet."""
    topic = f"log-{next(_numbers)}"
    kafka.create_topic(topic)
    place = Place(kafka, broker_log(kafka.servers), topic)
    kafka.produce(topic, [b"x"] * 3, 0)
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic, "log_level": 3})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    assert place.end() == 3
    assert place.offsets(0, 3) == [0, 1, 2]
    producer.commit_transaction()
    wait_until(lambda: place.end() == 5, "the marker is missing")
    assert place.offsets(3, 5) == [3]
    place.log.close()


def test_new_records_wake_who_waits(place):
    """Of any partition, again and again; what was there before wakes nobody."""
    for number in (0, 1, 1):
        place.append(3, 0)
        ends = {place.partition(each): place.end(each) for each in range(2)}
        assert not place.log.wait(ends, 0.05)
        timer = threading.Timer(0.2, lambda at=number: place.append(1, at))
        timer.start()
        assert place.log.wait(ends, 30.0) is place.is_real, "a log in memory is asked again instead"
        timer.join()
        assert place.end(number) == ends[place.partition(number)] + 1


def test_several_spans_are_read_in_their_order(place):
    """Records of a span come together, whatever the broker sends first."""
    place.append(50, 0)
    place.append(10, 1)
    spans = [Span(place.partition(1), 0, 10), Span(place.partition(0), 5, 50)]
    assert place.read(spans) == [(1, offset) for offset in range(10)] + [(0, offset) for offset in range(5, 50)]
    assert place.read([Span(place.partition(0), 0, 2), Span(place.partition(0), 2, 4)]) == [(0, at) for at in range(4)]


def test_chunks_depend_on_the_records_alone(place):
    """So that an attempt emits the same each time: the same number of records together, except the last."""
    place.append(25_000, 0)
    chunks = place.log.read([Span(place.partition(), 1_000, 24_500)], place.refuse)
    assert [len(messages) for _, messages in chunks] == [10_000, 10_000, 3_500]


@pytest.mark.slow
@pytest.mark.parametrize("record", [b"x" * 900_000, (b"k" * 900_000, None)], ids=["values", "keys"])
def test_large_records_come_in_smaller_chunks(kafka, record):
    """Some dozens of MiB at a time, of keys and values; that depends on the records alone, too."""
    topic = f"log-{next(_numbers)}"
    kafka.create_topic(topic)
    kafka.produce(topic, [record] * 80, 0)
    log = broker_log(kafka.servers)
    for start, sizes in ((0, [38, 38, 4]), (40, [38, 2]), (79, [1])):
        chunks = log.read([Span(TopicPartition(topic, 0), start, 80)], Place.refuse)
        assert [len(messages) for _, messages in chunks] == sizes
    log.close()


def test_lost_records_are_told(place):
    """The offsets that are gone, and where the log begins; the reader may go on with what is left."""
    place.append(20, 0)
    place.world.delete_records(place.topic, {0: 12})
    with pytest.raises(InputError, match=r"offsets 5 to 11 were not read yet and are gone; the log begins at 12"):
        place.offsets(5, 20)
    told = []
    assert place.offsets(5, 20, on_lost=told.append) == list(range(12, 20))
    assert [(lost.next, lost.first_kept) for lost in told] == [(5, 12)]
    assert place.offsets(5, 10, on_lost=told.append) == []
    assert place.offsets(12, 14) == [12, 13]


@pytest.mark.slow
def test_a_compacted_topic_has_gaps(kafka):
    """Only the last record of each key is left in what was compacted; a span reads what there is."""
    topic = f"log-{next(_numbers)}"
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "500",
        "segment.ms": "500",
    }
    kafka.create_topic(topic, 1, config)
    log = broker_log(kafka.servers)
    place = Place(kafka, log, topic)
    for _ in range(20):
        kafka.produce(topic, [(b"%d" % key, b"x" * 100) for key in range(100)], 0)

    def is_compacted() -> bool:
        kafka.produce(topic, [(b"new", b"x")], 0)
        return len(place.offsets(0, 2_000)) < 1_000

    wait_until(is_compacted, "the cleaner has not come")
    left = place.offsets(0, 2_000)
    assert left == sorted(set(left))
    middle = left[len(left) // 2]
    assert place.offsets(0, middle) + place.offsets(middle, 2_000) == left
    assert place.offsets(0, left[0]) == []
    log.close()


@pytest.mark.long
@pytest.mark.slow
def test_a_broker_that_is_gone_for_a_while(kafka, tmp_path):
    """A read fails in time, and works again when the broker is back."""
    del kafka  # which skips if a broker can't be had
    with KafkaBroker(tmp_path / "kafka") as broker:
        broker.create_topic("t", 2)
        broker.produce("t", [b"x"] * 10, 0)
        log = broker_log(broker.servers, 3.0)
        place = Place(broker, log, "t")
        assert place.offsets(0, 10) == list(range(10))
        broker.kill()
        with pytest.raises(SourceFailure, match="does not answer"):
            place.offsets(0, 10)
        with pytest.raises(SourceFailure):
            place.end()
        broker.start()
        wait_until(lambda: place.is_real and _reads(place), "it can't be read")
        log.close()


def _stores(place: Place, offsets: dict[TopicPartition, int]) -> bool:
    """Store offsets, unless the broker has just started and has no coordinator of groups yet."""
    try:
        place.log.store(offsets, place.topic)
    except SourceFailure:
        return False
    return True


def _reads(place: Place) -> bool:
    try:
        return place.offsets(0, 10) == list(range(10))
    except SourceFailure:
        return False


def test_secrets_are_in_no_error(monkeypatch):
    """The client's complaints about settings do not repeat a password."""
    monkeypatch.setenv("TXTOPO_TEST_PASSWORD", "correct horse")
    properties = ClientProperties({"sasl.mechanism": "env:TXTOPO_TEST_PASSWORD"})
    with pytest.raises(ConfigError, match="Kafka's client refuses them") as caught:
        BrokerLog(KafkaConnection("127.0.0.1:1", properties), 1.0).ends([TopicPartition("t", 0)])
    assert "correct horse" not in str(caught.value)


@pytest.mark.parametrize("topics", ["", [], ["a", "a"], ["a", 1], "^("])
def test_wrong_topics(topics):
    """The error says what may be given."""
    with pytest.raises(ConfigError, match="topics is"):
        TopicChoice.of(topics)


def test_a_pattern_never_takes_topics_of_kafka_itself():
    """Whatever it matches."""
    assert not TopicChoice.of("^.*").takes("__consumer_offsets")
