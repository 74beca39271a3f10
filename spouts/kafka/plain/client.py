"""All that a KafkaSpout asks of Kafka, and the values that go to and fro."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Protocol

import attrs

from spouts.kafka.log import TopicPartition
from spouts.kafka.records import KafkaRecord
from txtopo.client_properties import ClientProperties


@attrs.frozen
class StoredOffset:
    """What a group has committed for a partition: the next offset to read, and a text."""

    offset: int
    metadata: str = ""


@attrs.frozen
class LogRange:
    """The first offset of a partition, and the one that its next record gets."""

    begin: int
    end: int


class AssignmentListener(Protocol):
    """Learns which partitions a client holds. Called in :meth:`KafkaClient.poll`, for a client that has subscribed."""

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what there is: these partitions may go to another member when this returns."""

    def assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Learn all partitions that are held from now on, and return where reading begins, or goes on, in each.

        Raises:
            SourceFailure: that can't be found out now; the client asks again.
        """


@attrs.frozen
class ClientSettings:
    """How to reach Kafka.

    Args:
        servers: host:port, separated by commas.
        group_id: the consumer group that offsets are committed to.
        offset_reset: where to go on if an offset does not exist: earliest, latest or error; None: the client's default.
        properties: further properties of librdkafka.
        report: takes errors that the client survives.
    """

    servers: str
    group_id: str
    offset_reset: str | None
    properties: ClientProperties
    report: Callable[[Exception], None] = attrs.field(repr=False)


class KafkaClient(ABC):
    """A consumer of one task. It is either given partitions by :meth:`assign`, or subscribes.

    *You* call it in one thread, but for :meth:`partitions` and :meth:`ranges`, which may run beside the others. An
    *implementation* raises SourceFailure, and has changed nothing, if Kafka can't do something now; where it is given
    partitions that it does not hold, it passes over them.
    """

    @abstractmethod
    def partitions(self, topics: Collection[str] | None) -> list[TopicPartition]:
        """Return the partitions of topics, those that do not exist left out; None: of all topics."""

    @abstractmethod
    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Hold these partitions too, from these offsets on; positions of the others stay."""

    @abstractmethod
    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Let partitions go."""

    @abstractmethod
    def subscribe(self, topics: Collection[str], listener: AssignmentListener) -> None:
        """Join the group for these topics; a topic that begins with ``^`` is a pattern."""

    @abstractmethod
    def poll(
        self, partitions: Collection[TopicPartition], timeout_secs: float, records_max: int
    ) -> dict[TopicPartition, list[KafkaRecord]]:
        """Return records that are there, and move the positions; call the listener if the assignment changes.

        Of a partition that is lost and assigned anew meanwhile, only records of the new assignment are returned. If the
        listener can't say now where to begin, that is reported, and it is asked again in the next poll.

        Args:
            partitions: those to read; the others stand still.
            timeout_secs: how long to wait for the first record.
            records_max: how many to return at most.
        """

    @abstractmethod
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Move the position of a partition that is held. No record from before the move is returned after it."""

    @abstractmethod
    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last record that was returned; or after what is known not to exist behind it."""

    @abstractmethod
    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """Return what the group has committed; a partition without a commit is left out."""

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> bool:
        """Commit, and return when that is done; return False if the group takes no commits, as in a rebalance."""

    @abstractmethod
    def begin_commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> Future[bool]:
        """Begin to commit, and return at once; what :meth:`commit` would return is there after some later poll.

        Commits are made in the order in which they were begun.
        """

    @abstractmethod
    def ranges(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return the ranges of partitions, by one request for all of them."""

    @abstractmethod
    def offsets_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the first offset of a record with that time or a later one; the end if there is none."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group, and let everything go. Nothing is committed."""


Connect = Callable[[ClientSettings], KafkaClient]
"""Makes a client; must pickle."""
