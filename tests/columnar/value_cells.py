"""Types, values and ways in: what is taken, and what is refused; the guide's tables are drawn from it."""

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

EAST = dt.timezone(dt.timedelta(hours=2))
MOMENT = dt.datetime(2020, 1, 1, 5)  # noqa: DTZ001 - without a zone, for timestamp_ntz
AWARE = MOMENT.replace(tzinfo=EAST)
BEFORE_ALL = dt.datetime(1, 1, 1, tzinfo=EAST)


@attrs.frozen
class Cell:
    """Some values for a field of a type: those that are taken, with what they become, and those that are refused."""

    kind: str
    taken: Sequence[tuple[Any, Any]]
    refused: Sequence[Any]


PYTHON = [
    Cell("long", [(3, 3), (np.int8(3), 3)], [2.5, 2.0, True, 2**63, Decimal(1), math.nan]),
    Cell("tinyint", [(-128, -128)], [300, 1.0]),
    Cell("double", [(0.1, 0.1), (3, 3.0), (math.nan, math.nan)], [True, 2**53 + 1, Decimal("1.5"), "1"]),
    Cell(
        "float",
        [(0.5, 0.5), (0.1, float(np.float32(0.1))), (math.inf, math.inf)],
        [1e300, 1e-300, 2**24 + 1],
    ),
    Cell("boolean", [(True, True), (np.bool_(1), True)], [1, "true"]),
    Cell("string", [("a", "a")], [b"a", 1, "a\ud800"]),
    Cell("binary", [(b"a", b"a"), (bytearray(b"a"), b"a")], ["a"]),
    Cell(
        "decimal(5,1)",
        [(Decimal("1.50"), Decimal("1.5")), (3, Decimal("3.0"))],
        [Decimal("1.55"), Decimal(123456), Decimal("NaN"), 1.5, True],
    ),
    Cell("date", [(MOMENT.date(), MOMENT.date())], [MOMENT, 5]),
    Cell("timestamp", [(AWARE, AWARE)], [MOMENT, 5, MOMENT.date(), BEFORE_ALL]),
    Cell("timestamp_ntz", [(MOMENT, MOMENT)], [AWARE, 5]),
    Cell(
        "array<long>",
        [([1, None], [1, None]), ((1, None), [1, None])],
        [[1, 2.5], {1, 2}],
    ),
    Cell("array<double>", [(np.array([1.5, 2.5]), [1.5, 2.5])], []),
    Cell("array<timestamp>", [], [[BEFORE_ALL]]),
    Cell(
        "map<string, long>",
        [({"a": None}, {"a": None})],
        [{"a": True}, {None: 1}, [("a", 1), ("a", 2)]],
    ),
    Cell(
        "struct<a: long, b: long>",
        [({"b": None, "a": 1}, {"a": 1, "b": None})],
        [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "B": 2}, (1, 2)],
    ),
    Cell("array<struct<a: array<date>>>", [], [[{"a": [MOMENT]}]]),
]
"""Python values, wherever they come in."""


