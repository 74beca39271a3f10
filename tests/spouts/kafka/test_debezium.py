"""Debezium's events become rows for ApplyChanges."""

import base64
import datetime as dt
import json
import pickle
from typing import Any

import attrs
import pytest

from spouts.kafka import Debezium
from spouts.kafka.log import KafkaRecord

UNAVAILABLE = "__debezium_unavailable_value"
ROWS = Debezium({"lsn": "source.lsn", "ts": "ts_ms"})


def record(event: Any) -> KafkaRecord:
    """A record with an event as its value."""
    made = {field.name: None for field in attrs.fields(KafkaRecord)}
    return KafkaRecord(**made | {"value": None if event is None else json.dumps(event).encode()})


def row_of(event: Any) -> Any:
    """What becomes of an event, by a deserializer as executors get it."""
    return pickle.loads(pickle.dumps(ROWS))(record(event))


@pytest.mark.parametrize("has_schema", [False, True])
@pytest.mark.parametrize(("op", "is_deleted"), [("c", False), ("u", False), ("r", False), ("d", True)])
def test_operations(op: str, is_deleted: bool, has_schema: bool) -> None:
    """The row is the one after the change, of a delete the one before it, with a schema or without."""
    old, new = {"id": 1, "name": "old"}, {"id": 1, "name": "new"}
    event = {"op": op, "before": old, "after": None if is_deleted else new, "source": {"lsn": 7}, "ts_ms": 9}
    made = row_of({"schema": {"type": "struct"}, "payload": event} if has_schema else event)
    assert made == {**(old if is_deleted else new), "lsn": 7, "ts": 9, "deleted": is_deleted, "unchanged": []}


def test_values_that_the_log_does_not_have() -> None:
    """They are named, whatever their type, and null."""
    row = {"id": 1, "text": UNAVAILABLE, "blob": base64.b64encode(UNAVAILABLE.encode()).decode(), "list": [UNAVAILABLE]}
    made = row_of({"op": "u", "after": row | {"other": ["a"]}, "source": {"lsn": 7}})
    assert made["unchanged"] == ["text", "blob", "list"]
    assert [made[name] for name in ("text", "blob", "list", "other", "ts")] == [None, None, None, ["a"], None]


@pytest.mark.parametrize("event", [None, {"schema": None, "payload": None}, {"op": "m", "message": {}}])
def test_what_changes_no_row(event: Any) -> None:
    """Tombstone records and messages become no tuple."""
    assert row_of(event) is None


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"op": "t", "source": {}}, "op 't' changes no row by its key"),
        ({"op": "d", "before": None}, "has no row in 'before': let the table's replica identity"),
        ({"after": {}}, "not an event of Debezium"),
        ([1], "not an event of Debezium"),
    ],
)
def test_bad_events(event: Any, why: str) -> None:
    """They are bad records, which say why."""
    with pytest.raises(ValueError, match=why):
        row_of(event)


def test_the_time_of_a_change() -> None:
    """It is a time, in microseconds if the event has these; an event without one is a bad record."""
    rows = Debezium({}, time="at")
    noon = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    millis = int(noon.timestamp()) * 1_000

    def at(source: Any) -> Any:
        return rows(record({"op": "c", "after": {"id": 1}, "source": source}))["at"]

    assert at({"ts_ms": millis}) == noon
    assert at({"ts_ms": millis, "ts_us": millis * 1_000 + 7}) == noon + dt.timedelta(microseconds=7)
    with pytest.raises(ValueError, match=r"no source\.ts_ms"):
        at({})
