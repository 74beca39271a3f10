"""How far a task is in a partition: pure bookkeeping, without a client and without a clock.

A record whose ack a task waits for is in one of these states::

    polled ──▶ in flight ──▶ acked ──▶ committed
                │      ▲
           failed      emitted again: when it is due, and was polled again
                ▼      │
            waits for a retry

Values are not kept. To emit a record again, the consumer seeks back to it, and polls the records behind it once more;
those that are in flight, acked or not due yet are skipped. If the consumer passes the offset of a record that waits for
a retry without polling it, the record is gone from the log, and counts as acked.

A *committed offset* is the next one to read, as everywhere in Kafka. Offsets without a record (compacted, aborted, or
markers of transactions) leave holes among the emitted ones. A commit steps over a hole and stops at a gap: an offset
that was emitted and is not acked.

Source: storm-kafka-client's OffsetManager and retry service. Times are in milliseconds, of any clock.
"""

from __future__ import annotations

import heapq
import json
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence

import attrs

from spouts.kafka.log import NO_ID, KafkaRecord, TopicPartition

ACKED_RANGES_MAX = 50
"""The maximum number of acked ranges in a commit's metadata; by default a broker takes 4,096 bytes of metadata."""

_OFFSETS_SEARCHED_MAX = 100_000
"""How many offsets a commit looks through for acked ranges; it runs in the worker's loop."""


@attrs.define(eq=False)
class MessageId:
    """The id that a KafkaSpout emits a tuple with. Ids are equal if partition, offset and epoch are.

    The epoch is the number of the assignment that gave this task the partition. So a late ack or failure from before a
    rebalance never counts for the same offset that was emitted since. (Storm's ids have no epoch.)
    """

    partition: TopicPartition
    offset: int
    epoch: int = 0
    fails: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageId) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return f"{self.partition}, offset {self.offset}"

    def _key(self) -> tuple[TopicPartition, int, int]:
        return self.partition, self.offset, self.epoch


