"""Metrics: how far a task is behind the log end."""

from __future__ import annotations

from spouts.kafka.log import TopicPartition
from spouts.kafka.plain.client import LogRange
from spouts.kafka.plain.lag import Progress, lag_metrics

A0, A1 = TopicPartition("topicA", 0), TopicPartition("topicA", 1)


def test_partition():
    """The metrics of a partition."""
    metrics = lag_metrics({A0: Progress(90, 50)}, {A0: LogRange(1, 100)})
    assert {name: value for name, value in metrics.items() if "partition_0" in name} == {
        "topicA/partition_0/spoutLag": 10,
        "topicA/partition_0/earliestTimeOffset": 1,
        "topicA/partition_0/latestTimeOffset": 100,
        "topicA/partition_0/latestEmittedOffset": 50,
        "topicA/partition_0/latestCompletedOffset": 90,
        "topicA/partition_0/recordsInPartition": 99,
    }


def test_a_log_that_ends_before_what_was_committed():
    """A new leader may not know all of it yet: there is no lag below 0, which would hide that of other partitions."""
    metrics = lag_metrics({A0: Progress(90, 50), A1: Progress(10, 5)}, {A0: LogRange(1, 80), A1: LogRange(1, 15)})
    assert metrics["topicA/partition_0/spoutLag"] == 0
    assert metrics["topicA/totalSpoutLag"] == 5


def test_topic():
    """The sums over the partitions that a task holds, the same each time; nothing for other topics."""
    progress = {A0: Progress(90, 50), A1: Progress(170, 100)}
    ranges = {A0: LogRange(1, 100), A1: LogRange(1, 200), TopicPartition("topicB", 0): LogRange(0, 9)}
    for _ in range(2):
        metrics = lag_metrics(progress, ranges)
        assert {name: value for name, value in metrics.items() if "/total" in name} == {
            "topicA/totalSpoutLag": 40,
            "topicA/totalEarliestTimeOffset": 2,
            "topicA/totalLatestTimeOffset": 300,
            "topicA/totalLatestEmittedOffset": 150,
            "topicA/totalLatestCompletedOffset": 260,
            "topicA/totalRecordsInPartitions": 298,
        }
        assert not [name for name in metrics if "topicB" in name]


def test_without_offsets():
    """As long as the log's ranges are not known, everything is 0."""
    assert set(lag_metrics({A0: Progress(90, 50)}, {}).values()) == {0}
