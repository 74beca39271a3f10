"""KafkaBolt: what is acked is in the topic, errors fail, and the loop never waits. On a log in memory and on a broker."""

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from committers.kafka import ConfluentSender, KafkaBolt, KafkaMessage, KafkaSender, SenderSettings
from tests.spouts.kafka.places import Place
from tests.spouts.kafka.plain.rig import Context
from txtopo import Config, Fields, OutputCollector, PlainTopology, TopologyBuilder
from txtopo.errors import ConfigError, FieldsError
from txtopo.testing import AckFailMapTracker, FeederSpout, InlineCluster, MemoryLog, make_tuple
from txtopo.text.client_properties import ClientProperties

WAIT_SECS = 240.0

WHEN_MS = time.time_ns() // 1_000_000
"""The timestamp of a record: a broker would soon remove one of long ago."""


@pytest.fixture
def place(place) -> Place:
    place.create()
    return place


@pytest.fixture
def in_memory() -> Place:
    made = Place(MemoryLog())
    made.create()
    return made


@pytest.fixture
def cluster() -> Iterator[InlineCluster]:
    with InlineCluster(simulated_time=False) as running:
        yield running


def topology(feeder: FeederSpout, bolt: KafkaBolt, tasks: int = 1) -> PlainTopology:
    builder = TopologyBuilder("bolt")
    builder.set_spout("feeder", feeder)
    builder.set_bolt("kafka", bolt, tasks).shuffle_grouping("feeder")
    return builder.build()


def fed(cluster: InlineCluster, bolt: KafkaBolt, *tuples: Any, fields: Any = ("key", "value")) -> tuple[Any, Any]:
    tracker = AckFailMapTracker()
    feeder = FeederSpout(Fields(*fields), tracker)
    running = cluster.submit(topology(feeder, bolt))
    for number, values in enumerate(tuples):
        feeder.feed_no_wait(values, number)
    running.wait_for(lambda: len(tracker.acked) + len(tracker.failed) >= len(tuples), "answers", WAIT_SECS)
    return running, tracker


def test_acked_when_acknowledged(cluster, place):
    """Every tuple is acked when its record is in the topic, with its key and its value."""
    bolt = KafkaBolt(place.servers, place.topic, connect=place.make_sender)
    _, tracker = fed(cluster, bolt, *[(f"k{number}", f"v{number}") for number in range(1_000)])
    assert len(tracker.acked) == 1_000
    assert not tracker.failed
    records = place.read(1_000)
    assert {(record.key, record.value) for record in records} == {
        (f"k{number}".encode(), f"v{number}".encode()) for number in range(1_000)
    }
    assert len(records) == 1_000


def test_unknown_topic(cluster, place):
    """A record that the broker refuses fails its tuple, with the reason, and no other tuple; the worker lives."""
    bolt = KafkaBolt(
        place.servers,
        topic_field="to",
        connect=place.make_sender,
        properties={"topic.metadata.propagation.max.ms": 500},
    )
    running, tracker = fed(cluster, bolt, ("no-such-topic", "v"), (place.topic, "v"), (3, "v"), fields=("to", "value"))
    assert set(tracker.failed) == {0, 2}
    assert set(tracker.acked) == {1}
    assert running.errors == []
    assert any(status.last_error for status in running.statuses())


def message_of(tuple: Any) -> KafkaMessage | None:
    if tuple["value"] == "skip":
        return None
    return KafkaMessage("", b"k", tuple["value"].encode(), 0, WHEN_MS, (("h", b"1"), ("n", None)))


def test_mapper(cluster, place):
    """A mapper makes the whole record; a tuple that it makes nothing of is acked, and nothing is written."""
    topic = place.topic

    def mapper(tuple):
        made = message_of(tuple)
        return made and KafkaMessage(topic, made.key, made.value, made.partition, made.timestamp_ms, made.headers)

    _, tracker = fed(
        cluster, KafkaBolt(place.servers, mapper=mapper, connect=place.make_sender), ("a", "skip"), ("a", "x"), ("a", 3)
    )
    assert set(tracker.acked) == {0, 1}
    assert set(tracker.failed) == {2}
    (record,) = place.read(1)
    assert (record.key, record.value, record.timestamp.timestamp(), record.headers) == (
        b"k",
        b"x",
        WHEN_MS / 1_000,
        [("h", b"1"), ("n", None)],
    )


