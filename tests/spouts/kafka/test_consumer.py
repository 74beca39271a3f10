"""KafkaConsumer: the same promises of the fake and of the real one."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from spouts.kafka.confluent.consumer import BrokerConsumer
from spouts.kafka.log import KafkaConsumer, StoredOffset, TopicPartition
from tests.spouts.kafka.places import Place
from txtopo.errors import ConfigError, SourceFailure
from txtopo.testing.memory_log import MemoryLog

WAIT_SECS = 240.0


class Listener:
    """Takes what it is given, from where the group has committed, or the beginning."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.client: Any = None
        self.held: set[TopicPartition] = set()
        self.events: list[tuple[str, set[int]]] = []
        self.refuses = 0

    def revoked(self, partitions):
        self.events.append(("revoked", {partition.partition for partition in partitions}))

    def assigned(self, partitions):
        if self.refuses:
            self.refuses -= 1
            raise SourceFailure("not now")
        self.held = set(partitions)
        self.events.append(("assigned", {partition.partition for partition in partitions}))
        stored = self.client.log.stored(partitions, self.place.topic)
        return {partition: stored[partition].offset if partition in stored else 0 for partition in partitions}


def subscribed(place: Place, refuses: int = 0, **settings: Any) -> tuple[KafkaConsumer, Listener]:
    listener = Listener(place)
    listener.refuses = refuses
    listener.client = place.connect(**settings)
    listener.client.subscribe([place.topic], listener)
    return listener.client, listener


def taken(client: KafkaConsumer, partitions: Any, count: int) -> list[Any]:
    """Poll until so many records came."""
    return until(client, partitions, lambda records: len(records) >= count)


def until(client: KafkaConsumer, partitions: Any, condition: Callable[[list[Any]], bool]) -> list[Any]:
    """Poll until a condition holds for what came."""
    records: list[Any] = []
    end = time.monotonic() + WAIT_SECS
    while not condition(records):
        assert time.monotonic() < end, records
        records += polled(client, partitions() if callable(partitions) else partitions)
    return records


def patiently(call: Callable[[], Any]) -> Any:
    """Ask until there is an answer: a broker that has just started has no coordinator of groups yet."""
    end = time.monotonic() + WAIT_SECS
    while True:
        try:
            return call()
        except SourceFailure:
            assert time.monotonic() < end


def polled(client: KafkaConsumer, partitions: Any, records_max: int = 1_000) -> list[Any]:
    """Poll once."""
    found = client.poll(partitions, 0.05, records_max)
    assert all((each.topic, each.partition) == (at.topic, at.partition) for at in found for each in found[at])
    return [record for records in found.values() for record in records]


def places(records: list[Any]) -> list[TopicPartition]:
    return [TopicPartition(record.topic, record.partition) for record in records]


def offsets(records: list[Any]) -> list[int]:
    return [record.offset for record in records]


def test_records(place):
    """Records come in order, as they were written, from the offset that the partition was assigned with."""
    place.create()
    place.append([("a", "0"), ("b", "1"), (None, "2"), ("d", None)])
    client = place.connect()
    client.assign({place.partition(): 1})
    assert client.position(place.partition()) == 1
    records = taken(client, [place.partition()], 3)
    assert [(record.offset, record.key, record.value) for record in records] == [
        (1, b"b", b"1"),
        (2, None, b"2"),
        (3, b"d", None),
    ]
    assert all(abs(record.timestamp.timestamp() - time.time()) < 600 for record in records)
    assert client.position(place.partition()) == 4
    place.append(["4"])
    assert offsets(taken(client, [place.partition()], 1)) == [4]


def test_bound_of_a_poll(place):
    """A poll returns as many records as asked for at most."""
    place.create()
    place.append([str(number) for number in range(10)])
    client = place.connect()
    client.assign({place.partition(): 0})
    seen = []
    end = time.monotonic() + WAIT_SECS
    while len(seen) < 10 and time.monotonic() < end:
        records = polled(client, [place.partition()], 3)
        assert len(records) <= 3
        seen += offsets(records)
    assert seen == list(range(10))


def test_seek(place):
    """After a seek, back or forward, the next record is the one at that offset: nothing from before comes."""
    place.create()
    place.append([str(number) for number in range(2_000)])
    client = place.connect()
    client.assign({place.partition(): 0})
    taken(client, [place.partition()], 1)
    for offset in (1_500, 3, 700, 0):
        client.seek(place.partition(), offset)
        assert client.position(place.partition()) == offset
        assert offsets(taken(client, [place.partition()], 1))[0] == offset


def test_only_these_partitions(place):
    """Partitions that are not asked for stand still, whatever was fetched ahead, and go on where they were."""
    place.create(2)
    one, two = place.partition(0), place.partition(1)
    for partition in (0, 1):
        place.append([str(number) for number in range(20)], partition)
    client = place.connect()
    client.assign({one: 0, two: 5})
    assert set(places(taken(client, [one], 20))) == {one}
    assert client.position(two) == 5
    place.append(["more"], 0)
    assert set(places(taken(client, [one], 1))) == {one}
    assert offsets(taken(client, [two], 15)) == list(range(5, 20))
    client.poll([one], 0, 10)
    client.seek(two, 7)
    assert offsets(taken(client, [two], 13)) == list(range(7, 20))
    assert client.poll([], 0, 10) == {}


