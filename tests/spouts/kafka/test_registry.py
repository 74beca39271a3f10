"""Records whose schemas a registry has: read as their fields say, or bad records; and written by a schema."""

import datetime as dt
import json
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import schema_registry
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from committers import AppendCommitter
from spouts.kafka import Debezium, KafkaRecord, SchemaRegistry
from spouts.kafka.log import TopicPartition
from state import DeltaRows, read_table
from tests.spouts.kafka.in_memory import OpaqueInMemory, TransactionalInMemory
from tests.spouts.kafka.schema_server import SchemaServer
from txtopo import BasicBolt, Config, Fields, TransactionalTopology, TransactionalTopologyBuilder
from txtopo.errors import ConfigError, FailedException, InputError, PoisonTransaction, SourceFailure
from txtopo.testing import MemoryLog, run_inline

ORDER = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def served() -> Iterator[SchemaServer]:
    served = SchemaServer()
    yield served
    served.close()


@pytest.fixture
def registry(served: SchemaServer) -> SchemaRegistry:
    return SchemaRegistry(served.url, {"max.retries": 0, "timeout": 2})


def record(value: bytes | None, key: bytes | None = None) -> KafkaRecord:
    made = {field.name: None for field in attrs.fields(KafkaRecord)}
    return KafkaRecord(**made | {"value": value, "key": key, "topic": "orders"})


def shipped(function: Any) -> Any:
    """A function as executors get it."""
    return pickle.loads(pickle.dumps(function))


@pytest.mark.slow
def test_avro(registry: SchemaRegistry) -> None:
    """What is written by a schema is read as it was, with its types; a tombstone is no tuple."""
    row = {"id": 1, "at": AT, "price": Decimal("1.50")}
    value = shipped(registry.serializer("avro", "orders", json.dumps(ORDER)))(row)
    read = shipped(registry.deserializer("avro"))
    assert read(record(value)) == row
    assert read(record(None)) is None


@pytest.mark.slow
def test_a_schema_that_has_changed(registry: SchemaRegistry) -> None:
    """Each record is read by the schema that it was written with."""
    newer = {**ORDER, "fields": [*ORDER["fields"][:1], {"name": "item", "type": ["null", "string"], "default": None}]}
    read = registry.deserializer("avro")
    rows: list[dict[str, Any]] = [{"id": 1, "at": AT, "price": Decimal("1.50")}, {"id": 2, "item": "tea"}]
    for schema, row in zip((ORDER, newer), rows, strict=True):
        assert read(record(registry.serializer("avro", "orders", json.dumps(schema))(row))) == row


@pytest.mark.slow
def test_json(registry: SchemaRegistry) -> None:
    """JSON is read, and written if it fits the schema."""
    schema = {"title": "order", "type": "object", "properties": {"id": {"type": "integer"}}}
    write = registry.serializer("json", "orders", json.dumps(schema))
    assert registry.deserializer("json")(record(write({"id": 5}))) == {"id": 5}
    with pytest.raises(InputError, match="a value can't be written to topic 'orders' by its schema") as caught:
        write({"id": "five"})
    assert "'five' is not of type 'integer'" in str(caught.value)


def test_protobuf(registry: SchemaRegistry) -> None:
    """Members that can be unset are null then; messages inside, lists, maps and enums come as their values."""
    order = order_message()
    read, write = registry.deserializer("protobuf", message=order), registry.serializer("protobuf", "orders", order)
    line = message_factory.GetMessageClass(order.DESCRIPTOR.nested_types_by_name["Line"])
    value = write(order(id=1, lines=[line(item="tea")], how=1))
    assert read(record(value)) == {"id": 1, "note": None, "lines": [{"item": "tea"}], "first": None, "how": "CASH"}
    value = write(order(note="", first=line(item="salt")))
    assert read(record(value)) == {"id": 0, "note": "", "lines": [], "first": {"item": "salt"}, "how": "UNKNOWN"}


