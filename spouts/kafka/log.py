"""What the spouts need from Kafka, behind an interface that a test can implement without a broker.

Offsets count everything in a partition: committed and aborted records, the markers that end transactions, and records
that compaction has removed. So a range of offsets may hold fewer records than offsets, or none.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import attrs

from txtopo.errors import SourceFailure
from txtopo.text.client_properties import ClientProperties

NO_ID = ""
"""The id of a topic whose broker gives none, as brokers before Kafka 2.8 do."""


@attrs.frozen(order=True, cache_hash=True)
class TopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"


@attrs.frozen
class Topic:
    """A topic as it is now. A topic that was deleted and created again has another id."""

    name: str
    id: str
    partitions: int

    def all_partitions(self) -> list[TopicPartition]:
        """Return its partitions, from 0."""
        return [TopicPartition(self.name, number) for number in range(self.partitions)]


@attrs.frozen
class Span:
    """The offsets of a partition from ``start`` to before ``end``."""

    partition: TopicPartition
    start: int
    end: int


@attrs.frozen
class LogRange:
    """The first offset that a partition still has, and the one that its next record gets."""

    begin: int
    end: int


@attrs.frozen
class StoredOffset:
    """What a consumer group has committed for a partition: the next offset to read, and the committer's text."""

    offset: int
    metadata: str = ""


@attrs.frozen
class Lost:
    """Records of a span that are no longer in the log: those before ``first_kept``."""

    span: Span
    next: int
    """The next offset to read when the loss was found; below it, everything was read."""
    first_kept: int

    def __str__(self) -> str:
        end = min(self.first_kept, self.span.end)
        return (
            f"{self.span.partition}: offsets {self.next} to {end - 1} were not read yet and are gone; the log begins "
            f"at {self.first_kept} (retention, or somebody deleted them)"
        )


class Message(Protocol):
    """A record as confluent-kafka gives it. Only ``spouts.kafka.records`` may ask for its headers: see there why."""

    def topic(self) -> str: ...  # noqa: D102 - as confluent_kafka.Message
    def partition(self) -> int: ...  # noqa: D102
    def offset(self) -> int: ...  # noqa: D102
    def key(self) -> bytes | None: ...  # noqa: D102
    def value(self) -> bytes | None: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102
    def headers(self) -> Any: ...  # noqa: D102


