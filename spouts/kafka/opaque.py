"""The opaque spout over Kafka: it leaves for later what can't be read now, and opaque states stay exact.

To the framework a partition is ``[topic, number, id of the topic, offset that it begins at]``, so that its identity and
beginning become durable with its first metadata, ``{"start": …, "end": …}``. The emitter decides what a transaction
takes: all that each partition has, up to the limit.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from spouts.kafka.log import KafkaLog, Lost, Span, TopicPartition
from spouts.kafka.spout import KafkaInput, KafkaShare, PlanningCoordinator
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import (
    Metadata,
    OpaquePartitionedEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
)
from txtopo.attempts import TransactionAttempt, epoch_and_try
from txtopo.errors import ReportedFailedException, SourceFailure

ENDS_SECS = 0.02
"""How long an emitter trusts an answer by which a partition has nothing new."""

PAUSE_SECS = 0.1
"""Half of the pause after a transaction that could read nothing; the pause doubles with each further one in a row."""

PAUSE_SECS_MAX = 5.0
"""The longest pause while there are records that can't be read: a partition has a leader again within seconds."""

_NO_PARTITION = ["", 0, "", 0]
"""What stands for a pattern that matched nothing when the spout began: metadata is by partition."""

logger = logging.getLogger("txtopo.kafka")


