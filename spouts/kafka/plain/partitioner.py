"""Which partitions each task of a spout reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs

from spouts.kafka.log import TopicPartition


class Partitioner(ABC):
    """Shares partitions among the tasks of a spout. Must pickle.

    *You* give every partition to exactly one task, in whatever order the tasks ask.
    """

    @abstractmethod
    def share(self, partitions: Sequence[TopicPartition], task_index: int, tasks: int) -> list[TopicPartition]:
        """Return the partitions of one task.

        Args:
            partitions: all of them, sorted by topic and partition.
            task_index: the task's place among the spout's tasks, from 0.
            tasks: the number of the spout's tasks.
        """


@attrs.frozen
class RoundRobinPartitioner(Partitioner):
    """Deals the partitions to the tasks in turn."""

    def share(self, partitions: Sequence[TopicPartition], task_index: int, tasks: int) -> list[TopicPartition]:
        """Return every *tasks*-th partition, from *task_index* on."""
        return list(partitions[task_index::tasks])
