"""KafkaSpout: reads topics for a plain topology, and commits behind what was acked.

A call of ``next_tuple`` looks for new partitions if that is due, commits if that is due, polls if no polled record is
left, and emits at most one tuple. A :class:`PartitionProgress` for each partition decides what is in flight, retried
and committed; the spout asks Kafka, emits and reads the clock.

A progress lives as long as its partition is assigned to this task. Message ids carry the number of the assignment, so
an ack or failure from before a rebalance has no effect.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import attrs

from spouts.kafka.log import (
    NO_ID,
    ConsumerSettings,
    KafkaConsumer,
    KafkaRecord,
    LogRange,
    StoredOffset,
    Topic,
    TopicPartition,
)
from spouts.kafka.plain.config import KafkaSpoutConfig, ProcessingGuarantee
from spouts.kafka.plain.dead_letters import DeadLetter
from spouts.kafka.plain.progress import CommitMetadata, MessageId, PartitionProgress, lag_metrics
from spouts.kafka.plain.translators import routed
from spouts.kafka.topics import NamedTopicFilter, check_topics
from txtopo.api.bolt import OutputFieldsDeclarer
from txtopo.api.collector import SpoutOutputCollector
from txtopo.api.context import TopologyContext
from txtopo.api.spout import Spout
from txtopo.errors import ConfigError, InputError, SourceFailure
from txtopo.network.kafka_connection import REPEAT_SECS
from txtopo.printable import escaped
from txtopo.repeated import Repeated

_log = logging.getLogger(__name__)

TIMER_DELAY_MS = 500
"""How much later than its period a timer is due for the first time."""

METRICS_MS = 60_000
"""How often the listener gets the metrics."""

_GIVEN_UP_AGAIN_MS = 10_000
"""How long a record waits for its next try after the dead-letter hook has failed to take it."""


@attrs.define
class _Timer:
    period_ms: float
    due_ms: float

    @classmethod
    def begun(cls, period_ms: float, now_ms: float) -> _Timer:
        return cls(period_ms, now_ms + TIMER_DELAY_MS + period_ms)

    def is_due(self, now_ms: float) -> bool:
        """Whether the timer is due; if so, it starts again."""
        if now_ms < self.due_ms:
            return False
        self.due_ms = now_ms + self.period_ms
        return True


@attrs.frozen
class _BegunCommit:
    """A periodic commit without an answer yet, with the progresses at its begin: a rebalance may replace them."""

    answer: Future[bool]
    offsets: Sequence[tuple[PartitionProgress, int]]


@attrs.frozen
class _Look:
    """The topics that exist, and where the partitions of topics that were created again begin."""

    topics: Sequence[Topic]
    anew: Mapping[TopicPartition, int]


class KafkaSpout(Spout):
    """Reads Kafka topics, at least once unless configured otherwise.

    *You* give each spout of a topology a group of its own (the default), and keep the topology's id: the group's
    offsets carry it. *txtopo* guarantees, with AT_LEAST_ONCE, that the group's offset of a partition never passes a
    record that was neither acked nor given up to the dead-letter hook. Whatever dies, records that were not acked are
    emitted again; so are those that were acked since the last commit.

    It differs from Storm's spout where that is weak:

    - A commit's metadata notes offsets that were acked above a gap, so that a rebalance or a restart does not emit them
      again. With a subscription, a rebalance does not disturb partitions that stay with a member.
    - After a retry it goes on where it was, instead of reading everything in between once more. It also commits while
      too many tuples are pending and it only receives acks.
    - A record that failed too often goes to the dead-letter hook; without a hook, the log and the report name it.
    - Message ids carry the assignment's epoch; the TIMESTAMP strategies work; retry delays have an upper bound; spouts
      share nothing; and with every guarantee it reports a failed commit and commits again.
    - If a committed offset is outside the log (retention has deleted records), or belongs to a topic that was deleted
      and created again, the spout reports that and begins at the log's beginning, also if it happens during the run.
      All records from there on are new.

    The periodic commits and the look for new partitions don't make the worker's loop wait. Activating, deactivating,
    closing and rebalancing do, for a request or two; so does AT_MOST_ONCE for each poll that has records.

    Args:
        servers: a KafkaSpoutConfig, or its first argument.
        topics: its second argument, if the first is not a configuration.
        fields: its third argument, likewise.
        clock: returns the time, in seconds.
        settings: its other arguments, likewise.

    Raises:
        ConfigError: a setting is wrong.
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
        """Connect."""
        settings = self.config
        self._context = context
        self._collector = collector
        self._tasks = len(context.component_tasks(context.this_component_id))
        self._partitions: dict[TopicPartition, PartitionProgress] = {}
        self._epoch = 0
        self._given_up: list[tuple[MessageId, DeadLetter]] = []
        """Records that wait for the dead-letter hook, with their message ids."""
        self._is_hook_running = False
        self._is_active = self._is_closed = False
        self._has_subscribed = False
        self._is_looking = self._has_looked = False
        self._errors = Repeated(REPEAT_SECS, clock=self.clock)
        self._begun: _BegunCommit | None = None
        self._ranges: dict[TopicPartition, LogRange] = {}
        now = self._now_ms()
        self._commit_timer = _Timer.begun(settings.offset_commit_period_ms, now)
        self._refresh_timer = _Timer.begun(settings.partition_refresh_period_ms, now)
        self._metrics_timer = _Timer.begun(METRICS_MS, now)
        self._group_id = settings.group_id or f"{context.topology_id}-{context.this_component_id}"
        self._consumer: KafkaConsumer = settings.connect(
            ConsumerSettings(settings.servers, self._group_id, settings.offset_reset, settings.properties, self._report)
        )
        settings.tuple_listener.open(config, context, collector)

    def activate(self) -> None:
        """Read this task's partitions, or join the group."""
        self._is_active = True
        self._look_for_partitions()
        if self.config.subscribe and not self._has_subscribed:
            self._consumer.subscribe(self.config.topics.subscription, self)
            self._has_subscribed = True

    def deactivate(self) -> None:
        """Commit. Progress stays: acks that still come are committed when the spout is active again."""
        self._commit_now(self._partitions)
        self._is_active = False

    def close(self) -> None:
        """Commit, and leave the group."""
        try:
            self._commit_now(self._partitions)
        finally:
            # Before close(), in whose rebalance revoked() would commit once more.
            self._is_closed = True
            self._consumer.close()

    def next_tuple(self) -> None:
        """Emit one tuple, if there is one; the module's docstring says what else it does."""
        now = self._now_ms()
        if self._refresh_timer.is_due(now):
            self._look_for_partitions()
        self._commit_if_due(now)
        if self._metrics_timer.is_due(now):
            self._look_at_ranges()
        if not any(progress.has_records for progress in self._partitions.values()):
            self._poll(now)
        self._emit_one(now)

    def ack(self, message_id: MessageId) -> None:
        """Note that a record was processed, unless its partition was revoked meanwhile."""
        if not self.config.is_at_least_once:
            return
        progress = self._progress_of(message_id)
        if progress is not None:
            progress.done(message_id.offset)
        self.config.tuple_listener.on_ack(message_id)
        if self._is_active:
            # next_tuple is not called while topology.max.spout.pending is reached; without commits here, records that
            # are acked meanwhile would come again after a crash.
            self._commit_if_due(self._now_ms())

    def fail(self, message_id: MessageId) -> None:
        """Let a record be emitted again later, or give it up, unless its partition was revoked meanwhile."""
        progress = self._progress_of(message_id)
        if progress is None:
            return
        message_id.fails += 1
        delay_ms = self.config.retry_service.delay_ms(message_id.fails)
        if delay_ms is not None:
            progress.retry(message_id, self._now_ms() + delay_ms)
            self.config.tuple_listener.on_retry(message_id)
            return
        self.config.tuple_listener.on_max_retry_reached(message_id)
        self._give_up(message_id, progress.record_in_flight(message_id.offset), f"it failed {message_id.fails} times")

    def metrics(self) -> dict[str, int]:
        """Return how far this task is in each of its partitions, and in each topic.

        The keys are ``<topic>/partition_<n>/`` with spoutLag, earliestTimeOffset, latestTimeOffset,
        latestEmittedOffset, latestCompletedOffset, recordsInPartition, and ``<topic>/`` with totalSpoutLag and so on.
        This asks Kafka for the logs' ranges, and uses those of last time if there is no answer.
        """
        if not self._is_closed:
            try:
                self._ranges = self._consumer.log.ranges(self._partitions)
            except SourceFailure as error:
                self._report(error)
        return lag_metrics(self._partitions.values(), self._ranges)

    def lag(self) -> int | None:
        """Return how many offsets are not committed up to the log ends that are known; None if none is."""
        known = [progress for partition, progress in self._partitions.items() if partition in self._ranges]
        if not known:
            return None
        return sum(max(0, self._ranges[each.partition].end - each.committed_offset) for each in known)

    # The assignment. As a RebalanceListener these are called in the consumer's poll.

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what was acked in partitions that may go to another task."""
        if not self._is_closed:
            self._commit_now(partitions)

    def assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Take all partitions that are assigned to this task; return the next offset to read in each."""
        new = sorted(partition for partition in partitions if partition not in self._partitions)
        self._epoch += 1
        begun = self._begun_partitions(new)
        kept = {partition: progress for partition, progress in self._partitions.items() if partition in set(partitions)}
        self._partitions = {**kept, **begun}
        if new:
            where = ", ".join(f"{partition} from {progress.position}" for partition, progress in begun.items())
            _log.info("task %d reads %s", self._context.this_task_id, where)
        self.config.tuple_listener.on_partitions_reassigned(list(self._partitions))
        return {partition: progress.position for partition, progress in self._partitions.items()}

    def _look_for_partitions(self) -> None:
        """Ask which topics exist, in another thread, and assign this task its share of their partitions.

        With a subscription Kafka assigns the partitions; this only checks that topics exist, and whether one was
        created again.
        """
        if self._is_looking:
            return
        self._is_looking = True
        # What look() needs is taken here: it runs in another thread, and must not touch the spout's own state.
        log, topics, is_first = self._consumer.log, self.config.topics, not self._has_looked
        ids = {partition: progress.topic_id for partition, progress in self._partitions.items()}

        def look() -> _Look:
            found = log.topics(topics)
            if is_first:
                nothing = check_topics(topics, found, log)
                if nothing is not None:
                    _log.warning("%s. Those that come later are read", nothing)
            there = {topic.name: topic for topic in found}
            anew = [
                each
                for each, known in ids.items()
                if each.topic in there
                and each.partition < there[each.topic].partitions
                and _is_another(known, there[each.topic].id)
            ]
            return _Look(found, log.starts(anew))

        def on_done(done: Future[_Look]) -> None:
            self._is_looking = False
            failed = done.exception()
            if self._is_closed or not self._is_active:
                return  # activate() looks again
            if failed is not None:
                self._report(failed)
                return
            self._has_looked = True
            try:
                self._begin_anew(done.result())
                if not self.config.subscribe:
                    self._assign(done.result().topics)
            except SourceFailure as error:
                self._report(error)

        self._context.offload(look, on_done)

    def _assign(self, found: Sequence[Topic]) -> None:
        """Assign this task its share of the partitions that exist."""
        chosen = self.config.topics.chosen(each for topic in found for each in topic.all_partitions())
        share = set(self.config.partitioner.share(chosen, self._context.this_task_index, self._tasks))
        before = set(self._partitions)
        if share == before:
            return
        self.revoked(before)  # commits first: the task that takes a partition begins at its committed offset
        starts = self.assigned(share)
        self._consumer.unassign(before - share)
        self._consumer.assign({partition: start for partition, start in starts.items() if partition not in before})

    def _begin_anew(self, look: _Look) -> None:
        """Go to the beginning of topics that were created again, although their logs may have the next offset."""
        ids = {topic.name: topic.id for topic in look.topics}
        for progress in self._partitions.values():
            if progress.topic_id == NO_ID:
                progress.topic_id = ids.get(progress.partition.topic, NO_ID)
        for partition, start in look.anew.items():
            former, topic_id = self._partitions.get(partition), ids[partition.topic]
            if former is None or not _is_another(former.topic_id, topic_id) or not self._seek(former, start):
                continue
            self._report_input(f"{partition}: the topic was deleted and made anew; reading begins at {start}")
            self._replace(partition, start, topic_id)

    def _replace(self, partition: TopicPartition, start: int, topic_id: str) -> PartitionProgress:
        """Begin a partition in which other records have the known offsets now, none of them emitted or acked."""
        self._epoch += 1  # acks and failures of the former records have no effect
        self._partitions[partition] = self._new_progress(partition, start, topic_id)
        return self._partitions[partition]

    def _new_progress(
        self, partition: TopicPartition, start: int, topic_id: str, acked: Sequence[tuple[int, int]] = ()
    ) -> PartitionProgress:
        at_least_once = self.config.is_at_least_once
        return PartitionProgress(
            partition,
            start,
            self._epoch,
            acked=acked if at_least_once else (),
            topic_id=topic_id,
            awaits_acks=at_least_once,
        )

    def _report_input(self, what: str) -> None:
        self._collector.report_error(InputError(what))

    def _begun_partitions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionProgress]:
        """Return new progresses: from where this topology has committed, or as ``first_poll`` says."""
        if not partitions:
            return {}
        log, strategy = self._consumer.log, self.config.first_poll
        topics = log.topics(NamedTopicFilter(*{partition.topic for partition in partitions}))
        ids = {topic.name: topic.id for topic in topics}
        stored, ranges = log.stored(partitions, self._group_id), log.ranges(partitions)
        timed = log.at(partitions, self.config.start_timestamp) if strategy.is_timestamp else {}
        begun = {}
        for partition in partitions:
            topic_id, at = ids.get(partition.topic, NO_ID), stored.get(partition)
            metadata = None if at is None else CommitMetadata.parse(at.metadata)
            is_own = metadata is not None and metadata.topology_id == self._context.topology_id
            start = ranges[partition].end if strategy.is_latest else ranges[partition].begin
            acked: Sequence[tuple[int, int]] = ()
            if at is not None and (is_own or strategy.takes_commits_of_others):
                start, acked = self._resumed(partition, at, metadata, topic_id, ranges[partition])
            elif strategy.is_timestamp:
                start = timed[partition]
            begun[partition] = self._new_progress(partition, start, topic_id, acked if is_own else ())
        return begun

    def _resumed(
        self,
        partition: TopicPartition,
        stored: StoredOffset,
        metadata: CommitMetadata | None,
        topic_id: str,
        log: LogRange,
    ) -> tuple[int, Sequence[tuple[int, int]]]:
        """Return where to go on from a committed offset, and the acked ranges above it."""
        known, why = metadata or CommitMetadata(""), ""
        if _is_another(known.topic_id, topic_id):
            why = "the topic was deleted and made anew"
        elif not log.begin <= stored.offset <= log.end:
            why = f"the log has [{log.begin}, {log.end}): records were deleted, or the topic was made anew"
        if not why:
            return stored.offset, [(first, min(last, log.end - 1)) for first, last in known.acked]
        committed = f"{partition}: group {self._group_id!r} has committed {stored.offset}"
        self._report_input(f"{committed}, but {why}; reading begins at {log.begin}")
        return log.begin, ()

    # Commits.

    def _commit_if_due(self, now: float) -> None:
        self._settle_commit()
        is_after_polls = self.config.processing_guarantee is ProcessingGuarantee.AT_MOST_ONCE
        if is_after_polls or not self._commit_timer.is_due(now) or self._begun:
            return
        offsets = self._offsets_to_commit(self._partitions)
        if offsets:
            committed = [(self._partitions[partition], stored.offset) for partition, stored in offsets.items()]
            self._begun = _BegunCommit(self._consumer.begin_commit(offsets), committed)
            self._settle_commit()  # it may have failed at once

    def _settle_commit(self) -> None:
        """Take the answer to the periodic commit, if it is there.

        An answer may be late:

        1. The timer begins to commit 10.
        2. This task is deactivated, and commits 20.
        3. The answer for 10 comes. The partition's progress stays at 20. A partition that was revoked, or whose topic
           was created again, has no progress now, or another one, which the answer does not touch.
        """
        begun = self._begun
        if begun is None or not begun.answer.done():
            return
        self._begun = None
        error = begun.answer.exception()
        if error is not None:
            self._report(error)
        elif begun.answer.result():
            for progress, offset in begun.offsets:
                if self._partitions.get(progress.partition) is progress:
                    self._committed(progress, offset)

    def _commit_now(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what was acked, and wait for the answer."""
        if self.config.is_at_least_once:
            self._commit(self._offsets_to_commit(partitions, ranges_too=True))

    def _commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> bool:
        """Commit, and wait for the answer; return whether Kafka has it."""
        try:
            is_done = not offsets or self._consumer.commit(offsets)
        except SourceFailure as error:
            self._report(error)
            return False
        if is_done:
            for partition, stored in offsets.items():
                self._committed(self._partitions[partition], stored.offset)
        return is_done

    def _offsets_to_commit(
        self, partitions: Collection[TopicPartition], *, ranges_too: bool = False
    ) -> dict[TopicPartition, StoredOffset]:
        """Return what to commit of the partitions that are assigned.

        With ``ranges_too``, also of those in which only offsets above a gap were acked.
        """
        offsets = {}
        for progress in sorted(self._partitions.values(), key=lambda each: each.partition):
            partition = progress.partition
            if partition not in partitions:
                continue
            reached = progress.next_commit(self._consumer.position(partition))
            acked = tuple(progress.acked_ranges(reached))
            if reached > progress.committed_offset or (ranges_too and acked):
                task, thread = self._context.this_task_id, threading.current_thread().name
                metadata = CommitMetadata(self._context.topology_id, task, thread, acked, progress.topic_id)
                offsets[partition] = StoredOffset(reached, metadata.to_json())
        return offsets

    def _committed(self, progress: PartitionProgress, offset: int) -> None:
        """Note a commit; nothing below it is emitted or read again."""
        progress.committed(offset)
        if progress.position < offset:  # it had gone back for a retry
            self._seek(progress, offset)

    # Polls.

    def _poll(self, now: float) -> None:
        config = self.config
        pollable = []
        for partition, progress in self._partitions.items():
            if not progress.may_poll(now, config.max_uncommitted_offsets):
                continue
            target = progress.seek_target(now, config.batch_records_max)
            if target is None or self._seek(progress, target):  # after a failed seek, the next poll tries again
                pollable.append(partition)
        try:
            found = self._consumer.poll(pollable, 0, config.batch_records_max)
        except SourceFailure as error:
            self._report(error)
            return
        for partition, records in found.items():
            if partition in self._partitions:  # a rebalance in the poll may have taken it away
                self._receive(self._partitions[partition], records)
        for partition in pollable:
            again = self._partitions.get(partition)
            if again is not None and again.position < again.head and not again.has_records:
                # It went back for a retry and got no record: what the consumer passes has been compacted or deleted.
                position = self._consumer.position(partition) or 0
                _log_gone(again, again.passed(min(again.head, position)))
        if config.processing_guarantee is ProcessingGuarantee.AT_MOST_ONCE and found:
            self._commit_before_emit()

    def _receive(self, progress: PartitionProgress, records: Sequence[KafkaRecord]) -> None:
        first, partition = records[0].offset, progress.partition
        if first < progress.position:
            self._report_input(
                f"{partition}: offset {progress.position} was to be read next, but the log ended before it: the topic "
                f"was made anew, or its log was cut off; reading goes on at {first}"
            )
            progress = self._replace(partition, first, NO_ID)  # the next look finds its id
        _log_gone(progress, progress.polled(records))

    def _seek(self, progress: PartitionProgress, offset: int) -> bool:
        try:
            self._consumer.seek(progress.partition, offset)
        except SourceFailure as error:
            self._report(error)
            return False
        progress.position = offset
        return True

    def _commit_before_emit(self) -> None:
        """Commit the positions behind what was polled; if that fails, nothing of it may be emitted."""
        if self._commit(self._offsets_to_commit(self._partitions)):
            return
        for progress in self._partitions.values():
            back = progress.forget_polled()
            if back is not None:
                self._seek(progress, back)

    # Tuples.

    def _emit_one(self, now: float) -> None:
        for progress in self._partitions.values():
            while (found := progress.next_record(now)) is not None:
                if self._emit(progress, *found):
                    return

    def _emit(self, progress: PartitionProgress, message_id: MessageId, record: KafkaRecord) -> bool:
        """Emit a record's tuple; return False if no tuple is made of it."""
        config = self.config
        try:
            translated = config.translator.apply(record)
        except Exception as error:  # noqa: BLE001 - the user's code, on bytes of any producer
            self._give_up_bad(progress, message_id, record, error)
            return False
        # Only a dead-letter hook needs the record until it is done; all records in flight would fill the memory.
        progress.emitted(message_id, None if config.dead_letter is None else record)
        if translated is None:
            if config.is_at_least_once:
                progress.done(message_id.offset)
                config.tuple_listener.on_ack(message_id)
            return False
        emitted = routed(translated, config.translator)
        is_tracked = config.is_at_least_once or config.tuple_tracking_enforced
        self._collector.emit(emitted.values, emitted.stream, message_id if is_tracked else None)
        config.tuple_listener.on_emit(emitted.values, message_id)
        return True

    def _give_up_bad(
        self, progress: PartitionProgress, message_id: MessageId, record: KafkaRecord, error: Exception
    ) -> None:
        """Give a record up of which no tuple can be made; raise InputError if there is no dead-letter hook."""
        reason = escaped(f"no tuple can be made of it: {type(error).__name__}: {error}")
        if self.config.dead_letter is None:
            raise InputError(
                f"{message_id}: {reason}; give dead_letter to keep such records and go on",
                component=self._context.this_component_id,
            ) from error
        progress.emitted(message_id, record)
        self._give_up(message_id, record, reason)

    def _give_up(self, message_id: MessageId, record: KafkaRecord | None, reason: str) -> None:
        """Give up a record that was kept for the dead-letter hook to the hook; any other is done at once."""
        if record is not None:
            self._given_up.append((message_id, DeadLetter(record, message_id.fails, reason)))
            self._run_hook()
            return
        self._collector.report_error(InputError(f"{message_id}: given up, {reason}; dead_letter would keep it"))
        self._partitions[message_id.partition].done(message_id.offset)

    def _run_hook(self) -> None:
        """Give records to the hook, in another thread; the records of meanwhile are its next call."""
        hook = self.config.dead_letter
        if hook is None or self._is_hook_running or not self._given_up:
            return
        self._is_hook_running = True
        given, self._given_up = self._given_up, []

        def on_done(done: Future[None]) -> None:
            self._is_hook_running = False
            error = done.exception()
            if error is not None:
                self._collector.report_error(error)
            for message_id, _ in given:
                # None if the partition was revoked while the hook ran: its new owner gives these records up again.
                progress = self._progress_of(message_id)
                if progress is not None and error is None:
                    progress.done(message_id.offset)
                elif progress is not None:
                    progress.retry(message_id, self._now_ms() + _GIVEN_UP_AGAIN_MS)
            self._run_hook()

        self._context.offload(lambda: hook.take([letter for _, letter in given]), on_done)

    def _progress_of(self, message_id: MessageId) -> PartitionProgress | None:
        """Return the partition of a message; None if the message is not in flight in this assignment."""
        progress = self._partitions.get(message_id.partition)
        return progress if progress is not None and progress.is_in_flight(message_id) else None

    def _look_at_ranges(self) -> None:
        """Ask for the logs' ranges, in another thread, and give the listener the metrics."""
        log, partitions = self._consumer.log, list(self._partitions)

        def on_done(done: Future[dict[TopicPartition, LogRange]]) -> None:
            # A failure only costs the metrics of this minute.
            if done.exception() is None and not self._is_closed:
                self._ranges = done.result()
                metrics = lag_metrics(self._partitions.values(), self._ranges)
                _log.debug("task %d: %s", self._context.this_task_id, metrics)
                self.config.tuple_listener.on_metrics(metrics)

        self._context.offload(lambda: log.ranges(partitions), on_done)

    def _report(self, error: BaseException) -> None:
        """Report a failure of Kafka, repeats only now and then; raise an InputError, which the spout can't survive."""
        if isinstance(error, InputError):
            raise error
        if not isinstance(error, SourceFailure):
            self._collector.report_error(error)
            return
        text = self._errors.shown(error.message)
        if text is not None:  # without a traceback, which says nothing to the user
            self._collector.report_error(SourceFailure(text))

    def _now_ms(self) -> float:
        return self.clock() * 1000


def _log_gone(progress: PartitionProgress, gone: Sequence[int]) -> None:
    if gone:
        words = "%s: %d failed records are gone (%d and later), compacted or deleted; they count as done"
        _log.warning(words, progress.partition, len(gone), gone[0])


def _is_another(known: str, found: str) -> bool:
    """Whether two ids are of different topics; brokers before Kafka 2.8 give no ids."""
    return NO_ID not in {known, found} and known != found