def order_message() -> Any:
    """The class that protoc makes of a message."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    enum = file.enum_type.add(name="How")
    for number, name in enumerate(("UNKNOWN", "CASH")):
        enum.value.add(name=name, number=number)
    message = file.message_type.add(name="Order")
    message.nested_type.add(name="Line").field.add(name="item", number=1, type=9, label=1)
    message.field.add(name="id", number=1, type=3, label=1)
    message.oneof_decl.add(name="_note")
    message.field.add(name="note", number=2, type=9, label=1, oneof_index=0, proto3_optional=True)
    message.field.add(name="lines", number=3, type=11, label=3, type_name=".shop.Order.Line")
    message.field.add(name="first", number=4, type=11, label=1, type_name=".shop.Order.Line")
    message.field.add(name="how", number=5, type=14, label=1, type_name=".shop.How")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "framing"),
        (b'{"id": 1}', "magic byte"),
        (b"\x00\x00\x00\x00\x09abcdef", "its schema is not in the registry"),
        (b"\x00\xff\xff\xff\xffabcdef", "its schema is not in the registry"),
        (b"\x01" + 16 * b"\x01" + b"abcdef", None),
        (b"\x00\x00\x00\x00\x01\x02", None),
    ],
)  # fmt: skip
def test_bad_records(registry: SchemaRegistry, value: bytes, why: str | None) -> None:
    """A value without the frame, with an id that nobody knows, or that ends too early is a bad record: no retry."""
    registry.serializer("avro", "orders", json.dumps(ORDER))({"id": 1, "at": AT, "price": Decimal(1)})
    with pytest.raises(Exception, match=why) as caught:
        registry.deserializer("avro")(record(value))
    assert not isinstance(caught.value, FailedException)


class Curious(SchemaRegistry):
    """Asks each time."""

    unknown_secs = 0


def test_a_schema_that_is_unknown_for_long(registry: SchemaRegistry, served: SchemaServer) -> None:
    """Many records with few unknown ids, or one, ask for each once in some seconds; then the registry may know it."""
    read, row = registry.deserializer("avro"), {"id": 1, "at": AT, "price": Decimal("1.50")}
    value = registry.serializer("avro", "orders", json.dumps(ORDER))(row)
    served.asked.clear()
    for number in (7, 8, 7, 8, 7):
        with pytest.raises(ValueError, match="its schema is not in the registry"):
            read(record(b"\0" + number.to_bytes(4) + value[5:]))
    assert len(served.asked) == 2
    read_later = Curious(served.url).deserializer("avro")
    with pytest.raises(ValueError, match="its schema is not in the registry"):
        read_later(record(b"\0" + int.to_bytes(7, 4) + value[5:]))
    for number in range(6):
        served.register(f"other{number}", json.dumps({**ORDER, "name": f"other{number}"}))
    with pytest.raises(ValueError, match="its schema is not in the registry"):
        read(record(b"\0" + int.to_bytes(7, 4) + value[5:]))
    assert read_later(record(b"\0" + int.to_bytes(7, 4) + value[5:])) == row


def test_a_schema_that_was_unknown_before(registry: SchemaRegistry, served: SchemaServer) -> None:
    """A record that was made after its id was unknown is read by the schema that was registered since, at once."""
    read, row = registry.deserializer("avro"), {"id": 1, "at": AT, "price": Decimal("1.50")}
    value = registry.serializer("avro", "orders", json.dumps(ORDER))(row)
    later = attrs.evolve(record(b"\0" + int.to_bytes(2, 4) + value[5:]), timestamp=dt.datetime.now(dt.UTC))
    with pytest.raises(ValueError, match="its schema is not in the registry"):
        read(later)
    served.asked.clear()
    for _ in range(3):
        with pytest.raises(ValueError, match="its schema is not in the registry"):
            read(later)
    assert not served.asked
    served.register("other", json.dumps({**ORDER, "name": "other"}))
    assert read(attrs.evolve(later, timestamp=dt.datetime.now(dt.UTC))) == row


def closed(served: SchemaServer) -> Callable[[Any], None] | None:
    served.close()
    return served.fails


OUTAGES: dict[str, Any] = {
    "away": closed,
    "failing": lambda _: lambda to: to.send(503, {"error_code": 50301, "message": "no leader"}),
    "too many": lambda _: lambda to: to.send(429, "slow down", "text/plain"),
    "forbidden": lambda _: lambda to: to.send(401, {"error_code": 40101, "message": "Unauthorized"}),
    "cut off": lambda _: lambda to: to.send(200, '{"schema": "{', length=100),
    "cut off in JSON": lambda _: lambda to: to.send(200, '{"schema": "{'),
    "empty": lambda _: lambda to: to.send(200, ""),
    "a page": lambda _: lambda to: to.send(200, "<html>Log in</html>", "text/html"),
    "something else": lambda _: lambda to: to.send(200, {"status": "up"}),
    "a list": lambda _: lambda to: to.send(200, []),
    "a proxy without a way": lambda _: lambda to: to.send(404, "<html>no such host</html>", "text/html"),
    "another server": lambda _: lambda to: to.send(404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
    "hung up": lambda _: lambda to: None,
}


@pytest.mark.parametrize("how", OUTAGES)
def test_a_registry_that_does_not_answer(served: SchemaServer, registry: SchemaRegistry, how: str) -> None:
    """It says nothing of the record, in any form: the transaction is tried again, and reads it when there is an answer."""
    row = {"id": 1, "at": AT, "price": Decimal("1.00")}
    value = registry.serializer("avro", "orders", json.dumps(ORDER))(row)
    read, write = registry.deserializer("avro"), registry.serializer("avro", "others", json.dumps(ORDER))
    served.fails = OUTAGES[how](served)
    with pytest.raises(SourceFailure, match="the schema registry does not answer; see to it that it runs"):
        read(record(value))
    with pytest.raises(FailedException, match="the schema registry does not answer"):
        write(row)
    if how != "away":
        served.fails = None
        assert read(record(value)) == row
        assert write(row) == value


def test_a_slow_registry(served: SchemaServer) -> None:
    """One that does not answer for longer than the time allowed is none."""
    registry = SchemaRegistry(served.url, {"max.retries": 0, "timeout": 0.1})
    served.fails = lambda _: threading.Event().wait(1)
    with pytest.raises(SourceFailure, match="Timeout"):
        registry.deserializer("avro")(record(b"\0\0\0\0\1abc"))


def test_what_is_known_needs_no_registry(served: SchemaServer, registry: SchemaRegistry) -> None:
    """Copies that arrive in a process later, as each attempt has them, ask no more for what one of them was told."""
    row = {"id": 1, "at": AT, "price": Decimal("1.00")}
    read, write = registry.deserializer("avro"), registry.serializer("avro", "orders", json.dumps(ORDER))
    value = write(row)
    assert shipped(read)(record(value)) == row
    asked = len(served.asked)
    served.fails = lambda to: to.send(503, {})
    assert shipped(read)(record(value)) == row
    assert shipped(write)(row) == value
    assert (asked, len(served.asked)) == (2, 2)


ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "name", "type": "string"}]}
BASKET = {"type": "record", "name": "Basket", "namespace": "shop",
          "fields": [{"name": "items", "type": {"type": "array", "items": "shop.Item"}}]}  # fmt: skip


def referring(schema: Any, kind: str, *names: str) -> Any:
    """A schema that refers to the first version of subjects, as Confluent's client has it."""
    references = [schema_registry.SchemaReference(name, name, 1) for name in names]
    return schema_registry.Schema(json.dumps(schema), kind, references)


