"""Records whose schemas a registry has: read as their fields say, or bad records; and written by a schema."""

from __future__ import annotations

import datetime as dt
import http.server
import json
import pickle
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import attrs
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from spouts.kafka import Debezium, KafkaRecord, SchemaRegistry
from txtopo.errors import ConfigError, FailedException, InputError, SourceFailure

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


class Registry:
    """What a schema registry answers, in this process: an id for each schema, and each schema by its id."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.status = 200
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Print nothing."""

            def do_GET(self) -> None:
                number = int(self.path.split("/")[3].partition("?")[0]) if "/schemas/ids/" in self.path else 0
                known = 0 < number <= len(outer.schemas)
                self.answer(outer.schemas[number - 1] if known else {"error_code": 40403, "message": "none"}, known)

            def do_POST(self) -> None:
                given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                schema = {name: given[name] for name in ("schema", "schemaType") if name in given}
                outer.schemas += [] if schema in outer.schemas else [schema]
                self.answer({"id": outer.schemas.index(schema) + 1, "version": 1, "subject": "s", **schema}, True)

            def answer(self, content: Any, is_known: bool) -> None:
                body = json.dumps(content).encode()
                self.send_response(outer.status if outer.status != 200 else 200 if is_known else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def served() -> Iterator[Registry]:
    served = Registry()
    yield served
    served.close()


@pytest.fixture
def registry(served: Registry) -> SchemaRegistry:
    return SchemaRegistry(served.url, {"max.retries": 0})


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


def test_a_schema_that_has_changed(registry: SchemaRegistry) -> None:
    """Each record is read by the schema that it was written with."""
    newer = {**ORDER, "fields": [*ORDER["fields"][:1], {"name": "item", "type": ["null", "string"], "default": None}]}
    read = registry.deserializer("avro")
    rows: list[dict[str, Any]] = [{"id": 1, "at": AT, "price": Decimal("1.50")}, {"id": 2, "item": "tea"}]
    for schema, row in zip((ORDER, newer), rows, strict=True):
        assert read(record(registry.serializer("avro", "orders", json.dumps(schema))(row))) == row


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
        (b"\x00\x00\x00\x00\x01\x02", None),
    ],
)  # fmt: skip
def test_bad_records(registry: SchemaRegistry, value: bytes, why: str | None) -> None:
    """A value without the frame, with an id that nobody knows, or that ends too early is a bad record: no retry."""
    registry.serializer("avro", "orders", json.dumps(ORDER))({"id": 1, "at": AT, "price": Decimal(1)})
    with pytest.raises(Exception, match=why) as caught:
        registry.deserializer("avro")(record(value))
    assert not isinstance(caught.value, FailedException)


@pytest.mark.parametrize("how", ["away", "failing", "forbidden"])
def test_a_registry_that_does_not_answer(served: Registry, registry: SchemaRegistry, how: str) -> None:
    """It says nothing of the record: the transaction is tried again."""
    write = registry.serializer("avro", "orders", json.dumps(ORDER))
    value = write({"id": 1, "at": AT, "price": Decimal(1)})
    if how == "away":
        served.close()
    served.status = {"failing": 503, "forbidden": 401}.get(how, 200)
    with pytest.raises(SourceFailure, match="the schema registry does not answer"):
        registry.deserializer("avro")(record(value))
    with pytest.raises(FailedException, match="the schema registry does not answer"):
        registry.serializer("avro", "orders", json.dumps(ORDER))({"id": 1, "at": AT, "price": Decimal(1)})


def test_no_secret_is_shown(served: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login is not in what is shipped or shown."""
    monkeypatch.setenv("LOGIN", "me:hushhush")
    served.status = 401
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


def test_wrong_arguments(registry: SchemaRegistry) -> None:
    """A wrong argument is refused before anything is read."""
    with pytest.raises(ConfigError, match="message is the generated class"):
        registry.deserializer("protobuf")
    with pytest.raises(ConfigError, match="schema is a text"):
        registry.serializer("avro", "orders", order_message())
    with pytest.raises(ConfigError, match="'url' is set by txtopo"):
        SchemaRegistry("http://a", {"url": "http://b"})
