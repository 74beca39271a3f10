"""Topics in memory, which stand in for a cluster where a test has no broker; checked against a real one in test_log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from spouts.kafka.brokers import CHUNK_RECORDS
from spouts.kafka.log import KafkaLog, Lost, Span, Topic, TopicPartition, UnansweredError
from txtopo.errors import SourceFailure


@attrs.frozen
class MemoryMessage:
    """A record, as the client of a real cluster gives it."""

    at: TopicPartition
    place: int
    content: tuple[bytes | None, bytes | None]
    time_ms: int

    def topic(self):
        return self.at.topic

    def partition(self):
        return self.at.partition

    def offset(self):
        return self.place

    def key(self):
        return self.content[0]

    def value(self):
        return self.content[1]

    def timestamp(self):
        return (1, self.time_ms)

    def headers(self):
        return None


@attrs.define(eq=False)
class _Stored:
    id: str
    logs: list[list[MemoryMessage | None]]
    """Each partition's records by offset; None for what is no record."""
    starts: list[int]
    is_led: list[bool]


_worlds: dict[str, MemoryTopics] = {}


class MemoryTopics:
    """A cluster in memory; every copy of it that was pickled is the same one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.topics: dict[str, _Stored] = {}
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.questions: list[str] = []
        """The requests of clients, by name."""
        self.is_reachable = True
        self.is_slow = False
        """Whether questions are answered only to those who wait."""
        self.made = 0
        _worlds[name] = self

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return _world, (self.name,)

    @property
    def servers(self) -> str:
        return f"memory:{self.name}"

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        self.made += 1
        self.topics[topic] = _Stored(
            f"id-{self.made}", [[] for _ in range(partitions)], [0] * partitions, [True] * partitions
        )

    def delete_topic(self, topic: str) -> None:
        del self.topics[topic]

    def add_partitions(self, topic: str, partitions: int) -> None:
        stored = self.topics[topic]
        while len(stored.logs) < partitions:
            stored.logs.append([])
            stored.starts.append(0)
            stored.is_led.append(True)

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        for partition, offset in before.items():
            self.topics[topic].starts[partition] = offset

    def produce(self, topic: str, records, partition: int = 0, *, is_aborted=False, is_transaction=False) -> None:
        log = self.topics[topic].logs[partition]
        for record in records:
            key, value = record if isinstance(record, tuple) else (None, record)
            message = MemoryMessage(TopicPartition(topic, partition), len(log), (key, value), 1_000 * (len(log) + 1))
            log.append(None if is_aborted else message)
        if is_aborted or is_transaction:
            log.append(None)  # the marker

    def set_led(self, topic: str, partition: int, is_led: bool) -> None:
        self.topics[topic].is_led[partition] = is_led


def _world(name: str) -> MemoryTopics:
    return _worlds[name]


class MemoryLog(KafkaLog):
    """A client of topics in memory."""

    def __init__(self, world: MemoryTopics) -> None:
        self._world = world

    def topics(self, choice, *, waits=True):
        self._ask("topics")
        if self._world.is_slow and not waits:
            raise UnansweredError("no answer yet")
        found = [name for name in sorted(self._world.topics) if choice.takes(name)]
        return [Topic(name, self._world.topics[name].id, len(self._world.topics[name].logs)) for name in found]

    def starts(self, partitions):
        self._ask("starts")
        return {each: self._of(each).starts[each.partition] for each in partitions}

    def ends(self, partitions):
        self._ask("ends")
        return {
            each: len(self._of(each).logs[each.partition])
            for each in partitions
            if self._of(each).is_led[each.partition]
        }

    def at(self, partitions, timestamp_ms):
        self._ask("at")
        return {each: self._at(each, timestamp_ms) for each in partitions}

    def stored(self, partitions, group):
        self._ask("stored")
        known = self._world.groups.get(group, {})
        return {each: known[each] for each in partitions if each in known}

    def store(self, offsets, group):
        if offsets:
            self._ask("store")
        there = {each: at for each, at in offsets.items() if self._has(each)}
        self._world.groups.setdefault(group, {}).update(there)

    def read(self, spans, on_lost):
        self._ask("read")
        for span in spans:
            messages = list(self._messages(span, on_lost))
            for start in range(0, len(messages), CHUNK_RECORDS):
                yield span, messages[start : start + CHUNK_RECORDS]

    def close(self):
        pass

    def _messages(self, span: Span, on_lost):
        stored, number = self._of(span.partition), span.partition.partition
        if not stored.is_led[number]:
            raise SourceFailure(f"{span.partition} has no leader")
        start, first_kept = span.start, stored.starts[number]
        if first_kept > start:
            on_lost(Lost(span, start, first_kept))
            start = first_kept
        log = stored.logs[number]
        if len(log) < span.end:
            raise SourceFailure(f"{span.partition} ends at {len(log)}")
        return (message for message in log[start : span.end] if message is not None)

    def _at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        log = self._of(partition).logs[partition.partition]
        later = (message.place for message in log if message is not None and message.time_ms >= timestamp_ms)
        return next(later, len(log))

    def _of(self, partition: TopicPartition) -> _Stored:
        if not self._has(partition):
            raise SourceFailure(f"there is no {partition}")
        return self._world.topics[partition.topic]

    def _has(self, partition: TopicPartition) -> bool:
        stored = self._world.topics.get(partition.topic)
        return stored is not None and partition.partition < len(stored.logs)

    def _ask(self, question: str) -> None:
        self._world.questions.append(question)
        if not self._world.is_reachable:
            raise SourceFailure("the cluster in memory is down")


class InMemory:
    """Makes a spout over Kafka read topics in memory: a base class in front of the spout's."""

    def __init__(self, world: MemoryTopics, *arguments: Any, **options: Any) -> None:
        super().__init__(world.servers, *arguments, **options)
        self.world = world

    def make_log(self, config, *, is_shared):
        return MemoryLog(self.world)
