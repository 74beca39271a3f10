"""What the spouts need of a cluster: the same on a real broker and on topics in memory, which stand in for one."""

import threading
from typing import Any

import attrs
import pytest
from confluent_kafka import Consumer, Producer

from spouts.kafka.confluent.connection import BrokerConnection
from spouts.kafka.confluent.log import BrokerLog
from spouts.kafka.log import LogRange, Lost, Span, StoredOffset, TopicPartition
from spouts.kafka.topics import topic_filter
from tests.spouts.kafka.places import Place
from tests.waiting import wait_for
from txtopo.errors import InputError, SourceFailure
from txtopo.text.client_properties import ClientProperties


@attrs.define(eq=False)
class Logged:
    """A log under test, and a topic in it of two partitions."""

    place: Place
    log: Any

    def read(self, spans, on_lost=None) -> list[tuple[int, int]]:
        chunks = self.log.read(spans, on_lost or self.refuse)
        return [(span.partition.partition, message.offset()) for span, messages in chunks for message in messages]

    def offsets(self, start: int, end: int, on_lost=None) -> list[int]:
        """Read a span, and return the offsets of its records."""
        return [offset for _, offset in self.read([Span(self.place.partition(), start, end)], on_lost)]

    @staticmethod
    def refuse(lost: Lost) -> None:
        raise InputError(str(lost))


def logged_at(place: Place) -> Logged:
    place.create(2)
    return Logged(place, place.log())


@pytest.fixture
def logged(place) -> Logged:
    return logged_at(place)


@pytest.fixture
def on_broker(broker_place) -> Logged:
    return logged_at(broker_place)


def test_topics_by_name_and_by_pattern(logged, place):
    """With their ids and partitions; a pattern must match the whole name."""
    place.world.create_topic(f"{place.topic}-more")
    (topic,) = logged.log.topics(topic_filter(place.topic))
    assert (topic.name, topic.partitions) == (place.topic, 2)
    assert topic.id
    assert [each.name for each in logged.log.topics(topic_filter(f"^{place.topic}"))] == [place.topic]
    assert len(logged.log.topics(topic_filter(f"^{place.topic}.*"))) == 2
    assert logged.log.topics(topic_filter(["nonsense"])) == []


def test_a_topic_made_anew_has_another_id(logged, place):
    (before,) = logged.log.topics(topic_filter(place.topic))
    place.world.delete_topic(place.topic)
    place.world.create_topic(place.topic, 2)
    (after,) = logged.log.topics(topic_filter(place.topic))
    assert before.id != after.id


def test_offsets(logged, place):
    """Where logs begin and end, what was there at a time, and what a group has stored."""
    both = [place.partition(0), place.partition(1)]
    place.append([b"x"] * 5, 0)
    place.world.delete_records(place.topic, {0: 2})
    assert logged.log.starts(both) == {both[0]: 2, both[1]: 0}
    assert logged.log.ends(both) == {both[0]: 5, both[1]: 0}
    assert logged.log.ranges(both) == {both[0]: LogRange(2, 5), both[1]: LogRange(0, 0)}
    assert logged.log.at(both, 1) == {both[0]: 2, both[1]: 0}
    assert logged.log.at(both, 2**42) == {both[0]: 5, both[1]: 0}
    wait_for("the coordinator of groups", lambda: _stores(logged, {both[0]: 3}))
    assert logged.log.stored(both, place.topic) == {both[0]: StoredOffset(3)}


def test_offsets_of_partitions_that_are_gone(logged, place):
    """Are left out, and those of the others are stored: a deleted topic has no lag to show."""
    there, gone = place.partition(0), TopicPartition(f"{place.topic}-gone", 0)
    wait_for("the coordinator of groups", lambda: _stores(logged, {there: 3, gone: 4, place.partition(7): 5}))
    assert logged.log.stored([there], place.topic) == {there: StoredOffset(3)}


def test_no_partitions():
    """Asked about none, it answers with nothing, and without a broker: Kafka refuses empty questions."""
    log = BrokerLog(BrokerConnection("127.0.0.1:1", ClientProperties()), 10.0)
    assert [log.starts([]), log.ranges([]), log.at([], 1), log.stored([], "group")] == [{}] * 4
    log.store({}, "group")
    log.close()


def test_offsets_that_cannot_be_stored(on_broker):
    """Are an error, although Kafka has answered: each partition has an answer of its own."""
    topic = on_broker.place.topic
    member = Consumer({"bootstrap.servers": on_broker.place.servers, "group.id": topic})
    member.subscribe([topic])
    wait_for("the member's partition", lambda: member.poll(0.1) or member.assignment())
    with pytest.raises(SourceFailure, match="nknown member"):  # a group with members takes offsets of them only
        on_broker.log.store({TopicPartition(topic, 0): 3}, topic)
    member.close()


def test_a_span_is_read_exactly(logged, place):
    place.append([b"x"] * 100, 0)
    assert logged.offsets(0, 100) == list(range(100))
    assert logged.offsets(17, 63) == list(range(17, 63))
    assert logged.offsets(99, 100) == [99]


