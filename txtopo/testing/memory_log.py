"""Topics, groups and their offsets in memory: a fake of Kafka for tests of spouts and bolts, without a broker.

It is checked against the real one: the conformance tests of ``KafkaClient`` and ``KafkaSender`` run on both. It does
what it is asked at once and never waits, so a test moves time as it likes.
"""

from __future__ import annotations

import datetime as dt
import functools
import threading
import time
import zlib
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import attrs

from committers.kafka import KafkaMessage, KafkaSender, SenderSettings
from spouts.kafka.log import TopicPartition
from spouts.kafka.plain.client import (
    AssignmentListener,
    ClientSettings,
    KafkaClient,
    LogRange,
    StoredOffset,
)
from spouts.kafka.plain.subscription import NamedTopicFilter, PatternTopicFilter, TopicFilter
from spouts.kafka.records import KafkaRecord
from txtopo.errors import SourceFailure
from txtopo.testing.feeders import Shared

__all__ = ["LogCall", "MemoryLog", "MemoryLogClient", "MemoryLogSender"]


@attrs.frozen
class LogCall:
    """A call of a client, for assertions: ``poll``, ``seek``, ``commit``, ``assign`` or ``unassign``, and with what."""

    name: str
    given: Any


@attrs.define(eq=False)
class _Partition:
    records: list[KafkaRecord] = attrs.field(factory=list)
    offsets: list[int] = attrs.field(factory=list)
    begin: int = 0
    end: int = 0


@attrs.define(eq=False)
class _Group:
    offsets: dict[TopicPartition, StoredOffset] = attrs.field(factory=dict)
    members: list[MemoryLogClient] = attrs.field(factory=list)


class MemoryLog(Shared):
    """Topics in memory. Give its ``connect`` to a ``KafkaSpoutConfig``. It pickles as a reference to itself.

    Attributes:
        calls: what clients have asked for, in order.
        is_down: while True, whatever they ask for is refused.
        send_queue_max: how many records a sender keeps that are not settled yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[LogCall] = []
        self.is_down = False
        self.send_queue_max = 100_000
        self.lock = threading.RLock()
        self._topics: dict[str, list[_Partition]] = {}
        self._groups: dict[str, _Group] = {}
        self.holds_answers = False
        """Whether answers to commits that a client does not wait for are held back until :meth:`give_answers`."""
        self.held_answers: deque[Callable[[], None]] = deque()
        self._refusals: Counter[str] = Counter()

    def connect(self, settings: ClientSettings) -> MemoryLogClient:
        """Return a client."""
        return MemoryLogClient(self, settings)

    def connect_sender(self, settings: SenderSettings) -> MemoryLogSender:
        """Return a sender, for a ``KafkaBolt``."""
        return MemoryLogSender(self, settings)

    def copy(self) -> MemoryLog:
        """Return another log with the same records and committed offsets, which nobody is connected to."""
        with self.lock:
            other = MemoryLog()
            other.send_queue_max = self.send_queue_max
            for topic, logs in self._topics.items():
                other._topics[topic] = [
                    _Partition(list(log.records), list(log.offsets), log.begin, log.end) for log in logs
                ]
            for group_id, group in self._groups.items():
                other._groups[group_id] = _Group(dict(group.offsets))
            return other

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, or give it more partitions: so many in all."""
        with self.lock:
            logs = self._topics.setdefault(topic, [])
            logs.extend(_Partition() for _ in range(partitions - len(logs)))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        with self.lock:
            del self._topics[topic]

    def append(
        self,
        topic: str,
        values: Iterable[bytes | str | tuple[bytes | str | None, bytes | str | None]],
        partition: int = 0,
        timestamp_ms: int | None = None,
    ) -> None:
        """Append records.

        Args:
            topic: the topic.
            values: their values, or pairs of key and value.
            partition: the partition.
            timestamp_ms: their time.
        """
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
            at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
            offset, log.end = log.end, log.end + 1
            place = partition.topic, partition.partition
            log.records.append(KafkaRecord(key, value, *place, offset, at, list(headers)))
            log.offsets.append(offset)
            return offset

    def skip(self, topic: str, offsets: int, partition: int = 0) -> None:
        """Let so many offsets pass without a record, as the markers of transactions do."""
        with self.lock:
            self.log(TopicPartition(topic, partition)).end += offsets

    def compact(self, topic: str, offsets: Collection[int], partition: int = 0) -> None:
        """Remove records, as compaction does: the offsets stay unused."""
        with self.lock:
            log = self.log(TopicPartition(topic, partition))
            log.records = [record for record in log.records if record.offset not in offsets]
            log.offsets = [record.offset for record in log.records]

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Remove the records of partitions before an offset each, as retention does."""
        for partition, begin in before.items():
            with self.lock:
                self.compact(topic, range(begin), partition)
                self.log(TopicPartition(topic, partition)).begin = begin

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
            return list(self.log(TopicPartition(topic, partition)).records)

    def give_answers(self) -> None:
        """Give the answers to commits that were held back."""
        while self.held_answers:
            self.held_answers.popleft()()

    def refuse(self, name: str, times: int = 1) -> None:
        """Refuse the next calls of that name: partitions, poll, seek, commit, committed, ranges, send."""
        self._refusals[name] += times

    def expire(self, client: MemoryLogClient) -> None:
        """Put a member out of its group, as the broker does with one that is silent for too long."""
        with self.lock:
            client.is_expired = True
            self._group(client.settings.group_id).members.remove(client)

    def ask(self, name: str) -> None:
        """Let a client ask for something.

        Raises:
            SourceFailure: it is refused.
        """
        if self.is_down or self._refusals[name] > 0:
            self._refusals[name] -= not self.is_down
            raise SourceFailure(f"the log refuses to {name}")

    def log(self, partition: TopicPartition) -> _Partition:
        """Return a partition.

        Raises:
            SourceFailure: there is none.
        """
        logs = self._topics.get(partition.topic, [])
        if partition.partition >= len(logs):
            raise SourceFailure(f"there is no {partition}")
        return logs[partition.partition]

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions."""
        return [TopicPartition(topic, number) for topic, logs in self._topics.items() for number in range(len(logs))]

    def share(self, client: MemoryLogClient) -> set[TopicPartition]:
        """Return the partitions that a member is to hold: each topic's in turn, over the members that want it."""
        members = self._group(client.settings.group_id).members
        wants = {member: set(member.topics.chosen(self.partitions())) for member in members if member.topics}
        share = set()
        for number, partition in enumerate(sorted(set().union(*wants.values()))):
            wanting = [member for member in members if partition in wants.get(member, ())]
            if wanting and wanting[number % len(wanting)] is client:
                share.add(partition)
        return share

    def _group(self, group_id: str) -> _Group:
        return self._groups.setdefault(group_id, _Group())

    def store(self, group_id: str, offsets: Mapping[TopicPartition, StoredOffset]) -> None:
        """Store offsets of a group, as a client or an administrator does."""
        with self.lock:
            self._group(group_id).offsets.update(offsets)

    def members(self, group_id: str) -> list[MemoryLogClient]:
        """Return the members of a group; a client may be added."""
        return self._group(group_id).members


