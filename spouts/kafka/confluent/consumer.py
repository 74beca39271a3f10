"""A member of a consumer group.

librdkafka fetches ahead in threads of its own, so a poll only returns what has arrived. A
:class:`~spouts.kafka.log.KafkaConsumer` promises three things that librdkafka does not do by itself:

- This class keeps the positions. An end-of-partition event moves them over offsets that have no record.
- It pauses partitions that the spout does not want to read. A pause drops what was fetched ahead, so it lasts from one
  poll to the next; a seek ends it.
- In a rebalance it answers the group at once, with no partitions assigned. It assigns them after the poll, once the
  listener has said where reading begins; if the listener can't say now, it asks again in a later poll.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from spouts.kafka.confluent.connection import END_OF_PARTITION, BrokerConnection
from spouts.kafka.confluent.log import BrokerLog
from spouts.kafka.log import (
    ConsumerSettings,
    KafkaConsumer,
    KafkaRecord,
    RebalanceListener,
    StoredOffset,
    TopicPartition,
)
from spouts.kafka.records import record_of
from txtopo.errors import InputError, SourceFailure, TxtopoError

_ANSWER_SECS = 10.0
"""How long a question to the brokers may take: a task of a plain topology waits for it."""

_STRATEGY = "partition.assignment.strategy"
_GROUP_DEFAULTS: Mapping[str, Any] = {
    _STRATEGY: "cooperative-sticky",
    "fetch.queue.backoff.ms": 20,  # by default a full queue is not filled again for a second
    "fetch.wait.max.ms": 100,
}
_GROUP: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
}
_NOT_NOW = frozenset({"ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"})
"""What a group answers to a commit during a rebalance, or from a former member."""

T = TypeVar("T")


class BrokerConsumer(KafkaConsumer):
    """A member of a consumer group.

    Raises:
        ConfigError: confluent-kafka is not installed, librdkafka refuses a property, or a secret can't be found here.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self._connection = BrokerConnection(settings.servers, settings.properties, report=settings.report)
        self._library = self._connection.library
        config = {**_GROUP_DEFAULTS, **settings.properties.resolved(), **_GROUP, "group.id": settings.group_id}
        if settings.offset_reset is not None:
            config["auto.offset.reset"] = settings.offset_reset
        self._is_cooperative = "cooperative" in str(config[_STRATEGY])
        self._consumer = self._connection.make(self._library.Consumer, {**config, "on_commit": self._on_commit})
        self.log = BrokerLog(self._connection, _ANSWER_SECS, _ANSWER_SECS)
        self._listener: RebalanceListener | None = None
        self._positions: dict[TopicPartition, int] = {}
        """By assigned partition: the next offset to return."""
        self._paused: set[TopicPartition] = set()
        self._granted: set[TopicPartition] = set()
        """Partitions that the group has given, and that are not assigned yet."""
        self._lost: set[TopicPartition] = set()
        """Partitions that the group has taken away in this poll."""
        self._by_place: dict[tuple[str, int], TopicPartition] = {}  # one object for all records of a partition
        self._begun: deque[Future[bool]] = deque()
        """Commits without an answer, oldest first: librdkafka's callback does not say which commit it answers."""

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read further partitions."""
        if starts:
            self._call(lambda: self._consumer.incremental_assign(self._connection.places(starts)))
            self._positions.update(starts)

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading partitions."""
        assigned = [partition for partition in partitions if partition in self._positions]
        if assigned:
            self._call(lambda: self._consumer.incremental_unassign(self._connection.places(assigned)))
        self._forget(assigned)

    def subscribe(self, topics: Collection[str], listener: RebalanceListener) -> None:
        """Join the group."""
        self._listener = listener
        callbacks = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}
        self._call(lambda: self._consumer.subscribe(list(topics), **callbacks))

    def poll(
        self, partitions: Collection[TopicPartition], timeout_secs: float, records_max: int
    ) -> dict[TopicPartition, list[KafkaRecord]]:
        """Return records that have arrived."""
        self._pause_all_but(partitions)
        if self._listener is None:  # then no rebalance can come between two messages of one call
            messages = self._call(lambda: self._consumer.consume(records_max, timeout_secs))
        else:
            messages = self._call(lambda: self._poll_each(timeout_secs, records_max))
            if self._granted:
                self._assign_granted(self._listener)
        self._connection.check_refusal()
        records: dict[TopicPartition, list[KafkaRecord]] = {}
        for message in messages:
            self._take(message, records)
        return records

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Move a position; librdkafka drops what it had fetched."""
        if partition not in self._positions:
            return
        if partition in self._paused:
            self._call(lambda: self._consumer.resume(self._connection.places([partition])))
            self._paused.discard(partition)
        (place,) = self._connection.places({partition: offset})
        self._call(lambda: self._consumer.seek(place))
        self._positions[partition] = offset

    def position(self, partition: TopicPartition) -> int | None:
        """Return a position."""
        return self._positions.get(partition)

    def commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> bool:
        """Commit, and wait for the answer."""
        try:
            answers = self._consumer.commit(offsets=self._stored_places(offsets), asynchronous=False)
        except self._library.KafkaException as error:
            return self._is_committed(error.args[0], [])
        return self._is_committed(None, answers)

    def begin_commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> Future[bool]:
        """Begin to commit; the answer comes in a poll."""
        answer: Future[bool] = Future()
        self._begun.append(answer)
        try:
            self._call(lambda: self._consumer.commit(offsets=self._stored_places(offsets), asynchronous=True))
        except SourceFailure as error:
            # It was refused at once, so no callback comes. Left here, it would take the answer of the next commit.
            self._begun.remove(answer)
            answer.set_exception(error)
        return answer

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
        self.log.close()
        self._positions.clear()

    def _pause_all_but(self, partitions: Collection[TopicPartition]) -> None:
        paused = self._positions.keys() - set(partitions)
        if more := paused - self._paused:
            self._call(lambda: self._consumer.pause(self._connection.places(more)))
        if fewer := self._paused - paused:
            self._call(lambda: self._consumer.resume(self._connection.places(fewer)))
        self._paused = paused

    def _poll_each(self, timeout_secs: float, records_max: int) -> list[Any]:
        """Return messages, polled one by one: a rebalance in between takes back those of lost partitions."""
        messages: list[Any] = []
        for _ in range(records_max):
            message = self._consumer.poll(0 if messages else timeout_secs)
            if self._lost:
                messages = [
                    each for each in messages if self._partition(each.topic(), each.partition()) not in self._lost
                ]
                self._lost.clear()
            if message is None:
                break
            messages.append(message)
        return messages

    def _take(self, message: Any, records: dict[TopicPartition, list[KafkaRecord]]) -> None:
        """Add the record of a message, or take its event, and move on; InputError if Kafka refuses for good."""
        error = message.error()
        if error is not None and error.name() != END_OF_PARTITION:
            failure = self._connection.failure_at(error, message.topic(), message.partition())
            if isinstance(failure, InputError):
                raise failure
            self._settings.report(failure)
            return
        partition = self._partition(message.topic(), message.partition())
        if partition not in self._positions:
            return  # fetched before the group took the partition away
        offset = message.offset()
        if error is not None:  # the end of the partition: the offsets before it that did not come have no record
            self._positions[partition] = max(offset, self._positions[partition])
            return
        self._positions[partition] = offset + 1
        records.setdefault(partition, []).append(record_of(message))

    # Rebalances. The callbacks run in the consumer's poll.

    def _on_assign(self, consumer: Any, places: list[Any]) -> None:
        # To assign nothing answers the group at once; poll() assigns when the listener has said where to begin.
        self._granted |= self._partitions(places)
        if self._is_cooperative:
            consumer.incremental_assign([])
        else:
            consumer.assign([])

    def _on_revoke(self, consumer: Any, places: list[Any]) -> None:
        assert self._listener is not None, "it has subscribed"
        revoked = self._partitions(places)
        # First the commit: after unassign() another member may read on from what is committed.
        self._listener.revoked(revoked & self._positions.keys())
        self._let_go(consumer, revoked)

    def _on_lost(self, consumer: Any, places: list[Any]) -> None:
        # No commit: others own the partitions already, and the group would refuse it.
        self._let_go(consumer, self._partitions(places), is_lost=True)

    def _let_go(self, consumer: Any, revoked: set[TopicPartition], *, is_lost: bool = False) -> None:
        assert self._listener is not None, "it has subscribed"
        unassigned = revoked & self._positions.keys()
        self._granted -= revoked
        self._lost |= revoked
        self._forget(unassigned)
        if self._is_cooperative:
            consumer.incremental_unassign(self._connection.places(unassigned))
        else:
            consumer.unassign()
        if self._is_cooperative or is_lost:  # else what stays is known only when the group assigns again
            self._listener.assigned(set(self._positions))

    def _assign_granted(self, listener: RebalanceListener) -> None:
        """Assign what the group has given, from where the listener says."""
        try:
            starts = listener.assigned(self._positions.keys() | self._granted)
        except SourceFailure as error:
            self._settings.report(error)
            return  # the partitions stay granted, and the next poll tries again
        if self._is_cooperative:
            self.assign({partition: starts[partition] for partition in self._granted})
        else:
            self._call(lambda: self._consumer.assign(self._connection.places(starts)))
            self._positions.update(starts)
        self._granted.clear()

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
            self._paused.discard(partition)

    def _on_commit(self, error: Any, places: list[Any]) -> None:
        """Settle the oldest begun commit; runs in the consumer's poll."""
        if not self._begun:
            return
        answer = self._begun.popleft()
        try:
            answer.set_result(self._is_committed(error, places))
        except TxtopoError as wrong:
            answer.set_exception(wrong)

    def _is_committed(self, error: Any, places: Iterable[Any]) -> bool:
        """Return False if a rebalance prevented a commit; raise any other error of it."""
        if error is not None:
            if error.name() in _NOT_NOW:
                return False
            raise self._connection.failure(error, f"group {self._settings.group_id!r}")
        self._connection.check(places)
        return True

    def _call(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except self._library.KafkaException as error:
            raise self._connection.failure(error) from None

    def _stored_places(self, offsets: Mapping[TopicPartition, StoredOffset]) -> list[Any]:
        kind = self._library.TopicPartition
        return [kind(offset.topic, offset.partition, at.offset, at.metadata) for offset, at in offsets.items()]

    def _partitions(self, places: Iterable[Any]) -> set[TopicPartition]:
        return {self._partition(place.topic, place.partition) for place in places}

    def _partition(self, topic: str, number: int) -> TopicPartition:
        partition = self._by_place.get((topic, number))
        if partition is None:
            partition = self._by_place[topic, number] = TopicPartition(topic, number)
        return partition
