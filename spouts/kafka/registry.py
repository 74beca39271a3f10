"""``SchemaRegistry``: Kafka's records in Avro, Protobuf or JSON whose schemas Confluent's registry has, in and out.

The client is Confluent's own, from the extra ``registry``. A schema never changes once it has its id, so what a record
means is the same at each attempt.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

from spouts.kafka.log import KafkaRecord
from txtopo.api.arguments import checked_arguments
from txtopo.errors import ConfigError, InputError, SourceFailure, TxtopoError
from txtopo.text.client_properties import ClientProperties, Value
from txtopo.text.extras import how_to_install
from txtopo.text.secrecy import without_secrets

Format = Literal["avro", "json", "protobuf"]

_NOT_FOUND = 404
_NOT_FOUND_CODES = range(40400, 40500)
_CONFLICT = 409
_INVALID = 422

_ID_MAX = 2**31 - 1

_BY_ID = ("get_schema", "get_schema_by_guid")

_UNKNOWN_MAX = 1000
"""How many of them a thread remembers."""

_DEFAULTS = {"timeout": 5, "max.retries": 2}
"""Of the client, which else waits without an end. Three tries and their pauses end before a transaction times out."""


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

    unknown_secs = 10
    """How long a schema that the registry does not know is not asked for again, by a thread, unless a record was made
    after it was asked for: whoever makes one registers its schema before."""

    _properties: ClientProperties

    @checked_arguments
    def __init__(self, url: str, properties: Mapping[str, Value] | None = None) -> None:
        _library()
        if "@" in url:
            raise ConfigError('url has a login, which would be shown; give {"basic.auth.user.info": "env:NAME"} for it')
        client_properties = ClientProperties(properties, {"url": "it is an argument of its own"})
        self.__attrs_init__(ClientProperties({**_DEFAULTS, **dict(client_properties.items()), "url": url}))

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
        self, format: Format, topic: str, schema: Any, *, registers: bool = True, of: Literal["value", "key"] = "value"
    ) -> Callable[[Any], bytes]:
        """Return a function that makes the bytes of a value: of a dict, or of a message of Protobuf.

        It raises InputError for a value that does not fit the schema and for a schema that the registry refuses, and
        SourceFailure if the registry does not answer. An InputError ends the run, unless the bolt catches it.

        Args:
            format: how records are written.
            topic: the topic, whose name is the subject's, with ``-value`` or ``-key``.
            schema: the schema, a text in Avro or JSON Schema, or the client's ``Schema`` with its references to
                others; for Protobuf the generated class of the messages.
            registers: whether to register the schema if the registry does not have it; otherwise that is an error.
            of: the part of a record that the values are.

        Raises:
            ConfigError: the schema is of the wrong kind for the format.
        """
        is_text = isinstance(schema, str) or hasattr(schema, "schema_str")
        if not (isinstance(schema, type) if format == "protobuf" else is_text):
            raise ConfigError("schema is a text in Avro or JSON Schema, or the generated class of Protobuf's messages")
        write = _OfThread(functools.partial(_writer, self, format, schema, registers))
        return _Serializer(self, topic, of, write)

    def client(self) -> Any:
        """Return a client of this process; raise ConfigError if a secret is missing, or a property refused."""
        try:
            return _library().SchemaRegistryClient(self._properties.resolved())
        except (ValueError, TypeError, OSError) as error:
            text = self.discreet(error)
            raise ConfigError("the schema registry's client refuses its properties", cause=text) from None

    def discreet(self, error: BaseException) -> str:
        """Return an error without secrets."""
        return without_secrets(self._properties.scrubbed(f"{type(error).__name__}: {error}"))

    def failure(self, error: BaseException) -> SourceFailure:
        """Return the error for an answer that has not come."""
        text = "the schema registry does not answer; see to it that it runs, and that url and login are right"
        return SourceFailure(text, cause=self.discreet(error))


class _Answered:
    """Confluent's client, whose errors are the registry's own word; whatever keeps that from coming is a SourceFailure.

    An answer that is cut off, a page of a proxy, a login that can't be renewed: the client raises something of its own
    for each, or returns nothing, which the formats' code would pass on as if it were about the record.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._client = registry.client()
        self.made: dt.datetime | None = None
        """When the record was made whose schema is asked for, as far as it is known."""
        self._unknown: dict[Any, tuple[float, dt.datetime, Exception]] = {}
        """When the registry has said that it does not know a schema, and its word, by what was asked."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def ask(*arguments: Any, **named: Any) -> Any:
            key = (name, *arguments) if name in _BY_ID else None
            if key in self._unknown:
                asked_secs, tries, error_known = self._unknown[key]
                is_later = self.made is not None and self.made > tries
                if time.monotonic() < asked_secs + self._registry.unknown_secs and not is_later:
                    raise error_known.with_traceback(None)
            tries = dt.datetime.now(dt.UTC)
            try:
                answer = method(*arguments, **named)
            except Exception as error:
                if _is_answer(error, name):
                    if key is not None and getattr(error, "http_status_code", None) == _NOT_FOUND:
                        if len(self._unknown) >= _UNKNOWN_MAX:
                            del self._unknown[next(iter(self._unknown))]
                        self._unknown[key] = time.monotonic(), tries, error
                    raise
                raise self._registry.failure(error) from None
            if getattr(answer, "schema_id", getattr(answer, "schema_str", "")) is None:
                self._client = self._registry.client()  # this one keeps what it was told
                raise self._registry.failure(ValueError("an answer without a schema or its id"))
            return answer

        return ask


def _is_answer(error: Exception, method: str) -> bool:
    """Return whether the registry has answered: there is no such thing, or it takes no such schema."""
    status, code = getattr(error, "http_status_code", None), getattr(error, "error_code", None)
    if status == _NOT_FOUND:
        # The registry has codes of its own for it; another one is of whatever is at this URL. But former registries
        # know no GUIDs, nor a way to ask for one, and a record without a frame may look as if it had one.
        return code in _NOT_FOUND_CODES or (method == "get_schema_by_guid" and code == _NOT_FOUND)
    return status in {_CONFLICT, _INVALID}


def _is_of_network(error: BaseException) -> bool:
    """Return whether an error comes of the network: a JSON Schema may refer to one that is anywhere in the web."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) or type(cause).__module__.partition(".")[0] in {"httpx", "httpx2"}:
            return True
        cause = cause.__cause__ or cause.__context__
    return False


