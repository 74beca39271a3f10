"""Which partitions a task of a KafkaSpout reads, and where reading begins in each.

The spout shares the partitions among its tasks (*manual assignment*), or the consumer group does (*subscription*).
Either way, what was acked is committed before a task lets go of a partition: its next owner begins there.

A progress lives as long as its partition is assigned to this task. Message ids carry the number of the assignment, so
an ack or failure from before a rebalance has no effect.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future

from spouts.kafka.log import NO_ID, KafkaLog, LogRange, StoredOffset, Topic, TopicFilter, TopicPartition
from spouts.kafka.plain.commits import Commits
from spouts.kafka.plain.progress import CommitMetadata, PartitionProgress
from spouts.kafka.plain.reader import Reader, Timer
from spouts.kafka.topics import NamedTopicFilter, check_topics
from txtopo.errors import SourceFailure

_log = logging.getLogger(__name__)


class Assignment:
    """The partitions of one task. It is the consumer's RebalanceListener, called in the consumer's poll."""

    def __init__(self, reader: Reader, commits: Commits) -> None:
        self._reader = reader
        self._commits = commits
        self._timer = Timer(reader.config.partition_refresh_period_ms, reader.now_ms())
        self._tasks = len(reader.context.component_tasks(reader.context.this_component_id))
        self._epoch = 0
        self._is_refreshing = self._has_refreshed = self._has_subscribed = False

    def activate(self) -> None:
        """Read this task's partitions, or join the group."""
        self._refresh()
        if self._reader.config.subscribe and not self._has_subscribed:
            self._reader.consumer.subscribe(self._reader.config.topics.subscription, self)
            self._has_subscribed = True

    def refresh_if_due(self, now_ms: float) -> None:
        """Look for new topics and partitions."""
        if self._timer.is_due(now_ms):
            self._refresh()

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what was acked in partitions that may go to another task."""
        if not self._reader.is_closed:
            self._commits.commit_now(partitions)

    def assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Take all partitions that are assigned to this task; return the next offset to read in each."""
        reader = self._reader
        self._epoch += 1
        new_progress = self._new_progress(sorted(set(partitions).difference(reader.partitions)))
        for partition in reader.partitions.keys() - set(partitions):
            del reader.partitions[partition]
        reader.partitions.update(new_progress)
        if new_progress:
            where = ", ".join(f"{partition} from {progress.position}" for partition, progress in new_progress.items())
            _log.info("task %d reads %s", reader.context.this_task_id, where)
        reader.config.tuple_listener.on_partitions_reassigned(list(reader.partitions))
        return {partition: progress.position for partition, progress in reader.partitions.items()}

    def replace(self, partition: TopicPartition, start: int, topic_id: str = NO_ID) -> PartitionProgress:
        """Begin a partition in which other records have the known offsets now, none of them emitted or acked.

        Without the id of the topic that they are of, the next look finds it.
        """
        self._epoch += 1  # acks and failures of the former records have no effect
        progress = self._reader.partitions[partition] = self._progress(partition, start, topic_id)
        return progress

    def _refresh(self) -> None:
        """Ask which topics exist, in another thread, and take this task's share of their partitions.

        With a subscription Kafka assigns the partitions; this only checks that topics exist, and whether one was
        created again.
        """
        if self._is_refreshing:
            return
        self._is_refreshing = True
        log, topics = self._reader.consumer.log, self._reader.config.topics
        look = log.topics if self._has_refreshed else functools.partial(_first_topics, log)
        self._reader.context.offload(functools.partial(look, topics), functools.partial(self._refreshed, self._epoch))

    def _refreshed(self, epoch: int, future: Future[list[Topic]]) -> None:
        self._is_refreshing = False
        failed = future.exception()
        if not self._reader.is_active:
            return  # activate() looks again
        if failed is not None:
            self._reader.report(failed)
            return
        self._has_refreshed = True
        try:
            if epoch == self._epoch:  # else the answer may be older than the partitions; the next look has another
                self._begin_again(future.result())
            if not self._reader.config.subscribe:
                self._take_share(future.result())
        except SourceFailure as error:
            self._reader.report(error)

    def _begin_again(self, topics: Sequence[Topic]) -> None:
        """Go to the beginning of topics that were created again, although their logs may have the next offset."""
        reader = self._reader
        ids = {partition: topic.id for topic in topics for partition in topic.all_partitions()}
        for partition, progress in reader.partitions.items():
            if progress.topic_id == NO_ID:
                progress.topic_id = ids.get(partition, NO_ID)
        stale = [
            partition
            for partition, of in reader.partitions.items()
            if _is_another(of.topic_id, ids.get(partition, NO_ID))
        ]
        for partition, start in reader.consumer.log.starts(stale).items():
            if reader.seek(reader.partitions[partition], start):
                reader.report_input(f"{partition}: the topic was deleted and created again; reading begins at {start}")
                self.replace(partition, start, ids[partition])

    def _take_share(self, topics: Sequence[Topic]) -> None:
        config, consumer = self._reader.config, self._reader.consumer
        chosen = config.topics.chosen(partition for topic in topics for partition in topic.all_partitions())
        share = set(config.partitioner.share(chosen, self._reader.context.this_task_index, self._tasks))
        before = set(self._reader.partitions)
        if share == before:
            return
        self.revoked(before)  # commits first: the task that takes a partition begins at its committed offset
        starts = self.assigned(share)  # before the consumer changes: without an answer from Kafka nothing has
        consumer.unassign(before - share)
        consumer.assign({partition: start for partition, start in starts.items() if partition not in before})

    def _new_progress(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionProgress]:
        """Return new progresses: from where this topology has committed, or as ``first_poll`` says."""
        if not partitions:
            return {}
        log, strategy = self._reader.consumer.log, self._reader.config.first_poll
        topics = log.topics(NamedTopicFilter(*{partition.topic for partition in partitions}))
        ids = {topic.name: topic.id for topic in topics}
        stored, ranges = log.stored(partitions, self._reader.group_id), log.ranges(partitions)
        timed = log.at(partitions, self._reader.config.start_timestamp) if strategy.is_timestamp else {}
        progress = {}
        for partition in partitions:
            topic_id, at = ids.get(partition.topic, NO_ID), stored.get(partition)
            metadata = None if at is None else CommitMetadata.parse(at.metadata)
            is_own = metadata is not None and metadata.topology_id == self._reader.context.topology_id
            start = ranges[partition].end if strategy.is_latest else ranges[partition].begin
            acked: Sequence[tuple[int, int]] = ()
            if at is not None and (is_own or strategy.takes_commits_of_others):
                start, acked = self._resumed(partition, at, metadata, topic_id, ranges[partition])
            elif strategy.is_timestamp:
                start = timed[partition]
            if not is_own:
                acked = ()  # they say nothing of what this topology has processed
            progress[partition] = self._progress(partition, start, topic_id, acked)
        return progress

    def _resumed(
        self,
        partition: TopicPartition,
        stored: StoredOffset,
        metadata: CommitMetadata | None,
        topic_id: str,
        log: LogRange,
    ) -> tuple[int, Sequence[tuple[int, int]]]:
        """Return where to go on from a committed offset, and the acked ranges above it."""
        stored_metadata, why = metadata or CommitMetadata(""), ""
        if _is_another(stored_metadata.topic_id, topic_id):
            why = "the topic was deleted and created again"
        elif not log.begin <= stored.offset <= log.end:
            why = f"the log has [{log.begin}, {log.end}): records were deleted, or the topic was created again"
        if not why:
            return stored.offset, [(first, min(last, log.end - 1)) for first, last in stored_metadata.acked]
        committed = f"{partition}: group {self._reader.group_id!r} has committed {stored.offset}"
        self._reader.report_input(f"{committed}, but {why}; reading begins at {log.begin}")
        return log.begin, ()

    def _progress(
        self, partition: TopicPartition, start: int, topic_id: str, acked: Sequence[tuple[int, int]] = ()
    ) -> PartitionProgress:
        awaits_acks = self._reader.config.is_at_least_once
        return PartitionProgress(partition, start, self._epoch, acked=acked, topic_id=topic_id, awaits_acks=awaits_acks)


def _first_topics(log: KafkaLog, topics: TopicFilter) -> list[Topic]:
    """Ask which topics exist, and check that there is something to read."""
    chosen = log.topics(topics)
    nothing = check_topics(topics, chosen, log)
    if nothing is not None:
        _log.warning("%s. Those that come later are read", nothing)
    return chosen


def _is_another(known_id: str, found_id: str) -> bool:
    """Return whether two ids are of different topics; brokers before Kafka 2.8 give no ids."""
    return NO_ID not in {known_id, found_id} and known_id != found_id