def test_references_in_avro(served: SchemaServer, registry: SchemaRegistry) -> None:
    """A named type may be of another subject, and that one's of a third, reached on two ways."""
    item = {"name": "item", "subject": "shop.Item", "version": 1}
    served.register("shop.Item", json.dumps(ITEM))
    shelf = {**BASKET, "name": "Shelf", "fields": [{"name": "top", "type": "shop.Item"}]}
    served.register("shop.Shelf", json.dumps(shelf), references=[{**item, "name": "shop.Item"}])
    both = {**BASKET, "fields": [*BASKET["fields"], {"name": "shelf", "type": "shop.Shelf"}]}
    write = registry.serializer("avro", "orders", referring(both, "AVRO", "shop.Item", "shop.Shelf"))
    row = {"items": [{"name": "tea"}], "shelf": {"top": {"name": "salt"}}}
    value = shipped(write)(row)
    assert shipped(registry.deserializer("avro"))(record(value)) == row


def test_references_in_json(served: SchemaServer, registry: SchemaRegistry) -> None:
    """So may a part of a JSON Schema be."""
    served.register("item.json", '{"type": "object", "required": ["name"]}', "JSON")
    schema = {"title": "order", "type": "object", "properties": {"item": {"$ref": "item.json"}}}
    write = registry.serializer("json", "orders", referring(schema, "JSON", "item.json"))
    value = write({"item": {"name": "tea"}})
    assert registry.deserializer("json")(record(value)) == {"item": {"name": "tea"}}
    with pytest.raises(InputError, match="'name' is a required property"):
        write({"item": {}})
    bad = value[:5] + b'{"item": {}}'
    with pytest.raises(Exception, match="'name' is a required property"):
        registry.deserializer("json")(record(bad))


