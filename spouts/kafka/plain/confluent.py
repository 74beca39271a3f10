"""A KafkaClient that asks a real broker, by confluent-kafka (librdkafka).

librdkafka fetches ahead in threads of its own, so a poll only takes what is there. What it does not offer in the form
that a KafkaClient promises is made up for here:

- Positions are kept here. An end-of-partition event moves them over offsets that have no record.
- A partition that is not to be read is paused, which drops what was fetched ahead of it; so pauses last from one poll
  to the next, and a seek ends one.
- In a rebalance the group is answered at once, without the partitions. They are assigned after the poll, when it is
  known where reading begins; if that can't be found out now, in a later one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import confluent_kafka as kafka

from spouts.kafka.log import TopicPartition
from spouts.kafka.plain.client import (
    AssignmentListener,
    ClientSettings,
    KafkaClient,
    LogRange,
    StoredOffset,
)
from spouts.kafka.records import KafkaRecord, record_of
from txtopo.errors import ConfigError, InputError, SourceFailure, TxtopoError
from txtopo.kafka_errors import failure

_log = logging.getLogger(__name__)

_ANSWER_SECS = 10.0
_STRATEGY = "partition.assignment.strategy"
_DEFAULTS: Mapping[str, Any] = {
    _STRATEGY: "cooperative-sticky",
    "fetch.queue.backoff.ms": 20,  # by default a full queue is not filled again for a second
    "fetch.wait.max.ms": 100,
    "log_level": 2,  # critical: what matters comes as an error as well, and this would come dozens of times a second
}
_BEGIN, _END = -2, -1
"""In place of a time: the first offset, and the one behind the last."""

_NOT_NOW = frozenset(
    {
        kafka.KafkaError.ILLEGAL_GENERATION,
        kafka.KafkaError.REBALANCE_IN_PROGRESS,
        kafka.KafkaError.UNKNOWN_MEMBER_ID,
    }
)
"""What a group answers to a commit while it rebalances, or to somebody who is not a member any more."""

T = TypeVar("T")


class ConfluentClient(KafkaClient):
    """A consumer of confluent-kafka.

    Args:
        settings: how to reach the brokers.

    Raises:
        ConfigError: librdkafka refuses a property, or a secret can't be found here.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        configuration = {
            **_DEFAULTS,
            **settings.properties.resolved(),
            "bootstrap.servers": settings.servers,
            "group.id": settings.group_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "error_cb": self._complain,
            "on_commit": self._on_commit,
        }
        if settings.offset_reset is not None:
            configuration["auto.offset.reset"] = settings.offset_reset
        self._is_cooperative = "cooperative" in str(configuration[_STRATEGY])
        try:
            self._consumer = kafka.Consumer(configuration, logger=_log)
            # A client of confluent-kafka makes its calls one after another: what another thread asks it for, and waits
            # for while Kafka is away, would hold up the polls. So these questions have a client of their own.
            self._asker = kafka.Consumer(configuration, logger=_log)
        except (kafka.KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"properties: {settings.properties.scrubbed(str(error))}") from None
        self._refusal: InputError | None = None
        """What Kafka has said when it refused this client; librdkafka goes on trying."""
        self._was_let_in = False
        """Whether Kafka has answered; a refusal after that may pass, as when a broker starts again."""
        self._listener: AssignmentListener | None = None
        self._positions: dict[TopicPartition, int] = {}
        """Of the partitions that are held."""
        self._paused: set[TopicPartition] = set()
        self._granted: set[TopicPartition] = set()
        """Given by the group, and to be assigned."""
        self._lost: set[TopicPartition] = set()
        """Taken away by the group in this poll."""
        self._places: dict[tuple[str, int], TopicPartition] = {}
        self._begun: deque[Future[bool]] = deque()
        """Commits that have begun, in their order."""

    def partitions(self, topics: Collection[str] | None) -> list[TopicPartition]:
        """Return the partitions of topics, by one request."""
        only = next(iter(topics)) if topics is not None and len(topics) == 1 else None
        seen = self._answered(lambda: self._asker.list_topics(only, timeout=_ANSWER_SECS))
        found: list[TopicPartition] = []
        for name, topic in seen.topics.items():
            if topics is not None and name not in topics:
                continue
            if topic.error is not None and topic.error.code() != kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._failure(topic.error, f"topic {name!r}")
            found.extend(TopicPartition(name, number) for number in topic.partitions)
        return found

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Hold partitions."""
        if starts:
            self._asked(lambda: self._consumer.incremental_assign(_places(starts)))
            self._positions.update(starts)

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Let partitions go."""
        held = [partition for partition in partitions if partition in self._positions]
        if held:
            self._asked(lambda: self._consumer.incremental_unassign(_places(held)))
        self._forget(held)

    def subscribe(self, topics: Collection[str], listener: AssignmentListener) -> None:
        """Join the group."""
        self._listener = listener
        self._asked(
            lambda: self._consumer.subscribe(
                list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        )

    def poll(
        self, partitions: Collection[TopicPartition], timeout_secs: float, records_max: int
    ) -> dict[TopicPartition, list[KafkaRecord]]:
        """Return records that were fetched."""
        self._pause_all_but(partitions)
        if self._listener is None:
            messages = self._asked(lambda: self._consumer.consume(records_max, timeout_secs))
        else:
            messages = self._asked(lambda: self._poll_each(timeout_secs, records_max))
            if self._granted:
                self._begin(self._listener)
        if self._refusal is not None and not self._was_let_in:
            raise self._refusal
        found: dict[TopicPartition, list[KafkaRecord]] = {}
        for message in messages:
            self._take(message, found)
        return found

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Move a position. librdkafka drops what it has fetched before."""
        if partition not in self._positions:
            return
        if partition in self._paused:
            self._asked(lambda: self._consumer.resume(_places([partition])))
            self._paused.discard(partition)
        self._asked(lambda: self._consumer.seek(_place(partition, offset)))
        self._positions[partition] = offset

    def position(self, partition: TopicPartition) -> int | None:
        """Return a position."""
        return self._positions.get(partition)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """Return what the group has committed, by one request."""
        found = self._asked(lambda: self._consumer.committed(_places(partitions), timeout=_ANSWER_SECS), self._group)
        self._check(found)
        return {
            self._partition(each.topic, each.partition): StoredOffset(each.offset, each.metadata or "")
            for each in found
            if each.offset >= 0
        }

    def commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> bool:
        """Commit, and wait for the answer."""
        try:
            found = self._consumer.commit(offsets=_stored_places(offsets), asynchronous=False)
        except kafka.KafkaException as error:
            return self._is_committed(error.args[0], [])
        return self._is_committed(None, found)

    def begin_commit(self, offsets: Mapping[TopicPartition, StoredOffset]) -> Future[bool]:
        """Begin to commit; the answer comes in a poll."""
        answer: Future[bool] = Future()
        self._begun.append(answer)
        try:
            self._asked(lambda: self._consumer.commit(offsets=_stored_places(offsets), asynchronous=True))
        except SourceFailure as error:
            self._begun.remove(answer)
            answer.set_exception(error)
        return answer

    def ranges(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return the ranges, by two requests to each leader."""
        begins, ends = self._offsets(partitions, _BEGIN), self._offsets(partitions, _END)
        return {partition: LogRange(begins[partition], ends[partition]) for partition in partitions}

    def offsets_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the first offsets of a time."""
        found = self._offsets(partitions, timestamp_ms)
        after = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **(self._offsets(after, _END) if after else {})}

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
        self._asker.close()
        self._positions.clear()

    def _offsets(self, partitions: Collection[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        times = [_place(partition, timestamp) for partition in partitions]
        found = self._answered(lambda: self._asker.offsets_for_times(times, timeout=_ANSWER_SECS))
        self._check(found)
        return {self._partition(each.topic, each.partition): each.offset for each in found}

    def _pause_all_but(self, partitions: Collection[TopicPartition]) -> None:
        paused = self._positions.keys() - set(partitions)
        if more := paused - self._paused:
            self._asked(lambda: self._consumer.pause(_places(more)))
        if fewer := self._paused - paused:
            self._asked(lambda: self._consumer.resume(_places(fewer)))
        self._paused = paused

    def _poll_each(self, timeout_secs: float, records_max: int) -> list[Any]:
        """Return messages one by one: the callbacks of a rebalance come in between, and count for what was before."""
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

    def _take(self, message: Any, found: dict[TopicPartition, list[KafkaRecord]]) -> None:
        """Add the record of a message, which may be an event instead, and move the position."""
        error = message.error()
        if error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            topic = message.topic()
            self._report(error, "" if topic is None else str(self._partition(topic, message.partition())))
            return
        partition = self._partition(message.topic(), message.partition())
        if partition not in self._positions:
            return
        offset = message.offset()
        if error is not None:
            self._positions[partition] = max(offset, self._positions[partition])
            return
        self._positions[partition] = offset + 1
        found.setdefault(partition, []).append(record_of(message))

    # Rebalances. The callbacks run in the consumer's poll.

    def _on_assign(self, consumer: Any, places: list[Any]) -> None:
        self._granted.update(self._partition(each.topic, each.partition) for each in places)
        if self._is_cooperative:
            consumer.incremental_assign([])
        else:
            consumer.assign([])

    def _on_revoke(self, consumer: Any, places: list[Any]) -> None:
        assert self._listener is not None, "it has subscribed"
        gone = {self._partition(each.topic, each.partition) for each in places}
        self._listener.revoked(gone & self._positions.keys())
        self._let_go(consumer, gone)

    def _on_lost(self, consumer: Any, places: list[Any]) -> None:
        self._let_go(consumer, {self._partition(each.topic, each.partition) for each in places}, is_lost=True)

    def _let_go(self, consumer: Any, gone: set[TopicPartition], *, is_lost: bool = False) -> None:
        assert self._listener is not None, "it has subscribed"
        held = gone & self._positions.keys()
        self._granted -= gone
        self._lost |= gone
        self._forget(held)
        if self._is_cooperative:
            consumer.incremental_unassign(_places(held))
        else:
            consumer.unassign()
        if self._is_cooperative or is_lost:  # else what stays is known only when the group assigns again
            self._listener.assigned(set(self._positions))

    def _begin(self, listener: AssignmentListener) -> None:
        """Assign what the group has given, from where reading begins."""
        try:
            starts = listener.assigned(self._positions.keys() | self._granted)
        except SourceFailure as error:
            self._settings.report(error)
            return
        if self._is_cooperative:
            self.assign({partition: starts[partition] for partition in self._granted})
        else:
            self._asked(lambda: self._consumer.assign(_places(starts)))
            self._positions.update(starts)
        self._granted.clear()

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
            self._paused.discard(partition)

    # Commits.

    def _on_commit(self, error: Any, places: list[Any]) -> None:
        """Take the answer to the oldest commit that was begun; runs in the consumer's poll."""
        if not self._begun:
            return
        answer = self._begun.popleft()
        try:
            answer.set_result(self._is_committed(error, places))
        except TxtopoError as wrong:
            answer.set_exception(wrong)

    def _is_committed(self, error: Any, places: Iterable[Any]) -> bool:
        """Return whether a commit was made; raise an error if it was not, for a reason that is no rebalance's."""
        if error is not None:
            if error.code() in _NOT_NOW:
                return False
            raise self._failure(error, self._group)
        self._check(places)
        return True

    # Errors.

    @property
    def _group(self) -> str:
        return f"group {self._settings.group_id!r}"

    def _asked(self, call: Callable[[], T], where: str = "") -> T:
        try:
            return call()
        except kafka.KafkaException as error:
            raise self._failure(error.args[0] if error.args else error, where) from None

    def _answered(self, question: Callable[[], T]) -> T:
        """Return the answer to a question of the client that only asks; drop the events that it gathers."""
        try:
            answer = self._asked(question)
            self._was_let_in = True
            return answer
        finally:
            while self._asker.poll(0) is not None:
                pass

    def _check(self, places: Iterable[Any]) -> None:
        for each in places:
            if each.error is not None:
                raise self._failure(each.error, str(self._partition(each.topic, each.partition)))

    def _failure(self, error: Any, where: str = "") -> InputError | SourceFailure:
        servers, properties = self._settings.servers, self._settings.properties
        if isinstance(error, kafka.KafkaError):
            return failure(error, properties.scrubbed(error.str()), servers, "the spout", where=where)
        return SourceFailure(f"Kafka at {servers}: {properties.scrubbed(str(error))}")

    def _complain(self, error: Any) -> None:
        """Take what librdkafka says of its connections; it calls this in polls."""
        found = self._failure(error)
        if isinstance(found, InputError):
            if not self._was_let_in:
                self._refusal = found  # the next poll raises it: what is raised here gets lost
                return
            found = SourceFailure(found.message)
        self._settings.report(found)

    def _report(self, error: Any, where: str) -> None:
        """Report what Kafka has answered in place of records.

        Raises:
            InputError: it refuses, and will go on to do so.
        """
        found = self._failure(error, where)
        if isinstance(found, InputError):
            raise found
        self._settings.report(found)

    def _partition(self, topic: str, number: int) -> TopicPartition:
        found = self._places.get((topic, number))
        if found is None:
            found = self._places[topic, number] = TopicPartition(topic, number)
        return found


def _place(partition: TopicPartition, offset: int) -> Any:
    return kafka.TopicPartition(partition.topic, partition.partition, offset)


def _stored_places(offsets: Mapping[TopicPartition, StoredOffset]) -> list[Any]:
    return [
        kafka.TopicPartition(partition.topic, partition.partition, stored.offset, stored.metadata)
        for partition, stored in offsets.items()
    ]


def _places(partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> list[Any]:
    """Return partitions in the client's form, with their offsets if they have any."""
    if isinstance(partitions, Mapping):
        return [_place(partition, offset) for partition, offset in partitions.items()]
    return [kafka.TopicPartition(partition.topic, partition.partition) for partition in partitions]