def test_aborted_records_and_markers_are_gaps(logged, place):
    """They count as offsets; a span of nothing else is read at once, and is empty."""
    place.in_transaction(3)  # 0 to 2, marker 3
    place.in_transaction(4, aborts=True)  # 4 to 7, marker 8
    place.in_transaction(2)  # 9 and 10, marker 11
    assert logged.offsets(0, 12) == [0, 1, 2, 9, 10]
    assert logged.offsets(3, 9) == []
    assert logged.offsets(5, 6) == []
    assert logged.offsets(11, 12) == []
    assert logged.offsets(10, 12) == [10]


def test_the_end_is_that_of_committed_records(on_broker):
    """Records of a transaction that is not finished can't be read yet."""
    place, topic = on_broker.place, on_broker.place.topic
    place.append([b"x"] * 3)
    producer = Producer({"bootstrap.servers": place.servers, "transactional.id": topic, "log_level": 3})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    assert place.end() == 3
    assert on_broker.offsets(0, 3) == [0, 1, 2]
    producer.commit_transaction()
    wait_for("the marker", lambda: place.end() == 5)
    assert on_broker.offsets(3, 5) == [3]


def test_new_records_wake_who_waits(logged, place):
    """Of any partition, again and again; what was there before wakes nobody."""
    partitions = [place.partition(0), place.partition(1)]
    for number in (0, 1, 1):
        place.append([b"x"] * 3, 0)
        ends = logged.log.ends(partitions)
        assert not logged.log.wait(ends, 0.05)
        timer = threading.Timer(0.2, place.append, ([b"x"], number))
        timer.start()
        assert logged.log.wait(ends, 30.0) is place.is_real, "a log in memory is asked again instead"
        timer.join()


def test_several_spans_are_read_in_their_order(logged, place):
    """Records of a span come together, whatever the broker sends first."""
    place.append([b"x"] * 50, 0)
    place.append([b"x"] * 10, 1)
    spans = [Span(place.partition(1), 0, 10), Span(place.partition(0), 5, 50)]
    assert logged.read(spans) == [(1, offset) for offset in range(10)] + [(0, offset) for offset in range(5, 50)]
    assert logged.read([Span(place.partition(0), 0, 2), Span(place.partition(0), 2, 4)]) == [(0, at) for at in range(4)]


def test_chunks_depend_on_the_records_alone(logged, place):
    """So that an attempt emits the same each time: the same number of records together, except the last."""
    place.append([b"x"] * 25_000, 0)
    chunks = logged.log.read([Span(place.partition(), 1_000, 24_500)], logged.refuse)
    assert [len(messages) for _, messages in chunks] == [10_000, 10_000, 3_500]


@pytest.mark.parametrize("record", [b"x" * 900_000, (b"k" * 900_000, None)], ids=["values", "keys"])
def test_large_records_come_in_smaller_chunks(on_broker, record):
    """Some dozens of MiB at a time, of keys and values; that depends on the records alone, too."""
    on_broker.place.append([record] * 80)
    for start, sizes in ((0, [38, 38, 4]), (40, [38, 2]), (79, [1])):
        chunks = on_broker.log.read([Span(on_broker.place.partition(), start, 80)], Logged.refuse)
        assert [len(messages) for _, messages in chunks] == sizes


def test_lost_records_are_told(logged, place):
    """The offsets that are gone, and where the log begins; the reader may go on with what is left."""
    place.append([b"x"] * 20, 0)
    place.world.delete_records(place.topic, {0: 12})
    with pytest.raises(InputError, match=r"offsets 5 to 11 were not read yet and are gone; the log begins at 12"):
        logged.offsets(5, 20)
    told = []
    assert logged.offsets(5, 20, on_lost=told.append) == list(range(12, 20))
    assert [(lost.next, lost.first_kept) for lost in told] == [(5, 12)]
    assert logged.offsets(5, 10, on_lost=told.append) == []
    assert logged.offsets(12, 14) == [12, 13]


def test_a_compacted_topic_has_gaps(broker_place):
    """Only the last record of each key is left in what was compacted; a span reads what there is."""
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "500",
        "segment.ms": "500",
    }
    broker_place.world.create_topic(broker_place.topic, 1, config)
    logged = Logged(broker_place, broker_place.log())
    for _ in range(20):
        broker_place.append([(b"%d" % key, b"x" * 100) for key in range(100)], 0)

    def is_compacted() -> bool:
        broker_place.append([(b"new", b"x")], 0)
        return len(logged.offsets(0, 2_000)) < 1_000

    wait_for("the cleaner", is_compacted)
    left = logged.offsets(0, 2_000)
    assert left == sorted(set(left))
    middle = left[len(left) // 2]
    assert logged.offsets(0, middle) + logged.offsets(middle, 2_000) == left
    assert logged.offsets(0, left[0]) == []


def _stores(logged: Logged, offsets: dict[TopicPartition, int]) -> bool:
    """Store offsets, unless the broker has just started and has no coordinator of groups yet."""
    try:
        logged.log.store(offsets, logged.place.topic)
    except SourceFailure:
        return False
    return True