def test_references_in_protobuf(served: SchemaServer, registry: SchemaRegistry) -> None:
    """An imported file is a subject of its own; times and the like need none."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    item = descriptor_pb2.FileDescriptorProto(name="item.proto", package="shop", syntax="proto3")
    item.message_type.add(name="Item").field.add(name="name", number=1, type=9, label=1)
    pool.Add(item)
    file = descriptor_pb2.FileDescriptorProto(name="sale.proto", package="shop", syntax="proto3")
    file.dependency.extend(["item.proto", "google/protobuf/timestamp.proto"])
    sale = file.message_type.add(name="Sale")
    sale.field.add(name="item", number=1, type=11, label=1, type_name=".shop.Item")
    sale.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Sale"))
    value = registry.serializer("protobuf", "sales", made)(made(item={"name": "tea"}, at={"seconds": 60}))
    read = registry.deserializer("protobuf", message=made)
    at = dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.UTC)
    assert read(record(value)) == {"item": {"name": "tea"}, "at": at}
    assert set(served.subjects) == {"item.proto", "sales-value"}


@pytest.mark.parametrize("is_there", [True, False])
def test_an_outage_amid_references(served: SchemaServer, registry: SchemaRegistry, is_there: bool) -> None:
    """A registry that fails after the first of two schemas is an outage, too; one that lacks the second says so."""
    served.register("shop.Item", json.dumps(ITEM))
    row = {"items": [{"name": "tea"}]}
    value = registry.serializer("avro", "orders", referring(BASKET, "AVRO", "shop.Item"))(row)
    item, answer = served.subjects["shop.Item"], served.answer
    if not is_there:
        del served.subjects["shop.Item"]
        with pytest.raises(ValueError, match="its schema is not in the registry: Subject not found"):
            registry.deserializer("avro")(record(value))
        return
    lacking = lambda path, given: (500, {}) if "subjects" in path else answer(path, given)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SourceFailure):
        patch.setattr(SchemaServer, "answer", lambda _, path, given: lacking(path, given))
        registry.deserializer("avro")(record(value))
    assert (registry.deserializer("avro")(record(value)), item) == (row, [1])


def test_a_reference_into_the_web(served: SchemaServer, registry: SchemaRegistry) -> None:
    """A JSON Schema may refer to any address; one that does not answer says nothing of the record."""
    schema = {"title": "order", "type": "object", "properties": {"item": {"$ref": "http://web.invalid/item.json"}}}
    number = served.register("orders-value", json.dumps(schema), "JSON")
    with pytest.raises(SourceFailure):
        registry.deserializer("json")(record(b"\0" + number.to_bytes(4) + b'{"item": 1}'))


def test_a_schema_that_is_not_compatible(served: SchemaServer, registry: SchemaRegistry) -> None:
    """A schema that the subject's compatibility forbids, or that may not be registered, is an error of the topology."""
    first = {"type": "record", "name": "a", "fields": [{"name": "n", "type": "long"}]}
    second = {**first, "fields": [{"name": "m", "type": "long"}]}
    registry.serializer("avro", "orders", json.dumps(first))({"n": 1})
    served.refuses = lambda subject, schema: subject == "orders-value" and "m" in schema["schema"]
    with pytest.raises(InputError, match="incompatible with orders-value"):
        registry.serializer("avro", "orders", json.dumps(second))({"m": 1})
    with pytest.raises(InputError, match="not found"):
        registry.serializer("avro", "others", json.dumps(first), registers=False)({"n": 1})
    assert registry.serializer("avro", "orders", json.dumps(first), registers=False)({"n": 1})[:5] == b"\0\0\0\0\1"


