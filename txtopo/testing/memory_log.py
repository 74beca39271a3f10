"""Topics, groups and their offsets in memory: a fake of Kafka for tests of spouts and bolts, without a broker.

The conformance tests of ``KafkaLog``, ``KafkaConsumer`` and ``KafkaSender`` run on it and on a real broker. It does
everything at once and never waits, so a test controls the time.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
import zlib
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import attrs

from committers.kafka import KafkaMessage, KafkaSender, SenderSettings
from spouts.kafka.confluent.log import CHUNK_RECORDS
from spouts.kafka.log import (
    ConsumerSettings,
    KafkaConsumer,
    KafkaLog,
    KafkaRecord,
    Lost,
    Message,
    OnLost,
    RebalanceListener,
    Span,
    StoredOffset,
    Topic,
    TopicFilter,
    TopicPartition,
    UnansweredError,
)
from spouts.kafka.records import record_of
from spouts.kafka.topics import NamedTopicFilter, PatternTopicFilter
from txtopo.errors import SourceFailure
from txtopo.testing.feeders import Shared

_CREATE_TIME = 1
"""confluent-kafka's type of a timestamp that the producer has given."""


@attrs.frozen
class LogCall:
    """A client's call, for assertions: ``poll``, ``seek``, ``commit``, ``assign`` or ``unassign``, and its argument."""

    name: str
    given: Any


@attrs.frozen
class _Message:
    """A record, with the methods of ``confluent_kafka.Message``."""

    at: TopicPartition
    place: int
    content: tuple[bytes | None, bytes | None]
    at_ms: int
    named: tuple[tuple[str, bytes | None], ...]

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.partition

    def offset(self) -> int:
        return self.place

    def key(self) -> bytes | None:
        return self.content[0]

    def value(self) -> bytes | None:
        return self.content[1]

    def timestamp(self) -> tuple[int, int]:
        return _CREATE_TIME, self.at_ms

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self.named)


@attrs.define(eq=False)
class _Partition:
    messages: list[_Message] = attrs.field(factory=list)
    begin: int = 0
    end: int = 0

    def index(self, offset: int) -> int:
        """Return the index of the first message at or after an offset."""
        return bisect_left(self.messages, offset, key=_Message.offset)


@attrs.define(eq=False)
class _Group:
    offsets: dict[TopicPartition, StoredOffset] = attrs.field(factory=dict)
    members: list[MemoryLogClient] = attrs.field(factory=list)


