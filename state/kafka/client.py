"""What a KafkaState asks of Kafka: the last mark of a state, and transactions with records and a mark.

The marks are in a topic of one partition that only this state's transactions are in: of a partition that others write,
too, an open transaction of theirs would hold back the readers. Only the last mark counts, so the topic is compacted.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from state.kafka.records import records_of
from state.marks import Mark
from txtopo.errors import ConfigError, InputError, SourceFailure, StateFailure, StopError
from txtopo.network.kafka_connection import KafkaConnection
from txtopo.text.client_properties import ClientProperties

ANSWER_SECS = 30.0
"""How long an answer of Kafka is waited for, at most, before it is tried again."""

_POLL_SECS = 0.1
"""Only starts wait, for topics that were made and for the end of the marks."""
_WINDOW = 16
"""How far from the end of the marks they are read first: a mark and the end of its transaction take two offsets."""

_ELECTING = {
    "_NOENT",
    "_TRANSPORT",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
}
"""The errors of a partition that nobody leads now, or of a client that no broker has told yet who does."""

_KEY = b"mark"


class KafkaMarks:
    """The topic with the marks of one state, and the topic of its records."""

    def __init__(self, servers: str, properties: ClientProperties, topic: str, marks_topic: str) -> None:
        self.connection = KafkaConnection(servers, properties, "the state")
        self.library = self.connection.library
        self.topic = topic
        self.marks_topic = marks_topic

    @contextlib.contextmanager
    def failing(self, problem: str) -> Iterator[None]:
        """Raise errors of Kafka as ``StateFailure``, or ``InputError`` if it refuses this client."""
        try:
            yield
        except self.library.KafkaException as error:
            raise self.failure(problem, error) from None

    def failure(self, problem: str, error: Any) -> StateFailure | InputError:
        """Return the error for what could not be done."""
        failure = self.connection.failure(error, problem)
        return StateFailure(failure.message) if isinstance(failure, SourceFailure) else failure

    def partitions(self) -> dict[str, int]:
        """Return the number of partitions of those of the two topics that are there."""
        with self.failing("topics can't be listed"):
            topics = self._admin.list_topics(timeout=ANSWER_SECS).topics
        self.connection.admitted()
        return {name: len(topics[name].partitions) for name in (self.topic, self.marks_topic) if name in topics}

    def create(self, name: str, settings: dict[str, str], partitions: int = -1) -> None:
        """Create a topic, unless another process has meanwhile."""
        new = self.library.admin.NewTopic(name, num_partitions=partitions, replication_factor=-1, config=settings)
        try:
            self._admin.create_topics([new])[name].result(ANSWER_SECS)
        except self.library.KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise self.failure(f"topic {name!r} can't be created", error) from None
        deadline = time.monotonic() + ANSWER_SECS
        while name not in self.partitions() and time.monotonic() < deadline:
            time.sleep(_POLL_SECS)

    def settings(self, topic: str) -> dict[str, str]:
        """Return the settings of a topic; none if Kafka does not tell this user."""
        resource = self.library.admin.ConfigResource(self.library.admin.ConfigResource.Type.TOPIC, topic)
        try:
            settings = self._admin.describe_configs([resource])[resource].result(ANSWER_SECS)
        except self.library.KafkaException:
            return {}
        return {name: entry.value for name, entry in settings.items() if entry.value is not None}

    def wait_until_stable(self, secs: float) -> None:
        """Wait until no transaction on the marks is open, so that what is visible will stay the last.

        Raises:
            StopError: one stays open: a hanging one, which Kafka does not end by itself.
            StateFailure: Kafka does not answer.
        """
        deadline = time.monotonic() + secs
        while (at := self._end(is_committed=True)) < (end := self._end(is_committed=False)):
            if time.monotonic() > deadline:
                raise StopError(
                    f"a transaction on topic {self.marks_topic!r} has been open for {secs:g} s, at offset {at} of "
                    f"{end}, though its producer is fenced: it hangs. 'kafka-transactions.sh --bootstrap-server "
                    f"{self.connection.servers} find-hanging' shows it, and 'abort' ends it; then start again"
                )
            time.sleep(_POLL_SECS)

    def read(self) -> Mark | None:
        """Return the last mark of a committed transaction; None if there is none."""
        end = self._end(is_committed=True)
        library = self.library
        settings = {
            "fetch.wait.max.ms": 50,  # that there are no more is told half a second later by default
            **self.connection.properties.resolved(),
            "group.id": "txtopo-marks",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        for name in ("transactional.id", "transaction.timeout.ms"):
            settings.pop(name, None)
        consumer = self.connection.make(library.Consumer, settings)
        try:
            window, start = _WINDOW, end
            while start > 0:
                start = max(0, end - window)
                consumer.assign([library.TopicPartition(self.marks_topic, 0, start)])
                mark = self._last_record(consumer, end)
                if mark is not None:
                    return Mark.of_row(json.loads(mark))
                window *= 16
            return None
        finally:
            consumer.close()

    def _last_record(self, consumer: Any, end: int) -> bytes | None:
        last, deadline = None, time.monotonic() + ANSWER_SECS
        while time.monotonic() < deadline:
            with self.failing(f"marks in topic {self.marks_topic!r} can't be read"):
                message = consumer.poll(_POLL_SECS)
            if message is None:
                continue
            if message.error() is None:
                last, deadline = message.value(), time.monotonic() + ANSWER_SECS
            # A leader that was just elected may know of less at first.
            elif message.error().code() == self.library.KafkaError._PARTITION_EOF and message.offset() >= end:  # noqa: SLF001 - it is public
                return last
        raise StateFailure(f"Kafka at {self.connection.servers}: marks in topic {self.marks_topic!r} can't be read")

    def _end(self, *, is_committed: bool) -> int:
        admin, library = self._admin, self.library
        levels = library.IsolationLevel
        level = levels.READ_COMMITTED if is_committed else levels.READ_UNCOMMITTED
        partition = library.TopicPartition(self.marks_topic, 0)
        question, deadline = {partition: library.admin.OffsetSpec.latest()}, time.monotonic() + ANSWER_SECS
        with self.failing(f"the end of topic {self.marks_topic!r} can't be read"):
            while True:
                answers = admin.list_offsets(question, isolation_level=level, request_timeout=ANSWER_SECS)
                try:
                    return int(answers[partition].result().offset)
                except library.KafkaException as error:
                    if error.args[0].name() not in _ELECTING or time.monotonic() > deadline:
                        raise
                time.sleep(_POLL_SECS)
                admin.list_topics(self.marks_topic, timeout=ANSWER_SECS)  # else it goes on with the leader that it knew

    @functools.cached_property
    def _admin(self) -> Any:
        properties = self.connection.properties.without(["transactional.id", "transaction.timeout.ms"])
        return self.connection.make(self.library.admin.AdminClient, properties.resolved())


class KafkaWriter:
    """A producer of one transactional id, from one ``init_transactions`` to the first error.

    After an error nobody knows what has become of a transaction. Another producer of the same id settles that: Kafka
    ends the former one's transactions before it lets this one begin.

    Args:
        marks: the topics.
        transactional_id: the id.
        transaction_secs: how long a transaction may take.
        batch_bytes: how large a batch of records may be.

    Raises:
        StateFailure: Kafka does not answer.
        ConfigError: librdkafka refuses a property, or the brokers so long a transaction.
    """

    def __init__(self, marks: KafkaMarks, transactional_id: str, transaction_secs: float, batch_bytes: int) -> None:
        self._marks = marks
        self._producer = marks.connection.make(
            marks.library.Producer,
            {
                "partitioner": "murmur2_random",  # as Java's producer has it
                "linger.ms": 5,
                "batch.size": batch_bytes,  # librdkafka's own may be more than the topic takes
                **marks.connection.properties.resolved(),
                "transactional.id": transactional_id,
                "transaction.timeout.ms": int(1000 * transaction_secs),
            },
        )
        try:
            self._producer.init_transactions(ANSWER_SECS)
        except marks.library.KafkaException as error:
            if error.args[0].name() == "INVALID_TRANSACTION_TIMEOUT":
                raise ConfigError(
                    f"transaction_secs is {transaction_secs:g}, and the brokers of {marks.connection.servers} do not "
                    "allow it: take less, or set their transaction.max.timeout.ms, by default 15 minutes"
                ) from None
            raise marks.failure("transactions can't be begun", error) from None

    def write(self, rows: Iterable[pa.Table], mark: Mark, secs: float) -> None:
        """Write records and a mark in one transaction; StateFailure if that is not sure: this writer is done then."""
        with self._marks.failing("a transaction can't be written"):
            self._producer.begin_transaction()
            for part in rows:
                for record in records_of(part):
                    self._produce(self._marks.topic, record)
            value = json.dumps(mark.to_row()).encode()
            self._produce(self._marks.marks_topic, {"key": _KEY, "value": value, "partition": 0})
            self._producer.commit_transaction(secs)

    def _produce(self, topic: str, record: dict[str, Any]) -> None:
        deadline = time.monotonic() + ANSWER_SECS
        while True:
            try:
                self._producer.produce(topic, **record)
            except BufferError:  # the client's queue is full
                if time.monotonic() > deadline:
                    raise StateFailure(
                        f"Kafka at {self._marks.connection.servers}: no record was taken in {ANSWER_SECS:g} s"
                    ) from None
                self._producer.poll(_POLL_SECS)
            else:
                self._producer.poll(0)
                return

    def abandon(self) -> None:
        """Drop what is not sent, and let go of the producer."""
        with contextlib.suppress(self._marks.library.KafkaException):
            self._producer.purge()
        del self._producer


def checked_library(servers: str, properties: ClientProperties) -> None:
    """Raise ConfigError if confluent-kafka is not installed, or too old for this."""
    library = KafkaConnection(servers, properties, "the state").library
    if not hasattr(library, "IsolationLevel"):
        raise ConfigError("a KafkaState needs confluent-kafka 2.6 or newer")
