"""Avro and Protobuf, by functions as the guide shows them."""

from __future__ import annotations

import io

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from spouts.kafka import KafkaRecord, OpaqueKafkaSpout, TransactionalKafkaSpout
from state import DeltaState, StateKind, read_table
from tests.spouts.kafka.run_clicks import FIELDS, counting_clicks
from tests.spouts.kafka.test_records import PAGES, emitted, sent
from txtopo import FailedException, Fields
from txtopo.testing.inline import run_inline

CLICK = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Click",
        "fields": [{"name": "page", "type": "string"}, {"name": "bytes", "type": "long"}],
    }
)
SCHEMA = 7


def avro(page: str, size: int) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, CLICK, {"page": page, "bytes": size})
    return content.getvalue()


def avro_click(record: KafkaRecord):
    return fastavro.schemaless_reader(io.BytesIO(record.value), CLICK)


def registered(page: str, size: int, schema: int = SCHEMA) -> bytes:
    return b"\0" + schema.to_bytes(4) + avro(page, size)


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


def test_avro():
    """Values by their names; what is cut off is a bad record."""
    letters: list = []
    values = sent(avro("/a", 1), avro("/b", 2)[:-1], None, avro("/c", -3))
    assert emitted(PAGES, values, avro_click, letters) == [("/a", 1), ("/c", -3)]
    assert [letter["offset"] for letter in letters] == [1, 2]


def test_avro_of_a_registry():
    """A schema that there is not is a bad record's; a registry that does not answer fails the transaction."""
    letters: list = []
    values = sent(registered("/a", 1), registered("/b", 2, schema=8), b"{}")
    assert emitted(PAGES, values, registered_click, letters) == [("/a", 1)]
    assert [letter["offset"] for letter in letters] == [1, 2]
    with pytest.raises(FailedException, match="does not answer"):
        emitted(PAGES, sent(registered("/a", 1, schema=0)), registered_click, letters)


def test_protobuf():
    """What is no such message, or lacks what must be there, is a bad record."""
    letters: list = []
    good = [Click(page="/a", bytes=1), Click(page="/b", bytes=-2)]
    values = sent(*(click.SerializeToString() for click in good), b"nonsense", b"")
    assert emitted(PAGES, values, protobuf_click, letters) == [("/a", 1), ("/b", -2)]
    assert [letter["offset"] for letter in letters] == [2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [TransactionalKafkaSpout, OpaqueKafkaSpout])
def test_avro_in_a_run(kafka, tmp_path, kind):
    """From a broker into a table, and bad records into another."""
    topic = f"avro-{kind.__name__}"
    kafka.create_topic(topic, 2)
    for partition in (0, 1):
        kafka.produce(topic, [*(avro(f"/{each % 3}", each) for each in range(30)), b"\xff"], partition)
    spout = kind(
        kafka.servers,
        topic,
        FIELDS,
        deserializer=avro_click,
        batch_records_max=7,
        until_end=True,
        dead_letter=tmp_path / "bad",
    )
    state_kind = StateKind.OPAQUE if kind is OpaqueKafkaSpout else StateKind.TRANSACTIONAL
    pages = DeltaState(tmp_path / "pages", Fields("page: string"), Fields("clicks: long", "bytes: long"), state_kind)
    run_inline(counting_clicks(spout, pages))
    rows = {row["page"]: (row["clicks"], row["bytes"]) for row in read_table(tmp_path / "pages").to_pylist()}
    assert rows == {f"/{page}": (20, 2 * sum(range(page, 30, 3))) for page in range(3)}
    assert read_table(tmp_path / "bad").column("value").to_pylist() == [b"\xff"] * 2
