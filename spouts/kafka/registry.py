"""``SchemaRegistry``: Kafka's records in Avro, Protobuf or JSON whose schemas Confluent's registry has, in and out.

The client is Confluent's own, from the extra ``registry``. A schema never changes once it has its id, so what a record
means is the same at each attempt.
"""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

from spouts.kafka.log import KafkaRecord
from txtopo.api.arguments import checked_arguments
from txtopo.errors import ConfigError, FailedException, InputError, SourceFailure
from txtopo.text.client_properties import ClientProperties, Value
from txtopo.text.extras import how_to_install

__all__ = ["SchemaRegistry"]

Format = Literal["avro", "json", "protobuf"]

_UNANSWERED = "the schema registry does not answer"
_NOT_FOUND = 404
_CONFLICT = 409
_INVALID = 422


@attrs.frozen(init=False)
class SchemaRegistry:
    """A schema registry, and functions that read and write records with its schemas.

    ``TransactionalKafkaSpout(…, fields, deserializer=registry.deserializer("avro"))`` emits the members of the record's
    value that ``fields`` name; one that the writer's schema does not have is null, so fields may come and go as the
    registry's compatibility allows. A null value, a tombstone, becomes no tuple. A value without the registry's frame,
    with an id that the registry does not know, or that does not fit its schema is a bad record. If the registry does
    not answer, the transaction is tried again.

    ``registry.serializer("avro", "orders", schema)`` makes the bytes of a value, in a bolt whose rows a ``KafkaState``
    writes.

    Args:
        url: the registry's URL.
        properties: more settings of Confluent's client, for example ``{"basic.auth.user.info": "env:REGISTRY_LOGIN"}``;
            secrets as ``env:NAME`` or ``file:PATH``.

    Raises:
        ConfigError: a property is refused, or the client is missing.
    """

    _properties: ClientProperties

    @checked_arguments
    def __init__(self, url: str, properties: Mapping[str, Value] | None = None) -> None:
        _library()
        given = ClientProperties(properties, {"url": "it is an argument of its own"})
        self.__attrs_init__(ClientProperties({**dict(given.items()), "url": url}))

    @checked_arguments
    def deserializer(
        self, format: Format, *, message: type | None = None, of: Literal["value", "key"] = "value"
    ) -> Callable[[KafkaRecord], Mapping[str, Any] | None]:
        """Return a ``deserializer`` for the Kafka spouts.

        Args:
            format: how records are written.
            message: the generated class of the messages, for Protobuf.
            of: the part of a record that has the values.

        Raises:
            ConfigError: there is a message and no Protobuf, or the other way round.
        """
        if (format == "protobuf") != (message is not None):
            raise ConfigError("message is the generated class of Protobuf's messages, needed there and nowhere else")
        return _Deserializer(self, format, message, of)

    @checked_arguments
    def serializer(
        self,
        format: Format,
        topic: str,
        schema: str | type,
        *,
        registers: bool = True,
        of: Literal["value", "key"] = "value",
    ) -> Callable[[Any], bytes]:
        """Return a function that makes the bytes of a value: of a dict, or of a message of Protobuf.

        It raises InputError for a value that does not fit the schema and for a schema that the registry refuses, and
        FailedException if the registry does not answer.

        Args:
            format: how records are written.
            topic: the topic, whose name is the subject's, with ``-value`` or ``-key``.
            schema: the schema, in Avro or JSON Schema; for Protobuf the generated class of the messages.
            registers: whether to register the schema if the registry does not have it; otherwise that is an error.
            of: the part of a record that the values are.

        Raises:
            ConfigError: the schema is of the wrong kind for the format.
        """
        if (format == "protobuf") != isinstance(schema, type):
            raise ConfigError("schema is a text in Avro or JSON Schema, or the generated class of Protobuf's messages")
        return _Serializer(self, format, topic, schema, registers, of)

    def client(self) -> Any:
        """Return a client of this process."""
        return _library().SchemaRegistryClient(self._properties.resolved())

    def discreet(self, error: BaseException) -> str:
        """Return an error without secrets."""
        return self._properties.scrubbed(f"{type(error).__name__}: {error}")


