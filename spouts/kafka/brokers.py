"""A real cluster, through confluent-kafka: the only place that imports it for the transactional spouts.

Reading a span is exact, whatever its offsets hold: it ends with a record at or after its end, or with the client's word
that nothing more can be read, and never by counting records.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import operator
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, cast

import attrs

from spouts.kafka.log import (
    NO_ID,
    KafkaLog,
    Lost,
    Message,
    OnLost,
    Span,
    Topic,
    TopicChoice,
    TopicPartition,
    UnansweredError,
)
from txtopo.client_properties import ClientProperties
from txtopo.errors import ConfigError, InputError, SourceFailure
from txtopo.extras import how_to_install
from txtopo.kafka_errors import failure

CHUNK_RECORDS = 10_000
"""The maximum number of records that are emitted together."""

CHUNK_BYTES = 32 * 1024 * 1024
"""How many bytes of values are enough to be emitted together."""

GROUP_OFFSETS = 100_000
"""The number of offsets that are fetched at the same time; records that are not their span's turn wait in memory."""

_POLL_SECS = 0.1
_LISTING_SECS = 2.0
_LATE_SECS = 5.0
"""How much later than it should the client may say that there is no answer."""

_STUCK_SECS = 1.0
"""How long the next reads wait after one in vain, so that the many transactions of a job do not wait one by one."""

_SILENCE_SECS = 1.0
"""How long a client that has lost a broker may be silent until another one is asked."""

DRIVER_ANSWER_SECS = 0.5
"""How long the driver waits for an answer before it does something else."""
_LIBRDKAFKA_QUIET = 2
"""Its log level: critical. What matters comes as an error as well."""

_FETCH: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
RESERVED: Mapping[str, str] = {
    "bootstrap.servers": "give the servers as the first argument",
    "enable.auto.commit": "offsets are part of the transactions' metadata; see publish_group",
    "enable.auto.offset.store": "offsets are part of the transactions' metadata; see publish_group",
    "isolation.level": "only records of committed transactions are read",
    "enable.partition.eof": "the spout needs it",
    "auto.offset.reset": "see first_poll, and on_lost for records that are gone",
}
"""Settings of the client that a spout's properties may not have, each with what to do instead."""

_RECONNECT: Mapping[str, Any] = {"reconnect.backoff.max.ms": 1000}

_DEFAULTS: Mapping[str, Any] = {
    **_RECONNECT,
    "group.id": "txtopo",  # required by the client; no group is joined and nothing is stored for it
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 5,
    "socket.nagle.disable": True,
    # What is fetched beyond the end of a span is thrown away; measured best for spans of 1,000 to 50,000 records.
    "max.partition.fetch.bytes": 256 * 1024,
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 64 * 1024,
}

logger = logging.getLogger("txtopo.kafka")


