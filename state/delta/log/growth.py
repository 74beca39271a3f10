"""A table's columns: how they differ from those that its state declares, and how a table gets those that it lacks.

A table *grows* by one version that has a new schema and moves no file. Only columns that may be null can be added, with
the fields' names and types: every data file that was written before lacks them, and every reader of Delta finds nulls
there. Nothing else about a table's columns ever changes, so a version of the table, old or new, can be read with the
columns of any later one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema

from state.delta.log.vectors import VECTORS_FEATURE, VECTORS_PROPERTIES
from txtopo.api.data.types import ddl_name


class Growth(enum.Enum):
    """When a table gets the columns that its state has and it lacks."""

    NEVER = "never"
    ASKED = "if the user asks for it once"
    OPENED = "when it is opened"


_NAIVE = "timestampNtz"
"""The table feature of timestamps without a time zone."""

_IMPLIED = ("appendOnly", "invariants")
"""The features that a table of writer version 2 has without listing them."""

_READER_VERSION, _WRITER_VERSION = 3, 7
"""The versions from which a protocol lists its features."""

_PLAIN = {"minReaderVersion": 1, "minWriterVersion": 2}
"""The protocol of a table that needs no features but the implied ones."""


def lacking(table: DeltaTable, schema: pa.Schema, partition_by: Sequence[str]) -> list[pa.Field]:
    """Return the columns of ``schema`` that the table lacks, if it can get them and then has exactly its columns."""
    actual = pa.schema(table.schema())
    added = [field for field in schema if field.name not in actual.names]
    present = pa.schema([field for field in schema if field.name in actual.names])
    can_grow = (
        all(field.nullable for field in added)
        and table.schema() == Schema.from_arrow(present)
        and list(table.metadata().partition_columns) == list(partition_by)
    )
    return added if can_grow else []


def columns_misfit(
    table: DeltaTable, schema: pa.Schema, partition_by: Sequence[str], growth: Growth = Growth.ASKED
) -> str | None:
    """Describe a difference of a table's columns or partition columns; return None if they are the same.

    ``schema`` and ``partition_by`` are the columns that its state declares. Columns that the table will get when it is
    opened, by its ``growth``, are no difference.
    """
    added = lacking(table, schema, partition_by)
    if added and growth is Growth.OPENED:
        return None
    if added and growth is Growth.ASKED:
        return (
            f"it lacks {', '.join(map(field_text, added))}, which the state has; 'txtopo evolve MODULE' adds it once, "
            "and schema_evolution='add' in the state's declaration whenever a run begins"
        )
    if table.schema() != Schema.from_arrow(schema):
        actual = pa.schema(table.schema())
        removed = [name for name in actual.names if name not in schema.names]
        hint = f"; no column can be removed, so keep {', '.join(removed)}" if removed else ""
        return f"its columns are {_columns_text(actual)}, not {_columns_text(schema)}{hint}"
    actual = list(table.metadata().partition_columns)
    if actual == list(partition_by):
        return None
    return f"it is partitioned by ({', '.join(actual)}), not by ({', '.join(partition_by)})"


def growth_of(table: DeltaTable, schema: pa.Schema) -> list[Mapping[str, Any]]:
    """Return the log's actions that give a table the columns of ``schema``; see :func:`lacking`.

    Source: the actions ``metaData`` and ``protocol`` of
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
    """
    return [*_protocol_with(table, schema), {"metaData": metadata_of(table, Schema.from_arrow(schema))}]


def vectors_turned(table: DeltaTable, *, is_on: bool) -> list[Mapping[str, Any]]:
    """Return the log's actions that make a table for deletion vectors, or for none.

    Readers of a version take its own protocol, so those of earlier versions go on to know them.
    """
    protocol, metadata = table.protocol(), metadata_of(table)
    readers, writers = {*(protocol.reader_features or ())}, {*(protocol.writer_features or _IMPLIED)}
    settings = {name: each for name, each in metadata["configuration"].items() if name not in VECTORS_PROPERTIES}
    features = {VECTORS_FEATURE}
    readers, writers = (readers | features, writers | features) if is_on else (readers - features, writers - features)
    is_plain = not readers and writers <= {*_IMPLIED}
    return [
        {"protocol": _PLAIN if is_plain else _listing(readers, writers)},
        {"metaData": {**metadata, "configuration": {**settings, **(VECTORS_PROPERTIES if is_on else {})}}},
    ]


def metadata_of(table: DeltaTable, schema: Schema | None = None) -> Mapping[str, Any]:
    """Return the metadata of a handle's version, as the log has it; with ``schema`` if that is given."""
    metadata = table.metadata()
    return {
        "id": str(metadata.id),
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": (schema or table.schema()).to_json(),
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
        "createdTime": metadata.created_time,
    }


def protocol_of(table: DeltaTable) -> Mapping[str, Any]:
    """Return the protocol of a handle's version, as the log has it."""
    found = table.protocol()
    protocol: dict[str, Any] = {
        "minReaderVersion": found.min_reader_version,
        "minWriterVersion": found.min_writer_version,
    }
    if found.min_reader_version >= _READER_VERSION:
        protocol["readerFeatures"] = sorted(found.reader_features or ())
    if found.min_writer_version >= _WRITER_VERSION:
        protocol["writerFeatures"] = sorted(found.writer_features or ())
    return protocol


def first_protocol(schema: pa.Schema, *features: str) -> Mapping[str, Any]:
    """Return the protocol of a new table with the columns of ``schema`` and some features, as the log has it."""
    naive = [_NAIVE] if any(map(_has_naive, schema.types)) else []
    return _listing([*features, *naive], _IMPLIED) if features or naive else _PLAIN


def field_text(field: pa.Field) -> str:
    """Return a column of a declaration as its field is declared."""
    return f"{field.name}: {ddl_name(field.type)}"


def _columns_text(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name}: {field.type}" for field in schema) + ")"


def _protocol_with(table: DeltaTable, schema: pa.Schema) -> list[Mapping[str, Any]]:
    """Return the action for a protocol that has timestamps without a time zone, if they are new to the table."""
    protocol = table.protocol()
    readers, writers = {*(protocol.reader_features or ())}, {*(protocol.writer_features or ())}
    if _NAIVE in readers or not any(map(_has_naive, schema.types)):
        return []
    if protocol.min_writer_version < _WRITER_VERSION:
        writers |= {*_IMPLIED}
    return [{"protocol": _listing([*readers, _NAIVE], writers)}]


def _listing(readers: Iterable[str], writers: Iterable[str]) -> Mapping[str, Any]:
    """Return a protocol with some features for readers, and for writers these and others."""
    return {
        "minReaderVersion": _READER_VERSION,
        "minWriterVersion": _WRITER_VERSION,
        "readerFeatures": sorted({*readers}),
        "writerFeatures": sorted({*readers, *writers}),
    }


def _has_naive(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_has_naive(kind.field(position).type) for position in range(kind.num_fields))