def test_types_of_members_change(registry: SchemaRegistry) -> None:
    """Members within one topic may widen, come, go and be renamed in new schemas: each record has its own ones."""
    fields = ("n", "int"), ("n", "long"), ("n", "double"), ("m", ["null", "string"])
    read = registry.deserializer("avro")
    rows = []
    for name, kind in fields:
        schema = {"type": "record", "name": "a", "fields": [{"name": name, "type": kind}]}
        value = "x" if name == "m" else 1
        rows.append(read(record(registry.serializer("avro", "orders", json.dumps(schema))({name: value}))))
    assert rows == [{"n": 1}, {"n": 1}, {"n": 1.0}, {"m": "x"}]


def test_uuids_are_texts(registry: SchemaRegistry) -> None:
    """A UUID of Avro is a text, in lists and records, too."""
    identity = {"type": "string", "logicalType": "uuid"}
    inner = {"type": "record", "name": "b", "fields": [{"name": "of", "type": identity}]}
    schema = {"type": "record", "name": "a", "fields": [
        {"name": "id", "type": identity}, {"name": "ids", "type": {"type": "array", "items": identity}},
        {"name": "in", "type": inner}]}  # fmt: skip
    one = uuid.UUID(int=1)
    value = registry.serializer("avro", "orders", json.dumps(schema))({"id": one, "ids": [one], "in": {"of": one}})
    assert registry.deserializer("avro")(record(value)) == {"id": str(one), "ids": [str(one)], "in": {"of": str(one)}}


def test_no_secret_is_shown(served: SchemaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login is not in what is shipped or shown."""
    monkeypatch.setenv("LOGIN", "me:hushhush")
    served.fails = lambda to: to.send(401, {"error_code": 40101, "message": "Unauthorized"})
    registry = SchemaRegistry(served.url, {"basic.auth.user.info": "env:LOGIN", "max.retries": 0})
    read = registry.deserializer("avro")
    with pytest.raises(SourceFailure) as caught:
        read(record(b"\x00\x00\x00\x00\x01abc"))
    assert b"hush" not in pickle.dumps(read)
    assert "hush" not in f"{registry!r} {read!r} {caught.value}"


def test_changes_of_a_database_in_avro(registry: SchemaRegistry) -> None:
    """Debezium's events may be in Avro."""
    row = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}]}
    event = {
        "type": "record",
        "name": "event",
        "fields": [{"name": "op", "type": "string"}, {"name": "after", "type": ["null", row]}],
    }
    value = registry.serializer("avro", "orders", json.dumps(event))({"op": "c", "after": {"id": 7}})
    changes = shipped(Debezium({}, read=registry.deserializer("avro")))
    assert changes(record(value)) == {"id": 7, "deleted": False, "unchanged": []}
    assert changes(record(None)) is None