class MemoryLog(Shared):
    """Topics in memory. Give its ``connect`` to a ``KafkaSpoutConfig``. It pickles as a reference to itself.

    Attributes:
        calls: the calls of consumers, in order.
        questions: the names of the questions about topics and offsets, in order.
        is_down: while True, every call and question is refused.
        is_slow: while True, only callers that wait get an answer.
        leaderless: partitions that can't be read, because they have no leader.
        send_queue_max: the maximum number of unsettled records of a sender.
        holds_answers: whether answers to :meth:`MemoryLogClient.begin_commit` are held back until :meth:`give_answers`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[LogCall] = []
        self.questions: list[str] = []
        self.is_down = self.is_slow = False
        self.leaderless: set[TopicPartition] = set()
        self.send_queue_max = 100_000
        self.lock = threading.RLock()
        self.holds_answers = False
        self.held_answers: deque[Callable[[], None]] = deque()
        self._topics: dict[str, list[_Partition]] = {}
        self._ids: dict[str, str] = {}
        self._groups: dict[str, _Group] = {}
        self._refusals: Counter[str] = Counter()
        self._numbers = itertools.count(1)

    def connect(self, settings: ConsumerSettings) -> MemoryLogClient:
        """Return a consumer, for a ``KafkaSpout``."""
        return MemoryLogClient(self, settings)

    def connect_sender(self, settings: SenderSettings) -> MemoryLogSender:
        """Return a sender, for a ``KafkaBolt``."""
        return MemoryLogSender(self, settings)

    def copy(self) -> MemoryLog:
        """Return another log with the same records and committed offsets, and no clients."""
        with self.lock:
            other = MemoryLog()
            other.send_queue_max = self.send_queue_max
            other._ids = dict(self._ids)
            for topic, logs in self._topics.items():
                other._topics[topic] = [_Partition(list(log.messages), log.begin, log.end) for log in logs]
            for group_id, group in self._groups.items():
                other._groups[group_id] = _Group(dict(group.offsets))
            return other

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, or give it ``partitions`` partitions in all."""
        with self.lock:
            logs = self._topics.setdefault(topic, [])
            logs.extend(_Partition() for _ in range(partitions - len(logs)))
            self._ids.setdefault(topic, f"id-{next(self._numbers)}")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic. If it is created again, it has another id."""
        with self.lock:
            del self._topics[topic], self._ids[topic]

    def append(
        self,
        topic: str,
        values: Iterable[bytes | str | tuple[bytes | str | None, bytes | str | None]],
        partition: int = 0,
        timestamp_ms: int | None = None,
    ) -> None:
        """Append records: values, or pairs of key and value. Their time is in ms since 1970; None is now."""
        for each in values:
            key, value = each if isinstance(each, tuple) else (None, each)
            self.put(TopicPartition(topic, partition), _bytes(key), _bytes(value), timestamp_ms)

    def put(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> int:
        """Append one record, and return its offset."""
        with self.lock:
            log = self.log(partition)
            at_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
            offset, log.end = log.end, log.end + 1
            log.messages.append(_Message(partition, offset, (key, value), at_ms, headers))
            return offset

    def skip(self, topic: str, offsets: int, partition: int = 0) -> None:
        """Use up offsets without a record, as aborted records and the markers of transactions do."""
        with self.lock:
            self.log(TopicPartition(topic, partition)).end += offsets

    def compact(self, topic: str, offsets: Collection[int], partition: int = 0) -> None:
        """Remove records, as compaction does; no other record gets their offsets."""
        with self.lock:
            log = self.log(TopicPartition(topic, partition))
            log.messages = [message for message in log.messages if message.place not in offsets]

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Remove the records of partitions before an offset each, as retention does."""
        for partition, begin in before.items():
            with self.lock:
                self.compact(topic, range(begin), partition)
                self.log(TopicPartition(topic, partition)).begin = begin

    def cut_off(self, topic: str, end: int, partition: int = 0) -> None:
        """Remove the records from an offset on, as if a new leader lacked them; the next records get their offsets."""
        with self.lock:
            log = self.log(TopicPartition(topic, partition))
            del log.messages[log.index(end) :]
            log.end = end

    def committed(self, group_id: str) -> dict[TopicPartition, StoredOffset]:
        """Return what a group has committed."""
        with self.lock:
            return dict(self._group(group_id).offsets)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the end of each partition."""
        with self.lock:
            return {number: log.end for number, log in enumerate(self._topics[topic])}

    def records(self, topic: str, partition: int = 0) -> list[KafkaRecord]:
        """Return the records of a partition."""
        with self.lock:
            return [record_of(message) for message in self.log(TopicPartition(topic, partition)).messages]

    def give_answers(self) -> None:
        """Give the answers that were held back."""
        while self.held_answers:
            self.held_answers.popleft()()

    def refuse(self, name: str, times: int = 1) -> None:
        """Refuse the next calls of topics, starts, ends, at, stored, store, read, poll, seek, commit or send."""
        self._refusals[name] += times

    def expire(self, client: MemoryLogClient) -> None:
        """Expel a member from its group, as a broker expels a member that was silent for too long."""
        with self.lock:
            client.is_expired = True
            self._group(client.settings.group_id).members.remove(client)

    def ask(self, name: str) -> None:
        """Count a call of a client; raise SourceFailure if it is to be refused."""
        if self.is_down or self._refusals[name] > 0:
            self._refusals[name] -= not self.is_down
            raise SourceFailure(f"the log refuses to {name}")

    def log(self, partition: TopicPartition) -> _Partition:
        """Return a partition; raise SourceFailure if it does not exist."""
        logs = self._topics.get(partition.topic, [])
        if partition.partition >= len(logs):
            raise SourceFailure(f"there is no {partition}")
        return logs[partition.partition]

    def topics(self) -> list[Topic]:
        """Return all topics, by name."""
        return [Topic(name, self._ids[name], len(logs)) for name, logs in sorted(self._topics.items())]

    def share(self, client: MemoryLogClient) -> set[TopicPartition]:
        """Return the partitions that a member is to have: members that want a topic take its partitions in turn."""
        members = self._group(client.settings.group_id).members
        there = [partition for topic in self.topics() for partition in topic.all_partitions()]
        wants = {member: set(member.topics.chosen(there)) for member in members if member.topics}
        share = set()
        for number, partition in enumerate(sorted(set().union(*wants.values()))):
            wanting = [member for member in members if partition in wants.get(member, ())]
            if wanting and wanting[number % len(wanting)] is client:
                share.add(partition)
        return share

    def _group(self, group_id: str) -> _Group:
        return self._groups.setdefault(group_id, _Group())

    def store(self, group_id: str, offsets: Mapping[TopicPartition, StoredOffset]) -> None:
        """Store a group's offsets, as a client or an administrator does."""
        with self.lock:
            self._group(group_id).offsets.update(offsets)

    def members(self, group_id: str) -> list[MemoryLogClient]:
        """Return the list of a group's members, to which clients add themselves."""
        return self._group(group_id).members