def test_fields_and_serializers(cluster, place):
    """Fields by name, serializers for what is no text; a tuple without a key field has no key."""
    bolt = KafkaBolt(
        place.servers,
        place.topic,
        key_field="id",
        value_field="n",
        value_serializer=lambda n: b"%d" % n,
        connect=place.make_sender,
    )
    _, tracker = fed(cluster, bolt, (7,), ("x",), fields=("n",))
    assert (set(tracker.acked), set(tracker.failed)) == ({0}, {1})
    assert [(each.key, each.value) for each in place.read(1)] == [(None, b"7")]


def test_end_of_a_run(place):
    """What is open when the run ends is written before it does."""
    tracker = AckFailMapTracker()
    feeder = FeederSpout(Fields("key", "value"), tracker)
    with InlineCluster(simulated_time=False) as cluster:
        running = cluster.submit(topology(feeder, KafkaBolt(place.servers, place.topic, connect=place.make_sender)))
        for number in range(100):
            feeder.feed([None, str(number)])
        running.stop()
    assert len(place.read(100)) == 100


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        (("k", 3.5), {}, "topic 'TOPIC', field 'value' of 3.5: it is neither text nor bytes"),
        (({}, "v"), {}, "topic 'TOPIC', field 'key' of {}: it is neither text nor bytes"),
        (("k\x1b[2J", "v"), {}, "record for topic 'TOPIC', key b'k\\x1b[2J': "),
        ((None, "v"), {}, "record for topic 'TOPIC', no key: the log refuses to send"),
        (
            ("k", "v\x1b"),
            {"value_serializer": int},
            "topic 'TOPIC', field 'value' of 'v\\x1b': ValueError: invalid literal",
        ),
    ],
)
def test_errors_name_the_record(cluster, in_memory, values, options, said):
    """By its topic and key, or by the field that does not become bytes."""
    in_memory.world.refuse("send")
    bolt = KafkaBolt("memory", in_memory.topic, connect=in_memory.make_sender, **options)
    running, tracker = fed(cluster, bolt, values)
    assert set(tracker.failed) == {0}
    (error,) = [status.last_error for status in running.statuses() if status.last_error]
    assert said.replace("TOPIC", in_memory.topic) in error


def test_what_is_no_record():
    """Fails its tuple, as the client refuses it; the worker lives."""
    sender = ConfluentSender(SenderSettings("127.0.0.1:1", ClientProperties(), 1_000, lambda error: None))
    for wrong in (
        KafkaMessage("t", value=3),
        KafkaMessage("t", headers=(("\udc80", b""),)),
        KafkaMessage("t", timestamp_ms="x"),
    ):
        with pytest.raises(
            FieldsError, match=r"it is no record \(.*\); its key has type NoneType and its value (int|NoneType)"
        ):
            sender.send(wrong, lambda error: None)
    with pytest.raises(FieldsError, match="timestamp_ms=0 Kafka's client would make now"):
        sender.send(KafkaMessage("t", timestamp_ms=0), lambda error: None)
    sender.close(0)


def test_full_queue(cluster, in_memory):
    """While the client's queue is full, tuples wait in the bolt; all are written in the end, in order."""
    in_memory.world.send_queue_max = 7
    bolt = KafkaBolt("memory", in_memory.topic, connect=in_memory.make_sender)
    _, tracker = fed(cluster, bolt, *[(None, str(n)) for n in range(100)])
    assert len(tracker.acked) == 100
    assert [each.value for each in in_memory.read(100)] == [str(number).encode() for number in range(100)]


def test_full_queue_of_the_client(cluster, broker_place):
    """The same with librdkafka's queue."""
    broker_place.create()
    options = {"properties": {"queue.buffering.max.messages": 10}}
    _, tracker = fed(cluster, KafkaBolt(broker_place.servers, broker_place.topic, **options), *[(None, "v")] * 500)
    assert len(tracker.acked) == 500
    assert len(broker_place.read(500)) == 500


class StuckSender(KafkaSender):
    """A sender whose answers wait for the test."""

    go_on = threading.Event()

    def __init__(self, settings: SenderSettings) -> None:
        self.calls: list[Any] = []

    def send(self, message, on_delivery):
        self.calls.append(on_delivery)
        return True

    def serve(self, timeout_secs):
        if StuckSender.go_on.wait(WAIT_SECS):
            while self.calls:
                self.calls.pop(0)(None)

    def close(self, timeout_secs):
        pass


