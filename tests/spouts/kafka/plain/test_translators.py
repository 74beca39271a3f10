"""How records become tuples: Storm's cases."""

import datetime as dt

import pytest

from spouts.kafka.plain.translators import (
    ByTopicRecordTranslator,
    DefaultRecordTranslator,
    KafkaTuple,
    SimpleRecordTranslator,
    raw,
    translator_for,
)
from spouts.kafka.records import KafkaRecord
from txtopo.api.data.fields import Fields
from txtopo.errors import ConfigError

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def record(topic="topic", key=b"key", value=b"value"):
    return KafkaRecord(key, value, topic, 100, 1_000, AT, [("h", b"1")])


def test_default():
    """The default: topic, partition, offset, key and value, as text, on the default stream."""
    translator = DefaultRecordTranslator()
    assert translator.streams() == ["default"]
    assert translator.fields_for("default") == Fields("topic", "partition", "offset", "key", "value")
    assert translator.apply(record()) == ["topic", 100, 1_000, "key", "value"]
    assert translator.apply(record(key=None, value=None)) == ["topic", 100, 1_000, None, None]


def test_parts():
    """Fields choose parts of a record and their order; deserializers make keys and values."""
    translator = DefaultRecordTranslator(Fields("value", "timestamp", "headers", "key"), raw, len)
    assert translator.apply(record()) == [5, AT, [("h", b"1")], b"key"]
    with pytest.raises(ConfigError, match="a record has no 'word'"):
        DefaultRecordTranslator(Fields("word"))


def made(fields, deserializer=None, value=b'{"user": "ann", "n": 3, "key": "k"}'):
    return translator_for(fields and Fields(*fields), deserializer).apply(record(value=value))


def test_from_fields():
    """Fields that a record has are its parts; others are members of JSON values, or what a function makes."""
    assert made(None, value=b"v") == ["topic", 100, 1_000, "key", "v"]
    assert made(["key", "offset"]) == ["key", 1_000]
    assert made(["user", "n", "absent"]) == ["ann", 3, None]
    assert made(["key"], "json") == ["k"]
    assert made(["user"], value=None) is None
    assert made(["a", "b"], lambda each: [each.topic, 1]) == ["topic", 1]
    assert made(["a", "b"], lambda each: {"b": each.offset}) == [None, 1_000]
    assert made(["a"], lambda each: None) is None
    for bad in (b"[1]", b"{", b"\xff"):
        with pytest.raises(ValueError, match=r".+"):
            made(["user"], value=bad)


def of(field, stream):
    return SimpleRecordTranslator(lambda each: [field], Fields(field), stream)


def test_by_topic():
    """Each topic has its translator, others the default; the streams are those of all."""
    translator = ByTopicRecordTranslator(of("other", "stream-1"))
    translator.for_topic("TOPIC 1", of("one", "stream-2")).for_topic("TOPIC 2", of("two", "stream-3"))
    assert translator.streams() == ["stream-1", "stream-2", "stream-3"]
    assert [translator.fields_for(stream) for stream in translator.streams()] == [
        Fields("other"),
        Fields("one"),
        Fields("two"),
    ]
    assert translator.apply(record("TOPIC 1")) == KafkaTuple(["one"], "stream-2")
    assert translator.apply(record("TOPIC 2")) == KafkaTuple(["two"], "stream-3")
    assert translator.apply(record("TOPIC OTHER")) == KafkaTuple(["other"], "stream-1")
    with pytest.raises(ConfigError, match="no translator emits on stream 'x'"):
        translator.fields_for("x")


def test_collisions():
    """A stream has one set of fields, and a topic one translator."""
    translator = ByTopicRecordTranslator(of("other", "stream")).for_topic("one", of("other", "stream"))
    with pytest.raises(ConfigError, match="has the fields"):
        translator.for_topic("two", of("another", "stream"))
    with pytest.raises(ConfigError, match="has a translator already"):
        translator.for_topic("one", of("other", "stream"))
