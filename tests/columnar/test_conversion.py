"""A value becomes an Arrow value of a declared type without loss, or not at all."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.columnar.value_cells import ARROW, AWARE, MOMENT, PYTHON, refused_in, taken_in
from txtopo.api.data.types import parse_type
from txtopo.api.data.utc import micros_at
from txtopo.columnar.conversion import (
    cast_array,
    cast_rows,
    fit_array,
    has_years,
    misfit_in,
    misfit_of,
    python_rows,
    takes_all,
)
from txtopo.errors import FieldsError


@pytest.mark.parametrize(("kind", "value"), refused_in(PYTHON), ids=str)
@pytest.mark.parametrize("before", [[], [None]], ids=["alone", "after a null"])
def test_what_would_change_is_refused(kind: str, value: Any, before: list[Any]) -> None:
    """A Python value that would become another one does not fit; its position, its class and the type are named."""
    arrow = parse_type(kind)
    assert fit_array([*before, value], arrow) is None
    misfit = misfit_of([*before, value], arrow)
    assert misfit.position == len(before)
    assert fit_array([*before, [value]], pa.list_(arrow)) is None


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("long", 1, 2.5),
        ("long", 1, True),
        ("long", 1, np.bool_(1)),
        ("double", 1.5, True),
        ("double", 1.5, np.bool_(1)),
        ("float", 0.5, 2.0**-150),
        ("float", 0.5, 3.4028235677973366e38),
        ("timestamp", AWARE, MOMENT),
        ("timestamp_ntz", MOMENT, AWARE),
    ],
)
def test_a_misfit_among_good_values(kind: str, good: Any, bad: Any) -> None:
    """A value is judged alike alone and among others, in whatever order."""
    arrow = parse_type(kind)
    for values in ([good, bad], [bad, good], [None, good, bad]):
        assert fit_array(values, arrow) is None
        assert values[misfit_of(values, arrow).position] is bad


@pytest.mark.parametrize(("kind", "value", "kept"), taken_in(PYTHON), ids=str)
def test_what_is_the_same_is_taken(kind: str, value: Any, kept: Any) -> None:
    """A value of another class that means the same is taken, within other values, too."""
    arrow = parse_type(kind)
    array = fit_array([None, value], arrow)
    assert array is not None
    assert array.type == arrow
    assert repr(array.to_pylist(maps_as_pydicts="strict")) == repr(
        pa.array([None, kept], arrow).to_pylist(maps_as_pydicts="strict")
    )
    assert fit_array([[value]], pa.list_(arrow)) is not None


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("long", 2.5, "2.5 (float) does not fit bigint"),
        ("timestamp", MOMENT, "whose times have a time zone"),
        ("struct<name: long>", {"nmae": 1}, "has a member 'nmae' that struct<name:bigint> does not have; did you mean"),
        ("struct<name: long>", {}, "lacks the member 'name'"),
        ("array<struct<a: long>>", [{"a": "x"}], "item 0 of [{'a': 'x'}]: member 'a' of {'a': 'x'}: 'x' (str)"),
        ("tinyint", 300, "whose range or digits it exceeds"),
    ],
)
def test_why(kind: str, value: Any, words: str) -> None:
    """The reason names the innermost value that does not fit, its class and its type."""
    assert words in misfit_of([value], parse_type(kind)).why


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("array<long>", [[], None, [1, 2**40], [None]]),
        ("map<string, array<long>>", [{}, None, {"a": [1], "b": None}, {"c": []}]),
        ("struct<a: long, b: array<string>>", [{"a": 1, "b": ["x"]}, None, {"b": None, "a": None}]),
        ("array<struct<a: map<string, double>>>", [None, [None, {"a": {"x": 1}}], [{"a": None}]]),
        ("array<array<timestamp>>", [[[AWARE], None], [], None]),
    ],
)
def test_nested_values(kind: str, values: list[Any]) -> None:
    """Lists, maps and structs are those that Arrow makes itself, with nulls and without, and also if there are none."""
    arrow = parse_type(kind)
    for some in (values, [value for value in values if value is not None], values[1:2], [None, None], []):
        made = fit_array(some, arrow)
        made.validate(full=True)
        assert made.equals(pa.array(some, arrow))
        assert made.null_count == some.count(None)


EDGES: dict[str, list[Any]] = {
    "tinyint": [-128, 127],
    "smallint": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 2**31 - 1],
    "long": [-(2**63), 2**63 - 1],
    "float": [2.0**-149, 3.4028234663852886e38, -3.4028234663852886e38],
    "double": [5e-324, 1.7976931348623157e308, 2.0**53 + 2],
    "decimal(3,0)": [Decimal(999), Decimal(-999)],
    "decimal(5,2)": [Decimal("999.99"), Decimal("0.01")],
    "decimal(10,0)": [Decimal(9_999_999_999)],
    "decimal(38,18)": [Decimal(f"{'9' * 20}.{'9' * 18}")],
    "boolean": [True],
    "string": ["1"],
    "binary": [b"1"],
    "date": [MOMENT.date()],
    "timestamp": [AWARE],
    "timestamp_ntz": [MOMENT],
}
"""The values of each type that need most of another one."""


@pytest.mark.parametrize("kind", EDGES)
@pytest.mark.parametrize("theirs", EDGES)
def test_a_type_takes_all_of_another_if_each_value_is_cast(kind: str, theirs: str) -> None:
    """The types decide as the values would, within lists, maps and structs, too."""
    ours, other = parse_type(kind), parse_type(theirs)
    casts = all(cast_array(pa.array([value], other), ours) is not None for value in EDGES[theirs])
    assert takes_all(ours, other) == casts
    assert takes_all(pa.list_(ours), pa.list_(other)) == casts
    assert takes_all(pa.map_(ours, ours), pa.map_(other, ours)) == casts
    assert takes_all(pa.map_(ours, ours), pa.map_(ours, other)) == casts
    assert takes_all(pa.struct([("a", ours)]), pa.struct([("a", other)])) == casts
    assert not takes_all(pa.list_(ours), other)
    assert not takes_all(ours, pa.struct([("a", other)]))


def test_a_struct_takes_all_of_one_with_its_members() -> None:
    """Each by its name, in whatever order; none may be missing, misspelt or there twice. Null fits every type."""
    two = parse_type("struct<a: long, b: string>")
    assert takes_all(two, parse_type("struct<b: string, a: int>"))
    assert takes_all(two, pa.null())
    assert takes_all(two, pa.struct([("a", pa.null()), ("b", pa.null())]))
    for members in ("a: long", "a: long, b: string, c: long", "a: long, B: string"):
        assert not takes_all(two, parse_type(f"struct<{members}>"))
    assert not takes_all(two, pa.struct([("a", pa.int64()), ("b", pa.string()), ("b", pa.string())]))


STRUCT = pa.struct([("a", pa.int64()), ("b", pa.int64())])


@pytest.mark.parametrize(("kind", "column"), refused_in(ARROW), ids=str)
def test_a_column_that_would_change_is_refused(kind: str, column: pa.Array) -> None:
    """A column of Arrow is converted without loss or refused, within lists, structs and maps as by itself."""
    arrow = parse_type(kind)
    nested = pa.ListArray.from_arrays([0, len(column)], column)
    within = pa.StructArray.from_arrays([column], names=["x"])
    assert cast_array(column, arrow) is None
    assert misfit_in(column, arrow).position == 0
    assert cast_array(nested, pa.list_(arrow)) is None
    assert cast_array(within, pa.struct([("x", arrow)])) is None


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([1, None, 3]), "tinyint"),
        (pa.array([1, None]), "decimal(5,2)"),
        (pa.array(["a", None]).dictionary_encode(), "string"),
        (pa.array([{"b": 2, "a": 1}, None, {"b": None, "a": 3}]), "struct<a: int, b: double>"),
        (pa.array([[1], None, [], [2, 3]], pa.large_list(pa.int64())), "array<int>"),
        (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), "array<int>"),
        (pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())), "map<string, int>"),
        (pa.array([None, None]), "array<struct<a: long>>"),
    ],
    ids=str,
)
def test_a_column_that_is_the_same_is_taken(column: pa.Array, kind: str) -> None:
    """Other types with the same values are taken, nulls and parts of columns included."""
    arrow = parse_type(kind)
    for part in (column, column.slice(1), pa.chunked_array([column, column.slice(1)])):
        made = cast_array(part, arrow)
        made.validate(full=True)
        assert made.type == arrow
        assert made.to_pylist() == part.to_pylist()


def test_a_part_of_a_struct() -> None:
    """Only a reader that wants a part of a struct may leave out members."""
    column = pa.array([{"a": 1, "b": 2, "c": 3}])
    assert cast_array(column, STRUCT) is None
    assert cast_array(column, STRUCT, is_part=True).to_pylist() == [{"a": 1, "b": 2}]


def test_rows_name_the_field() -> None:
    """The error for a batch says where it comes from, and names the field, the first misfit and the type."""
    batch = pa.record_batch({"n": pa.array([1, 2**40, 2**41])})
    with pytest.raises(FieldsError, match=r"here, field 'n: int': 1099511627776 .* does not fit int"):
        cast_rows(batch, pa.schema([("n", pa.int32())]), "here")


def test_no_rows_of_another_type() -> None:
    """A column without rows is refused for its type, too: its next rows would be."""
    with pytest.raises(FieldsError, match=r"here, field 'n: int': None .Arrow's double. does not fit int"):
        cast_rows(pa.record_batch({"n": pa.array([], pa.float64())}), pa.schema([("n", pa.int32())]), "here")


def test_times_that_python_cannot_read() -> None:
    """They are texts where rows are shown, at any depth; all other values, and those of rows without any, are as ever."""
    kind, day = pa.timestamp("us", "UTC"), pa.date32()
    late, early, known = (1 << 63) - 1, -(1 << 63), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC)
    times = pa.array([late, early, micros_at(known), None]).cast(kind)
    ones = pa.array([0, 1, 2, 3, 4], pa.int32())
    rows = pa.table(
        {
            "n": [1, 2, 3, 4],
            "at": times,
            "day": pa.array([9_999_999, 0, None, 1], pa.int32()).cast(day),
            "list": pa.ListArray.from_arrays(ones, times),
            "map": pa.MapArray.from_arrays(ones, pa.array(["a", "b", "c", "d"]), times),
            "struct": pa.StructArray.from_arrays([times, pa.array([1, 2, 3, 4])], ["at", "n"]),
        }
    )
    said = [f"{late} us since 1970", f"{early} us since 1970", known, None]
    days = ["9999999 days since 1970", dt.date(1970, 1, 1), None, dt.date(1970, 1, 2)]
    assert python_rows(rows) == [
        {"n": n, "at": at, "day": day, "list": [at], "map": [(key, at)], "struct": {"at": at, "n": n}}
        for n, at, day, key in zip([1, 2, 3, 4], said, days, "abcd", strict=True)
    ]
    assert python_rows(rows.slice(2)) == rows.slice(2).to_pylist()
    assert python_rows(rows.slice(0, 0)) == []


@pytest.mark.parametrize("late", [None, "key", "item"])
def test_a_time_in_a_map_that_python_cannot_read(late: str | None) -> None:
    """It is found whether it is a key or an item."""
    times = {name: pa.array([(1 << 62) if name == late else 5], pa.timestamp("us")) for name in ("key", "item")}
    column = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), times["key"], times["item"])
    assert has_years(column) == has_years(pa.chunked_array([column])) == (late is None)
