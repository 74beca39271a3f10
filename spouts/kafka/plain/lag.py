"""How far a task is behind the log end, under the names that Storm gives these metrics."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import attrs

from spouts.kafka.log import TopicPartition
from spouts.kafka.plain.client import LogRange


@attrs.frozen
class Progress:
    """How far a task is in a partition.

    Args:
        committed: the next offset to read, for whoever takes the partition over.
        latest_emitted: the highest offset that was emitted; None if there is none.
    """

    committed: int
    latest_emitted: int | None


class Metric(Enum):
    """A metric: its name for a partition, and for all partitions of a topic that the task holds."""

    LAG = ("spoutLag", "totalSpoutLag")
    EARLIEST = ("earliestTimeOffset", "totalEarliestTimeOffset")
    LATEST = ("latestTimeOffset", "totalLatestTimeOffset")
    EMITTED = ("latestEmittedOffset", "totalLatestEmittedOffset")
    COMPLETED = ("latestCompletedOffset", "totalLatestCompletedOffset")
    RECORDS = ("recordsInPartition", "totalRecordsInPartitions")


def lag_metrics(
    progress: Mapping[TopicPartition, Progress], ranges: Mapping[TopicPartition, LogRange]
) -> dict[str, int]:
    """Return the metrics of the partitions that a task holds, and their sums for each topic.

    Args:
        progress: of each partition that it holds.
        ranges: of these partitions, as far as they are known; the others count as 0.

    Returns:
        ``<topic>/partition_<n>/<name>`` and ``<topic>/total<Name>``. ``spoutLag`` is the log end less the committed
        offset, which ``latestCompletedOffset`` is. They count offsets, so offsets without a record count too.
    """
    metrics: dict[str, int] = {}
    for partition, each in sorted(progress.items()):
        for metric, value in _of(each, ranges.get(partition)).items():
            of_partition, of_topic = metric.value
            metrics[f"{partition.topic}/partition_{partition.partition}/{of_partition}"] = value
            total = f"{partition.topic}/{of_topic}"
            metrics[total] = metrics.get(total, 0) + value
    return metrics


def _of(progress: Progress, log: LogRange | None) -> dict[Metric, int]:
    if log is None:
        return dict.fromkeys(Metric, 0)
    return {
        Metric.LAG: max(0, log.end - progress.committed),
        Metric.EARLIEST: log.begin,
        Metric.LATEST: log.end,
        Metric.EMITTED: progress.latest_emitted or 0,
        Metric.COMPLETED: progress.committed,
        Metric.RECORDS: log.end - log.begin,
    }
