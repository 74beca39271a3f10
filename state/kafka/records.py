"""The fields of a state's rows as the parts of Kafka's records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.columns import column_values
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.errors import FieldsError

_BYTES = (pa.string(), pa.binary())

_KINDS: dict[str, tuple[pa.DataType, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "partition": (pa.int32(),),
    "timestamp": (pa.timestamp("us", tz="UTC"),),
    "headers": tuple(pa.map_(pa.string(), kind) for kind in _BYTES),
}
"""The types that the field of each part may have."""

_UNLIMITED = (1 << 63) - 1
"""Kafka's word for times without a limit."""

_OVERHEAD_BYTES = 512
"""What a record of a batch of its own takes besides its parts, at most, with some to spare."""


def checked_record_fields(fields: Fields) -> None:
    """Raise a FieldsError unless the fields are parts of a record."""
    for name, kind in zip(fields.names, fields.types, strict=True):
        allowed = _KINDS.get(name)
        if allowed is None or kind not in allowed:
            declared = name if kind is None else f"{name}: {ddl_name(kind)}"
            raise FieldsError(
                f"field '{declared}' is no part of a record; the fields of a KafkaState are some of 'key: string' or "
                "'key: binary', 'value: string' or 'value: binary', 'partition: int', 'timestamp: timestamp' and "
                "'headers: map<string, string>' or 'headers: map<string, binary>'"
            )
    if "value" not in fields:
        raise FieldsError(f"a KafkaState needs the field 'value: string' or 'value: binary'; {fields} have none")


@attrs.frozen
class RecordLimits:
    """What records of a topic must be, so that Kafka takes them.

    Args:
        partitions: how many the topic has.
        bytes_max: how large a batch of records may be.
        needs_key: whether the topic is compacted.
        age_ms_max: how far in the past a record's time may be; None: as far as one likes.
        ahead_ms_max: how far in the future.
    """

    partitions: int = 1
    bytes_max: int = 1_000_000
    needs_key: bool = False
    age_ms_max: int | None = None
    ahead_ms_max: int | None = None

    @staticmethod
    def of_settings(partitions: int, settings: Mapping[str, str], client_bytes_max: int) -> RecordLimits:
        """Return the limits of a topic with some settings, which are none if Kafka does not tell them."""

        def ms_max(name: str) -> int | None:
            # Brokers before 3.6 have one setting for both, and some have all three.
            limits = [int(settings.get(each, _UNLIMITED)) for each in (name, "message.timestamp.difference.max.ms")]
            is_kept = settings.get("message.timestamp.type") != "LogAppendTime"
            return min(limits) if is_kept and min(limits) < _UNLIMITED else None

        return RecordLimits(
            partitions,
            min(client_bytes_max, int(settings.get("max.message.bytes", client_bytes_max))),
            "compact" in settings.get("cleanup.policy", ""),
            ms_max("message.timestamp.before.max.ms"),
            ms_max("message.timestamp.after.max.ms"),
        )


def misfit_of_records(rows: pa.Table, limits: RecordLimits) -> tuple[int, str] | None:
    """Return the first row that Kafka would refuse, and why, before a group is decided; None if it takes all."""
    if limits.needs_key:
        keys = rows["key"] if "key" in rows.column_names else pa.chunked_array([pa.nulls(rows.num_rows)])
        at = pc.index(pc.is_null(keys), True).as_py()
        if at >= 0:
            return at, "the topic is compacted, so its records need keys"
    if "partition" in rows.column_names:
        column = rows["partition"]
        at = pc.index(pc.or_(pc.less(column, 0), pc.greater_equal(column, limits.partitions)), True).as_py()
        if at >= 0:
            return at, f"partition {column[at]} is none of the topic, which has {limits.partitions}"
    if "timestamp" in rows.column_names:
        column, now_ms = rows["timestamp"], int(1000 * time.time())
        ms = pc.divide(column.cast(pa.int64()), 1000)
        for is_wrong, why in (
            # Of 0 the client makes now; the ms of the last one before it is 0, too.
            (pc.less(ms, 1), "is not after the beginning of 1970, and Kafka can't keep it"),
            (
                pc.less(ms, now_ms - (limits.age_ms_max or now_ms)),
                "is older than message.timestamp.before.max.ms allows",
            ),
            (
                pc.greater(ms, _UNLIMITED if limits.ahead_ms_max is None else now_ms + limits.ahead_ms_max),
                f"is more than {limits.ahead_ms_max} ms ahead, the topic's message.timestamp.after.max.ms",
            ),
        ):
            at = pc.index(is_wrong, True).as_py()
            if at >= 0:
                return at, f"timestamp {column[at]} {why}"
    bytes_max = limits.bytes_max
    sizes = [_sizes(rows[name]) for name in ("key", "value", "headers") if name in rows.column_names]
    total = sizes[0]
    for size in sizes[1:]:
        total = pc.add(total, size)
    at = pc.index(pc.greater(total, bytes_max - _OVERHEAD_BYTES), True).as_py()
    if at >= 0:
        return (
            at,
            f"the record has {total[at]} bytes, and the topic takes {bytes_max} with {_OVERHEAD_BYTES} of Kafka's",
        )
    return None


def _sizes(column: Any) -> Any:
    if not pa.types.is_map(column.type):
        return pc.fill_null(pc.binary_length(column).cast(pa.int64()), 0)
    sizes = []
    for headers in column_values(column):
        parts = [part for pair in (headers or {}).items() for part in pair if part is not None]
        sizes.append(sum(len(part.encode() if isinstance(part, str) else part) + 10 for part in parts))
    return pa.chunked_array([pa.array(sizes, pa.int64())])


def records_of(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield each row as arguments of a producer."""
    columns = {name: column_values(rows[name]) for name in rows.column_names if name in _KINDS}
    if "timestamp" in columns:
        columns["timestamp"] = pc.divide(rows["timestamp"].cast(pa.int64()), 1000).to_pylist()
    for values in zip(*columns.values(), strict=True):
        record = dict(zip(columns, values, strict=True))
        headers = record.pop("headers", None)
        if headers:
            record["headers"] = list(headers.items())
        # Without a partition the producer takes one by the key; without a time, now.
        yield {name: value for name, value in record.items() if value is not None or name in {"key", "value"}}
