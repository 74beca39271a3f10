"""Avro and Protobuf, by functions as the guide shows them."""

import io

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from spouts.kafka import KafkaRecord
from tests.spouts.kafka.test_records import PAGES, emitted, sent
from txtopo import FailedException

CLICK = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Click",
        "fields": [{"name": "page", "type": "string"}, {"name": "bytes", "type": "long"}],
    }
)
SCHEMA = 7


def registered(page: str, size: int, schema: int = SCHEMA) -> bytes:
    content = io.BytesIO(b"\0" + schema.to_bytes(4))
    content.seek(5)
    fastavro.schemaless_writer(content, CLICK, {"page": page, "bytes": size})
    return content.getvalue()


def registered_click(record: KafkaRecord):
    """As with a registry that has one schema, and now and then does not answer."""
    assert record.value is not None
    magic, number = record.value[0], int.from_bytes(record.value[1:5])
    if magic != 0:
        raise ValueError("it has no schema")
    if number == 0:
        raise FailedException("the registry does not answer")
    return fastavro.schemaless_reader(io.BytesIO(record.value[5:]), {SCHEMA: CLICK}[number])


def click_class():
    """Return what protoc makes of ``message Click { string page = 1; int64 bytes = 2; }``."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="clicks.proto", syntax="proto3")
    message = file.message_type.add(name="Click")
    for number, (name, kind) in enumerate((("page", kinds.TYPE_STRING), ("bytes", kinds.TYPE_INT64)), 1):
        message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Click"))


Click = click_class()


def protobuf_click(record: KafkaRecord):
    click = Click.FromString(record.value)
    if not click.page:
        raise ValueError("no page")
    return click.page, click.bytes


def test_avro_of_a_registry():
    """Values by their names; what is cut off, or has a schema that there is not, is a bad record.

    A registry that does not answer fails the transaction.
    """
    letters: list = []
    values = sent(registered("/a", 1), registered("/b", 2, schema=8), b"{}", registered("/c", 3)[:-1], None)
    assert emitted(PAGES, values, registered_click, letters) == [("/a", 1)]
    assert [letter["offset"] for letter in letters] == [1, 2, 3, 4]
    with pytest.raises(FailedException, match="does not answer"):
        emitted(PAGES, sent(registered("/a", 1, schema=0)), registered_click, letters)


def test_protobuf():
    """What is no such message, or lacks what must be there, is a bad record."""
    letters: list = []
    good = [Click(page="/a", bytes=1), Click(page="/b", bytes=-2)]
    values = sent(*(click.SerializeToString() for click in good), b"nonsense", b"")
    assert emitted(PAGES, values, protobuf_click, letters) == [("/a", 1), ("/b", -2)]
    assert [letter["offset"] for letter in letters] == [2, 3]
