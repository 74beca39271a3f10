"""Answers questions about topics and reads spans of them.

It reads a span exactly, whatever the offsets hold: a read ends with a record at or after the span's end, or with
librdkafka's end-of-partition event, and never by counting records.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, cast

import attrs

from spouts.kafka.confluent.connection import END_OF_PARTITION, BrokerConnection
from spouts.kafka.log import (
    NO_ID,
    KafkaLog,
    Lost,
    Message,
    OnLost,
    Span,
    StoredOffset,
    Topic,
    TopicFilter,
    TopicPartition,
    UnansweredError,
    all_of,
)
from txtopo.errors import InputError, SourceFailure
from txtopo.text.client_properties import ClientProperties

CHUNK_RECORDS = 10_000
"""The maximum number of records in a chunk, which is emitted as one."""

CHUNK_BYTES = 32 * 1024 * 1024
"""A chunk ends with the record that brings its keys and values to this size."""

GROUP_OFFSETS = 100_000
"""The maximum number of offsets that spans fetched together may have. Records wait in memory until their span's turn;
a span that is larger is fetched alone."""

_POLL_SECS = 0.1
"""How long a poll waits for the first record, before the time that is left is looked at."""
_LISTING_SECS = 2.0
"""The least time that a listing of all topics gets: ``list_topics`` blocks even a caller that must not wait."""

_LATE_SECS = 5.0
"""How long after its own timeout librdkafka may take to report it."""

_STUCK_SECS = 1.0
"""How long a read waits if the one before got nothing. Otherwise each transaction of a job would wait for the full
timeout in turn."""

_SILENCE_SECS = 1.0
"""How long to wait for an answer between two looks at whether the client has lost a broker and must be replaced."""

DRIVER_ANSWER_SECS = 0.5
"""How long the driver's thread waits for an answer; it has other work."""

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
"""Settings that the properties of a transactional spout may not have, each with what to do instead."""

_RECONNECT: Mapping[str, Any] = {"reconnect.backoff.max.ms": 1000}