class Written(BasicBolt):
    """Makes the bytes for another topic."""

    output_fields = Fields("attempt", "id: long", "value: binary")

    def __init__(self, write: Callable[[Any], bytes]) -> None:
        self.write = write

    def execute(self, tuple: Any, collector: Any) -> None:
        collector.emit((tuple.attempt, tuple["id"], self.write({"id": tuple["id"]})))


def copying(folder: Path, registry: SchemaRegistry, kind: type, log: MemoryLog) -> TransactionalTopology:
    """Read records by their schemas, and write them by one."""
    schema = json.dumps({"type": "record", "name": "out", "fields": [{"name": "id", "type": "long"}]})
    options = {"dead_letter": folder / "bad", "batch_records_max": 2, "until_end": True}
    spout = kind(log, "orders", Fields("id: long"), deserializer=registry.deserializer("avro"), **options)
    builder = TransactionalTopologyBuilder("copying", "orders", spout)
    builder.set_bolt("write", Written(registry.serializer("avro", "copies", schema))).shuffle_grouping("orders")
    builder.set_bolt("append", AppendCommitter("rows")).shuffle_grouping("write")
    builder.set_state("rows", DeltaRows(folder / "rows", Fields("id: long", "value: binary")))
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [TransactionalInMemory, OpaqueInMemory])
@pytest.mark.parametrize("policy", ["WAIT", "SKIP"])
def test_runs_through_an_outage(served: SchemaServer, tmp_path: Path, kind: type, policy: str) -> None:
    """Down at the start and midway: no record is lost, doubled, skipped or called bad; only the unknown id is bad."""
    registry = SchemaRegistry(served.url, {"max.retries": 0})
    log = MemoryLog()
    log.create_topic("orders", 1)
    for number in range(6):  # each record has a schema of its own, so that each asks the registry
        schema = {"type": "record", "name": f"in{number}", "fields": [{"name": "id", "type": "long"}]}
        log.put(
            TopicPartition("orders", 0), None, registry.serializer("avro", "in", json.dumps(schema))({"id": number})
        )
    log.put(TopicPartition("orders", 0), None, b"\0\0\0\0\x63abc")
    config = Config(transaction_max_attempts=2, transaction_max_attempts_policy=policy)
    served.fails = lambda to: to.send(503, {})
    for _ in range(2):
        with pytest.raises(PoisonTransaction, match="did not answer 2 times"):
            run_inline(copying(tmp_path, registry, kind, log), config)
    known = len(served.asked)
    served.fails = lambda to: to.send(503, {}) if len(served.asked) % 2 else to.send(*served.answer(to.path, to.given))
    report = run_inline(copying(tmp_path, registry, kind, log))
    served.fails = None
    assert report.failures >= 6
    assert len(served.asked) > known
    rows = sorted(read_table(tmp_path / "rows").to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(6))
    assert [registry.deserializer("avro")(record(row["value"])) for row in rows] == [{"id": n} for n in range(6)]
    (bad,) = read_table(tmp_path / "bad").to_pylist()
    assert (bad["offset"], "is not in the registry" in bad["reason"]) == (6, True)


def test_wrong_arguments(registry: SchemaRegistry) -> None:
    """A wrong argument is refused before anything is read."""
    with pytest.raises(ConfigError, match="message is the generated class"):
        registry.deserializer("protobuf")
    with pytest.raises(ConfigError, match="schema is a text"):
        registry.serializer("avro", "orders", order_message())
    with pytest.raises(ConfigError, match="'url' is set by txtopo"):
        SchemaRegistry("http://a", {"url": "http://b"})
    with pytest.raises(ConfigError, match="url has a login"):
        SchemaRegistry("http://me:hush@a")
    with pytest.raises(ConfigError, match=r"refuses its properties[\s\S]*Unrecognized"):
        SchemaRegistry("http://a", {"max.retires": 1}).deserializer("avro")(record(b"\0\0\0\0\1a"))