def _arrow(value: Any, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array([value], kind)


ARROW = [
    Cell("long", [(_arrow(3, pa.int8()), 3)], [_arrow(2.0), _arrow("1"), _arrow(2**63, pa.uint64())]),
    Cell("double", [(_arrow(3), 3.0)], [_arrow(2**53 + 1), _arrow(Decimal("1.5"))]),
    Cell("float", [(_arrow(0.1), float(np.float32(0.1)))], [_arrow(1e300), _arrow(1e-300)]),
    Cell("boolean", [(_arrow(value=True), True)], [_arrow(1)]),
    Cell("string", [(_arrow("a").dictionary_encode(), "a")], [_arrow(b"a")]),
    Cell("decimal(5,2)", [(_arrow(3), Decimal("3.00"))], [_arrow(1.5), _arrow(Decimal("1.555")), _arrow(1000)]),
    Cell("date", [(_arrow(MOMENT.date(), pa.date64()), MOMENT.date())], [_arrow(MOMENT)]),
    Cell("timestamp", [(_arrow(AWARE, pa.timestamp("ms", "UTC")), AWARE)], [_arrow(5), _arrow(MOMENT)]),
    Cell(
        "timestamp_ntz",
        [(_arrow(MOMENT, pa.timestamp("ns")), MOMENT)],
        [_arrow(1, pa.timestamp("ns")), _arrow(AWARE, pa.timestamp("us", "UTC"))],
    ),
    Cell("array<int>", [(_arrow([1, None], pa.large_list(pa.int64())), [1, None])], [_arrow([2**40])]),
    Cell("map<string, int>", [(_arrow([("a", 1)], pa.map_(pa.string(), pa.int64())), {"a": 1})], []),
    Cell("struct<a: long>", [(_arrow({"a": 1}), {"a": 1})], [_arrow({"A": 1})]),
]
"""Columns of Arrow, which a bolt emits or a Parquet file has."""

CSV = [
    Cell("long", [("3", 3), (" 3 ", 3), ("", None)], ["2.0", "1e3", "+1", "0x10", "9223372036854775808", "true"]),
    Cell("double", [("0.1", 0.1), ("1e5", 1e5), ("-inf", -math.inf), ("nan", math.nan)], ["1e400", "1e-400", "0x10"]),
    Cell("float", [("0.1", float(np.float32(0.1)))], ["1e39", "1e-60"]),
    Cell("boolean", [("true", True), ("FALSE", False), ("1", True)], ["yes"]),
    Cell("string", [(" a ", " a "), ("", "")], []),
    Cell("binary", [("a", b"a")], []),
    Cell("decimal(5,1)", [("1.50", Decimal("1.5")), ("1e2", Decimal("100.0"))], ["1.55", "123456", "NaN"]),
    Cell("date", [("2020-01-01", MOMENT.date())], ["2020-01-01T05:00:00", "2020-02-30", "0000-01-01", "5"]),
    Cell(
        "timestamp",
        [("2020-01-01T05:00:00+02:00", AWARE), ("2020-01-01 03:00Z", AWARE)],
        ["2020-01-01T05:00:00", "2020-01-01", "0001-01-01T00:00:00+02:00", "5"],
    ),
    Cell("timestamp_ntz", [("2020-01-01T05:00:00", MOMENT), ("2020-01-01 05:00", MOMENT)], ["2020-01-01T05:00:00Z"]),
]
"""Values of CSV files."""

JSON = [
    Cell("long", [("3", 3), ("null", None)], ["2.0", "1e3", "9223372036854775808", "true", '"1"']),
    Cell("double", [("0.1", 0.1), ("3", 3.0)], ["1e400", "1e-400", "true", '"1"']),
    Cell("float", [("0.1", float(np.float32(0.1)))], ["1e39", "1e-60"]),
    Cell("boolean", [("true", True)], ["1", '"true"']),
    Cell("string", [('"a"', "a")], ["1", r'"a\ud800"']),
    Cell("binary", [('"a"', b"a")], ["1"]),
    Cell("decimal(5,1)", [("1.50", Decimal("1.5")), ('"1.5"', Decimal("1.5"))], ["1.55", "123456", '"NaN"']),
    Cell("date", [('"2020-01-01"', MOMENT.date())], ['"2020-01-01T05:00:00"', '"2020-02-30"', "5"]),
    Cell(
        "timestamp",
        [('"2020-01-01T05:00:00+02:00"', AWARE)],
        ['"2020-01-01T05:00:00"', '"0001-01-01T00:00:00+02:00"', "5"],
    ),
    Cell(
        "timestamp_ntz", [('"2020-01-01T05:00:00"', MOMENT)], ['"2020-01-01T05:00:00Z"', '"2020-01-01T05:00:00+02:00"']
    ),
    Cell("array<date>", [('["2020-01-01", null]', [MOMENT.date(), None])], ['["x"]', "1"]),
    Cell(
        "struct<a: long, b: long>",
        [('{"b": 2, "a": 1}', {"a": 1, "b": 2}), ('{"a": 1, "c": 3}', {"a": 1, "b": None})],
        ['{"a": 1.5}'],
    ),
]
"""Values of JSON members, in files and in Kafka's records."""

FRAME = [
    Cell("long", [("3Y", 3), ("3", 3), ("NULL", None)], ["2.0D", "2BD", "'1'", "true", "DATE'2020-01-01'"]),
    Cell("int", [("3S", 3)], ["3L"]),
    Cell("double", [("3", 3.0), ("CAST(0.1 AS FLOAT)", float(np.float32(0.1)))], ["3L", "1.5BD", "true", "'1'"]),
    Cell("float", [("3S", 3.0)], ["3", "0.5D"]),
    Cell("boolean", [("true", True)], ["1", "'true'"]),
    Cell("string", [("'a'", "a")], ["X'61'", "1", "true"]),
    Cell("binary", [("X'61'", b"a")], ["'a'", "1"]),
    Cell(
        "decimal(5,2)",
        [("3Y", Decimal("3.00")), ("1.5BD", Decimal("1.50"))],
        ["3S", "1.555BD", "1000.0BD", "1.5D", "'1.5'"],
    ),
    Cell("date", [("DATE'2020-01-01'", MOMENT.date())], ["TIMESTAMP_NTZ'2020-01-01'", "'2020-01-01'"]),
    Cell(
        "timestamp",
        [("TIMESTAMP'2020-01-01 05:00:00+02:00'", AWARE)],
        ["TIMESTAMP_NTZ'2020-01-01'", "DATE'2020-01-01'", "5", "INTERVAL 1 DAY", "INTERVAL 1 MONTH"],
    ),
    Cell(
        "timestamp_ntz",
        [("TIMESTAMP_NTZ'2020-01-01 05:00:00'", MOMENT)],
        ["TIMESTAMP'2020-01-01 05:00:00+02:00'", "DATE'2020-01-01'"],
    ),
    Cell("array<long>", [("array(1, NULL)", [1, None]), ("array()", [])], ["array(2.5D)", "1L"]),
    Cell("map<string, long>", [("map('a', 1)", {"a": 1})], ["map('a', true)", "map(1, 1)", "map()"]),
    Cell(
        "struct<a: long, b: long>",
        [("named_struct('b', 2, 'a', 1)", {"a": 1, "b": 2})],
        [
            "named_struct('a', 1)",
            "named_struct('a', 1, 'b', 2, 'c', 3)",
            "named_struct('a', 1, 'B', 2)",
            "named_struct('a', 1, 'b', 2.0D)",
        ],
    ),
    Cell(
        "array<struct<a: map<string, double>, b: string>>",
        [("array(named_struct('b', 'x', 'a', map('k', 3)))", [{"a": {"k": 3.0}, "b": "x"}])],
        ["array(named_struct('b', 'x', 'a', map('k', 3L)))", "array(named_struct('b', 'x'))"],
    ),
]
"""Columns of DataFrames, as SQL of one value; their type decides."""

WAYS = {
    "A Python value: emitted, put into a state, appended to rows, returned by a deserializer": PYTHON,
    "A column of Arrow: emitted, appended to rows, read from Parquet": ARROW,
    "A value of a CSV file": CSV,
    "A member of a JSON object, of a file or a record of Kafka": JSON,
    "A column of a DataFrame, by its type: returned by `read` or `transform`": FRAME,
}


def taken_in(cells: Sequence[Cell]) -> list[tuple[str, Any, Any]]:
    """Return type, value and what it becomes, of all values that are taken."""
    return [(cell.kind, value, kept) for cell in cells for value, kept in cell.taken]


def refused_in(cells: Sequence[Cell]) -> list[tuple[str, Any]]:
    """Return type and value of all that are refused."""
    return [(cell.kind, value) for cell in cells for value in cell.refused]


def tables() -> str:
    """Return the tables of the guide."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for way, cells in WAYS.items():
        is_text = cells in (CSV, JSON, FRAME)
        yield f"**{way}.**\n"
        yield "| type of the field | taken | refused |"
        yield "|---|---|---|"
        for cell in cells:
            taken = ", ".join(_shown(value, is_text=is_text) for value, _ in cell.taken)
            refused = ", ".join(_shown(value, is_text=is_text) for value in cell.refused)
            yield f"| `{cell.kind}` | {taken} | {refused} |"
        yield ""


def _shown(value: Any, *, is_text: bool) -> str:
    if is_text:
        return f"`{value}`" if value else "nothing"
    if isinstance(value, pa.Array):
        is_time = pa.types.is_temporal(value.type)
        shown = f"`{value.cast(pa.string())[0]}`" if is_time else _shown(value[0].as_py(), is_text=False)
        return f"{shown} of `{value.type}`"
    if isinstance(value, np.generic):
        return f"`np.{value.dtype}({value})`"
    text = repr(value).replace("datetime.", "").replace(", tzinfo=timezone(timedelta(seconds=7200))", ", tzinfo=…")
    return f"`{text}`"