class MemoryLogClient(KafkaClient):
    """A client of a :class:`MemoryLog`.

    Args:
        log: the log.
        settings: group and offset reset; servers and properties do not matter.
    """

    def __init__(self, log: MemoryLog, settings: ClientSettings) -> None:
        self.settings = settings
        self.topics: TopicFilter | None = None
        self.is_expired = False
        self.positions: dict[TopicPartition, int] = {}
        """Of the partitions that it holds."""
        self._log = log
        self._listener: AssignmentListener | None = None

    def partitions(self, topics: Collection[str] | None) -> list[TopicPartition]:
        """Return the partitions of topics."""
        with self._log.lock:
            self._log.ask("partitions")
            return [each for each in self._log.partitions() if topics is None or each.topic in topics]

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Hold partitions."""
        self._log.calls.append(LogCall("assign", dict(starts)))
        self.positions.update(starts)

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Let partitions go."""
        self._log.calls.append(LogCall("unassign", set(partitions)))
        for partition in partitions:
            self.positions.pop(partition, None)

    def subscribe(self, topics: Collection[str], listener: AssignmentListener) -> None:
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

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """Return what the group has committed."""
        self._log.ask("committed")
        stored = self._log.committed(self.settings.group_id)
        return {partition: stored[partition] for partition in partitions if partition in stored}

    def commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> bool:
        """Commit; not if it has expired."""
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

    def ranges(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return the ranges of partitions."""
        with self._log.lock:
            self._log.ask("ranges")
            return {each: LogRange(self._log.log(each).begin, self._log.log(each).end) for each in partitions}

    def offsets_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the first offsets of a time."""
        with self._log.lock:
            self._log.ask("ranges")
            return {
                partition: next(
                    (
                        record.offset
                        for record in log.records
                        if record.timestamp is not None and round(record.timestamp.timestamp() * 1000) >= timestamp_ms
                    ),
                    log.end,
                )
                for partition, log in ((partition, self._log.log(partition)) for partition in partitions)
            }

    def close(self) -> None:
        """Leave the group."""
        with self._log.lock:
            members = self._log.members(self.settings.group_id)
            if self in members:
                members.remove(self)
            self.positions.clear()

    def _rebalance(self, listener: AssignmentListener) -> None:
        """Give back what another member is to have, and take what is this one's and free; as one member at a time."""
        if self.is_expired:
            self.positions.clear()
            listener.assigned(())
            self.is_expired = False
            self._log.members(self.settings.group_id).append(self)
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
        first = bisect_left(log.offsets, at)
        found = log.records[first : first + max(0, records_max)]
        if found:
            at = found[-1].offset + 1
        if first + len(found) == len(log.records):
            at = log.end
        self.positions[partition] = at
        return found


class MemoryLogSender(KafkaSender):
    """A sender to a :class:`MemoryLog`. Records are written, or refused, when it is asked to serve.

    Args:
        log: the log.
        settings: nothing of them matters.
    """

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
                count = sum(each.topic == message.topic for each in self._log.partitions())
                number = zlib.crc32(message.key or b"") % max(1, count)
            partition = TopicPartition(message.topic, number)
            self._log.put(partition, message.key, message.value, message.timestamp_ms, message.headers)


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
