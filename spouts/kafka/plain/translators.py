"""How a record becomes a tuple: its values, and the stream it is emitted on."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from spouts.kafka.log import KafkaRecord
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.errors import ConfigError

PARTS = ("topic", "partition", "offset", "key", "value", "timestamp", "headers")
"""The parts of a record."""

Deserializer = Callable[[bytes], Any]
"""Makes a key or a value of bytes; it is not called for None, as in a tombstone."""


@attrs.frozen
class KafkaTuple:
    """Values with the stream they go to; a translator may return it in place of values alone."""

    values: Sequence[Any]
    stream: str


Translated = Sequence[Any] | KafkaTuple | None
"""Values for a translator's first stream, or a KafkaTuple, or None for no tuple."""


class RecordTranslator(ABC):
    """Makes tuples of records. Must pickle.

    *You* return the same for the same record, and None for a record of which no tuple is made (a *null tuple*).
    """

    @abstractmethod
    def apply(self, record: KafkaRecord) -> Translated:
        """Return the values of a record's tuple for the first stream, or a :class:`KafkaTuple` for any stream."""

    @abstractmethod
    def streams(self) -> list[str]:
        """Return the streams that tuples may go to."""

    @abstractmethod
    def fields_for(self, stream: str) -> Fields:
        """Return the fields of a stream."""


def routed(translated: Sequence[Any] | KafkaTuple, translator: RecordTranslator) -> KafkaTuple:
    """Return what a translator has returned, with its stream."""
    if isinstance(translated, KafkaTuple):
        return translated
    return KafkaTuple(translated, translator.streams()[0])


def text(data: bytes) -> str:
    """Return UTF-8 bytes as text."""
    return data.decode()


def raw(data: bytes) -> bytes:
    """Return bytes as they are."""
    return data


class _OneStream(RecordTranslator):
    @checked_arguments
    def __init__(self, fields: Fields, stream: str = DEFAULT_STREAM) -> None:
        self._fields = fields
        self._stream = stream

    def streams(self) -> list[str]:
        """Return the one stream."""
        return [self._stream]

    def fields_for(self, stream: str) -> Fields:  # noqa: ARG002 - there is one stream
        """Return the fields."""
        return self._fields


class DefaultRecordTranslator(_OneStream):
    """Emits parts of a record: the fields name them, in any order; topic, partition, offset, key and value by default.

    ``timestamp`` is a datetime or None, ``headers`` a list of pairs of name and bytes. Key and value are text unless
    they have deserializers of their own.

    Raises:
        ConfigError: a field is none of the parts.
    """

    @checked_arguments
    def __init__(
        self,
        fields: Fields | None = None,
        key_deserializer: Deserializer = text,
        value_deserializer: Deserializer = text,
    ) -> None:
        super().__init__(fields or Fields("topic", "partition", "offset", "key", "value"))
        parts: dict[str, Callable[[KafkaRecord], Any]] = {
            "topic": lambda record: record.topic,
            "partition": lambda record: record.partition,
            "offset": lambda record: record.offset,
            "key": lambda record: None if record.key is None else key_deserializer(record.key),
            "value": lambda record: None if record.value is None else value_deserializer(record.value),
            "timestamp": lambda record: record.timestamp,
            "headers": lambda record: list(record.headers),
        }
        unknown = [name for name in self._fields if name not in parts]
        if unknown:
            raise ConfigError(
                f"a record has no {unknown[0]!r}, only {', '.join(parts)}; give deserializer='json' for members of "
                "JSON values, or a function for anything else"
            )
        self._parts = [parts[name] for name in self._fields]

    def apply(self, record: KafkaRecord) -> Sequence[Any]:
        """Return the parts."""
        return [part(record) for part in self._parts]


class JsonRecordTranslator(_OneStream):
    """Emits the members of JSON objects that the fields name: None if one is missing, no tuple for a tombstone."""

    def apply(self, record: KafkaRecord) -> Translated:
        """Return the members; raise ValueError if the value is not a JSON object."""
        if record.value is None:
            return None
        value = json.loads(record.value)
        if not isinstance(value, dict):
            raise ValueError("the value is not a JSON object")  # noqa: TRY004 - of the data, not of the program
        return [value.get(name) for name in self._fields]


class SimpleRecordTranslator(_OneStream):
    """Emits what a function makes of a record: values, a KafkaTuple or None."""

    @checked_arguments
    def __init__(
        self, function: Callable[[KafkaRecord], Translated], fields: Fields, stream: str = DEFAULT_STREAM
    ) -> None:
        super().__init__(fields, stream)
        self._function = function

    def apply(self, record: KafkaRecord) -> Translated:
        """Return what the function returns."""
        return self._function(record)


class ByTopicRecordTranslator(RecordTranslator):
    """Emits what the translator of a record's topic makes of it; ``default`` is for topics without a translator."""

    @checked_arguments
    def __init__(self, default: RecordTranslator) -> None:
        self._default = default
        self._by_topic: dict[str, RecordTranslator] = {}
        self._fields: dict[str, Fields] = {}
        self._take(default)

    def for_topic(self, topic: str, translator: RecordTranslator) -> ByTopicRecordTranslator:
        """Register a topic's translator; ConfigError if it has one, or a stream would have other fields."""
        if topic in self._by_topic:
            raise ConfigError(f"topic {topic!r} has a translator already")
        self._take(translator)
        self._by_topic[topic] = translator
        return self

    def apply(self, record: KafkaRecord) -> Translated:
        """Return what the topic's translator returns."""
        translator = self._by_topic.get(record.topic, self._default)
        translated = translator.apply(record)
        return None if translated is None else routed(translated, translator)

    def streams(self) -> list[str]:
        """Return the streams of all translators."""
        return list(self._fields)

    def fields_for(self, stream: str) -> Fields:
        """Return the fields of a stream; raise ConfigError if there is no such stream."""
        if stream not in self._fields:
            raise ConfigError(f"no translator emits on stream {stream!r}; there are: {', '.join(self._fields)}")
        return self._fields[stream]

    def _take(self, translator: RecordTranslator) -> None:
        offered: Mapping[str, Fields] = {stream: translator.fields_for(stream) for stream in translator.streams()}
        for stream, fields in offered.items():
            declared = self._fields.get(stream, fields)
            if declared.names != fields.names:
                raise ConfigError(f"stream {stream!r} has the fields {declared} of another translator, not {fields}")
        self._fields.update(offered)


def translator_for(fields: Fields | None, deserializer: Any) -> RecordTranslator:
    """Return the translator for a spout's arguments.

    Without fields it emits the first five parts of a record; without a deserializer, parts if all fields are parts, and
    otherwise JSON.

    Raises:
        ConfigError: the fields do not suit the deserializer.
    """
    if deserializer is None and (fields is None or all(name in PARTS for name in fields)):
        return DefaultRecordTranslator(fields)
    if fields is None:
        raise ConfigError("a deserializer needs fields, which its values are for")
    if deserializer is None or deserializer == "json":
        return JsonRecordTranslator(fields)
    if not callable(deserializer):
        raise ConfigError(f"deserializer is {deserializer!r}; give 'json', a function of a record, or leave it out")
    return SimpleRecordTranslator(_by_names(deserializer, fields), fields)


def _by_names(function: Callable[[KafkaRecord], Any], fields: Fields) -> Callable[[KafkaRecord], Translated]:
    def values(record: KafkaRecord) -> Translated:
        translated: Translated | Mapping[str, Any] = function(record)
        return [translated.get(name) for name in fields] if isinstance(translated, Mapping) else translated

    return values
