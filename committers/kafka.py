"""KafkaBolt: a sink of plain topologies that writes tuples to Kafka topics, at least once.

A tuple is acked when the broker has acknowledged its record, and fails otherwise. librdkafka sends in threads of its
own; while answers are open, the bolt waits for them in a thread beside the worker's loop.
"""

from __future__ import annotations

import logging
import queue
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import attrs

from txtopo.api.arguments import checked_arguments
from txtopo.api.components.bolt import RichBolt
from txtopo.api.components.collector import OutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.data.tuples import Tuple
from txtopo.errors import ConfigError, FieldsError, InputError, SourceFailure, TxtopoError
from txtopo.network.kafka_connection import REPEAT_SECS, KafkaConnection, kafka_servers
from txtopo.text.client_properties import ClientProperties, Value
from txtopo.text.printable import escaped
from txtopo.text.repeated import Repeated

_log = logging.getLogger(__name__)

SERVE_SECS = 0.1
"""The longest wait for answers of a call beside the loop."""

CLOSE_SECS = 10.0
"""The longest wait for answers at the end of a run."""

_SHOWN_CHARACTERS = 200
"""How much of a key or a value an error shows."""

_RESERVED = {"bootstrap.servers": "it is the first argument, servers"}


@attrs.frozen
class KafkaMessage:
    """A record to write.

    Without a partition, records with equal keys go to the same one, and records without a key to any. The timestamp is
    in ms since 1970; None is now.
    """

    topic: str
    key: bytes | None = None
    value: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


Mapper = Callable[[Tuple], KafkaMessage | None]
"""Makes a record of a tuple; None to write nothing and ack the tuple."""

Serializer = Callable[[Any], bytes | None]
"""Makes bytes of a value."""


@attrs.frozen
class SenderSettings:
    """How to reach Kafka.

    A record fails that is not acknowledged within ``timeout_ms``, unless a property says otherwise. ``report`` takes
    errors that belong to no record.
    """

    servers: str
    properties: ClientProperties
    timeout_ms: int
    report: Callable[[Exception], None] = attrs.field(repr=False)


class KafkaSender(ABC):
    """All that a KafkaBolt asks of Kafka. :meth:`serve` may run in another thread than the others."""

    @abstractmethod
    def send(self, message: KafkaMessage, on_delivery: Callable[[Exception | None], None]) -> bool:
        """Begin to write a record; return False if there is no room for it now.

        :meth:`serve` or :meth:`close` calls ``on_delivery``: with None when the broker has acknowledged the record,
        otherwise with the error.

        Raises:
            SourceFailure: the client does not take the record.
            FieldsError: it is no record, for example because its key is not bytes.
        """

    @abstractmethod
    def serve(self, timeout_secs: float) -> None:
        """Call ``on_delivery`` of settled records; wait for one if there is none.

        Raises:
            InputError: Kafka refuses this client.
        """

    @abstractmethod
    def close(self, timeout_secs: float) -> None:
        """Wait for open records, at most so long, and close the connections."""


class ConfluentSender(KafkaSender):
    """A producer of confluent-kafka.

    Raises:
        ConfigError: confluent-kafka is not installed, librdkafka refuses a property, or a secret can't be found here.
    """

    def __init__(self, settings: SenderSettings) -> None:
        self._connection = KafkaConnection(settings.servers, settings.properties, "the bolt", settings.report)
        self._library = self._connection.library
        properties = settings.properties.resolved()
        # The user's acks win: an idempotent producer accepts acks=all only.
        self._configuration = {
            "enable.idempotence": "acks" not in properties and "request.required.acks" not in properties,
            "message.timeout.ms": settings.timeout_ms,
            **properties,
        }
        self._producer = self._connection.make(self._library.Producer, self._configuration)

    def send(self, message: KafkaMessage, on_delivery: Callable[[Exception | None], None]) -> bool:
        """Put a record into the client's queue."""
        optional: dict[str, Any] = {}
        if message.timestamp_ms == 0:
            raise FieldsError("it is no record: of timestamp_ms=0 Kafka's client would make now")
        if message.partition is not None:
            optional["partition"] = message.partition
        if message.timestamp_ms is not None:
            optional["timestamp"] = message.timestamp_ms
        try:
            for name, _ in message.headers:
                str(name).encode()  # a name that can't be encoded would crash the process in confluent-kafka 2.16
            self._producer.produce(
                message.topic,
                message.value,
                message.key,
                headers=list(message.headers) or None,
                on_delivery=lambda error, _: on_delivery(self._outcome(error)),
                **optional,
            )
        except BufferError:
            return False
        except (TypeError, ValueError) as error:
            kinds = f"its key has type {type(message.key).__name__} and its value {type(message.value).__name__}"
            raise FieldsError(f"it is no record ({error}); {kinds}") from None
        except self._library.KafkaException as error:
            if error.args[0].fatal():
                # An idempotent producer that has lost its sequence sends nothing any more.
                self._producer = self._connection.make(self._library.Producer, self._configuration)
            raise self._connection.failure(error) from None
        return True

    def serve(self, timeout_secs: float) -> None:
        """Poll the client."""
        self._producer.poll(timeout_secs)
        self._connection.check_refusal()

    def close(self, timeout_secs: float) -> None:
        """Flush the client."""
        left = self._producer.flush(timeout_secs)
        if left:
            _log.warning("%d records were not acknowledged within %g s; their roots were not acked", left, timeout_secs)

    def _outcome(self, error: Any) -> InputError | SourceFailure | None:
        if error is not None:
            return self._connection.failure(error)
        self._connection.admitted()
        return None