def test_assigned_one_after_another(place):
    """A partition that comes later does not move the others; one that is let go brings nothing any more."""
    place.create(2)
    one, two = place.partition(0), place.partition(1)
    for partition in (0, 1):
        place.append(["a", "b", "c"], partition)
    client = place.connect()
    client.assign({one: 0})
    assert offsets(taken(client, [one], 3)) == [0, 1, 2]
    client.assign({two: 1})
    records = taken(client, [one, two], 2)
    assert (places(records), offsets(records)) == ([two, two], [1, 2])
    client.unassign([one])
    client.unassign([one])
    place.append(["d"], 0)
    place.append(["d"], 1)
    records = taken(client, [one, two], 1)
    assert (places(records), offsets(records)) == ([two], [3])
    assert client.position(one) is None


def test_position_behind_the_last_record(place):
    """At the log end the position is the end, even if the last offsets have no records."""
    place.create()
    place.append(["a", "b"])
    place.in_transaction(1, aborts=True)
    client = place.connect()
    client.assign({place.partition(): 0})
    until(client, [place.partition()], lambda _: client.position(place.partition()) == 4)
    assert client.log.ends([place.partition()]) == {place.partition(): 4}


def test_commits(place):
    """What is committed is there for every client of the group, with its metadata; nothing else is."""
    place.create(2)
    one, two = place.partition(0), place.partition(1)
    client = place.connect()
    client.assign({one: 0, two: 0})
    assert patiently(lambda: client.log.stored([one, two], place.topic)) == {}
    assert client.commit({one: StoredOffset(7, '{"a": 1}')})
    assert place.connect().log.stored([one, two], place.topic) == {one: StoredOffset(7, '{"a": 1}')}
    assert client.log.stored([one], "another") == {}
    client.commit({one: StoredOffset(5, "x"), two: StoredOffset(0)})
    assert client.log.stored([one, two], place.topic) == {one: StoredOffset(5, "x"), two: StoredOffset(0)}


def test_offset_that_is_gone(place):
    """A position below the log's beginning goes on there if it is to; otherwise an error is reported."""
    place.create()
    place.append(["a", "b", "c"])
    place.delete_before(2)
    client = place.connect()
    client.assign({place.partition(): 0})
    assert offsets(taken(client, [place.partition()], 1)) == [2]
    strict = place.connect(reset="error")
    strict.assign({place.partition(): 0})
    assert until(strict, [place.partition()], lambda _: bool(place.errors)) == []


def two_members(place, **properties):
    """Let one read all of two partitions, and another one join: each has one then, and goes on where the group was."""
    place.create(2)
    for partition in (0, 1):
        place.append(["a", "b"], partition)
    one, first = subscribed(place, **properties)
    until(one, lambda: first.held, lambda records: len(records) == 4)
    one.commit({each: StoredOffset(2) for each in first.held})
    two, second = subscribed(place, **properties)
    end = time.monotonic() + WAIT_SECS
    while not (len(first.held) == len(second.held) == 1):
        assert time.monotonic() < end
        assert polled(one, first.held) == []
        assert polled(two, second.held) == []
    assert not first.held & second.held
    place.append(["c"], 0)
    place.append(["c"], 1)
    assert offsets(taken(one, lambda: first.held, 1)) == [2]
    assert offsets(taken(two, lambda: second.held, 1)) == [2]
    return one, first, two


def test_group_shares_and_hands_over(place):
    """Members share the partitions; when one joins, only what it gets is taken from the other; when one leaves, it comes back."""
    one, first, two = two_members(place)
    (mine,) = first.held
    assert ("revoked", {1 - mine.partition}) in first.events
    two.close()
    until(one, lambda: first.held, lambda records: len(first.held) == 2)
    assert one.position(mine) == 3
    place.clients.remove(two)


def test_start_that_is_not_known_yet(place):
    """If the listener can't say where to begin, it is asked again at the next poll; nothing is read meanwhile."""
    place.create()
    place.append(["a"])
    client, listener = subscribed(place, refuses=2)
    assert offsets(until(client, lambda: listener.held, bool)) == [0]
    assert [event for event in listener.events if event[0] == "assigned"] == [("assigned", {0})]
    assert len(place.errors) == 2


def test_pattern(place):
    """A topic that begins with ^ is a pattern."""
    place.create()
    place.append(["a"])
    listener = Listener(place)
    listener.client = place.connect()
    listener.client.subscribe([f"^({place.topic})$"], listener)
    assert offsets(until(listener.client, lambda: listener.held, bool)) == [0]


def test_eager_rebalance(broker_place):
    """With an eager strategy all partitions are revoked, and what stays goes on where it was."""
    _, first, _ = two_members(broker_place, **{"partition.assignment.strategy": "range,roundrobin"})
    assert ("revoked", {0, 1}) in first.events


def test_wrong_property():
    """A property that librdkafka does not know is refused when the client is made."""
    with pytest.raises(ConfigError, match="No such configuration property"):
        BrokerConsumer(Place(MemoryLog()).settings(**{"no.such.property": "1"}))