_SPAN_DEFAULTS: Mapping[str, Any] = {
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

_UNKNOWN = "UNKNOWN_TOPIC_OR_PART"
_TIMED_OUT = "_TIMED_OUT"


class BrokerLog(KafkaLog):
    """The topics of a cluster.

    Args:
        connection: makes the clients.
        timeout_secs: how long Kafka may take to answer, or to send the next records of a span.
        answer_secs: how long a caller waits for an answer; whoever asks the same question later gets a late answer.
            None: as long as Kafka may take.
    """

    def __init__(self, connection: BrokerConnection, timeout_secs: float, answer_secs: float | None = None) -> None:
        self._connection = connection
        self._library = connection.library
        self._timeout_secs = timeout_secs
        self._answer_secs = timeout_secs + _LATE_SECS if answer_secs is None else answer_secs
        self._asked: dict[Any, Mapping[Any, Future[Any]]] = {}
        """By question: the answers that have not all come yet."""
        self._admin: Any = None
        self._consumer: Any = None
        self._reader: tuple[str, Any] | None = None
        """The last group asked about, and the consumer that reads its offsets."""
        self._complaints_seen = connection.complaints
        """The complaints until the last answer: if there are more now, the client has lost a broker since."""
        self._awaited: Mapping[TopicPartition, int] | None = None
        """The offsets that :meth:`wait` has assigned."""
        self._is_replaced = False
        """Whether the admin client was replaced since the last answer. Replaced again, it would lose slow answers."""
        self._has_come = True
        """Whether the last read got records before its deadline."""
        self._asking = threading.RLock()  # questions come from several threads; _drop_admin takes it within _answers

    def topics(self, chosen: TopicFilter, *, waits: bool = True) -> list[Topic]:
        """Return the chosen topics that exist, by name."""
        names = sorted(filter(chosen.takes, self._all_names() if chosen.names is None else chosen.names))
        if not names:
            return []
        answers = self._answers(
            ("topics", *names),
            lambda admin: admin.describe_topics(self._library.TopicCollection(names), **self._within()),
            self._answer_secs if waits else 0.0,
        )
        topics = []
        for name in names:
            try:
                answer = answers[name].result()
            except self._library.KafkaException as error:
                if error.args[0].name() == _UNKNOWN:
                    continue  # the promise is: topics that exist
                raise self._unanswered(error, f"topic {name!r}") from None
            topics.append(Topic(name, _id_of(answer), len(answer.partitions)))
        return topics

    def starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first offset that is still there of each partition."""
        return all_of(self._offsets("starts", partitions, lambda spec: spec.earliest()), partitions)

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end of what is readable in each partition that has a leader."""
        return self._offsets("ends", partitions, lambda spec: spec.latest())

    def at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """Return the offset of the first record at or after a time; the end if there is none."""
        offsets = all_of(
            self._offsets(f"at {timestamp_ms}", partitions, lambda spec: spec.for_timestamp(timestamp_ms)), partitions
        )
        later = [partition for partition, offset in offsets.items() if offset < 0]
        return {**offsets, **(all_of(self.ends(later), later) if later else {})}

    def stored(self, partitions: Collection[TopicPartition], group: str) -> dict[TopicPartition, StoredOffset]:
        """Return the offsets that a consumer group has stored."""
        if not partitions:
            return {}
        with self._asking:
            reader = self._reader_of(group)
            try:
                places = reader.committed(self._connection.places(partitions), self._answer_secs)
            except self._library.KafkaException as error:
                reader.poll(0)  # runs the error callbacks, as in _answers
                self._connection.check_refusal()
                if error.args[0].name() == _TIMED_OUT:
                    raise self._silent(self._answer_secs) from None
                raise self._connection.failure(error, f"group {group!r}") from None
            self._connection.admitted()
        self._connection.check(places)
        return {
            TopicPartition(each.topic, each.partition): StoredOffset(each.offset, each.metadata or "")
            for each in places
            if each.offset >= 0
        }

    def store(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        """Store offsets for a consumer group."""
        if not offsets:
            return
        question = [self._library.ConsumerGroupTopicPartitions(group, self._connection.places(offsets))]
        key = ("store", group, *sorted(offsets.items()))
        # A caller that stores later offsets never comes back for the answer about earlier ones, so they would pile up.
        self._asked = {each: answers for each, answers in self._asked.items() if each[0] != "store" or each == key}
        answer = self._result(
            key, lambda admin: admin.alter_consumer_group_offsets(question, **self._within()), f"group {group!r}"
        )
        # A topic that was deleted meanwhile has no offset to store, and must not fail the others.
        stored = [
            partition
            for partition in answer.topic_partitions
            if partition.error is None or partition.error.name() != _UNKNOWN
        ]
        self._connection.check(stored)

    def read(self, spans: Sequence[Span], on_lost: OnLost) -> Iterator[tuple[Span, Sequence[Message]]]:
        """Yield the records of spans."""
        for group in _groups(spans):
            yield from self._read_group(group, on_lost)

    def wait(self, ends: Mapping[TopicPartition, int], secs: float) -> bool:
        """Wait for records in a request of the consumer's, which the broker answers when there are some."""
        deadline = time.monotonic() + secs
        if self._awaited != ends:
            self._assigned(ends)
            self._awaited = dict(ends)
        while (secs_left := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(secs_left)
            if message is None:
                return False
            if message.error() is not None:  # the end of a partition, or what the next question will report
                time.sleep(min(secs_left, 0.001))
            else:
                # Or it would go on to fetch what executors will read.
                self._consumer.unassign()
                self._awaited = None
                return True
        return False

    def close(self) -> None:
        """Drop the clients."""
        self._drop_consumer()
        # Without the lock: another thread may hold it while its question waits for an answer.
        self._admin = self._reader = None

    def _read_group(self, spans: Sequence[Span], on_lost: OnLost) -> Iterator[tuple[Span, Sequence[Message]]]:
        """Fetch several spans together, and yield their records span by span."""
        reading = {(span.partition.topic, span.partition.partition): _Reading(span, span.start) for span in spans}
        consumer = self._assigned({span.partition: span.start for span in spans})
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
            if is_over or not self._has_come:
                consumer.unassign()  # after a deadline, librdkafka goes on to reconnect by itself
            else:
                self._drop_consumer()  # after an error, its connections and queues are in an unknown state

    def _fetch(self, consumer: Any, reading: Mapping[tuple[str, int], _Reading], on_lost: OnLost) -> None:
        """Take what librdkafka has fetched, or wait for the first record; SourceFailure if nothing came in time."""
        open_readings = [each for each in reading.values() if not each.is_done]
        records_left = sum(each.span.end - each.next for each in open_readings)
        deadline = time.monotonic() + (self._timeout_secs if self._has_come else min(self._timeout_secs, _STUCK_SECS))
        first = consumer.poll(_POLL_SECS)
        while first is None:
            if time.monotonic() > deadline:
                self._has_come = False
                stuck = open_readings[0]
                raise self._unreachable(f"{stuck.span.partition}: offset {stuck.next} has not come")
            first = consumer.poll(_POLL_SECS)
        self._has_come = True
        # poll() waits for one message; consume() with a timeout would wait until it has all that it was asked for.
        more = consumer.consume(min(records_left, CHUNK_RECORDS), 0) if records_left > 1 else ()
        for (topic, partition, is_error), messages in _runs([first, *more]):
            if not is_error:
                reading[topic, partition].add(messages)
                continue
            for message in messages:
                self._handle_error(consumer, reading, message, on_lost)

    def _handle_error(
        self, consumer: Any, reading: Mapping[tuple[str, int], _Reading], message: Any, on_lost: OnLost
    ) -> None:
        error = message.error()
        each = reading.get((message.topic(), message.partition()))
        if each is None or error.name() not in {END_OF_PARTITION, "_AUTO_OFFSET_RESET"}:
            raise self._connection.failure_at(error, message.topic(), message.partition())
        partition = each.span.partition
        if error.name() == END_OF_PARTITION:
            # The only sign that the last offsets of a span are markers, aborted or compacted: no record follows them.
            each.next = max(each.next, message.offset())
            return
        if each.is_done:
            return  # the client had fetched beyond the span; nothing of the span is missing
        first_kept = self.starts([partition])[partition]
        if first_kept <= each.next:
            # Beyond the log's end rather than before its beginning: so far nothing is lost for good.
            raise SourceFailure(f"{partition}: offset {each.next} is not in the log now")
        on_lost(Lost(each.span, each.next, first_kept))
        each.next = min(first_kept, each.span.end)
        if not each.is_done:
            places = self._connection.places({partition: each.next})
            # After such an error librdkafka neither fetches from the partition nor seeks in it.
            consumer.incremental_unassign(places)
            consumer.incremental_assign(places)

    def _assigned(self, starts: Mapping[TopicPartition, int]) -> Any:
        if self._consumer is None:
            properties = self._connection.properties.resolved()
            self._consumer = self._connection.make(self._library.Consumer, {**_SPAN_DEFAULTS, **properties, **_FETCH})
        self._consumer.assign(self._connection.places(starts))
        self._awaited = None
        return self._consumer

    def _offsets(
        self, what: str, partitions: Collection[TopicPartition], time_of: Callable[[Any], Any]
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        spec = time_of(self._library.admin.OffsetSpec)
        question = dict.fromkeys(self._connection.places(partitions), spec)
        levels = self._library.IsolationLevel
        is_any = self._connection.properties.get("isolation.level") == "read_uncommitted"
        level = levels.READ_UNCOMMITTED if is_any else levels.READ_COMMITTED
        answers = self._answers(
            (what, *partitions), lambda admin: admin.list_offsets(question, isolation_level=level, **self._within())
        )
        offsets, last = {}, None
        for place, answer in answers.items():
            try:
                offsets[TopicPartition(place.topic, place.partition)] = answer.result().offset
            except self._library.KafkaException as error:
                last = self._unanswered(error, str(TopicPartition(place.topic, place.partition)))
                if not isinstance(last, SourceFailure):
                    raise last from None
        if not offsets and last is not None:
            raise last
        return offsets

    def _all_names(self) -> list[str]:
        with self._asking:
            within_secs = min(self._timeout_secs, max(_LISTING_SECS, self._answer_secs))
            listed = self._ask(lambda admin: admin.list_topics(timeout=within_secs))
            return list(listed.topics)

    def _reader_of(self, group: str) -> Any:
        """Return a consumer that only reads a group's offsets, and does not join the group.

        The admin client has a method for this, but its process crashes if the broker that it asks is no longer the
        group's coordinator: librdkafka then uses the client's group, which only consumers have (its issue 5040).
        """
        if self._reader is None or self._reader[0] != group:
            reserved = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
            settings = {**_RECONNECT, **self._connection.properties.resolved(), **reserved}
            self._reader = (group, self._connection.make(self._library.Consumer, settings))
        return self._reader[1]

    def _ask(self, question: Any) -> Any:
        if self._admin is None:
            # A setting for consumers only is harmless here: librdkafka warns, below the log level that is kept.
            settings = {**_RECONNECT, **self._connection.properties.resolved()}
            self._admin = self._connection.make(self._library.admin.AdminClient, settings)
        try:
            return question(self._admin)
        except self._library.KafkaException as error:
            raise self._connection.failure(error) from None

    def _answers(self, key: Any, question: Any, answer_secs: float | None = None) -> Mapping[Any, Future[Any]]:
        """Return the answers to a question, or raise UnansweredError; asking again waits for the same answers.

        How a dead broker is survived:

        1. The admin client has sent a request to a broker, which dies. librdkafka complains, and waits for it.
        2. The answers are silent for a second, and there are more complaints than at the last answer.
        3. The client is dropped with all open questions. The loop asks again, and the new client finds a live broker.
        4. It is not dropped a second time before an answer comes: a cluster may be slow rather than gone.
        """
        wait_secs = self._answer_secs if answer_secs is None else answer_secs
        deadline = time.monotonic() + wait_secs
        with self._asking:
            while True:
                answers = self._asked.pop(key, None) or self._ask(question)
                _, missing = wait(answers.values(), min(max(0.0, deadline - time.monotonic()), _SILENCE_SECS))
                if not missing:
                    break
                self._asked[key] = answers
                if self._admin is not None:
                    self._admin.poll(0)  # runs the error callbacks, which count complaints and find refusals
                self._connection.check_refusal()
                if self._connection.complaints > self._complaints_seen and not self._is_replaced:
                    self._drop_admin()
                if time.monotonic() >= deadline:
                    raise self._silent(wait_secs)
            if any(answer.exception() is None for answer in answers.values()):
                self._connection.admitted()
            self._is_replaced, self._complaints_seen = False, self._connection.complaints
        return cast("Mapping[Any, Future[Any]]", answers)

    def _result(self, key: Any, question: Any, where: str) -> Any:
        (answer,) = self._answers(key, question).values()
        try:
            return answer.result()
        except self._library.KafkaException as error:
            raise self._unanswered(error, where) from None

    def _within(self) -> dict[str, float]:
        return {"request_timeout": self._timeout_secs}

    def _silent(self, secs: float) -> UnansweredError:
        return UnansweredError(self._unreachable(f"no answer within {secs:g} s").message)

    def _unreachable(self, asked_for: str) -> SourceFailure:
        trouble = f" ({self._connection.trouble})" if self._connection.trouble else ""
        return SourceFailure(f"Kafka at {self._connection.servers} does not answer: {asked_for}{trouble}")

    def _unanswered(self, error: Exception, where: str) -> InputError | SourceFailure:
        """Return txtopo's error for an answer that is one; after a SourceFailure another client asks."""
        failure = self._connection.failure(error, where)
        if isinstance(failure, SourceFailure):
            self._drop_admin()
        return failure

    def _drop_admin(self) -> None:
        """Let a new client ask: this one may take a dead broker for the leader or controller, and wait for it."""
        with self._asking:
            self._is_replaced = True
            self._admin = None
            self._asked.clear()  # these questions went to the dropped client

    def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(Exception):  # it is thrown away; an error here would hide the one that led here
                consumer.close()


@attrs.define(eq=False)
class _Reading:
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
        """Take messages of the span's partition, in its order; librdkafka also fetches beyond the span."""
        first, end = messages[0].offset(), messages[-1].offset() + 1
        if first < self.next or end > self.span.end:
            messages = [message for message in messages if self.next <= message.offset() < self.span.end]
        self.waiting += messages
        self._bytes += _bytes_of(messages)
        self.next = max(self.next, min(end, self.span.end))

    def take_chunk(self) -> list[Message]:
        """Return the next chunk. Its size depends on the records alone: every attempt must emit the same batches."""
        count = CHUNK_RECORDS
        if self._bytes > CHUNK_BYTES:
            sums = itertools.accumulate(_bytes_of([message]) for message in self.waiting[:count])
            count = next((number for number, total in enumerate(sums, 1) if total >= CHUNK_BYTES), count)
        chunk, self.waiting = self.waiting[:count], self.waiting[count:]
        self._bytes = _bytes_of(self.waiting)
        return chunk


class _Logs(threading.local):
    def __init__(self) -> None:
        self.by_key: dict[tuple[Any, ...], BrokerLog] = {}


_logs = _Logs()


def shared_log(servers: str, properties: ClientProperties, timeout_secs: float) -> BrokerLog:
    """Return this thread's client of a cluster, which lives as long as the thread."""
    # With the process id: librdkafka's threads do not survive a fork, and a forked process inherits this dict.
    key = (os.getpid(), servers, timeout_secs, tuple(sorted((name, str(properties[name])) for name in properties)))
    if key not in _logs.by_key:
        _logs.by_key[key] = BrokerLog(BrokerConnection(servers, properties), timeout_secs)
    return _logs.by_key[key]


def _runs(messages: Sequence[Any]) -> Iterator[tuple[tuple[str, int, bool], Sequence[Any]]]:
    """Yield runs of messages, or of errors, that follow each other and are of one partition."""
    topics = [message.topic() for message in messages]
    partitions = [message.partition() for message in messages]
    are_errors = [message.error() is not None for message in messages]  # an error can't be compared with None
    # Most calls have one run, and list.count() finds that out in C; grouping each message makes reading 25 % slower.
    if all(column.count(column[0]) == len(column) for column in (topics, partitions, are_errors)):
        yield (topics[0], partitions[0], are_errors[0]), messages
        return
    kinds = zip(topics, partitions, are_errors, strict=True)
    for kind, run in itertools.groupby(zip(kinds, messages, strict=True), operator.itemgetter(0)):
        yield kind, [message for _, message in run]


def _bytes_of(messages: Sequence[Any]) -> int:
    """Return the bytes of keys and values; ``len()`` of a message is that of its value."""
    return sum(map(len, messages)) + sum(map(len, filter(None, [message.key() for message in messages])))


def _groups(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Divide spans into groups of at most :data:`GROUP_OFFSETS`, each with a partition once: it has one position."""
    waiting = deque(spans)
    while waiting:
        group = [waiting.popleft()]
        total = group[0].end - group[0].start
        while waiting and total + waiting[0].end - waiting[0].start <= GROUP_OFFSETS:
            if any(waiting[0].partition == span.partition for span in group):
                break
            group.append(waiting.popleft())
            total += group[-1].end - group[-1].start
        yield group


def _id_of(description: Any) -> str:
    # An id of zeros, which is "AAA…A==" in base64, is how Kafka says that there is none.
    text = str(description.topic_id or "")
    return NO_ID if not text.strip("A=") else text