class _OfProcess:
    """Makes what can't be pickled once for each thread: Confluent's client is not said to be safe for several."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._local = threading.local()

    def __call__(self) -> Any:
        """Return it."""
        if not hasattr(self._local, "made"):
            self._local.made = self._make()
        return self._local.made

    def __reduce__(self) -> tuple[Any, ...]:
        return _OfProcess, (self._make,)


@attrs.frozen
class _Deserializer:
    """A deserializer for the Kafka spouts; pickles."""

    registry: SchemaRegistry
    format: Format
    message: type | None
    of: str
    _made: _OfProcess = attrs.field(init=False, eq=False, repr=False)

    @_made.default
    def _default_made(self) -> _OfProcess:
        return _OfProcess(self._make)

    def __call__(self, record: KafkaRecord) -> Mapping[str, Any] | None:
        """Return the values of a record by name; None if it has none."""
        data = getattr(record, self.of)
        if data is None:
            return None
        try:
            found = self._made()(data, _context(record.topic, self.of))
        except Exception as error:
            if _is_unanswered(error):
                raise SourceFailure(
                    "the schema registry does not answer", cause=self.registry.discreet(error)
                ) from None
            if getattr(error, "http_status_code", None) == _NOT_FOUND:
                raise ValueError("its schema is not in the registry") from None
            raise
        if self.message is not None:
            return _of_message(found)
        if not isinstance(found, dict):
            raise ValueError(f"it is {type(found).__name__}, and has no members by name")  # noqa: TRY004 - of the record
        return {name: str(value) if isinstance(value, uuid.UUID) else value for name, value in found.items()}

    def _make(self) -> Any:
        client = self.registry.client()
        if self.format == "avro":
            from confluent_kafka.schema_registry.avro import AvroDeserializer  # noqa: PLC0415 - an extra

            return AvroDeserializer(client)
        if self.format == "json":
            from confluent_kafka.schema_registry.json_schema import JSONDeserializer  # noqa: PLC0415 - an extra

            return JSONDeserializer(None, schema_registry_client=client)
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer  # noqa: PLC0415 - an extra

        return ProtobufDeserializer(self.message, {"use.deprecated.format": False}, client)


@attrs.frozen
class _Serializer:
    """Makes the bytes of values; pickles."""

    registry: SchemaRegistry
    format: Format
    topic: str
    schema: str | type
    registers: bool
    of: str
    _made: _OfProcess = attrs.field(init=False, eq=False, repr=False)

    @_made.default
    def _default_made(self) -> _OfProcess:
        return _OfProcess(self._make)

    def __call__(self, value: Any) -> bytes:
        """Return the bytes of a value."""
        try:
            made: bytes = self._made()(value, _context(self.topic, self.of))
        except Exception as error:  # noqa: BLE001 - each format's library raises its own
            text = self.registry.discreet(error)
            if _is_unanswered(error):
                raise FailedException(_UNANSWERED, cause=text) from None
            raise InputError(f"a value can't be written to topic {self.topic!r} by its schema", cause=text) from None
        return made

    def _make(self) -> Any:
        client, options = self.registry.client(), {"auto.register.schemas": self.registers}
        if self.format == "avro":
            from confluent_kafka.schema_registry.avro import AvroSerializer  # noqa: PLC0415 - an extra

            return AvroSerializer(client, self.schema, conf=options)
        if self.format == "json":
            from confluent_kafka.schema_registry.json_schema import JSONSerializer  # noqa: PLC0415 - an extra

            return JSONSerializer(self.schema, client, conf=options)
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer  # noqa: PLC0415 - an extra

        return ProtobufSerializer(self.schema, client, {**options, "use.deprecated.format": False})


def _library() -> Any:
    try:
        from confluent_kafka import schema_registry  # noqa: PLC0415 - an extra of the installation
    except ImportError:
        raise ConfigError(f"a SchemaRegistry needs Confluent's client: {how_to_install('registry')}") from None
    return schema_registry


def _context(topic: str | None, of: str) -> Any:
    from confluent_kafka.serialization import SerializationContext  # noqa: PLC0415 - an extra of the installation

    return SerializationContext(topic, of)


def _is_unanswered(error: BaseException) -> bool:
    """Return whether an error says nothing of the record: the registry, or the way to it, failed."""
    status = getattr(error, "http_status_code", None)
    if status is not None:
        return status not in {_NOT_FOUND, _CONFLICT, _INVALID}
    return type(error).__module__.partition(".")[0] in {"httpx", "httpx2", "httpcore"} or isinstance(error, OSError)


def _of_message(message: Any) -> dict[str, Any]:
    """Return the members of a message of Protobuf by name; one that can be told to be unset is null."""
    return {
        field.name: _of_field(message, field) if not field.has_presence or message.HasField(field.name) else None
        for field in message.DESCRIPTOR.fields
    }


def _of_field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of = field.message_type.fields_by_name["value"]
        return {key: _of_value(each, of) for key, each in value.items()}
    if field.is_repeated:
        return [_of_value(each, field) for each in value]
    return _of_value(value, field)


def _of_value(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return value.ToDatetime(dt.UTC)
    return _of_message(value)
