"""KafkaSpout: reads topics for a plain topology, and commits behind what was acked.

A call of ``next_tuple`` looks for new partitions if that is due, commits if that is due, polls if no polled record is
left, and emits at most one tuple. A :class:`PartitionProgress` for each partition decides what is in flight, retried
and committed. The spout polls, emits, and passes acks and failures on; the :class:`Assignment` says what this task
reads, :class:`Commits` tell the group, and :class:`GivenUp` has what failed too often.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spouts.kafka.log import KafkaRecord
from spouts.kafka.plain.assignment import Assignment
from spouts.kafka.plain.commits import Commits
from spouts.kafka.plain.config import KafkaSpoutConfig
from spouts.kafka.plain.given_up import GivenUp
from spouts.kafka.plain.metrics import Lag
from spouts.kafka.plain.progress import MessageId, PartitionProgress
from spouts.kafka.plain.reader import Reader
from spouts.kafka.plain.translators import routed
from txtopo.api.arguments import checked_arguments
from txtopo.api.components.bolt import OutputFieldsDeclarer
from txtopo.api.components.collector import SpoutOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import Spout
from txtopo.errors import ConfigError, InputError, SourceFailure
from txtopo.text.printable import escaped
from txtopo.text.secrecy import without_secrets

_log = logging.getLogger(__name__)

UNANSWERED_MS = 1000
"""How long nothing is emitted after what a translator asks, such as a schema registry, has not answered."""


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
    closing and rebalancing do, for a request or two, and so does a topic that was created again; AT_MOST_ONCE does for
    each poll that has records.

    Args:
        servers: a KafkaSpoutConfig, or its first argument.
        topics: its second argument, if the first is not a configuration.
        fields: its third argument, likewise.
        clock: returns the time, in seconds.
        settings: its other arguments, likewise.

    Raises:
        ConfigError: a setting is wrong.
    """

    @checked_arguments
    def __init__(
        self,
        servers: KafkaSpoutConfig | str | Sequence[str],
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
        self._collector = collector
        self._listener = self.config.tuple_listener
        self._is_at_least_once = self.config.is_at_least_once
        self._reader = Reader(self.config, context, collector, self.clock)
        self._partitions = self._reader.partitions
        self._commits = Commits(self._reader)
        self._assignment = Assignment(self._reader, self._commits)
        self._given_up = GivenUp(self._reader)
        self._lag = Lag(self._reader)
        self._emits_from_ms = 0.0
        self._listener.open(config, context, collector)

    def activate(self) -> None:
        """Read this task's partitions, or join the group."""
        self._reader.is_active = True
        self._assignment.activate()

    def deactivate(self) -> None:
        """Commit. Progress stays: acks that still come are committed when the spout is active again."""
        self._commits.commit_now(self._partitions)
        self._reader.is_active = False

    def close(self) -> None:
        """Commit, and leave the group."""
        try:
            self._commits.commit_now(self._partitions)
        finally:
            self._reader.is_active = False
            # Before the consumer closes: in the rebalance that this begins, revoked() would commit once more.
            self._reader.is_closed = True
            self._reader.consumer.close()

    def next_tuple(self) -> None:
        """Emit one tuple, if there is one; the module's docstring says what else it does."""
        now = self._reader.now_ms()
        self._assignment.refresh_if_due(now)
        self._commits.commit_if_due(now)
        self._lag.refresh_if_due(now)
        if not any(progress.has_records for progress in self._partitions.values()):
            self._poll(now)
        self._emit_one(now)

    def ack(self, message_id: MessageId) -> None:
        """Record that a record was processed, unless its partition was revoked meanwhile."""
        if not self._is_at_least_once:
            return
        reader = self._reader
        progress = reader.in_flight(message_id)
        if progress is not None:
            progress.record_done(message_id.offset)
        self._listener.on_ack(message_id)
        if reader.is_active:
            # next_tuple is not called while topology.max.spout.pending is reached; without commits here, records that
            # are acked meanwhile would come again after a crash.
            self._commits.commit_if_due(reader.now_ms())

    def fail(self, message_id: MessageId) -> None:
        """Let a record be emitted again later, or give it up, unless its partition was revoked meanwhile."""
        progress = self._reader.in_flight(message_id)
        if progress is None:
            return
        message_id.fails += 1
        delay_ms = self.config.retry_service.delay_ms(message_id.fails)
        if delay_ms is not None:
            progress.retry(message_id, self._reader.now_ms() + delay_ms)
            self._listener.on_retry(message_id)
            return
        self._listener.on_max_retry_reached(message_id)
        record = progress.record_in_flight(message_id.offset)
        self._given_up.add(message_id, record, f"it failed {message_id.fails} times")

    def metrics(self) -> dict[str, int]:
        """Return how far this task is in each of its partitions, and in each topic.

        The keys are ``<topic>/partition_<n>/`` with spoutLag, earliestTimeOffset, latestTimeOffset,
        latestEmittedOffset, latestCompletedOffset, recordsInPartition, and ``<topic>/`` with totalSpoutLag and so on.
        This asks Kafka for the logs' ranges, and uses those of last time if there is no answer.
        """
        return self._lag.metrics()

    def lag(self) -> int | None:
        """Return how many offsets are not committed up to the log ends that are known; None if none is."""
        return self._lag.total()

    def _poll(self, now: float) -> None:
        config, consumer = self.config, self._reader.consumer
        pollable = []
        for partition, progress in self._partitions.items():
            if not progress.may_poll(now, config.max_uncommitted_offsets):
                continue
            target = progress.seek_target(now, config.batch_records_max)
            if target is None or self._reader.seek(progress, target):  # after a failed seek, the next poll tries again
                pollable.append(partition)
        try:
            polled = consumer.poll(pollable, 0, config.batch_records_max)
        except SourceFailure as error:
            self._reader.report(error)
            return
        for partition, records in polled.items():
            if partition in self._partitions:  # a rebalance in the poll may have taken it away
                self._receive(self._partitions[partition], records)
        for partition in pollable:
            again = self._partitions.get(partition)
            if again is not None and again.position < again.head and not again.has_records:
                # It went back for a retry and got no record: what the consumer passes has been compacted or deleted.
                position = consumer.position(partition) or 0
                _log_gone(again, again.passed(min(again.head, position)))
        if polled:
            self._commits.commit_before_emits()

    def _receive(self, progress: PartitionProgress, records: Sequence[KafkaRecord]) -> None:
        first, partition = records[0].offset, progress.partition
        if first < progress.position:
            self._reader.report_input(
                f"{partition}: offset {progress.position} was to be read next, but the log ended before it: the topic "
                f"was created again, or its log was cut off; reading goes on at {first}"
            )
            progress = self._assignment.replace(partition, first)
        _log_gone(progress, progress.polled(records))

    def _emit_one(self, now: float) -> None:
        if now < self._emits_from_ms:
            return
        for progress in self._partitions.values():
            while (next_record := progress.next_record(now)) is not None:
                if self._emit(progress, *next_record):
                    return

    def _emit(self, progress: PartitionProgress, message_id: MessageId, record: KafkaRecord) -> bool:
        """Emit a record's tuple; return False if no tuple is made of it, and others may follow."""
        config = self.config
        try:
            translated = config.translator.apply(record)
        except SourceFailure as error:  # what the translator asks does not answer: that says nothing of the record
            progress.put_back(record)
            self._reader.report(error)
            self._emits_from_ms = self._reader.now_ms() + UNANSWERED_MS
            return True
        except Exception as error:  # noqa: BLE001 - the user's code, on bytes of any producer
            self._give_up_bad(progress, message_id, record, error)
            return False
        # Only a dead-letter hook needs the record until it is done; all records in flight would fill the memory.
        progress.emitted(message_id, None if config.dead_letter is None else record)
        if translated is None:
            if self._is_at_least_once:
                progress.record_done(message_id.offset)
                self._listener.on_ack(message_id)
            return False
        emitted = routed(translated, config.translator)
        is_tracked = self._is_at_least_once or config.tuple_tracking_enforced
        self._collector.emit(emitted.values, emitted.stream, message_id if is_tracked else None)
        self._listener.on_emit(emitted.values, message_id)
        return True

    def _give_up_bad(
        self, progress: PartitionProgress, message_id: MessageId, record: KafkaRecord, error: Exception
    ) -> None:
        """Give a record up of which no tuple can be made; raise InputError if there is no dead-letter hook."""
        reason = escaped(without_secrets(f"no tuple can be made of it: {type(error).__name__}: {error}"))
        if self.config.dead_letter is None:
            raise InputError(
                f"{message_id}: {reason}; give dead_letter to keep such records and go on",
                component=self._reader.context.this_component_id,
            ) from error
        progress.emitted(message_id, record)
        self._given_up.add(message_id, record, reason)


def _log_gone(progress: PartitionProgress, offsets: Sequence[int]) -> None:
    if offsets:
        words = "%s: %d failed records are gone (%d and later), compacted or deleted; they count as done"
        _log.warning(words, progress.partition, len(offsets), offsets[0])
