"""How far a task of a KafkaSpout is behind the ends of its partitions."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future

from spouts.kafka.log import LogRange, TopicPartition
from spouts.kafka.plain.progress import PartitionProgress
from spouts.kafka.plain.reader import Reader, Timer
from txtopo.errors import SourceFailure

_log = logging.getLogger(__name__)

METRICS_MS = 60_000
"""How often the listener gets the metrics."""


class Lag:
    """How far one task is behind, by the ranges of the logs that it knows."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._timer = Timer(METRICS_MS, reader.now_ms())
        self._ranges: Mapping[TopicPartition, LogRange] = {}

    def refresh_if_due(self, now_ms: float) -> None:
        """Ask for the logs' ranges, in another thread, and give the listener the metrics."""
        if self._timer.is_due(now_ms):
            reader = self._reader
            look = functools.partial(reader.consumer.log.ranges, list(reader.partitions))
            reader.context.offload(look, self._refreshed)

    def metrics(self) -> dict[str, int]:
        """Ask for the logs' ranges, and return the metrics; without an answer, by the ranges of last time."""
        if not self._reader.is_closed:
            try:
                self._ranges = self._reader.consumer.log.ranges(self._reader.partitions)
            except SourceFailure as error:
                self._reader.report(error)
        return lag_metrics(self._reader.partitions.values(), self._ranges)

    def total(self) -> int | None:
        """Return how many offsets are not committed up to the log ends that are known; None if none is."""
        measured = [progress for partition, progress in self._reader.partitions.items() if partition in self._ranges]
        if not measured:
            return None
        return sum(max(0, self._ranges[partition.partition].end - partition.committed_offset) for partition in measured)

    def _refreshed(self, future: Future[dict[TopicPartition, LogRange]]) -> None:
        # A failure only costs the metrics of this minute.
        if future.exception() is None and not self._reader.is_closed:
            self._ranges = future.result()
            metrics = lag_metrics(self._reader.partitions.values(), self._ranges)
            _log.debug("task %d: %s", self._reader.context.this_task_id, metrics)
            self._reader.config.tuple_listener.on_metrics(metrics)


def lag_metrics(partitions: Collection[PartitionProgress], ranges: Mapping[TopicPartition, LogRange]) -> dict[str, int]:
    """Return how far a task is in its partitions, and the sums of each topic, by Storm's names.

    These are ``<topic>/partition_<n>/<name>`` and ``<topic>/total<Name>``. They count offsets, also those without a
    record. A partition whose range is not known has 0.
    """
    metrics: dict[str, int] = {}
    for partition in sorted(partitions, key=lambda progress: progress.partition):
        topic, number = partition.partition.topic, partition.partition.partition
        log = ranges.get(partition.partition)
        values = {
            # A new leader may not know all of the log yet; a lag below 0 would hide that of other partitions.
            "spoutLag": 0 if log is None else max(0, log.end - partition.committed_offset),
            "earliestTimeOffset": 0 if log is None else log.begin,
            "latestTimeOffset": 0 if log is None else log.end,
            "latestEmittedOffset": 0 if log is None else partition.latest_emitted or 0,
            "latestCompletedOffset": 0 if log is None else partition.committed_offset,
            "recordsInPartition": 0 if log is None else log.end - log.begin,
        }
        for name, value in values.items():
            metrics[f"{topic}/partition_{number}/{name}"] = value
            total = (
                f"{topic}/total{'RecordsInPartitions' if name == 'recordsInPartition' else name[0].upper() + name[1:]}"
            )
            metrics[total] = metrics.get(total, 0) + value
    return metrics