@attrs.frozen
class FieldsMapper:
    """Makes records of fields of tuples.

    ``topic_field`` has the topic if it is given, otherwise ``topic`` is the topic. A tuple without ``key_field`` gives
    a record without a key.
    """

    topic: str | None
    topic_field: str | None
    key_field: str | None
    value_field: str
    key_serializer: Serializer
    value_serializer: Serializer

    def __call__(self, tuple: Tuple) -> KafkaMessage:
        """Return the record of a tuple; FieldsError if it lacks topic or value, or one that can't be serialized."""
        topic = self.topic if self.topic_field is None else tuple[self.topic_field]
        if not isinstance(topic, str) or not topic:
            raise FieldsError(f"field {self.topic_field!r} must have a topic, not {_shown(topic)}")
        field = self.key_field
        try:
            key = None
            if field is not None and field in tuple.fields:
                key = self.key_serializer(tuple[field])
            field = self.value_field
            return KafkaMessage(topic, key, self.value_serializer(tuple[field]))
        except Exception as error:  # noqa: BLE001 - the user's code, on a value that does not fit
            cause = error.message if isinstance(error, FieldsError) else escaped(f"{type(error).__name__}: {error}")
            failed = field or self.value_field
            raise FieldsError(f"topic {topic!r}, field {failed!r} of {_shown(tuple[failed])}: {cause}") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def as_bytes(value: Any) -> bytes | None:
    """Return text as UTF-8, bytes and None as they are; raise FieldsError for anything else."""
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case _:
            raise FieldsError("it is neither text nor bytes; give key_serializer, value_serializer or mapper")