class OpaqueKafkaSpout(KafkaInput, OpaquePartitionedTransactionalSpout):
    """Emits the records of Kafka topics that can be read now; a replay may take others.

    If a partition has no leader, or records that were to be read are gone, the transaction fails once, and the next
    attempt takes what can be read: it leaves the partition for later, or goes on where its log begins now, with a
    warning. States of every kind are exact with it.

    *You* and *txtopo* promise what they do for :class:`TransactionalKafkaSpout`, except that an attempt may read other
    records than the one before. The arguments are the same; ``on_lost`` has no effect.
    """

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> PartitionedCoordinator:
        """Return the coordinator; raise InputError if a topic does not exist, or Kafka refuses the client."""
        del context
        coordinator = _OpaqueCoordinator(self, self.make_log(config, is_shared=False))
        coordinator.planner.check_topics()
        return coordinator

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> OpaquePartitionedEmitter:
        """Return the emitter of a task."""
        del context
        return _OpaqueEmitter(self, config)

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return the offsets that the transaction took by ``topic-partition``."""
        spans = _moved(metadata, previous_metadata)
        return {name: (before, end) for name, before, _, end in spans if before < end}

    def input_skipped(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, Sequence[tuple[Any, Any]]]:
        """Return the offsets that were gone when the transaction was read."""
        spans = _moved(metadata, previous_metadata)
        return {name: [(before, start)] for name, before, start, _ in spans if before < start}


class _OpaqueCoordinator(PlanningCoordinator, PartitionedCoordinator):
    def __init__(self, spout: KafkaInput, log: KafkaLog) -> None:
        super().__init__(spout, log)
        self._begins: dict[TopicPartition, int] = {}
        self._begun = 0
        """Transactions begun since the last metadata came; only their emitters know what they take."""
        self._now_secs = spout.options.now_secs
        self._last: tuple[int, Mapping[str, Metadata]] = (0, {})
        self._fruitless = 0
        """How many transactions in a row could read nothing, although there are records."""
        self._ready_at_secs = float("-inf")

    def rewind(self, txid: int, metadata: Mapping[str, Metadata], undone: Sequence[Mapping[str, Metadata]]) -> bool:
        """Check that Kafka has the records; a published group goes back when the next run begins."""
        del txid  # of a topology in which this spout may not have begun yet
        begins = {}
        undone_keys = {key: None for each in undone for key in each}
        for key, (topic, number, _, begin) in _partitions_of(undone_keys):
            begins[TopicPartition(topic, number)] = metadata[key]["end"] if key in metadata else begin
        self.planner.check_rewind(begins, is_to_the_start=bool(undone_keys) and not metadata)
        return True

    def resume(self, txid: int, metadata: Mapping[str, Metadata]) -> None:
        self._record_fruitless(txid, metadata)
        positions = dict(self._begins)
        for key, (topic, number, identity, begin) in _partitions_of(metadata):
            partition = TopicPartition(topic, number)
            positions[partition] = metadata[key]["end"]
            self._begins[partition] = begin
            self.planner.resume({}, {topic: identity})
        self.planner.resume(positions, {})
        self._begun = 0
        if metadata:
            self.planner.transaction_begun()
            self._publisher.transaction_begun(txid, positions)

    def partitions(self) -> list[Any]:
        self._begun += 1
        spans = self.planner.next_spans()
        taken = self.planner.positions if self.planner.must_keep_begins else spans
        return [*map(self._named, sorted(taken))] or ([_NO_PARTITION] if self.planner.must_begin else [])

    def is_ready(self) -> bool:
        self._publisher.publish_if_time()
        if self._now_secs() < self._ready_at_secs:
            return False
        transactions_left = self.planner.transactions_left()
        return self._begun < (max(1, transactions_left) if self.planner.must_begin else transactions_left)

    def _record_fruitless(self, txid: int, metadata: Mapping[str, Metadata]) -> None:
        """Wait longer and longer while transactions read nothing: they would follow each other without a pause."""
        before, last = self._last
        self._last = (txid, dict(metadata))
        if metadata != last:
            self._fruitless, self._ready_at_secs = 0, float("-inf")
        elif txid > before:
            self._fruitless += 1
            pause_secs = min(PAUSE_SECS_MAX, PAUSE_SECS * 2 ** min(self._fruitless, 16))
            self._ready_at_secs = self._now_secs() + pause_secs

    def _named(self, partition: TopicPartition) -> list[Any]:
        begin = self._begins.setdefault(partition, self.planner.positions[partition])
        return [partition.topic, partition.partition, self.planner.ids[partition.topic], begin]


class _OpaqueEmitter(OpaquePartitionedEmitter):
    def __init__(self, spout: OpaqueKafkaSpout, config: Mapping[str, Any]) -> None:
        self._spout = spout
        self._config = config
        self._format = spout.make_format()
        self._ends: dict[TopicPartition, int] = {}
        self._asked_at_secs: dict[TopicPartition, float] = {}

    def emit_batch(
        self, attempt: TransactionAttempt, collector: BatchOutputCollector, partition: Any, previous_metadata: Metadata
    ) -> Metadata:
        if partition == _NO_PARTITION:
            return {"start": 0, "end": 0}
        topic, number, identity, begin = partition
        log = self._spout.make_log(self._config, is_shared=True)  # for each batch: attempts run in several threads
        place = TopicPartition(topic, number)
        start = begins_at = begin if previous_metadata is None else previous_metadata["end"]
        # Metadata without records makes durable where a new partition begins.
        nothing = {"start": start, "end": start} if previous_metadata is None else None
        _, tries = epoch_and_try(attempt.attempt)
        takes_what_it_can = tries > 1
        try:
            end = self._end(log, place, start)
            # The first attempt leaves a gap to _lost, which fails it with the reason in the report.
            if takes_what_it_can and end > start:
                start = _kept(log, place, start)
        except SourceFailure as error:
            if not takes_what_it_can:
                raise
            logger.warning("%s is left for later: %s", place, error)
            return nothing
        end = min(end, start + self._spout.options.records_max)
        if end <= start:
            # Metadata without records also makes durable that a partition's next records are gone.
            return {"start": start, "end": start} if start > begins_at else nothing
        share = KafkaShare(self._spout, log, {topic: identity}, attempt, collector)
        try:
            share.emit([Span(place, start, end)], self._format, _lost)
        except SourceFailure as error:
            # Bolts have the tuples that were emitted; only another attempt can do without them.
            if not takes_what_it_can or share.has_emitted:
                raise
            logger.warning("%s is left for later: %s", place, error)
            return nothing
        return {"start": start, "end": end}

    def _end(self, log: KafkaLog, place: TopicPartition, start: int) -> int:
        """Return where a partition ends; ask only when all up to the end that is known is taken."""
        now = time.monotonic()
        if self._ends.get(place, 0) <= start and now - self._asked_at_secs.get(place, -ENDS_SECS) >= ENDS_SECS:
            partitions = sorted({*self._ends, place})  # one request, so that the other partitions need none
            ends = log.ends(partitions)
            if place not in ends:
                raise SourceFailure(f"{place} has no leader now")
            self._ends.update(ends)
            self._asked_at_secs.update(dict.fromkeys(ends, now))
        return self._ends.get(place, 0)


def _kept(log: KafkaLog, place: TopicPartition, start: int) -> int:
    first_kept = log.starts([place])[place]
    if first_kept > start:
        logger.warning("%s; they are skipped", Lost(Span(place, start, first_kept), start, first_kept))
    return max(start, first_kept)


def _lost(lost: Lost) -> None:
    raise ReportedFailedException(f"{lost}. The next attempt goes on at offset {lost.first_kept}")


def _partitions_of(keys: Iterable[str]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the keys of metadata that are of partitions, each with what it says."""
    named = ((key, json.loads(key)) for key in keys)
    return ((key, partition) for key, partition in named if partition != _NO_PARTITION)


def _moved(metadata: Metadata, previous_metadata: Metadata) -> Iterator[tuple[str, int, int, int]]:
    """Yield of each partition that a transaction has moved: its name, former end, first offset read, and new end."""
    previous = previous_metadata or {}
    for key, offsets in (metadata or {}).items():
        if previous.get(key) != offsets:
            before = previous[key]["end"] if key in previous else json.loads(key)[3]
            yield _name(key), min(before, offsets["start"]), offsets["start"], offsets["end"]


def _name(key: str) -> str:
    topic, number, _, _ = json.loads(key)
    return f"{topic}-{number}"
