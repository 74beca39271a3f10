"""KafkaSpout: reads topics for a plain topology, and commits behind what was acked.

A call of ``next_tuple`` looks for new partitions if that is due, commits if that is due, polls if nothing waits to be
emitted, and emits one tuple at most. A failed tuple is emitted again by going back: the consumer seeks the offset, and
of what it reads then only offsets are emitted that wait for a retry, or never were. An offset that waits for a retry
and is passed without a record is gone from the log, and counts as done. Values are not kept.

What is known of a partition lives as long as this task holds it, in a :class:`_Held`. Message ids carry the number of
the assignment; one from before a rebalance finds no ``_Held`` with that number, and changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import attrs

from spouts.kafka.log import TopicPartition, missing_topic, no_topic_matches
from spouts.kafka.plain.client import (
    ClientSettings,
    KafkaClient,
    LogRange,
    StoredOffset,
)
from spouts.kafka.plain.config import KafkaSpoutConfig, ProcessingGuarantee
from spouts.kafka.plain.dead_letters import DeadLetter
from spouts.kafka.plain.first_poll import Beginning, beginning, commit_of
from spouts.kafka.plain.lag import Progress, lag_metrics
from spouts.kafka.plain.offsets import CommitMetadata, MessageId, OffsetManager
from spouts.kafka.plain.retries import RetrySchedule
from spouts.kafka.plain.subscription import TopicFilter
from spouts.kafka.plain.translators import Translated, routed
from spouts.kafka.records import KafkaRecord
from txtopo.api.bolt import OutputFieldsDeclarer
from txtopo.api.collector import SpoutOutputCollector
from txtopo.api.context import TopologyContext
from txtopo.api.spout import Spout
from txtopo.errors import ConfigError, InputError, SourceFailure
from txtopo.kafka_errors import RepeatedErrors, escaped

_log = logging.getLogger(__name__)

TIMER_DELAY_MS = 500
"""How much later than its period a timer is due for the first time."""

_GIVEN_UP_AGAIN_MS = 10_000
"""After so long a record is processed again that the dead-letter hook did not take."""


@attrs.define
class _Timer:
    """Is due every so often, and first a little later."""

    period_ms: float
    due_ms: float

    @classmethod
    def begun(cls, period_ms: float, now_ms: float) -> _Timer:
        return cls(period_ms, now_ms + TIMER_DELAY_MS + period_ms)

    def is_due(self, now_ms: float) -> bool:
        """Whether it is due; then it is due again after a period."""
        if now_ms < self.due_ms:
            return False
        self.due_ms = now_ms + self.period_ms
        return True


@attrs.frozen
class _BegunCommit:
    """A periodic commit whose answer is still to come, or to be taken.

    Args:
        answer: what has become of it.
        offsets: what is committed.
        epochs: of the assignments that they are of.
    """

    answer: Future[bool]
    offsets: Mapping[TopicPartition, StoredOffset]
    epochs: Mapping[TopicPartition, int]


@attrs.define(eq=False)
class _Held:
    """A partition that this task holds."""

    epoch: int
    offsets: OffsetManager
    position: int
    """The next offset to be polled."""
    head: int
    """The next offset that was never polled."""
    waiting: deque[KafkaRecord] = attrs.field(factory=deque)
    """Polled, and to be emitted or skipped."""
    in_flight: dict[int, MessageId] = attrs.field(factory=dict)
    records: dict[int, KafkaRecord] = attrs.field(factory=dict)
    """Of what is in flight, if there is a dead-letter hook."""
    committed_position: int = -1
    """What was committed without acks, by the guarantees that do."""


class KafkaSpout(Spout):
    """Reads Kafka topics, at least once unless configured otherwise.

    *You* give each spout of a topology a group of its own (which it has by default), and keep the topology's id: the
    group's offsets carry it. *txtopo* guarantees, with AT_LEAST_ONCE, that the group's offset of a partition is never
    ahead of a record that was not acked, or given up to the dead-letter hook; whatever dies, what was not acked is
    emitted again. Acked records may come again too: those acked since the last commit.

    It differs from Storm's where that has a weakness:

    - Offsets that are acked above a gap are noted in the commit's metadata, so that a rebalance or a restart does not
      emit them again. With a subscription, partitions that stay with a member are not disturbed.
    - After a retry it goes on where it was, instead of reading everything in between once more. It also commits while
      it only receives acks, because too many tuples are pending.
    - A record that failed too often goes to the dead-letter hook; without one it shows in the log and the report.
    - Message ids carry the assignment's epoch; the TIMESTAMP strategies work; delays saturate; nothing is shared
      between spouts; and a commit that fails is reported and made again, with every guarantee.
    - A committed offset outside the log (records deleted by retention, a topic made anew) is reported, and
      reading begins at the log's beginning. If a log ends before the next offset to read while it runs, that is
      reported, and what is read again from there on counts as new.

    The periodic commits and the search for new partitions don't make the worker's loop wait. Being activated,
    deactivated, closed or rebalanced does, for a request or two; so does AT_MOST_ONCE for each poll that has records.

    Args:
        servers: a KafkaSpoutConfig, or its first argument.
        topics: its second argument, if the first is not a configuration.
        fields: its third one.
        clock: tells the time, in seconds.
        settings: its other arguments.

    Raises:
        ConfigError: a setting has no sense.
    """

    def __init__(
        self,
        servers: KafkaSpoutConfig | str,
        topics: Any = None,
        fields: Any = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,
    ) -> None:
        if isinstance(servers, KafkaSpoutConfig):
            if settings or (topics, fields) != (None, None):
                raise ConfigError("give a KafkaSpoutConfig or settings, not both")
            self.config = servers
        else:
            self.config = KafkaSpoutConfig(servers, topics, fields, **settings)
        self.clock = clock

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the translator's streams."""
        translator = self.config.translator
        for stream in translator.streams():
            declarer.declare_stream(stream, translator.fields_for(stream))

    def open(self, config: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector) -> None:
        """Make a client."""
        settings = self.config
        self._context = context
        self._collector = collector
        self._tasks = len(context.component_tasks(context.this_component_id))
        self._held: dict[TopicPartition, _Held] = {}
        self._epoch = 0
        self._retries = RetrySchedule(settings.retry_service)
        self._letters: list[tuple[MessageId, DeadLetter]] = []
        self._is_writing_letters = False
        self._is_active = self._is_closed = False
        self._has_subscribed = False
        self._is_looking = self._has_looked = False
        self._errors = RepeatedErrors(self.clock)
        self._begun: _BegunCommit | None = None
        self._ranges: dict[TopicPartition, LogRange] = {}
        now = self._now_ms()
        self._commit_timer = _Timer.begun(settings.offset_commit_period_ms, now)
        self._refresh_timer = _Timer.begun(settings.partition_refresh_period_ms, now)
        self._metrics_timer = _Timer.begun((settings.metrics_bucket_secs or 60) * 1000, now)
        self._group_id = settings.group_id or f"{context.topology_id}-{context.this_component_id}"
        self._client: KafkaClient = settings.connect(
            ClientSettings(settings.servers, self._group_id, settings.offset_reset, settings.properties, self._report)
        )
        settings.tuple_listener.open(config, context, collector)

    def activate(self) -> None:
        """Take this task's partitions, or join the group."""
        self._is_active = True
        if not self.config.subscribe or not self._has_looked:
            self._look_for_partitions()
        if self.config.subscribe and not self._has_subscribed:
            self._client.subscribe(self.config.topics.subscription, self)
            self._has_subscribed = True

    def deactivate(self) -> None:
        """Commit. What is known stays; acks and failures that still come are committed when it is active again."""
        self._commit_acked()
        self._is_active = False

    def close(self) -> None:
        """Commit, and leave the group."""
        try:
            self._commit_acked()
        finally:
            self._is_closed = True
            self._client.close()

    def next_tuple(self) -> None:
        """Emit one tuple, if there is one; see the module's docstring for what else."""
        now = self._now_ms()
        if (not self.config.subscribe or not self._has_looked) and self._refresh_timer.is_due(now):
            self._look_for_partitions()
        self._commit_if_due(now)
        if self.config.metrics_bucket_secs is not None and self._metrics_timer.is_due(now):
            self._look_at_ranges()
        if not any(held.waiting for held in self._held.values()):
            self._poll(now)
        self._emit_one(now)

    def ack(self, message_id: MessageId) -> None:
        """Note that a record was processed; nothing else if its partition was lost meanwhile."""
        if not self.config.is_at_least_once:
            return
        held = self._holding(message_id)
        if held is not None:
            assert not self._retries.is_scheduled(message_id.partition, message_id.offset), "it was failed, and acked"
            self._done_with(held, message_id.offset)
        self.config.tuple_listener.on_ack(message_id)
        if self._is_active:
            self._commit_if_due(self._now_ms())

    def fail(self, message_id: MessageId) -> None:
        """Let a record wait to be emitted again, or give it up; nothing if its partition was lost meanwhile."""
        held = self._holding(message_id) if self.config.is_at_least_once else None
        if held is None:
            return
        message_id.fails += 1
        if self._retries.schedule(message_id, self._now_ms()):
            del held.in_flight[message_id.offset]
            held.records.pop(message_id.offset, None)
            self.config.tuple_listener.on_retry(message_id)
        else:
            self.config.tuple_listener.on_max_retry_reached(message_id)
            self._give_up(held, message_id, f"it failed {message_id.fails} times")

    def metrics(self) -> dict[str, int]:
        """Return how far this task is in each partition that it holds, and in each topic.

        The keys are ``<topic>/partition_<n>/`` with spoutLag, earliestTimeOffset, latestTimeOffset,
        latestEmittedOffset, latestCompletedOffset, recordsInPartition, and ``<topic>/`` with totalSpoutLag and so on.
        The log's ranges are asked for now, which takes a request; without an answer they are those of last time.
        """
        if not self._is_closed:
            try:
                self._ranges = self._client.ranges(self._held)
            except SourceFailure as error:
                self._report(error)
        return self._metrics()

    def lag(self) -> int | None:
        """Return how many offsets this task's committed ones are behind the log ends, as they were last asked for."""
        known = {partition: held for partition, held in self._held.items() if partition in self._ranges}
        if not known:
            return None
        return sum(max(0, self._ranges[each].end - held.offsets.committed_offset) for each, held in known.items())

    # The assignment. As an AssignmentListener these are called in the client's poll.

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what was acked in partitions that may go to another task."""
        if not self._is_closed:
            self._commit_acked(partitions)

    def assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Take the partitions that this task holds from now on; return where reading begins, or goes on."""
        new = [partition for partition in partitions if partition not in self._held]
        starts = self._starts(new)
        self._held = {partition: held for partition, held in self._held.items() if partition in set(partitions)}
        self._retries.retain_all(partitions)
        self._epoch += 1
        for partition in sorted(new):
            start, acked = starts[partition]
            manager = OffsetManager(partition, start)
            manager.restore(acked)
            self._held[partition] = _Held(self._epoch, manager, start, start)
        if new:
            begun = ", ".join(f"{partition} from {starts[partition][0]}" for partition in sorted(new))
            _log.info("task %d reads %s", self._context.this_task_id, begun)
        self.config.tuple_listener.on_partitions_reassigned(list(self._held))
        return {partition: held.position for partition, held in self._held.items()}

    def _look_for_partitions(self) -> None:
        """Ask for the partitions there are, in another thread, and assign this task's share when they are known.

        With a subscription Kafka assigns them; then this only finds out whether there is something to read.
        """
        if self._is_looking:
            return
        self._is_looking = True
        client, topics, is_first = self._client, self.config.topics, not self._has_looked

        def look() -> list[TopicPartition]:
            found = client.partitions(topics.names)
            if is_first:
                _check_topics(topics, found, client)
            return found

        def on_done(done: Future[list[TopicPartition]]) -> None:
            self._is_looking = False
            error = done.exception()
            if self._is_closed or not self._is_active:
                return
            if error is not None:
                self._report(error)
                return
            self._has_looked = True
            if not self.config.subscribe:
                self._try_to_assign(done.result())

        self._context.offload(look, on_done)

    def _try_to_assign(self, found: Sequence[TopicPartition]) -> None:
        try:
            self._assign(found)
        except SourceFailure as error:
            self._report(error)

    def _assign(self, found: Sequence[TopicPartition]) -> None:
        """Take this task's share of the partitions there are."""
        chosen = self.config.topics.chosen(found)
        share = set(self.config.partitioner.share(chosen, self._context.this_task_index, self._tasks))
        before = set(self._held)
        if share == before:
            return
        self.revoked(before)
        starts = self.assigned(share)
        self._client.unassign(before - share)
        self._client.assign({partition: start for partition, start in starts.items() if partition not in before})

    def _starts(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, Sequence[tuple[int, int]]]]:
        """Return where to begin in partitions, and which ranges above that were acked already.

        Raises:
            SourceFailure: that can't be found out now.
        """
        if not partitions:
            return {}
        committed, ranges = self._client.committed(partitions), self._client.ranges(partitions)
        timed: dict[TopicPartition, int] = {}
        topology = self._context.topology_id
        starts: dict[TopicPartition, tuple[int, Sequence[tuple[int, int]]]] = {}
        for partition in partitions:
            stored, log = committed.get(partition), ranges[partition]
            match beginning(self.config.first_poll, commit_of(stored, topology)):
                case Beginning.EARLIEST:
                    starts[partition] = log.begin, ()
                case Beginning.LATEST:
                    starts[partition] = log.end, ()
                case Beginning.TIMESTAMP:
                    timed = timed or self._client.offsets_at(partitions, self.config.start_timestamp)
                    starts[partition] = timed[partition], ()
                case Beginning.COMMITTED:
                    assert stored is not None, "the table says so"
                    starts[partition] = self._resumed(partition, stored, log)
        return starts

    def _resumed(
        self, partition: TopicPartition, stored: StoredOffset, log: LogRange
    ) -> tuple[int, Sequence[tuple[int, int]]]:
        """Return where to go on behind a committed offset."""
        if not log.begin <= stored.offset <= log.end:
            self._collector.report_error(
                InputError(
                    f"{partition}: group {self._group_id!r} has committed {stored.offset}, but the log has "
                    f"[{log.begin}, {log.end}): records were deleted, or the topic was made anew; reading begins at "
                    f"{log.begin}"
                )
            )
            return log.begin, ()
        metadata = CommitMetadata.parse(stored.metadata)
        is_own = metadata is not None and metadata.topology_id == self._context.topology_id
        acked = metadata.acked if metadata is not None and is_own and self.config.is_at_least_once else ()
        return stored.offset, [(first, min(last, log.end - 1)) for first, last in acked]

    # Commits.

    def _commit_if_due(self, now: float) -> None:
        self._take_commit()
        guarantee = self.config.processing_guarantee
        if guarantee is ProcessingGuarantee.AT_MOST_ONCE or not self._commit_timer.is_due(now) or self._begun:
            return
        offsets = self._acked_offsets(self._held) if self.config.is_at_least_once else self._positions()
        if not offsets:
            return
        epochs = {partition: self._held[partition].epoch for partition in offsets}
        self._begun = _BegunCommit(self._client.begin_commit(offsets), offsets, epochs)
        self._take_commit()

    def _take_commit(self) -> None:
        """Take the answer to the periodic commit that was begun, if it is there."""
        begun = self._begun
        if begun is None or not begun.answer.done():
            return
        self._begun = None
        error = begun.answer.exception()
        if error is not None:
            self._report(error)
        elif begun.answer.result():
            epochs = begun.epochs
            self._committed({each: at for each, at in begun.offsets.items() if self._epoch_of(each) == epochs[each]})

    def _commit_acked(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Commit what was acked, at once.

        A periodic commit may be under way, of which the answer comes later than this one's:

        1. The timer has begun to commit 10.
        2. This task is deactivated: 20 is committed here, after it, and counts.
        3. The answer for 10 comes. The OffsetManager stays at 20.
        """
        if not self.config.is_at_least_once:
            return
        offsets = self._acked_offsets(self._held if partitions is None else partitions, ranges_too=True)
        if offsets and self._commit(offsets):
            self._committed(offsets)

    def _commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> bool:
        try:
            return self._client.commit(offsets)
        except SourceFailure as error:
            self._report(error)
            return False

    def _acked_offsets(
        self, partitions: Collection[TopicPartition], *, ranges_too: bool = False
    ) -> dict[TopicPartition, StoredOffset]:
        """Return up to where partitions are acked.

        Args:
            partitions: these, as far as they are held.
            ranges_too: also for partitions in which only offsets above a gap were acked.
        """
        offsets = {}
        for partition in sorted(partitions):
            held = self._held.get(partition)
            if held is None:
                continue
            tail = None if held.waiting else self._tail(partition, held)
            found = held.offsets.find_next_commit_offset(tail=tail)
            reached = held.offsets.committed_offset if found is None else found.offset
            acked = held.offsets.acked_ranges(reached)
            if found is not None or (ranges_too and acked):
                offsets[partition] = StoredOffset(reached, self._metadata(acked))
        return offsets

    def _tail(self, partition: TopicPartition, held: _Held) -> int | None:
        """Return the consumer's position where it is known to be behind everything that was polled."""
        position = self._client.position(partition)
        return position if position is not None and position >= held.head else None

    def _metadata(self, acked: Sequence[tuple[int, int]] = ()) -> str:
        thread = threading.current_thread().name
        return CommitMetadata(self._context.topology_id, self._context.this_task_id, thread, tuple(acked)).to_json()

    def _committed(self, offsets: Mapping[TopicPartition, StoredOffset]) -> None:
        """Take note of a commit; nothing below it is emitted or read again."""
        for partition, stored in offsets.items():
            held = self._held[partition]
            if not self.config.is_at_least_once:
                held.committed_position = stored.offset
                continue
            held.offsets.commit(stored.offset)
            while held.waiting and held.waiting[0].offset < stored.offset:
                held.waiting.popleft()
            if held.position < stored.offset:
                self._seek(partition, stored.offset)

    def _positions(self) -> dict[TopicPartition, StoredOffset]:
        """Return the positions that are not committed yet, for the guarantees that do not wait for acks."""
        return {
            partition: StoredOffset(held.position, self._metadata())
            for partition, held in self._held.items()
            if held.position != held.committed_position
        }

    # Polls.

    def _poll(self, now: float) -> None:
        pollable = self._pollable(now)
        for partition, retry in list(pollable.items()):
            target = self._goal(self._held[partition], retry)
            if target is not None and not self._seek(partition, target):
                del pollable[partition]  # next time
        config = self.config
        try:
            found = self._client.poll(pollable, config.poll_timeout_ms / 1000, config.batch_records_max)
        except SourceFailure as error:
            self._report(error)
            return
        for partition, records in found.items():
            if partition in self._held:
                self._take(self._held[partition], records)
        for partition in pollable:
            held = self._held.get(partition)
            if held is not None and held.position < held.head and not held.waiting:
                self._moved(held, min(held.head, self._client.position(partition) or 0))
        if config.processing_guarantee is ProcessingGuarantee.AT_MOST_ONCE and found:
            self._commit_before_emit()

    def _take(self, held: _Held, records: Sequence[KafkaRecord]) -> None:
        if records[0].offset < held.position:
            held = self._begun_anew(held, records[0].offset)
        for record in records:
            self._moved(held, record.offset)
            held.waiting.append(record)
            held.position = record.offset + 1
            held.head = max(held.head, held.position)

    def _begun_anew(self, before: _Held, offset: int) -> _Held:
        """Forget a partition whose log ended before what was read, so that the client has begun it again.

        The records under these offsets are others now: none was emitted, acked or committed.
        """
        partition = before.offsets.partition
        self._collector.report_error(
            InputError(
                f"{partition}: offset {before.position} was to be read next, but the log ended before it: the topic "
                f"was made anew, or its log was cut off; reading goes on at {offset}"
            )
        )
        self._epoch += 1
        self._retries.retain_all(self._held.keys() - {partition})
        self._held[partition] = _Held(self._epoch, OffsetManager(partition, offset), offset, offset)
        return self._held[partition]

    def _moved(self, held: _Held, position: int) -> None:
        """Count retries as done that were passed without a record: these records are gone."""
        if position <= held.position:
            return
        partition = held.offsets.partition
        gone = [
            offset
            for offset in held.offsets.emitted_between(held.position, position)
            if not held.offsets.is_acked(offset) and offset not in held.in_flight
        ]
        held.position = position
        for offset in gone:
            self._retries.remove(partition, offset)
            held.offsets.add_acked(offset)
        if gone:
            words = "%s: %d failed records are gone (%d and later), compacted or deleted; they count as done"
            _log.warning(words, partition, len(gone), gone[0])

    def _pollable(self, now: float) -> dict[TopicPartition, int | None]:
        """Return the partitions that may be read, with the lowest offset that is due for a retry, if there is one."""
        if not self.config.is_at_least_once:
            return dict.fromkeys(self._held)
        ready = self._retries.earliest_retriable_offsets(now)
        limit = self.config.max_uncommitted_offsets
        pollable = {}
        for partition, held in self._held.items():
            retry = ready.get(partition)
            is_below = held.offsets.num_uncommitted < limit
            if is_below or (retry is not None and retry <= held.offsets.nth_uncommitted(limit)):
                pollable[partition] = retry
        return pollable

    def _goal(self, held: _Held, retry: int | None) -> int | None:
        """Return where to seek before a poll: to a retry, or, when there is none, to the head; None to read on.

        What lies before either is all known. Less than a poll of it is read, which is cheaper than a seek; after a
        seek whose records have not arrived yet there must be no other.
        """
        goal = held.head if retry is None else retry
        return None if 0 <= goal - held.position <= self.config.batch_records_max else goal

    def _seek(self, partition: TopicPartition, offset: int) -> bool:
        try:
            self._client.seek(partition, offset)
        except SourceFailure as error:
            self._report(error)
            return False
        self._held[partition].position = offset
        return True

    def _commit_before_emit(self) -> None:
        """Commit the positions behind what was polled; without that, nothing of it may be emitted."""
        offsets = self._positions()
        if self._commit(offsets):
            self._committed(offsets)
            return
        for partition, held in self._held.items():
            if held.waiting:
                back = held.waiting[0].offset
                held.waiting.clear()
                held.head = back
                self._seek(partition, back)

    # Tuples.

    def _emit_one(self, now: float) -> None:
        for held in self._held.values():
            while held.waiting:
                if self._emit(held, held.waiting.popleft(), now):
                    return

    def _emit(self, held: _Held, record: KafkaRecord, now: float) -> bool:
        """Emit a record's tuple unless it is done with, in flight, or waits for a retry; return whether it was."""
        partition, offset = held.offsets.partition, record.offset
        message_id = None
        if self.config.is_at_least_once:
            held.offsets.add_polled(offset)
            if held.offsets.is_acked(offset) or offset in held.in_flight:
                return False
            message_id = self._retries.message_id(partition, offset)
            if message_id is not None and not self._retries.is_ready(partition, offset, now):
                return False
        if message_id is None:
            message_id = MessageId(partition, offset, held.epoch)
        try:
            translated = self.config.translator.apply(record)
        except Exception as error:  # noqa: BLE001 - the user's code, and bytes of anybody
            self._unreadable(held, message_id, record, error)
            return False
        if translated is None and not self.config.emit_null_tuples:
            if self.config.is_at_least_once:
                held.offsets.add_emitted(offset)
                self._retries.remove(partition, offset)
                self._done_with(held, offset)
                self.config.tuple_listener.on_ack(message_id)
            return False
        self._send(held, message_id, translated, record)
        return True

    def _send(self, held: _Held, message_id: MessageId, translated: Translated, record: KafkaRecord) -> None:
        translator = self.config.translator
        if translated is None:
            translated = [None] * len(translator.fields_for(translator.streams()[0]))
        emitted = routed(translated, translator)
        is_tracked = self.config.is_at_least_once or self.config.tuple_tracking_enforced
        if self.config.is_at_least_once:
            held.offsets.add_emitted(message_id.offset)
            held.in_flight[message_id.offset] = message_id
            if self.config.dead_letter is not None:
                held.records[message_id.offset] = record
            self._retries.remove(message_id.partition, message_id.offset)
        self._collector.emit(emitted.values, emitted.stream, message_id if is_tracked else None)
        self.config.tuple_listener.on_emit(emitted.values, message_id)

    def _done_with(self, held: _Held, offset: int) -> None:
        held.in_flight.pop(offset, None)
        held.records.pop(offset, None)
        held.offsets.add_acked(offset)

    def _unreadable(self, held: _Held, message_id: MessageId, record: KafkaRecord, error: Exception) -> None:
        """Give a record up that no tuple can be made of.

        Raises:
            InputError: there is no dead-letter hook.
        """
        reason = escaped(f"no tuple can be made of it: {type(error).__name__}: {error}")
        if self.config.dead_letter is None:
            raise InputError(
                f"{message_id}: {reason}; give dead_letter to keep such records and go on",
                component=self._context.this_component_id,
            ) from error
        held.offsets.add_emitted(message_id.offset)
        held.in_flight[message_id.offset] = message_id
        held.records[message_id.offset] = record
        self._retries.remove(message_id.partition, message_id.offset)
        self._give_up(held, message_id, reason)

    def _give_up(self, held: _Held, message_id: MessageId, reason: str) -> None:
        """Count a record as done: at once, or when the dead-letter hook has it."""
        if self.config.dead_letter is None:
            self._collector.report_error(InputError(f"{message_id}: given up, {reason}; dead_letter would keep it"))
            self._done_with(held, message_id.offset)
            return
        letter = DeadLetter(held.records[message_id.offset], message_id.fails, reason)
        self._letters.append((message_id, letter))
        self._write_letters()

    def _write_letters(self) -> None:
        """Give the letters to the hook, in another thread; those that come meanwhile go together afterwards."""
        hook = self.config.dead_letter
        if hook is None or self._is_writing_letters or not self._letters:
            return
        self._is_writing_letters = True
        taken, self._letters = self._letters, []

        def on_done(done: Future[None]) -> None:
            self._is_writing_letters = False
            error = done.exception()
            if error is not None:
                self._collector.report_error(error)
            for message_id, _ in taken:
                held = self._holding(message_id)
                if held is not None and error is None:
                    self._done_with(held, message_id.offset)
                elif held is not None:
                    del held.in_flight[message_id.offset]
                    self._retries.schedule_at(message_id, self._now_ms() + _GIVEN_UP_AGAIN_MS)
            self._write_letters()

        self._context.offload(lambda: hook.take([letter for _, letter in taken]), on_done)

    def _holding(self, message_id: MessageId) -> _Held | None:
        """Return the partition of a message that is in flight; None if it is not, or was by an earlier assignment."""
        held = self._held.get(message_id.partition)
        is_known = held is not None and held.epoch == message_id.epoch and message_id.offset in held.in_flight
        return held if is_known else None

    def _epoch_of(self, partition: TopicPartition) -> int | None:
        held = self._held.get(partition)
        return None if held is None else held.epoch

    # Metrics and small things.

    def _look_at_ranges(self) -> None:
        """Ask how long the logs are, in another thread, and tell the listener the metrics."""
        client, partitions = self._client, list(self._held)

        def on_done(done: Future[dict[TopicPartition, LogRange]]) -> None:
            if done.exception() is None and not self._is_closed:
                self._ranges = done.result()
                metrics = self._metrics()
                _log.debug("task %d: %s", self._context.this_task_id, metrics)
                self.config.tuple_listener.on_metrics(metrics)

        self._context.offload(lambda: client.ranges(partitions), on_done)

    def _metrics(self) -> dict[str, int]:
        progress = {
            partition: Progress(held.offsets.committed_offset, held.offsets.latest_emitted)
            for partition, held in self._held.items()
        }
        return lag_metrics(progress, self._ranges)

    def _report(self, error: BaseException) -> None:
        """Report that Kafka did not do something, and go on; the same over and over only now and then.

        Raises:
            InputError: Kafka refuses this client, or there is no such topic: to go on would be in vain.
        """
        if isinstance(error, InputError):
            raise error
        if not isinstance(error, SourceFailure):
            self._collector.report_error(error)
            return
        text = self._errors.due(error.message)
        if text is not None:  # without a traceback, which says nothing to the user
            self._collector.report_error(SourceFailure(text))

    def _now_ms(self) -> float:
        return self.clock() * 1000


def _check_topics(topics: TopicFilter, found: Collection[TopicPartition], client: KafkaClient) -> None:
    """Check at the beginning that there is something to read; warn if it may still come.

    Raises:
        InputError: a topic that is named does not exist.
    """
    there = {each.topic for each in found}
    missing = min(set(topics.names or ()) - there, default=None)
    if missing is not None:
        raise missing_topic(missing, {each.topic for each in client.partitions(None)})
    if topics.names is None and not topics.chosen(found):
        _log.warning("%s. Those that come later are read", no_topic_matches(repr(topics), there))