class MemoryLogReader(KafkaLog):
    """Answers questions about a :class:`MemoryLog`, and reads its spans."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def topics(self, chosen: TopicFilter, *, waits: bool = True) -> list[Topic]:
        """Return the chosen topics."""
        with self._asking("topics"):
            if self._log.is_slow and not waits:
                raise UnansweredError("no answer yet")
            return [topic for topic in self._log.topics() if chosen.takes(topic.name)]

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where partitions begin."""
        with self._asking("starts"):
            return {partition: self._log.log(partition).begin for partition in partitions}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the partitions that have a leader end."""
        with self._asking("ends"):
            return {
                partition: self._log.log(partition).end
                for partition in partitions
                if partition not in self._log.leaderless
            }

    def at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the first offsets at or after a time."""
        with self._asking("at"):
            return {partition: self._at(self._log.log(partition), timestamp_ms) for partition in partitions}

    def stored(self, partitions: Collection[TopicPartition], group: str) -> dict[TopicPartition, StoredOffset]:
        """Return what a group has committed."""
        with self._asking("stored"):
            known = self._log.committed(group)
            return {partition: known[partition] for partition in partitions if partition in known}

    def store(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        """Store offsets for a group."""
        if offsets:
            with self._asking("store"):
                there = {partition for topic in self._log.topics() for partition in topic.all_partitions()}
                self._log.store(group, {offset: StoredOffset(at) for offset, at in offsets.items() if offset in there})

    def read(self, spans: Sequence[Span], on_lost: OnLost) -> Iterator[tuple[Span, Sequence[Message]]]:
        """Yield the records of spans."""
        with self._asking("read"):
            pass
        for span in spans:
            messages = self._messages(span, on_lost)
            for start in range(0, len(messages), CHUNK_RECORDS):
                yield span, messages[start : start + CHUNK_RECORDS]

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _messages(self, span: Span, on_lost: OnLost) -> list[_Message]:
        log, start = self._log.log(span.partition), span.start
        if span.partition in self._log.leaderless:
            raise SourceFailure(f"{span.partition} has no leader")
        if log.begin > start:
            on_lost(Lost(span, start, log.begin))
            start = log.begin
        if log.end < span.end:
            raise SourceFailure(f"{span.partition} ends at {log.end}")
        return log.messages[log.index(start) : log.index(span.end)]

    @staticmethod
    def _at(log: _Partition, timestamp_ms: int) -> int:
        return next((message.place for message in log.messages if message.at_ms >= timestamp_ms), log.end)

    def _asking(self, question: str) -> threading.RLock:
        """Record a question, and return the lock for its answer."""
        self._log.questions.append(question)
        self._log.ask(question)
        return self._log.lock


class MemoryLogClient(KafkaConsumer):
    """A consumer of a :class:`MemoryLog`; of its settings, servers and properties have no effect."""

    def __init__(self, log: MemoryLog, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.log = MemoryLogReader(log)
        self.topics: TopicFilter | None = None
        self.is_expired = False
        self.positions: dict[TopicPartition, int] = {}
        """By assigned partition: the next offset to return."""
        self._log = log
        self._listener: RebalanceListener | None = None

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read further partitions."""
        self._log.calls.append(LogCall("assign", dict(starts)))
        self.positions.update(starts)

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading partitions."""
        self._log.calls.append(LogCall("unassign", set(partitions)))
        for partition in partitions:
            self.positions.pop(partition, None)

    def subscribe(self, topics: Collection[str], listener: RebalanceListener) -> None:
        """Join the group."""
        patterns = [topic for topic in topics if topic.startswith("^")]
        self.topics = PatternTopicFilter("|".join(patterns)) if patterns else NamedTopicFilter(*topics)
        self._listener = listener
        with self._log.lock:
            self._log.members(self.settings.group_id).append(self)

    def poll(
        self, partitions: Collection[TopicPartition], timeout_secs: float, records_max: int
    ) -> dict[TopicPartition, list[KafkaRecord]]:
        """Return records."""
        del timeout_secs
        with self._log.lock:
            self._log.calls.append(LogCall("poll", set(partitions)))
            self._log.ask("poll")
            if self._listener is not None:
                self._rebalance(self._listener)
            found: dict[TopicPartition, list[KafkaRecord]] = {}
            for partition in sorted(set(partitions) & set(self.positions)):
                if records := self._fetch(partition, records_max):
                    found[partition] = records
                    records_max -= len(records)
            return found

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Move a position."""
        self._log.ask("seek")
        self._log.calls.append(LogCall("seek", (partition, offset)))
        if partition in self.positions:
            self.positions[partition] = offset

    def position(self, partition: TopicPartition) -> int | None:
        """Return a position."""
        return self.positions.get(partition)

    def commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> bool:
        """Commit, unless it has expired."""
        with self._log.lock:
            self._log.ask("commit")
            if self.is_expired:
                return False
            self._log.calls.append(LogCall("commit", {partition: at.offset for partition, at in offsets.items()}))
            self._log.store(self.settings.group_id, offsets)
            return True

    def begin_commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> Future[bool]:
        """Commit at once."""
        answer: Future[bool] = Future()
        try:
            give = functools.partial(answer.set_result, self.commit(offsets))
        except SourceFailure as error:
            give = functools.partial(answer.set_exception, error)
        if self._log.holds_answers:
            self._log.held_answers.append(give)
        else:
            give()
        return answer

    def close(self) -> None:
        """Leave the group."""
        with self._log.lock:
            members = self._log.members(self.settings.group_id)
            if self in members:
                members.remove(self)
            self.positions.clear()

    def _rebalance(self, listener: RebalanceListener) -> None:
        """Take one step of a rebalance: let go of what another member is to have, take what this one is to have."""
        if self.is_expired:
            self.positions.clear()
            listener.assigned(())
            self.is_expired = False
            self._log.members(self.settings.group_id).append(self)
        # As with a cooperative group: a partition moves only after its former member has polled and let go of it.
        share = self._log.share(self)
        gone = set(self.positions) - share
        if gone:
            listener.revoked(gone)
            self.unassign(gone)
            listener.assigned(set(self.positions))
        others = [member for member in self._log.members(self.settings.group_id) if member is not self]
        taken = set().union(*(member.positions for member in others)) if others else set()
        new = share - set(self.positions) - taken
        if new:
            try:
                starts = listener.assigned(set(self.positions) | new)
            except SourceFailure as error:
                self.settings.report(error)
                return
            self.assign({partition: starts[partition] for partition in new})

    def _fetch(self, partition: TopicPartition, records_max: int) -> list[KafkaRecord]:
        try:
            log = self._log.log(partition)
        except SourceFailure as error:
            self.settings.report(error)
            return []
        at = self.positions[partition]
        if not log.begin <= at <= log.end:
            if self.settings.offset_reset == "error":
                self.settings.report(SourceFailure(f"{partition} has no offset {at}"))
                return []
            at = log.begin if self.settings.offset_reset == "earliest" else log.end
        first = log.index(at)
        found = [record_of(message) for message in log.messages[first : first + max(0, records_max)]]
        if found:
            at = found[-1].offset + 1
        if first + len(found) == len(log.messages):
            at = log.end
        self.positions[partition] = at
        return found


class MemoryLogSender(KafkaSender):
    """A sender to a :class:`MemoryLog`: it writes records, or refuses them, when it serves. Settings have no effect."""

    def __init__(self, log: MemoryLog, settings: SenderSettings) -> None:
        self.settings = settings
        self._log = log
        self._queue: deque[tuple[KafkaMessage, Callable[[Exception | None], None]]] = deque()

    def send(self, message: KafkaMessage, on_delivery: Callable[[Exception | None], None]) -> bool:
        """Put a record into the queue."""
        if len(self._queue) >= self._log.send_queue_max:
            return False
        self._queue.append((message, on_delivery))
        return True

    def serve(self, timeout_secs: float) -> None:
        """Write what is in the queue."""
        del timeout_secs
        while self._queue:
            message, on_delivery = self._queue.popleft()
            try:
                self._write(message)
            except SourceFailure as error:
                on_delivery(error)
            else:
                on_delivery(None)

    def close(self, timeout_secs: float) -> None:
        """Write what is in the queue."""
        self.serve(timeout_secs)

    def _write(self, message: KafkaMessage) -> None:
        with self._log.lock:
            self._log.ask("send")
            number = message.partition
            if number is None:
                counts = [topic.partitions for topic in self._log.topics() if topic.name == message.topic]
                number = zlib.crc32(message.key or b"") % max(1, *counts, 1)
            partition = TopicPartition(message.topic, number)
            self._log.put(partition, message.key, message.value, message.timestamp_ms, message.headers)


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
