"""The fields of aggregates and their types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from txtopo import Fields
from txtopo.api.data.types import ddl_name
from txtopo.errors import FieldsError


def field_of(spec: str | Fields) -> Fields:
    """Return the one field of an aggregate."""
    fields = spec if isinstance(spec, Fields) else Fields(spec)
    if len(fields) != 1:
        raise FieldsError(f"an aggregate is of one field, not of {fields}; write an aggregate for each")
    return fields


def fields_with(spec: str | Fields) -> Fields:
    """Return the fields of an aggregate, at least one."""
    fields = spec if isinstance(spec, Fields) else Fields(spec)
    if not len(fields):
        raise FieldsError("an aggregate is of one field, or of several; name one")
    return fields


def optional_field(spec: str | Fields | None) -> Fields | None:
    """Return the one field of an aggregate, None if it has none."""
    return None if spec is None else field_of(spec)


def fields_of(schema: pa.Schema) -> Fields:
    """Return the fields of a schema, with their types."""
    return Fields(*(f"{field.name}: {ddl_name(field.type)}" for field in schema))


def typed_fields(fields: Fields, schema: pa.Schema) -> Fields:
    """Return fields with the types of ``schema`` for those without a type; raise a FieldsError if it lacks one."""
    specs = []
    for name, kind in zip(fields.names, fields.types, strict=True):
        if kind is None and name not in schema.names:
            raise missing_field(name, schema.names)
        field_type = kind if kind is not None else _spark_type(schema.field(name).type)
        specs.append(f"{name}: {ddl_name(field_type)}")
    return Fields(*specs)


def type_of(field: Fields) -> pa.DataType:
    """Return the type of one field."""
    return field.arrow_schema().field(0).type


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark has for what readers of files give otherwise."""
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if is_text(kind):
        return pa.string()
    if is_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    return kind


def is_text(kind: pa.DataType) -> bool:
    """Whether a type holds strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Whether a type holds bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def cast(column: Any, kind: pa.DataType) -> Any:
    """Return a column with a type; raise an ArrowInvalid if a value does not fit."""
    return column if column.type == kind else column.cast(kind)


def missing_field(name: str, names: Iterable[str]) -> FieldsError:
    """Return the error for a field that rows lack."""
    return FieldsError(f"there is no field {name!r} to aggregate; the fields are {', '.join(names)}")
