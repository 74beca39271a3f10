"""When a KafkaSpout commits offsets, and what a crash around a commit leaves.

With AT_LEAST_ONCE, offsets follow acks:

1. A crash before a commit leaves the earlier offset. The partition's next owner emits all records from there on again,
   except those in the acked ranges of that commit's metadata.
2. A crash while a commit is under way is as one before it or after it: Kafka has it as a whole or not at all.
3. After a commit, nothing below its offset is emitted again.

With AT_MOST_ONCE, offsets go ahead: they are committed after the poll, before the first of its records is emitted. A
crash after the commit loses the records that were polled and not processed. With NO_GUARANTEE, the periodic commit is
of what was polled, whatever became of it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future

import attrs

from spouts.kafka.log import StoredOffset, TopicPartition
from spouts.kafka.plain.config import ProcessingGuarantee
from spouts.kafka.plain.progress import CommitMetadata, PartitionProgress
from spouts.kafka.plain.reader import Reader, Timer
from txtopo.errors import SourceFailure


@attrs.frozen
class _Begun:
    """A periodic commit without an answer yet, with the progresses at its begin: a rebalance may replace them."""

    answer: Future[bool]
    offsets: Sequence[tuple[PartitionProgress, int]]


class Commits:
    """The commits of one task."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._timer = Timer(reader.config.offset_commit_period_ms, reader.now_ms())
        self._is_before_emits = reader.config.processing_guarantee is ProcessingGuarantee.AT_MOST_ONCE
        self._begun: _Begun | None = None

    def commit_if_due(self, now_ms: float) -> None:
        """Begin a periodic commit if it is due and none is under way; its answer is taken in a later call."""
        self._take_answer()
        if self._is_before_emits or not self._timer.is_due(now_ms) or self._begun:
            return
        offsets = self._offsets(self._reader.partitions)
        if offsets:
            committed = [(self._reader.partitions[partition], stored.offset) for partition, stored in offsets.items()]
            self._begun = _Begun(self._reader.consumer.begin_commit(offsets), committed)
            self._take_answer()  # it may have failed at once

    def commit_now(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what was acked, before the task lets go of partitions or pauses, and wait for the answer."""
        if self._reader.config.is_at_least_once:
            self._commit(self._offsets(partitions, ranges_too=True))

    def commit_before_emits(self) -> None:
        """With AT_MOST_ONCE, commit behind what was polled; if that fails, forget it: it must not be emitted."""
        if not self._is_before_emits or self._commit(self._offsets(self._reader.partitions)):
            return
        for progress in self._reader.partitions.values():
            forgotten = progress.forget_polled()
            if forgotten is not None:
                self._reader.seek(progress, forgotten)

    def _take_answer(self) -> None:
        """Take the answer to the periodic commit, if it is there.

        An answer may be late:

        1. The timer begins to commit 10.
        2. This task is deactivated, and commits 20.
        3. The answer for 10 comes. The partition's progress stays at 20. A partition that was revoked, or whose topic
           was created again, has no progress now, or another one, which the answer does not touch.
        """
        commit = self._begun
        if commit is None or not commit.answer.done():
            return
        self._begun = None
        error = commit.answer.exception()
        if error is not None:
            self._reader.report(error)  # the next commit covers this one
        elif commit.answer.result():
            for progress, offset in commit.offsets:
                if self._reader.partitions.get(progress.partition) is progress:
                    self._committed(progress, offset)

    def _commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> bool:
        try:
            is_done = not offsets or self._reader.consumer.commit(offsets)
        except SourceFailure as error:
            self._reader.report(error)
            return False
        if is_done:
            for partition, stored in offsets.items():
                self._committed(self._reader.partitions[partition], stored.offset)
        return is_done

    def _offsets(
        self, partitions: Collection[TopicPartition], *, ranges_too: bool = False
    ) -> dict[TopicPartition, StoredOffset]:
        """Return what to commit of those partitions that are assigned.

        With ``ranges_too``, also of those in which only offsets above a gap were acked. The periodic commit leaves
        these out: it would commit the same offset again and again while one record takes long.
        """
        reader, offsets = self._reader, {}
        for progress in sorted(reader.partitions.values(), key=lambda progress: progress.partition):
            partition = progress.partition
            if partition not in partitions:
                continue
            reached = progress.next_commit(reader.consumer.position(partition))
            acked = tuple(progress.acked_ranges(reached))
            if reached > progress.committed_offset or (ranges_too and acked):
                task, thread = reader.context.this_task_id, threading.current_thread().name
                metadata = CommitMetadata(reader.context.topology_id, task, thread, acked, progress.topic_id)
                offsets[partition] = StoredOffset(reached, metadata.to_json())
        return offsets

    def _committed(self, progress: PartitionProgress, offset: int) -> None:
        """Record a commit; nothing below it is emitted or read again."""
        progress.committed(offset)
        if progress.position < offset:  # it had gone back for a retry
            self._reader.seek(progress, offset)