@attrs.frozen
class CommitMetadata:
    """What a KafkaSpout writes beside each offset that it commits, as JSON.

    The first poll compares the topology's id. ``acked`` are ranges of acked offsets above the committed one, first and
    last of each, which the partition's next owner does not emit again. If the topic was created again, so that it has
    another id, the offset means another record. Task and thread are for people.
    """

    topology_id: str
    task_id: int = 0
    thread_name: str = ""
    acked: Sequence[tuple[int, int]] = ()
    topic_id: str = NO_ID

    def to_json(self) -> str:
        """Return it as JSON with Storm's keys, and ``acked`` and ``topicId`` unless they are empty."""
        values = {"topologyId": self.topology_id, "taskId": self.task_id, "threadName": self.thread_name}
        more = {"acked": self.acked, "topicId": self.topic_id}
        return json.dumps(values | {name: value for name, value in more.items() if value}, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str | None) -> CommitMetadata | None:
        """Return what a commit's metadata says; None if no KafkaSpout of Storm or txtopo has written it."""
        try:
            values = json.loads(text or "")
            return cls(
                str(values["topologyId"]),
                int(values.get("taskId", 0)),
                str(values.get("threadName", "")),
                tuple((int(first), int(last)) for first, last in values.get("acked", ())),
                str(values.get("topicId", NO_ID)),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


class PartitionProgress:
    """What a task knows about a partition while the partition is assigned to it.

    Args:
        partition: the partition.
        start: the first offset to read.
        epoch: the number of the assignment.
        acked: ranges of offsets, first and last of each, that an earlier owner of the partition has acked.
        topic_id: the topic's id.
        awaits_acks: whether to commit behind what was acked; otherwise behind what was polled.

    Attributes:
        position: the next offset to poll.
        head: the lowest offset that was never polled.
        committed_offset: where the partition's next owner begins.
        latest_emitted: the highest emitted offset; None before the first.
    """

    def __init__(  # noqa: PLR0913 - what an assignment finds out
        self,
        partition: TopicPartition,
        start: int,
        epoch: int = 0,
        *,
        acked: Iterable[tuple[int, int]] = (),
        topic_id: str = NO_ID,
        awaits_acks: bool = True,
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        self.topic_id = topic_id
        self.position = self.head = self.committed_offset = start
        self.latest_emitted: int | None = None
        self._awaits_acks = awaits_acks
        self._seen = start
        """Every record below it was emitted, so an offset below it that was not emitted is a hole."""
        self._to_emit: deque[KafkaRecord] = deque()
        """Polled records, each to be emitted or skipped."""
        self._order: list[int] = []
        """Offsets that were emitted or acked and are not committed, sorted. New ones nearly always go to the end."""
        self._acked: set[int] = set()
        self._in_flight: dict[int, KafkaRecord | None] = {}
        self._retries: dict[int, tuple[float, MessageId]] = {}
        """By offset: when its retry is due, and its message id."""
        self._by_time: list[tuple[float, int]] = []
        """A heap of retries by the time when they are due."""
        self._due: list[int] = []
        """A heap of offsets that are due. An offset that is emitted again stays in its heap until it comes up there."""
        for first, last in acked if awaits_acks else ():
            for offset in range(max(first, start), last + 1):
                self._add(offset)
                self._acked.add(offset)

    @property
    def has_records(self) -> bool:
        """Whether polled records are left to be emitted or skipped."""
        return bool(self._to_emit)

    # Polls.

    def may_poll(self, now_ms: float, uncommitted_max: int) -> bool:
        """Whether to read on: below the limit of uncommitted offsets, or for a retry within the limit."""
        if not self._awaits_acks or bisect_left(self._order, self._seen) < uncommitted_max:
            return True
        retry = self._earliest_due(now_ms)
        return retry is not None and retry <= self._order[uncommitted_max - 1]

    def seek_target(self, now_ms: float, near: int) -> int | None:
        """Return where to seek before a poll: to a retry that is due, otherwise to the head; None to read on.

        A target at most ``near`` offsets ahead, which is a poll, needs no seek: reading what lies between is cheaper.
        It also prevents a second seek while the records of the first have not arrived.
        """
        retry = self._earliest_due(now_ms)
        target = self.head if retry is None else retry
        return None if 0 <= target - self.position <= near else target

    def polled(self, records: Sequence[KafkaRecord]) -> list[int]:
        """Take the records of a poll; return the failed offsets that are gone, as :meth:`passed` does."""
        missing: list[int] = []
        for record in records:
            missing += self.passed(record.offset)
            self.position = record.offset + 1
        self._to_emit.extend(records)
        self.head = max(self.head, self.position)
        return missing

    def passed(self, position: int) -> list[int]:
        """Record that everything below a position was polled; return the failed offsets in between, which are gone."""
        if position <= self.position:
            return []
        missing = []
        if self._retries:
            between = slice(bisect_left(self._order, self.position), bisect_left(self._order, position))
            missing = [offset for offset in self._order[between] if offset in self._retries]
        self.position = position
        for offset in missing:
            self.record_done(offset)
        return missing

    def forget_polled(self) -> int | None:
        """Forget polled records that were not emitted; return where to seek to poll them again, if there are any."""
        if not self._to_emit:
            return None
        self.head = self._to_emit[0].offset
        self._to_emit.clear()
        return self.head

    # Tuples.

    def next_record(self, now_ms: float) -> tuple[MessageId, KafkaRecord] | None:
        """Return the next record to emit, for the first time or again; None if no polled record is left."""
        while self._to_emit:
            record = self._to_emit.popleft()
            offset = record.offset
            if not self._awaits_acks:
                return MessageId(self.partition, offset, self.epoch), record
            self._seen = max(self._seen, offset + 1)
            if self.is_acked(offset) or offset in self._in_flight:
                continue
            due_ms, message_id = self._retries.get(offset, (now_ms, None))
            if due_ms <= now_ms:
                return message_id or MessageId(self.partition, offset, self.epoch), record
        return None

    def put_back(self, record: KafkaRecord) -> None:
        """Let a record of which no tuple can be made now be the next one again."""
        self._to_emit.appendleft(record)

    def emitted(self, message_id: MessageId, record: KafkaRecord | None = None) -> None:
        """Record that a message is in flight until :meth:`done` or :meth:`retry`; a record is kept that long."""
        offset = message_id.offset
        if self.latest_emitted is None or offset > self.latest_emitted:
            self.latest_emitted = offset
        if not self._awaits_acks:
            return
        self._add(offset)
        self._retries.pop(offset, None)
        self._in_flight[offset] = record

    def is_in_flight(self, message_id: MessageId) -> bool:
        """Whether a message was emitted in this assignment, is not done, and does not wait for a retry."""
        return message_id.epoch == self.epoch and message_id.offset in self._in_flight

    def record_in_flight(self, offset: int) -> KafkaRecord | None:
        """Return the record that was kept of a message in flight."""
        return self._in_flight[offset]

    def record_done(self, offset: int) -> None:
        """Record that a record was acked or given up, or is gone from the log."""
        assert offset >= self.committed_offset, f"{self.partition}: {offset} is below {self.committed_offset}"
        self._in_flight.pop(offset, None)
        self._retries.pop(offset, None)
        self._acked.add(offset)

    def retry(self, message_id: MessageId, due_ms: float) -> None:
        """Let a message that was in flight wait until it is due to be emitted again."""
        self._in_flight.pop(message_id.offset, None)
        self._retries[message_id.offset] = due_ms, message_id
        heapq.heappush(self._by_time, (due_ms, message_id.offset))

    def is_acked(self, offset: int) -> bool:
        """Whether an offset is acked or committed."""
        return offset < self.committed_offset or offset in self._acked

    # Commits.

    def next_commit(self, consumer_position: int | None = None) -> int:
        """Return the offset to commit: everything below it is acked.

        If all is emitted and acked, that is the consumer's position, so that the group reaches the log end although the
        last offsets may be markers without a record.
        """
        if not self._awaits_acks:
            return self.position
        end = 0 if self._to_emit else consumer_position or 0
        reached = self.committed_offset
        while True:
            if reached in self._acked:
                reached += 1
                continue
            index = bisect_left(self._order, reached)
            if index == len(self._order):
                return max(reached, end)
            offset = self._order[index]
            if offset not in self._acked or offset >= max(self._seen, end):
                return reached  # a gap, or an earlier owner's range: offsets before it are not polled yet
            reached = offset + 1  # nothing was emitted between the last offset and this one: a hole

    def acked_ranges(self, start: int) -> list[tuple[int, int]]:
        """Return the ranges of acked offsets from an offset on, the lowest first, as many as metadata has room for."""
        ranges: list[tuple[int, int]] = []
        low, high = bisect_left(self._order, start), bisect_left(self._order, start + _OFFSETS_SEARCHED_MAX)
        for offset in self._order[low:high]:
            if offset not in self._acked:
                continue
            if ranges and ranges[-1][1] == offset - 1:
                ranges[-1] = (ranges[-1][0], offset)
            elif len(ranges) == ACKED_RANGES_MAX:
                break
            else:
                ranges.append((offset, offset))
        return ranges

    def committed(self, offset: int) -> None:
        """Record that an offset is committed, and forget what is below it. A late answer does not move it back."""
        self.committed_offset = max(offset, self.committed_offset)
        if not self._awaits_acks:
            return
        below = bisect_left(self._order, offset)
        self._acked.difference_update(self._order[:below])
        del self._order[:below]
        while self._to_emit and self._to_emit[0].offset < offset:
            self._to_emit.popleft()

    def _add(self, offset: int) -> None:
        if not self._order or offset > self._order[-1]:
            self._order.append(offset)
        elif offset not in self._retries and offset not in self._in_flight and offset not in self._acked:
            self._order.insert(bisect_left(self._order, offset), offset)

    def _earliest_due(self, now_ms: float) -> int | None:
        """Return the lowest offset whose retry is due."""
        # Two heaps, since the lowest due offset may not be the one that was due first.
        while self._by_time and self._by_time[0][0] <= now_ms:
            heapq.heappush(self._due, heapq.heappop(self._by_time)[1])
        while self._due and self._retries.get(self._due[0], (float("inf"),))[0] > now_ms:
            heapq.heappop(self._due)
        return self._due[0] if self._due else None
