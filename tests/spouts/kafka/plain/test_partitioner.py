"""Which partitions each task reads."""

from spouts.kafka.log import TopicPartition
from spouts.kafka.plain.partitioner import RoundRobinPartitioner


def test_round_robin():
    """11 partitions for 3 tasks, in turn; every partition has one task."""
    partitions = [TopicPartition("t", number) for number in range(11)]
    shares = [[each.partition for each in RoundRobinPartitioner().share(partitions, task, 3)] for task in range(3)]
    assert shares == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8]]