class BrokerLog(KafkaLog):
    """The topics of a cluster.

    Args:
        servers: ``host:port`` of some of its brokers, with commas between them.
        properties: settings of the client.
        timeout_secs: how long Kafka may take to answer, or to send the next records of a span.
        answer_secs: how long to wait for an answer; if it comes later, the same question gets it. None: as long as
            Kafka may take. The driver's thread must not wait, since it has other work.

    Raises:
        ConfigError: confluent-kafka is not installed.
    """

    def __init__(
        self, servers: str, properties: ClientProperties, timeout_secs: float, answer_secs: float | None = None
    ) -> None:
        self._client = _import_client()
        self._servers = servers
        self._properties = properties
        self._timeout_secs = timeout_secs
        self._answer_secs = timeout_secs + _LATE_SECS if answer_secs is None else answer_secs
        self._asked: dict[Any, Mapping[Any, Future[Any]]] = {}
        """Questions whose answers have not come yet."""
        self._admin: Any = None
        self._consumer: Any = None
        self._trouble = ""
        """The client's last complaint, which tells more than that there is no answer."""
        self._refusal: Exception | None = None
        """What the client said when it was refused; it goes on trying, in vain if it was never let in."""
        self._was_let_in = False
        self._is_doubtful = False
        """Whether the client that asks questions has lost a broker since the last answer."""
        self._is_replaced = False
        """Whether it has been replaced since the last answer; once must do, or slow answers would never come."""
        self._has_come = True
        """Whether the last read got what it waited for."""

    def topics(self, choice: TopicChoice, *, waits: bool = True) -> list[Topic]:
        """Return the topics of a choice that exist, by name."""
        names: Iterable[str] = choice.names
        if choice.pattern is not None:
            names = [name for name in self._all_names() if choice.takes(name)]
        wanted = sorted(names)
        if not wanted:
            return []
        from confluent_kafka import TopicCollection  # noqa: PLC0415 - an extra of the installation

        answers = self._answers(
            ("topics", *wanted),
            lambda admin: admin.describe_topics(TopicCollection(wanted), **self._within()),
            self._answer_secs if waits else 0.0,
        )
        found = []
        for name in wanted:
            try:
                answer = answers[name].result()
            except self._client.KafkaException as error:
                if error.args[0].code() == self._client.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise self._unanswered(error, f"topic {name!r}") from None
            found.append(Topic(name, _id_of(answer), len(answer.partitions)))
        return found

    def starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first offset that each partition still has."""
        return self._all_of(self._offsets("starts", partitions, lambda spec: spec.earliest()), partitions)

    def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end of what can be read of each partition that has a leader."""
        return self._offsets("ends", partitions, lambda spec: spec.latest())

    def at(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """Return the offset of the first record at or after a time; the end if there is none."""
        found = self._all_of(
            self._offsets(f"at {timestamp_ms}", partitions, lambda spec: spec.for_timestamp(timestamp_ms)), partitions
        )
        later = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **(self._all_of(self.ends(later), later) if later else {})}

    def stored(self, partitions: Sequence[TopicPartition], group: str) -> Mapping[TopicPartition, int]:
        """Return the offsets that a consumer group has stored."""
        if not partitions:
            return {}
        from confluent_kafka import ConsumerGroupTopicPartitions  # noqa: PLC0415 - an extra of the installation

        question = [ConsumerGroupTopicPartitions(group, [self._place(each) for each in partitions])]
        found = self._result(
            ("stored", group, *partitions),
            lambda admin: admin.list_consumer_group_offsets(question, **self._within()),
        ).topic_partitions
        self._check(found)
        return {TopicPartition(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def store(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        """Store offsets for a consumer group."""
        if not offsets:
            return
        from confluent_kafka import ConsumerGroupTopicPartitions  # noqa: PLC0415 - as above

        places = [self._place(each, at) for each, at in offsets.items()]
        question = [ConsumerGroupTopicPartitions(group, places)]
        key = ("store", group, *sorted(offsets.items()))
        # Who stores later offsets never asks for the answer about earlier ones.
        self._asked = {each: answers for each, answers in self._asked.items() if each[0] != "store" or each == key}
        answer = self._result(key, lambda admin: admin.alter_consumer_group_offsets(question, **self._within()))
        gone = self._client.KafkaError.UNKNOWN_TOPIC_OR_PART
        self._check([each for each in answer.topic_partitions if each.error is None or each.error.code() != gone])

    def read(self, spans: Sequence[Span], on_lost: OnLost) -> Iterator[tuple[Span, Sequence[Message]]]:
        """Yield the records of spans."""
        for group in _groups(spans):
            yield from self._read_group(group, on_lost)

    def close(self) -> None:
        """Let go of connections."""
        self._drop_consumer()
        self._drop_admin()

    def _read_group(self, spans: Sequence[Span], on_lost: OnLost) -> Iterator[tuple[Span, Sequence[Message]]]:
        """Fetch several spans at the same time, and yield their records in the spans' order."""
        reading = {(span.partition.topic, span.partition.partition): _Reading(span, span.start) for span in spans}
        consumer = self._assigned(spans)
        is_over = False
        try:
            for span in spans:
                turn = reading[span.partition.topic, span.partition.partition]
                while not turn.is_done or turn.waiting:
                    while not turn.has_chunk:
                        self._fetch(consumer, reading, on_lost)
                    if turn.waiting:
                        yield span, turn.take_chunk()
            is_over = True
        finally:
            if is_over or not self._has_come:  # it connects again by itself
                consumer.unassign()
            else:
                self._drop_consumer()  # after an error, its connections and queues are in an unknown state

    def _fetch(self, consumer: Any, reading: Mapping[tuple[str, int], _Reading], on_lost: OnLost) -> None:
        """Take what the client has fetched; wait for it if there is nothing."""
        open_readings = [each for each in reading.values() if not each.is_done]
        left = sum(each.span.end - each.next for each in open_readings)
        deadline = time.monotonic() + (self._timeout_secs if self._has_come else min(self._timeout_secs, _STUCK_SECS))
        first = consumer.poll(_POLL_SECS)
        while first is None:
            if time.monotonic() > deadline:
                self._has_come = False
                stuck = open_readings[0]
                raise self._unreachable(f"{stuck.span.partition}: offset {stuck.next} has not come")
            first = consumer.poll(_POLL_SECS)
        self._has_come = True
        # A poll waits for one message; consume() with a timeout would wait for all that it is asked for.
        more = consumer.consume(min(left, CHUNK_RECORDS), 0) if left > 1 else ()
        for (topic, partition, is_error), messages in _runs([first, *more]):
            if not is_error:
                reading[topic, partition].add(messages)
                continue
            for message in messages:
                self._handle_error(consumer, reading, message, on_lost)

    def _handle_error(
        self, consumer: Any, reading: Mapping[tuple[str, int], _Reading], message: Any, on_lost: OnLost
    ) -> None:
        codes, error = self._client.KafkaError, message.error()
        each = reading.get((message.topic(), message.partition()))
        if each is None or error.code() not in {codes._PARTITION_EOF, codes._AUTO_OFFSET_RESET}:  # noqa: SLF001 - the client's names
            raise self._failure(self._client.KafkaException(error), _place_of(message))
        partition = each.span.partition
        if error.code() == codes._PARTITION_EOF:  # noqa: SLF001 - as above
            each.next = max(each.next, message.offset())
            return
        if each.is_done:
            return
        first_kept = self.starts([partition])[partition]
        if first_kept <= each.next:
            raise SourceFailure(f"{partition}: offset {each.next} is not in the log now")
        on_lost(Lost(each.span, each.next, first_kept))
        each.next = min(first_kept, each.span.end)
        if not each.is_done:
            place = self._client.TopicPartition(partition.topic, partition.partition, each.next)
            consumer.incremental_unassign([place])  # it fetches no more of it after such an error, nor seeks
            consumer.incremental_assign([place])

    def _assigned(self, spans: Sequence[Span]) -> Any:
        if self._consumer is None:
            settings = {"bootstrap.servers": self._servers, **_DEFAULTS, **self._given(), **_FETCH}
            self._consumer = self._made(self._client.Consumer, settings)
        places = [self._client.TopicPartition(s.partition.topic, s.partition.partition, s.start) for s in spans]
        self._consumer.assign(places)
        return self._consumer

    def _offsets(self, what: str, partitions: Sequence[TopicPartition], which: Any) -> dict[TopicPartition, int]:
        """Ask for an offset of each partition, in one call; leave out those without a leader."""
        from confluent_kafka import IsolationLevel  # noqa: PLC0415 - an extra of the installation
        from confluent_kafka.admin import OffsetSpec  # noqa: PLC0415 - as above

        if not partitions:
            return {}
        question = {self._place(each): which(OffsetSpec) for each in partitions}
        level = IsolationLevel.READ_COMMITTED
        answers = self._answers(
            (what, *partitions),
            lambda admin: admin.list_offsets(question, isolation_level=level, **self._within()),
        )
        found, last = {}, None
        for place, answer in answers.items():
            try:
                found[TopicPartition(place.topic, place.partition)] = answer.result().offset
            except self._client.KafkaException as error:
                last = self._failure(error, f"topic {place.topic!r}, partition {place.partition}")
                if not isinstance(last, SourceFailure):
                    raise last from None
        if last is not None:
            self._drop_admin()
        if not found and last is not None:
            raise last
        return found

    @staticmethod
    def _all_of(found: Mapping[TopicPartition, int], wanted: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        missing = next((each for each in wanted if each not in found), None)
        if missing is not None:
            raise SourceFailure(f"{missing} has no leader now")
        return found

    def _all_names(self) -> list[str]:
        listed = self._ask(lambda admin: admin.list_topics(timeout=min(self._timeout_secs, _LISTING_SECS)))
        return list(listed.topics)

    def _ask(self, question: Any) -> Any:
        if self._admin is None:
            from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - an extra of the installation

            # Settings of consumers only make it complain, in the log that is quiet.
            self._admin = self._made(AdminClient, {"bootstrap.servers": self._servers, **_RECONNECT, **self._given()})
        try:
            return question(self._admin)
        except self._client.KafkaException as error:
            raise self._failure(error) from None

    def _answers(self, key: Any, question: Any, answer_secs: float | None = None) -> Mapping[Any, Future[Any]]:
        """Return the answers to a question once they have come; whoever asks too early asks again."""
        patience = self._answer_secs if answer_secs is None else answer_secs
        deadline = time.monotonic() + patience
        while True:
            answers = self._asked.pop(key, None) or self._ask(question)
            _, missing = wait(answers.values(), min(max(0.0, deadline - time.monotonic()), _SILENCE_SECS))
            if not missing:
                break
            self._asked[key] = answers
            if self._admin is not None:
                self._admin.poll(0)  # lets the client complain
            if self._refusal is not None and not self._was_let_in:
                raise self._refusal
            if self._is_doubtful:
                self._drop_admin()
            if time.monotonic() >= deadline:
                raise UnansweredError(self._trouble_with(f"no answer within {patience:g} s"))
        self._was_let_in = self._was_let_in or any(answer.exception() is None for answer in answers.values())
        self._is_replaced = self._is_doubtful = False
        return cast("Mapping[Any, Future[Any]]", answers)

    def _result(self, key: Any, question: Any) -> Any:
        (answer,) = self._answers(key, question).values()
        try:
            return answer.result()
        except self._client.KafkaException as error:
            raise self._unanswered(error) from None

    def _check(self, places: Sequence[Any]) -> None:
        """Raise the error of a partition whose answer is one."""
        for place in places:
            if place.error is not None:
                raise self._failure(self._client.KafkaException(place.error), f"topic {place.topic!r}")

    def _place(self, partition: TopicPartition, offset: int | None = None) -> Any:
        given = () if offset is None else (offset,)
        return self._client.TopicPartition(partition.topic, partition.partition, *given)

    def _made(self, kind: Any, settings: Mapping[str, Any]) -> Any:
        quiet = {"log_level": _LIBRDKAFKA_QUIET, "error_cb": self._complain, "logger": logger}
        try:
            return kind({**quiet, **settings})
        except (self._client.KafkaException, TypeError, ValueError) as error:
            message = self._properties.scrubbed(str(error))
            raise ConfigError(f"properties: the client of Kafka refuses them: {message}") from None

    def _complain(self, error: Any) -> None:
        self._trouble = self._properties.scrubbed(error.str())
        found = self._failure(self._client.KafkaException(error))
        if isinstance(found, InputError):
            self._refusal = found
        self._is_doubtful = not self._is_replaced

    def _given(self) -> dict[str, Any]:
        return self._properties.resolved()

    def _within(self) -> dict[str, float]:
        return {"request_timeout": self._timeout_secs}

    def _failure(self, error: Exception, where: str = "") -> Exception:
        """Return txtopo's error for one of the client: it never works, or it may work later."""
        reason = error.args[0]
        text = self._properties.scrubbed(str(reason.str()))
        found = failure(reason, text, self._servers, "the spout", where=where)
        if isinstance(found, InputError):
            return found
        return self._unreachable(f"{where}: {text}" if where else text)

    def _unreachable(self, what: str) -> SourceFailure:
        return SourceFailure(self._trouble_with(what))

    def _trouble_with(self, what: str) -> str:
        trouble = f" ({self._trouble})" if self._trouble else ""
        return f"Kafka at {self._servers} does not answer: {what}{trouble}"

    def _unanswered(self, error: Exception, where: str = "") -> Exception:
        """Return txtopo's error for an answer that is one; the next question goes to another client."""
        found = self._failure(error, where)
        if isinstance(found, SourceFailure):
            self._drop_admin()
        return found

    def _drop_admin(self) -> None:
        """Let another client ask: this one's idea of who leads, or is the controller, may be a broker that is dead.

        It would go on waiting for that broker, and nothing else would make it look again.
        """
        self._is_replaced, self._is_doubtful = True, False
        self._admin = None
        self._asked.clear()  # what it was asked will never be answered

    def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(Exception):
                consumer.close()


@attrs.define(eq=False)
class _Reading:
    """How far a span is fetched, and the records that wait for their turn."""

    span: Span
    next: int
    waiting: list[Any] = attrs.field(factory=list)
    _bytes: int = 0

    @property
    def is_done(self) -> bool:
        return self.next >= self.span.end

    @property
    def has_chunk(self) -> bool:
        """Whether the next chunk is fetched, or all is."""
        return self.is_done or len(self.waiting) >= CHUNK_RECORDS or self._bytes >= CHUNK_BYTES

    def add(self, messages: Sequence[Any]) -> None:
        """Take messages of the span's partition, which come in its order; some may lie outside the span."""
        first, end = messages[0].offset(), messages[-1].offset() + 1
        if first < self.next or end > self.span.end:
            messages = [message for message in messages if self.next <= message.offset() < self.span.end]
        self.waiting += messages
        self._bytes += sum(map(len, messages))  # of their values
        self.next = max(self.next, min(end, self.span.end))

    def take_chunk(self) -> list[Message]:
        """Return the next chunk, which depends on the records alone, however many are fetched already."""
        count = CHUNK_RECORDS
        if self._bytes > CHUNK_BYTES:
            sums = itertools.accumulate(len(message) for message in self.waiting[:count])
            count = next((number for number, total in enumerate(sums, 1) if total >= CHUNK_BYTES), count)
        chunk, self.waiting = self.waiting[:count], self.waiting[count:]
        self._bytes = sum(map(len, self.waiting))
        return chunk


class _Logs(threading.local):
    """The clients of a thread."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[Any, ...], BrokerLog] = {}


_logs = _Logs()


def shared_log(servers: str, properties: ClientProperties, timeout_secs: float) -> BrokerLog:
    """Return this thread's client of a cluster, which lives as long as the thread.

    A client does not survive a fork, so a forked process gets one of its own.
    """
    key = (os.getpid(), servers, timeout_secs, tuple(sorted((name, str(properties[name])) for name in properties)))
    if key not in _logs.by_key:
        _logs.by_key[key] = BrokerLog(servers, properties, timeout_secs)
    return _logs.by_key[key]


def _runs(messages: Sequence[Any]) -> Iterator[tuple[tuple[str, int, bool], Sequence[Any]]]:
    """Yield messages that follow each other and are of one partition, or errors of it.

    A consumer mostly has messages of one kind. To look at each alone would make reading a fourth slower.
    """
    topics = [message.topic() for message in messages]
    partitions = [message.partition() for message in messages]
    are_errors = [message.error() is not None for message in messages]
    if all(column.count(column[0]) == len(column) for column in (topics, partitions, are_errors)):
        yield (topics[0], partitions[0], are_errors[0]), messages
        return
    kinds = zip(topics, partitions, are_errors, strict=True)
    for kind, run in itertools.groupby(zip(kinds, messages, strict=True), operator.itemgetter(0)):
        yield kind, [message for _, message in run]


def _groups(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Divide spans, so that not too many records wait for their turn; a partition is in a group once."""
    left = deque(spans)
    while left:
        group = [left.popleft()]
        total = group[0].end - group[0].start
        while left and total + left[0].end - left[0].start <= GROUP_OFFSETS:
            if any(left[0].partition == each.partition for each in group):
                break
            group.append(left.popleft())
            total += group[-1].end - group[-1].start
        yield group


def _place_of(message: Any) -> str:
    topic = message.topic()
    return "" if topic is None else f"topic {topic!r}, partition {message.partition()}"


def _id_of(description: Any) -> str:
    text = str(description.topic_id or "")
    return NO_ID if not text.strip("A=") else text


def _import_client() -> Any:
    try:
        import confluent_kafka  # noqa: PLC0415 - an extra of the installation
    except ImportError:
        raise ConfigError(f"the spouts of Kafka need confluent-kafka: {how_to_install('kafka')}") from None
    return confluent_kafka
