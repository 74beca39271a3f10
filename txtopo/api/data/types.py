"""Converts Spark DDL type names to Arrow types and back, without a running Spark.

The names are those of Spark SQL's data type reference. ``parse_type("array<struct<a: int>>")`` returns the Arrow type
that Spark itself uses for it.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from txtopo.errors import FieldsError

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

_DECIMAL_DIGITS_MAX = 38
"""Of Spark, and of Parquet files that others read."""

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*|\d+|[<>(),:])")


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type of a Spark DDL type name.

    Args:
        text: for example ``"long"``, ``"decimal(10, 2)"``, ``"array<string>"``.

    Raises:
        FieldsError: the name is not a Spark type.
    """
    tokens = _tokens(text)
    kind, rest = _parse(tokens, text)
    if rest:
        raise _unknown(text)
    return kind


@functools.lru_cache(maxsize=1_024)
def ddl_name(kind: pa.DataType) -> str:
    """Return the Spark DDL name of an Arrow type, the inverse of :func:`parse_type`.

    Raises:
        FieldsError: the type has no Spark name.
    """
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_map(kind):
        return f"map<{ddl_name(kind.key_type)},{ddl_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{ddl_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{ddl_name(field.type)}' for field in kind)}>"
    for name, simple in _SIMPLE.items():
        if simple == kind:
            return name
    raise FieldsError(f"Arrow type {kind} has no Spark DDL name; convert it to one of {', '.join(_SIMPLE)}")


def python_values(column: Any) -> list[Any]:
    """Return an Arrow column's values as Python objects, a map as a dict.

    Lists, maps and structs are made of the columns of their parts: Arrow goes value by value, in 5x the time.
    """
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in python_values(chunk)]
    kind = column.type
    if not pa.types.is_nested(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    made = None
    if pa.types.is_struct(kind):
        made = _structs(column)
    elif pa.types.is_list(kind):
        made = [items for (items,) in _runs(column, column.values)]
    elif pa.types.is_map(kind):
        made = [dict(zip(keys, items, strict=True)) for keys, items in _runs(column, column.keys, column.items)]
        if sum(map(len, made)) < len(_run_of(column, column.keys)):  # Arrow names the key that is there twice
            made = None
    if made is None:
        values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
        return values
    if column.null_count:
        made = [
            value if is_valid else None for value, is_valid in zip(made, column.is_valid().to_pylist(), strict=True)
        ]
    return made


def _structs(column: Any) -> list[Any] | None:
    """Return the values of structs; None if they have no field, or two of one name."""
    names = [field.name for field in column.type]
    if not names or len({*names}) < len(names):
        return None
    parts = map(python_values, column.flatten())
    return [dict(zip(names, values, strict=True)) for values in zip(*parts, strict=True)]


def _runs(column: Any, *parts: Any) -> Iterator[tuple[list[Any], ...]]:
    """Yield for each list or map of a column its share of the values of each part."""
    offsets = column.offsets.to_pylist()
    values = [python_values(_run_of(column, part)) for part in parts]
    for start, end in itertools.pairwise(offsets):
        yield tuple([value[start - offsets[0] : end - offsets[0]] for value in values])


def _run_of(column: Any, part: Any) -> Any:
    """Return of a part of lists or maps what those of a column have, which may be a slice."""
    first, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return part.slice(first, end - first)


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise _unknown(text)
        tokens.append(match.group(1))
        position = match.end()
    return tokens


def _parse(tokens: list[str], text: str) -> tuple[pa.DataType, list[str]]:
    if not tokens:
        raise _unknown(text)
    name, rest = tokens[0].lower(), tokens[1:]
    if name in _SIMPLE:
        return _SIMPLE[name], rest
    if name in {"decimal", "numeric", "dec"}:
        return _parse_decimal(rest, text)
    if name == "array":
        element, rest = _parse(_expect(rest, "<", text), text)
        return pa.list_(element), _expect(rest, ">", text)
    if name == "map":
        key, rest = _parse(_expect(rest, "<", text), text)
        value, rest = _parse(_expect(rest, ",", text), text)
        return pa.map_(key, value), _expect(rest, ">", text)
    if name == "struct":
        return _parse_struct(_expect(rest, "<", text), text)
    raise _unknown(text)


def _parse_decimal(tokens: list[str], text: str) -> tuple[pa.DataType, list[str]]:
    if not tokens or tokens[0] != "(":
        return pa.decimal128(10, 0), tokens
    end = tokens.index(")") if ")" in tokens else 0
    numbers, separators = tokens[1:end:2], tokens[2:end:2]
    if len(numbers) not in {1, 2} or separators != [","] * (len(numbers) - 1) or not all(map(str.isdigit, numbers)):
        raise _unknown(text)
    precision, scale = map(int, (*numbers, "0")[:2])
    if not 1 <= precision <= _DECIMAL_DIGITS_MAX or scale > precision:
        raise FieldsError(
            f"{text!r} is no Spark type: a decimal has 1 to {_DECIMAL_DIGITS_MAX} digits, and no more behind the point"
        )
    return pa.decimal128(precision, scale), tokens[end + 1 :]


def _parse_struct(tokens: list[str], text: str) -> tuple[pa.DataType, list[str]]:
    fields: list[pa.Field] = []
    rest = tokens
    while True:
        if not rest:
            raise _unknown(text)
        name, rest = rest[0], _expect(rest[1:], ":", text)
        kind, rest = _parse(rest, text)
        fields.append(pa.field(name, kind))
        if rest and rest[0] == ",":
            rest = rest[1:]
            continue
        names = [field.name.lower() for field in fields]
        twice = next((field.name for field in fields if names.count(field.name.lower()) > 1), None)
        if twice is not None:  # Delta and Spark take names for the same in any case
            raise FieldsError(f"{text.strip()!r} has the member {twice!r} twice, if only in other case; rename one")
        return pa.struct(fields), _expect(rest, ">", text)


def _expect(tokens: list[str], token: str, text: str) -> list[str]:
    if not tokens or tokens[0] != token:
        raise _unknown(text)
    return tokens[1:]


def _unknown(text: str) -> FieldsError:
    return FieldsError(
        f"{text.strip()!r} is not a Spark type; use one of {', '.join(_SIMPLE)}, decimal(precision, scale), "
        "array<type>, map<key, value> or struct<name: type, …>"
    )
