"""Types of fields, as texts in Spark's DDL."""

import pyarrow as pa
import pytest

from txtopo.api.data.types import parse_type, python_values
from txtopo.errors import FieldsError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(12)", pa.decimal128(12, 0)),
        ("map<string, decimal(38, 38)>", pa.map_(pa.string(), pa.decimal128(38, 38))),
    ],
)
def test_decimals(text: str, kind: pa.DataType) -> None:
    """A decimal has Spark's default precision and scale, or those that are given, anywhere in a type."""
    assert parse_type(text) == kind


@pytest.mark.parametrize(
    "text",
    ["decimal(", "decimal()", "decimal(10 foo)", "decimal(10,x)", "decimal(10,2,1)", "decimal(39)", "decimal(5,6)"],
)
def test_decimals_that_are_none(text: str) -> None:
    """What Spark refuses is refused by an error that quotes it."""
    with pytest.raises(FieldsError, match="is no"):
        parse_type(text)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("array<struct<x: long, y: string>>", [[{"x": 1, "y": "a"}, None], [], None, [{"x": None, "y": "b"}]]),
        ("map<string, array<long>>", [{"a": [1, None]}, {}, None, {"b": None, "c": [2]}]),
        ("struct<x: map<long, double>, y: array<array<string>>>", [{"x": {1: 0.5}, "y": [["a"], None]}, None] * 2),
        ("array<long>", [[1, 2], [3], None, []]),
    ],
)
def test_values_of_nested_columns(kind: str, values: list[object]) -> None:
    """Lists, maps and structs are lists and dicts, with their nulls, also in slices and chunks of a column."""
    items = [list(value.items()) if isinstance(value, dict) and kind.startswith("map") else value for value in values]
    column = pa.array(items, parse_type(kind))
    assert python_values(column) == values
    assert python_values(column.slice(1, 2)) == values[1:3]
    assert python_values(pa.chunked_array([column.slice(2), column, column.slice(4)])) == [*values[2:], *values]


def test_what_a_dict_cannot_hold() -> None:
    """A key that is in a map twice is refused, and named."""
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(KeyError, match="duplicate key was 'a'"):
        python_values(twice)
