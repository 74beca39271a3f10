"""``Debezium``: rows of a database's changes from the events that Debezium writes to Kafka, for ``ApplyChanges``."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping
from typing import Any

from spouts.kafka.log import KafkaRecord
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.utc import EPOCH

UNAVAILABLE = "__debezium_unavailable_value"
"""Stands for a large value that a change has left as it is: the database's log does not have it."""

_ROW_OF = {"c": "after", "u": "after", "r": "after", "d": "before"}
"""The part of an event with the row, by operation: create, update, read (of a snapshot) and delete."""

_MESSAGE = "m"
"""What an application has written to the database's log: no change of a row."""


class Debezium:
    """Makes a row of each change event in JSON, with schema or without: a ``deserializer`` for the Kafka spouts.

    ``TransactionalKafkaSpout(…, fields, deserializer=Debezium({"lsn": "source.lsn"}))`` emits the columns of the row
    that ``fields`` name; ``deleted``, whether the event deletes it; ``unchanged``, the columns whose values the event
    left as they are, which are null here; and the parts of the event that are asked for. Columns that an event lacks
    are null. A tombstone record, which follows a delete for the sake of Kafka's clean-up, and a message of an
    application become no tuple.

    An event of another form, and one that empties a whole table, which has no key, is a bad record: the spout stops,
    or keeps it if it has a ``dead_letter``.

    Values are as JSON has them: so let the connector write decimals and times as you declare them, for example with
    ``decimal.handling.mode=string``; a time as a number of microseconds is a ``long``.

    Args:
        parts: a field for each part of the event to emit, by its path, as ``{"lsn": "source.lsn"}``: what orders the
            events of a key, in PostgreSQL its ``source.lsn``, in MySQL ``source.file`` and ``source.pos``.
        deleted: the name of the field that says whether the row is deleted.
        unchanged: the name of the field with the columns that the event left as they are.
        time: the name of the field with the time at which the database made the change, a ``timestamp``; None: none.
            An event without that time is a bad record.
        read: makes the event of a record, for other formats than JSON: ``registry.deserializer("avro")``.
    """

    @checked_arguments
    def __init__(
        self,
        parts: Mapping[str, str],
        *,
        deleted: str = "deleted",
        unchanged: str = "unchanged",
        time: str | None = None,
        read: Callable[[KafkaRecord], Any] | None = None,
    ) -> None:
        self._read = read or _read_json
        self._parts = {name: path.split(".") for name, path in parts.items()}
        self._deleted, self._unchanged, self._time = deleted, unchanged, time

    def __call__(self, record: KafkaRecord) -> Mapping[str, Any] | None:
        """Return the row of a record; None if it has none.

        Raises:
            ValueError: it is no change event, or one without a row.
        """
        if record.value is None:
            return None
        event = self._read(record)
        if isinstance(event, dict) and "schema" in event and "payload" in event:
            event = event["payload"]
        if event is None:
            return None
        if not isinstance(event, dict) or "op" not in event:
            raise ValueError("not an event of Debezium: it has no 'op'")
        if event["op"] == _MESSAGE:
            return None
        if event["op"] not in _ROW_OF:
            raise ValueError(f"an event with op {event['op']!r} changes no row by its key, so it can't be applied")
        row = event.get(_ROW_OF[event["op"]])
        if not isinstance(row, dict):
            raise ValueError(  # noqa: TRY004 - of the event, not of an argument
                f"an event with op {event['op']!r} has no row in {_ROW_OF[event['op']]!r}: let the table's replica "
                "identity have its key"
            )
        unchanged = [name for name, value in row.items() if _is_unavailable(value)]
        return {
            **row,
            **dict.fromkeys(unchanged),
            **{name: _part(event, path) for name, path in self._parts.items()},
            self._deleted: event["op"] == "d",
            self._unchanged: unchanged,
            **({} if self._time is None else {self._time: _time_of(event)}),
        }


def _read_json(record: KafkaRecord) -> Any:
    return json.loads(record.value or b"null")


_UNAVAILABLE_BYTES = base64.b64encode(UNAVAILABLE.encode()).decode()


def _is_unavailable(value: Any) -> bool:
    """Return whether a value is the placeholder: as a string, in Base64 for bytes, or the only item of an array."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value in {UNAVAILABLE, _UNAVAILABLE_BYTES} if isinstance(value, str) else False


def _time_of(event: Any) -> dt.datetime:
    """Return when the database made a change, as exactly as the event says it."""
    micros, millis = (_part(event, ["source", name]) for name in ("ts_us", "ts_ms"))
    if isinstance(micros, int):
        return EPOCH + dt.timedelta(microseconds=micros)
    if isinstance(millis, int):
        return EPOCH + dt.timedelta(milliseconds=millis)
    raise ValueError("the event does not say when the database made the change: it has no source.ts_ms")


def _part(event: Any, path: list[str]) -> Any:
    for name in path:
        event = event.get(name) if isinstance(event, dict) else None
    return event