def all_of(found: Mapping[TopicPartition, int], wanted: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Return an answer if it has all wanted partitions; raise SourceFailure if it lacks one, which has no leader."""
    missing = next((partition for partition in wanted if partition not in found), None)
    if missing is not None:
        raise SourceFailure(f"{missing} has no leader now")
    return found


@attrs.frozen
class KafkaRecord:
    """A record as a deserializer gets it.

    A key is None if the record has none; so is a value, which deletes the key in a compacted topic. The timestamp is
    None if the record has none, or one after the year 9999. Headers are pairs of name and value; they are read when
    they are first looked at, which raises ValueError if a name is not UTF-8.
    """

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: dt.datetime | None
    headers: Sequence[tuple[str, bytes | None]]


OnLost = Callable[[Lost], None]
"""Called when records of a span are gone. It returns to go on with the rest of the span, or raises."""


class UnansweredError(SourceFailure):
    """Kafka has not answered a question yet; ask again for the answer."""


class TopicFilter(ABC):
    """Chooses topics. Must pickle."""

    @property
    @abstractmethod
    def names(self) -> Collection[str] | None:
        """The topics to ask for; None for all, to choose from."""

    @property
    @abstractmethod
    def subscription(self) -> list[str]:
        """The topics as a consumer subscribes to them: names, or patterns that begin with ``^``."""

    @abstractmethod
    def chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions of the chosen topics, sorted."""

    def takes(self, name: str) -> bool:
        """Return whether to ask for a topic: for Kafka's internal topics only by name."""
        return not name.startswith("__") if self.names is None else name in self.names

    def missing(self, topics: Iterable[str]) -> str | None:
        """Return a named topic that was not found; None if there is none."""
        return min(set(self.names or ()).difference(topics), default=None)


class KafkaLog(ABC):
    """The topics of a cluster, as one spout sees them: only records of committed transactions.

    *An implementation* raises SourceFailure if it has no answer now, and InputError if it never will have one, for
    example because the client may not read. Asked about no partitions, it returns an empty answer. Several threads may
    ask; only one reads.
    """

    @abstractmethod
    def topics(self, chosen: TopicFilter, *, waits: bool = True) -> list[Topic]:
        """Return the chosen topics that exist; unless it ``waits``, raise UnansweredError until the answer is there."""

    @abstractmethod
    def starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first offset that is still there of each partition; one request for all."""

    @abstractmethod
    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end of what is readable in each partition that has a leader, by one request."""

    def ranges(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return where partitions begin and end; two requests for all."""
        begins, ends = self.starts(partitions), all_of(self.ends(partitions), partitions)
        return {partition: LogRange(begins[partition], ends[partition]) for partition in partitions}

    @abstractmethod
    def at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """Return the offset of the first record at or after a time, in ms since 1970; the end if there is none."""

    @abstractmethod
    def stored(self, partitions: Collection[TopicPartition], group: str) -> dict[TopicPartition, StoredOffset]:
        """Return the offsets that a consumer group has stored; partitions without one are left out."""

    @abstractmethod
    def store(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        """Store offsets for a consumer group; leave out partitions that no longer exist."""

    @abstractmethod
    def read(self, spans: Sequence[Span], on_lost: OnLost) -> Iterator[tuple[Span, Sequence[Message]]]:
        """Yield the records of spans, span by span and in order, some thousand at a time.

        The chunks depend on the records alone, never on time: every attempt emits the same batches.
        """

    def wait(self, ends: Mapping[TopicPartition, int], secs: float) -> bool:
        """Wait until a partition has a record at or after an offset, up to ``secs``; return whether one has.

        A log that can't be waited for returns False at once, as this does. Failures look like nothing new.
        """
        del ends, secs
        return False

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


@attrs.frozen
class ConsumerSettings:
    """How a member of a consumer group reaches Kafka.

    ``offset_reset`` says where to go on if an offset does not exist: earliest, latest or error; None for the client's
    default. ``report`` takes errors that the client survives.
    """

    servers: str
    group_id: str
    offset_reset: str | None
    properties: ClientProperties
    report: Callable[[Exception], None] = attrs.field(repr=False)


class RebalanceListener(Protocol):
    """Is told which partitions a subscribed consumer is assigned; called in :meth:`KafkaConsumer.poll`."""

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit for these partitions: once this returns, another member may have them."""

    def assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Take all partitions that are assigned from now on, and return the next offset to read in each.

        Raises:
            SourceFailure: an offset can't be found out now; the consumer asks again.
        """


class KafkaConsumer(ABC):
    """A member of a consumer group. It either gets partitions by :meth:`assign`, or subscribes.

    *You* call it in one thread. An *implementation* raises SourceFailure, and has changed nothing, if Kafka can't do
    something now; it ignores partitions that are not assigned to it.
    """

    log: KafkaLog
    """Answers further questions about the same cluster; its questions and the consumer's calls never wait for each
    other."""

    @abstractmethod
    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read further partitions, from these offsets on; the others keep their positions."""

    @abstractmethod
    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading partitions."""

    @abstractmethod
    def subscribe(self, topics: Collection[str], listener: RebalanceListener) -> None:
        """Join the group for these topics; a topic that begins with ``^`` is a pattern."""

    @abstractmethod
    def poll(
        self, partitions: Collection[TopicPartition], timeout_secs: float, records_max: int
    ) -> dict[TopicPartition, list[KafkaRecord]]:
        """Return records that have arrived, and move the positions; call the listener if the assignment changes.

        If a partition is lost and assigned again meanwhile, only records of the new assignment are returned. If the
        listener can't say now where to begin, the consumer reports that, and asks again in the next poll.

        Args:
            partitions: those to read; the others are paused.
            timeout_secs: how long to wait for the first record.
            records_max: of all partitions together.
        """

    @abstractmethod
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Move the position of an assigned partition. No record fetched before the move is returned after it."""

    @abstractmethod
    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last record that was returned, and after offsets behind it without a record."""

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> bool:
        """Commit, and wait for the answer; return False if the group accepts no commit, as in a rebalance."""

    @abstractmethod
    def begin_commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> Future[bool]:
        """Begin to commit, and return at once. A later poll settles the answer, which is as that of :meth:`commit`.

        Commits are made in the order in which they are begun.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the group without a commit, and close the connections."""


Connect = Callable[[ConsumerSettings], KafkaConsumer]
"""Makes a consumer; must pickle."""