class KafkaBolt(RichBolt):
    """Writes every tuple as a record to Kafka, at least once.

    *You* give it any grouping and any number of tasks; with a fields grouping on the key, records with equal keys stay
    in order unless one fails. *txtopo* guarantees that a root is acked only after all replicas in sync have the records
    of its tuples, and that an error fails the tuple and is reported. The worker's loop never waits for Kafka. While the
    client's queue is full, tuples wait in the bolt.

    A record is written twice if its tuple is replayed. For exactly once, use a transactional topology.

    Args:
        servers: host:port of brokers, separated by commas.
        topic: the topic, unless ``topic_field`` or ``mapper`` says which.
        topic_field: the field that has the topic.
        key_field: the field that has the key; tuples without such a field have none.
        value_field: the field that has the value.
        key_serializer: makes bytes of a key; text becomes UTF-8 unless given.
        value_serializer: makes bytes of a value, likewise.
        mapper: makes the whole record, in place of the fields above; it returns None to write nothing and ack the
            tuple.
        properties: settings of librdkafka by its names; secrets as ``env:NAME`` or ``file:PATH``.
        connect: makes the sender; tests give that of a ``txtopo.testing.MemoryLog``.

    Raises:
        ConfigError: there is no topic, or more than one way to find it, or a property is wrong.
    """

    output_fields = None

    @checked_arguments
    def __init__(  # noqa: PLR0913 - three fields and how they become bytes
        self,
        servers: str | Sequence[str],
        topic: str | None = None,
        *,
        topic_field: str | None = None,
        key_field: str | None = "key",
        value_field: str = "value",
        key_serializer: Serializer = as_bytes,
        value_serializer: Serializer = as_bytes,
        mapper: Mapper | None = None,
        properties: Mapping[str, Value] | None = None,
        connect: Callable[[SenderSettings], KafkaSender] = ConfluentSender,
    ) -> None:
        if [topic is not None, topic_field is not None, mapper is not None].count(True) != 1:
            raise ConfigError("give one of topic, topic_field and mapper, so that each record has a topic")
        self._mapper: Mapper = mapper or FieldsMapper(
            topic, topic_field, key_field, value_field, key_serializer, value_serializer
        )
        self._servers = kafka_servers(servers)
        self._properties = ClientProperties(properties, _RESERVED)
        self.connect = connect

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """Make a sender."""
        self._context = context
        self._collector = collector
        timeout_ms = int(1000 * config.get("topology.message.timeout.secs", 30))
        self._sender = self.connect(SenderSettings(self._servers, self._properties, timeout_ms, self._report))
        self._errors = Repeated(REPEAT_SECS)
        self._waiting: deque[tuple[Tuple, KafkaMessage]] = deque()
        self._settled: queue.SimpleQueue[tuple[Tuple, KafkaMessage, Exception | None]] = queue.SimpleQueue()
        self._open = 0
        self._is_serving = False

    def execute(self, tuple: Tuple) -> None:
        """Begin to write the record of a tuple."""
        if tuple.source_component.startswith("__"):  # the system's tuples, such as ticks, are no data
            return
        try:
            message = self._mapper(tuple)
        except TxtopoError as error:
            self._fail(tuple, error)
            return
        except Exception as error:  # noqa: BLE001 - the user's code, on a tuple that does not fit
            cause = escaped(f"{type(error).__name__}: {error}")
            self._fail(tuple, FieldsError(f"the mapper refuses a tuple from {tuple.source_component!r}: {cause}"))
            return
        if message is None:
            self._collector.ack(tuple)
            return
        # Behind those that wait, even if there is room now: records with equal keys stay in order.
        if self._waiting or not self._send(tuple, message):
            self._waiting.append((tuple, message))
        self._serve()

    def cleanup(self) -> None:
        """Write what is left. It is too late for acks, so a source that redelivers sends these roots again."""
        deadline = time.monotonic() + CLOSE_SECS
        while self._waiting and time.monotonic() < deadline:
            if self._send(*self._waiting[0]):
                self._waiting.popleft()
            else:
                self._sender.serve(SERVE_SECS)
        self._sender.close(max(0.0, deadline - time.monotonic()))

    def _send(self, tuple: Tuple, message: KafkaMessage) -> bool:
        """Hand a record over; return False if there is no room for it."""
        settled = self._settled  # a queue, since serve() may call on_delivery in another thread
        try:
            has_room = self._sender.send(message, lambda error: settled.put((tuple, message, error)))
        except (SourceFailure, FieldsError) as error:
            self._fail(tuple, _about(message, error))
            return True
        self._open += has_room
        return has_room

    def _serve(self) -> None:
        """Wait for answers beside the worker's loop, one call at a time, while any are open."""
        if self._open and not self._is_serving:
            self._is_serving = True
            sender = self._sender
            self._context.offload(lambda: sender.serve(SERVE_SECS), self._served)

    def _served(self, future: Future[None]) -> None:
        self._is_serving = False
        error = future.exception()
        if isinstance(error, InputError):
            raise error
        if error is not None:
            self._collector.report_error(error)
        while not self._settled.empty():
            settled, message, wrong = self._settled.get_nowait()
            self._open -= 1
            if wrong is None:
                self._collector.ack(settled)
                continue
            wrong = _about(message, wrong)
            if isinstance(wrong, InputError):
                raise wrong
            self._fail(settled, wrong)
        while self._waiting and self._send(*self._waiting[0]):
            self._waiting.popleft()
        self._serve()

    def _fail(self, tuple: Tuple, error: Exception) -> None:
        self._collector.report_error(error)
        self._collector.fail(tuple)

    def _report(self, error: Exception) -> None:
        """Report an error that belongs to no record; repeats only now and then."""
        text = self._errors.shown(str(error))
        if text is not None:
            self._collector.report_error(SourceFailure(text))


def _about(message: KafkaMessage, error: Exception) -> Exception:
    """Return an error whose message names its record."""
    if isinstance(error, TxtopoError):
        key = "no key" if message.key is None else f"key {_shown(message.key)}"
        error.message = f"record for topic {message.topic!r}, {key}: {error.message}"
    return error