_KEPT_MAX = 32
"""How many serializers a thread keeps: more than a topology has, and no leak for one that makes them on the fly."""

_kept = threading.local()


class _OfThread:
    """What a function makes, made once in each thread, whatever copies there are of this; pickles.

    Each attempt has its own copy of a bolt. Making a serializer anew takes 22 ms for the client's TLS, and asks for
    each schema again, so that it would need a registry that answers all the time. Confluent's client is not said to be
    safe for several threads.
    """

    def __init__(self, make: functools.partial[Any]) -> None:
        self._make = make
        self._local = threading.local()

    def __call__(self) -> Any:
        if not hasattr(self._local, "made"):
            clients: dict[Any, Any] = _kept.__dict__.setdefault("made", {})
            key = self._make.func, self._make.args
            if key not in clients:
                if len(clients) >= _KEPT_MAX:
                    del clients[next(iter(clients))]
                clients[key] = self._make()
            self._local.made = clients[key]
        return self._local.made

    def __reduce__(self) -> tuple[Any, ...]:
        return _OfThread, (self._make,)


@attrs.frozen
class _Deserializer:
    """A deserializer for the Kafka spouts; pickles."""

    registry: SchemaRegistry
    format: Format
    message: type | None
    of: str
    _read: _OfThread = attrs.field(init=False, eq=False, repr=False)

    @_read.default
    def _default_read(self) -> _OfThread:
        return _OfThread(functools.partial(_reader, self.registry, self.format, self.message))

    def __call__(self, record: KafkaRecord) -> Mapping[str, Any] | None:
        data = getattr(record, self.of)
        if data is None:
            return None
        if data[:1] == b"\0" and int.from_bytes(data[1:5]) > _ID_MAX:
            raise ValueError("its schema is not in the registry")  # which takes so large an id for a wrong address
        try:
            client, read = self._read()
            client.made = record.timestamp
            value_read = read(data, _context(record.topic, self.of))
        except Exception as error:
            if getattr(error, "http_status_code", None) == _NOT_FOUND:
                raise ValueError(f"its schema is not in the registry: {error}") from None
            if _is_of_network(error):
                raise self.registry.failure(error) from None
            raise
        if self.message is not None:
            return _of_message(value_read)
        if not isinstance(value_read, dict):
            raise ValueError(f"it is {type(value_read).__name__}, and has no members by name")  # noqa: TRY004 - of the record
        return {name: _plain(value) for name, value in value_read.items()}


