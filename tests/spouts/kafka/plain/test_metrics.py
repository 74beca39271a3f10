"""How far a task is behind: Storm's metrics of its offsets."""

from spouts.kafka.log import LogRange, TopicPartition
from spouts.kafka.plain.metrics import lag_metrics
from spouts.kafka.plain.progress import PartitionProgress


def lagging(partition, committed, latest):
    made = PartitionProgress(partition, committed)
    made.latest_emitted = latest
    return made


A0, A1 = TopicPartition("topicA", 0), TopicPartition("topicA", 1)
RANGES = {A0: LogRange(1, 100), A1: LogRange(1, 200), TopicPartition("topicB", 0): LogRange(0, 9)}


def test_metrics():
    """Those of each partition, and the sums over a topic's; nothing of others, and 0 as long as the log is not known."""
    assigned = [lagging(A1, 170, 100), lagging(A0, 90, 50)]
    metrics = lag_metrics(assigned, RANGES)
    names = ("spoutLag", "earliestTimeOffset", "latestTimeOffset", "latestEmittedOffset", "latestCompletedOffset")
    assert [metrics[f"topicA/partition_0/{name}"] for name in names] == [10, 1, 100, 50, 90]
    assert metrics["topicA/partition_0/recordsInPartition"] == 99
    assert [metrics[f"topicA/total{name[0].upper()}{name[1:]}"] for name in names] == [40, 2, 300, 150, 260]
    assert metrics["topicA/totalRecordsInPartitions"] == 298
    assert not [name for name in metrics if "topicB" in name]
    assert set(lag_metrics(assigned, {}).values()) == {0}


def test_a_log_that_ends_before_what_was_committed():
    """A new leader may not know all of it yet: there is no lag below 0, which would hide that of other partitions."""
    metrics = lag_metrics([lagging(A0, 90, 50), lagging(A1, 10, 5)], {A0: LogRange(1, 80), A1: LogRange(1, 15)})
    assert (metrics["topicA/partition_0/spoutLag"], metrics["topicA/totalSpoutLag"]) == (0, 5)
