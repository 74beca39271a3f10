"""Which offsets of a partition were emitted and acked, and so up to where a group may commit.

Source: storm-kafka-client's OffsetManager. A *committed offset* is the next one to read, as everywhere in Kafka.
Offsets that do not exist (compacted, aborted, or markers of transactions) leave holes among those that are emitted; the
walk steps over a hole and stops at a gap, which is an offset that was emitted and is not acked.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence

import attrs

from spouts.kafka.log import TopicPartition
from spouts.kafka.plain.client import StoredOffset

ACKED_RANGES_MAX = 50
"""Ranges of acked offsets in a commit's metadata: a broker takes 4,096 bytes of metadata by default."""

_OFFSETS_LOOKED_AT_MAX = 100_000
"""Emitted offsets that are looked through for them."""


@attrs.define(eq=False)
class MessageId:
    """What a tuple of a KafkaSpout is emitted with. Equal if partition, offset and epoch are.

    The epoch is the number of the assignment by which this task got the partition. So a late ack or failure from
    before a rebalance is never taken for one of the same offset that was emitted since. (Storm's ids have none.)

    Args:
        partition: its partition.
        offset: its offset.
        epoch: of the assignment.
        fails: how often it has failed.
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

    Args:
        topology_id: the topology; the first poll goes by it.
        task_id: the task, for people.
        thread_name: the thread, for people.
        acked: ranges of offsets above the committed one that were acked, first and last of each: the next owner of the
            partition does not emit them again.
    """

    topology_id: str
    task_id: int = 0
    thread_name: str = ""
    acked: Sequence[tuple[int, int]] = ()

    def to_json(self) -> str:
        """Return it as JSON, with Storm's keys; ``acked`` is txtopo's, and left out if there is none."""
        values = {"topologyId": self.topology_id, "taskId": self.task_id, "threadName": self.thread_name}
        return json.dumps(values | ({"acked": self.acked} if self.acked else {}), separators=(",", ":"))

    @classmethod
    def parse(cls, text: str | None) -> CommitMetadata | None:
        """Return what a commit's metadata says; None if no KafkaSpout has written it."""
        try:
            values = json.loads(text or "")
            return cls(
                str(values["topologyId"]),
                int(values.get("taskId", 0)),
                str(values.get("threadName", "")),
                tuple((int(first), int(last)) for first, last in values.get("acked", ())),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


class OffsetManager:
    """The offsets of one partition, as long as one task holds it.

    Args:
        partition: the partition.
        fetch_offset: where reading begins.
    """

    def __init__(self, partition: TopicPartition, fetch_offset: int) -> None:
        self.partition = partition
        self.committed_offset = fetch_offset
        """The next offset to read, for whoever takes the partition over."""
        self.has_committed = False
        """Whether this manager has committed yet."""
        self.latest_emitted: int | None = None
        self._order: list[int] = []
        """The emitted offsets from the committed one on, sorted. New ones nearly always go to the end."""
        self._emitted: set[int] = set()
        self._acked: set[int] = set()
        self._polled = fetch_offset
        """What was emitted below it is all that exists there."""

    @property
    def num_uncommitted(self) -> int:
        """How many offsets were emitted and are not committed, whether acked or not; without restored ones ahead."""
        return bisect_left(self._order, self._polled)

    def add_polled(self, offset: int) -> None:
        """Take note that a record was polled, if it is not emitted: it shows what is a hole below it."""
        if offset >= self._polled:
            self._polled = offset + 1

    def add_emitted(self, offset: int) -> None:
        """Take note that an offset was emitted; again, if it is a retry."""
        if self.latest_emitted is None or offset > self.latest_emitted:
            self.latest_emitted = offset
        self.add_polled(offset)
        self._add(offset)

    def _add(self, offset: int) -> None:
        if offset in self._emitted:
            return
        self._emitted.add(offset)
        if not self._order or offset > self._order[-1]:
            self._order.append(offset)
        else:
            self._order.insert(bisect_left(self._order, offset), offset)

    def add_acked(self, offset: int) -> None:
        """Take note that an offset was acked, or turned out not to exist any more."""
        assert offset >= self.committed_offset, f"{self.partition}: {offset} is below {self.committed_offset}"
        self._acked.add(offset)

    def restore(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Take note of ranges that an earlier owner of the partition has acked; see :class:`CommitMetadata`."""
        for first, last in ranges:
            for offset in range(max(first, self.committed_offset), last + 1):
                self._add(offset)
                self.add_acked(offset)

    def contains(self, offset: int) -> bool:
        """Whether an offset was emitted, and is not committed."""
        return offset in self._emitted

    def is_acked(self, offset: int) -> bool:
        """Whether an offset is done with: acked, or below the committed one."""
        return offset < self.committed_offset or offset in self._acked

    def emitted_between(self, start: int, end: int) -> list[int]:
        """Return the emitted offsets in [start, end), in order."""
        return self._order[bisect_left(self._order, start) : bisect_left(self._order, end)]

    def nth_uncommitted(self, number: int) -> int:
        """Return the n-th smallest offset that was emitted and is not committed.

        Args:
            number: n, from 1.

        Raises:
            ValueError: there are fewer.
        """
        if not 1 <= number <= len(self._order):
            raise ValueError(f"{self.partition} has {len(self._order)} uncommitted offsets, so no {number}th")
        return self._order[number - 1]

    def find_next_commit_offset(self, metadata: str = "", tail: int | None = None) -> StoredOffset | None:
        """Return up to where all is acked, to commit it; None if that is no further than the committed offset.

        Args:
            metadata: goes with the offset.
            tail: the consumer's position, if it has nothing more to emit: once everything is acked that is committed,
                so that the group reaches the log end although its last offsets are markers without a record.
        """
        reached = self.committed_offset
        while True:
            if reached in self._acked:
                reached += 1
                continue
            position = bisect_left(self._order, reached)
            if position == len(self._order):
                reached = max(reached, tail or 0)
                break
            offset = self._order[position]
            if offset not in self._acked or offset >= max(self._polled, tail or 0):
                break  # a gap, or a restored range: what is before it was not polled yet
            reached = offset + 1  # over a hole
        return StoredOffset(reached, metadata) if reached > self.committed_offset else None

    def commit(self, offset: int) -> int:
        """Take note that an offset is committed, and forget what is below it.

        Args:
            offset: the next one to read.

        Returns:
            How many acked offsets were below it.
        """
        self.has_committed = True
        self.committed_offset = max(offset, self.committed_offset)
        below = bisect_left(self._order, offset)
        before = len(self._acked)
        for done in self._order[:below]:
            self._emitted.discard(done)
            self._acked.discard(done)
        del self._order[:below]
        return before - len(self._acked)

    def acked_ranges(self, start: int) -> list[tuple[int, int]]:
        """Return the ranges of acked offsets from *start* on, the lowest first: as many as metadata has room for."""
        ranges: list[tuple[int, int]] = []
        for offset in self.emitted_between(start, start + _OFFSETS_LOOKED_AT_MAX):
            if offset not in self._acked:
                continue
            if ranges and ranges[-1][1] == offset - 1:
                ranges[-1] = (ranges[-1][0], offset)
            elif len(ranges) == ACKED_RANGES_MAX:
                break
            else:
                ranges.append((offset, offset))
        return ranges