@attrs.frozen
class _Serializer:
    """Makes the bytes of values; pickles."""

    registry: SchemaRegistry
    topic: str
    of: str
    _write: _OfThread = attrs.field(eq=False, repr=False)

    def __call__(self, value: Any) -> bytes:
        try:
            encoded: bytes = self._write()(value, _context(self.topic, self.of))
        except TxtopoError:
            raise
        except Exception as error:  # noqa: BLE001 - each format's library raises its own
            if _is_of_network(error):
                raise self.registry.failure(error) from None
            text = self.registry.discreet(error)
            raise InputError(f"a value can't be written to topic {self.topic!r} by its schema", cause=text) from None
        return encoded


def _reader(registry: SchemaRegistry, format: Format, message: type | None) -> tuple[_Answered, Any]:
    client, options = _Answered(registry), {"subject.name.strategy": _subject}
    match format:
        case "avro":
            return client, _library("avro").AvroDeserializer(client, conf=options)
        case "json":
            return client, _library("json_schema").JSONDeserializer(None, schema_registry_client=client, conf=options)
        case "protobuf":
            conf = {**options, "use.deprecated.format": False}
            return client, _library("protobuf").ProtobufDeserializer(message, conf, client)


def _writer(registry: SchemaRegistry, format: Format, schema: Any, registers: bool) -> Any:  # noqa: FBT001 - inner
    client, options = _Answered(registry), {"auto.register.schemas": registers, "subject.name.strategy": _subject}
    match format:
        case "avro":
            return _library("avro").AvroSerializer(client, schema, conf=options)
        case "json":
            return _library("json_schema").JSONSerializer(schema, client, conf=options)
        case "protobuf":
            conf = {**options, "use.deprecated.format": False}
            return _library("protobuf").ProtobufSerializer(schema, client, conf=conf)


def _subject(context: Any, record_name: str | None) -> str:
    """Return the subject of a topic's schemas; the library's own way also asks the registry for another."""
    del record_name
    return f"{context.topic}-{context.field}"


def _plain(value: Any) -> Any:
    """Return a value of Avro as fields take it: a UUID as text, wherever it is."""
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _library(part: str | None = None) -> Any:
    """Return Confluent's package, or a part of it with what that needs."""
    try:
        return importlib.import_module("confluent_kafka.schema_registry" + (f".{part}" if part else ""))
    except ImportError:
        raise ConfigError(f"a SchemaRegistry needs Confluent's client: {how_to_install('registry')}") from None


def _context(topic: str | None, part: str) -> Any:
    from confluent_kafka.serialization import SerializationContext  # noqa: PLC0415 - an extra of the installation

    return SerializationContext(topic, part)


def _of_message(message: Any) -> dict[str, Any]:
    """Return the members of a message of Protobuf by name; one that can be told to be unset is null."""
    return {
        field.name: _of_field(message, field) if not field.has_presence or message.HasField(field.name) else None
        for field in message.DESCRIPTOR.fields
    }


def _of_field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value_field = field.message_type.fields_by_name["value"]
        return {key: _of_value(each, value_field) for key, each in value.items()}
    if field.is_repeated:
        return [_of_value(each, field) for each in value]
    return _of_value(value, field)


def _of_value(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        value_name = field.enum_type.values_by_number.get(value)
        return str(value) if value_name is None else value_name.name
    if field.message_type is None:
        return value
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return value.ToDatetime(dt.UTC)
    return _of_message(value)