def test_the_loop_does_not_wait(cluster):
    """While no answer comes, the worker goes on: tuples of other bolts are executed and acked."""
    StuckSender.go_on.clear()
    tracker = AckFailMapTracker()
    feeder = FeederSpout(Fields("key", "value"), tracker)
    builder = TopologyBuilder("bolt")
    builder.set_spout("feeder", feeder)
    builder.set_bolt("kafka", KafkaBolt("memory", "t", connect=StuckSender)).shuffle_grouping("feeder")
    running = cluster.submit(builder.build(), Config({"topology.workers": 1}))
    for number in range(50):
        feeder.feed(["k", "v"], number)
    running.wait_for(lambda: running.statistics()["kafka"].executed == 50, "executions", WAIT_SECS)
    assert not tracker.acked
    StuckSender.go_on.set()
    tracker.assert_acked(*range(50))


class Answers(OutputCollector):
    """Keeps what is acked and failed."""

    def __init__(self):
        self.acked, self.failed = [], []

    def emit(self, values, *anchors, stream="default"):
        raise NotImplementedError

    def emit_direct(self, task, values, *anchors, stream="default"):
        raise NotImplementedError

    def ack(self, tuple):
        self.acked.append(tuple["value"])

    def fail(self, tuple):
        self.failed.append(tuple["value"])

    def reset_timeout(self, tuple):
        raise NotImplementedError

    def report_error(self, error):
        pass


@pytest.fixture
def bolt_and_calls():
    """A bolt whose client takes two records, given five; what it asks to be done beside the loop; and its log."""
    log, answers, context = MemoryLog(), Answers(), Context("topology", 1, 0)
    log.create_topic("t")
    log.send_queue_max = 2
    context.holds = True
    bolt = KafkaBolt("memory", "t", connect=log.connect_sender)
    bolt.prepare({}, context, answers)
    for number in range(5):
        bolt.execute(make_tuple([str(number)], fields=["value"]))
    return bolt, context.offloaded, answers, log


def test_answers_are_waited_for_while_records_are_open(bolt_and_calls):
    """And no longer; a tuple that comes when there is room again is written behind those that waited for it."""
    bolt, calls, answers, log = bolt_and_calls
    for number in range(5, 9):
        if calls:
            call, on_done = calls.pop()
            done = Future()
            done.set_result(call())
            if number == 5:
                bolt.execute(make_tuple(["5"], fields=["value"]))
            on_done(done)
    assert [record.value for record in log.records("t")] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert (answers.acked, calls) == (["0", "1", "2", "3", "4", "5"], [])


def test_what_waits_at_the_end_of_a_run(bolt_and_calls):
    """Is written, too, although the client's queue is full."""
    bolt, _, _, log = bolt_and_calls
    bolt.cleanup()
    assert [record.value for record in log.records("t")] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.long
@pytest.mark.slow
def test_broker_killed(cluster, tmp_path):
    """While the broker is away tuples fail in time; when it is back they are acked again. The worker lives."""
    from txtopo.servers.kafka import KafkaBroker

    with KafkaBroker(tmp_path) as broker:
        broker.create_topic("bolt")
        tracker = AckFailMapTracker()
        feeder = FeederSpout(Fields("key", "value"), tracker)
        bolt = KafkaBolt(broker.servers, "bolt", properties={"message.timeout.ms": 2_000})
        running = cluster.submit(topology(feeder, bolt))
        numbers = itertools.count()

        def feed_until(condition):
            end = time.monotonic() + WAIT_SECS
            while True:
                number = next(numbers)
                feeder.feed(["k", str(number)], number)
                settled = lambda number=number: tracker.is_acked(number) or tracker.is_failed(number)
                running.wait_for(settled, "answer", WAIT_SECS)
                if condition(number):
                    return
                assert time.monotonic() < end

        feed_until(tracker.is_acked)
        broker.kill()
        feed_until(tracker.is_failed)
        broker.start()
        feed_until(tracker.is_acked)
        assert running.errors == []


def test_mistakes():
    """A bolt without a topic, with two ways to find it, or without servers is refused when it is made."""
    with pytest.raises(ConfigError, match="one of topic, topic_field and mapper"):
        KafkaBolt("s:1")
    with pytest.raises(ConfigError, match="one of topic, topic_field and mapper"):
        KafkaBolt("s:1", "t", topic_field="f")
    with pytest.raises(ConfigError, match="host:port"):
        KafkaBolt("", "t")
    with pytest.raises(ConfigError, match="it is the first argument"):
        KafkaBolt("s:1", "t", properties={"bootstrap.servers": "x"})
    settings = SenderSettings("s:1", ClientProperties({"nonsense": "1"}), 1_000, lambda error: None)
    with pytest.raises(ConfigError, match="nonsense"):
        ConfluentSender(settings)
