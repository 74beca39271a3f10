"""The columns of SQL tables: which types of fields they may have, and what values a database does not take."""

from __future__ import annotations

import datetime as dt
import operator
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.columns import column_values
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.columnar.conversion import has_years
from txtopo.errors import FieldsError

NAME_BYTES_MAX = 63
"""PostgreSQL cuts longer names."""

KEY_BYTES_MAX = 2_000
"""A key of PostgreSQL must fit into an entry of its index, of which a page has three."""

_NANOSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]")


@attrs.frozen
class ColumnType:
    """The type of a column in each database, and how SQLite keeps values that it has no type for.

    Args:
        postgresql: PostgreSQL's name of it.
        sqlite: SQLite's.
        to_sqlite: makes what SQLite keeps of a value; None if it keeps the value.
        of_sqlite: makes the value of that.
    """

    postgresql: str
    sqlite: str
    to_sqlite: Callable[[Any], Any] | None = None
    of_sqlite: Callable[[Any], Any] | None = None


def _time(text: str) -> dt.datetime:
    time = dt.datetime.fromisoformat(text)
    if _NANOSECONDS.search(text):  # which Python would cut off
        raise ValueError(f"{text!r} has nanoseconds, and no timestamp has more than microseconds")
    return time


def _instant(text: str) -> dt.datetime:
    time = _time(text)
    return time.replace(tzinfo=dt.UTC) if time.tzinfo is None else time.astimezone(dt.UTC)


def _single(number: float) -> float:
    """Return a number as a float has it; raise OverflowError if that would be infinite, TypeError if it is none."""
    return float(struct.unpack("<f", struct.pack("<f", operator.pos(number)))[0])


_TYPES: Mapping[pa.DataType, ColumnType] = {
    pa.bool_(): ColumnType("BOOLEAN", "BOOLEAN", int, lambda number: bool(operator.index(number))),
    # What is no integer, which SQLite keeps in any column, is refused rather than cut off.
    pa.int8(): ColumnType("SMALLINT", "SMALLINT", None, operator.index),
    pa.int16(): ColumnType("SMALLINT", "SMALLINT", None, operator.index),
    pa.int32(): ColumnType("INTEGER", "INTEGER", None, operator.index),
    pa.int64(): ColumnType("BIGINT", "BIGINT", None, operator.index),
    pa.float32(): ColumnType("REAL", "REAL", None, _single),
    pa.float64(): ColumnType("DOUBLE PRECISION", "DOUBLE"),
    pa.string(): ColumnType("TEXT", "TEXT"),
    pa.binary(): ColumnType("BYTEA", "BLOB"),
    # Texts that sort as the values do.
    pa.date32(): ColumnType("DATE", "DATE", dt.date.isoformat, dt.date.fromisoformat),
    pa.timestamp("us", tz="UTC"): ColumnType(
        "TIMESTAMP WITH TIME ZONE",
        "TIMESTAMP",
        lambda time: time.astimezone(dt.UTC).replace(tzinfo=None).isoformat(" ", "microseconds"),
        _instant,
    ),
    pa.timestamp("us"): ColumnType(
        "TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP", lambda time: time.isoformat(" ", "microseconds"), _time
    ),
}

_NAMES = (
    "boolean, tinyint, smallint, int, long, float, double, decimal, string, binary, date, timestamp or timestamp_ntz"
)


def column_type(name: str, kind: pa.DataType) -> ColumnType:
    """Return the type of a field's column; raise FieldsError if an SQL table has no such columns."""
    if pa.types.is_decimal(kind):
        exact = f"NUMERIC({kind.precision}, {kind.scale})"
        return ColumnType(exact, "TEXT", lambda value: format(value, "f"), Decimal)
    type_name = _TYPES.get(kind)
    if type_name is None:
        raise FieldsError(f"field {name!r} is {ddl_name(kind)}, which an SQL table has no column for; use {_NAMES}")
    return type_name


def checked_names(names: Sequence[str]) -> None:
    """Raise a FieldsError for a name that a column of both databases can't have."""
    for name in names:
        if len(name.encode()) > NAME_BYTES_MAX or {"\x00", "%"} & {*name}:
            raise FieldsError(
                f"nothing in a database can be named {name!r}: use up to {NAME_BYTES_MAX} bytes, and no %"
            )


def misfit_in_columns(rows: pa.Table, key: Fields, *, is_postgresql: bool) -> tuple[int, str] | None:
    """Return the first row that a database would refuse, and why, before a group is decided; None if it takes all."""
    for name in rows.column_names:
        column = rows[name]
        if pa.types.is_string(column.type) and is_postgresql:
            misfit_at = _first_true(pc.match_substring(column, "\x00"))
            if misfit_at is not None:
                return misfit_at, f"field {name!r} has a text with a zero character, which PostgreSQL can't keep"
        if pa.types.is_floating(column.type) and not is_postgresql:
            misfit_at = _first_true(pc.is_nan(column))
            if misfit_at is not None:
                return misfit_at, f"field {name!r} is NaN, of which SQLite would make null"
        if not has_years(column):
            misfit_at = next(at for at in range(rows.num_rows) if not has_years(column.slice(at, 1)))
            return misfit_at, f"field {name!r} has a time outside of the years 1 to 9999"
    sizes = [
        pc.binary_length(rows[name]).cast(pa.int64())
        for name in key
        if pa.types.is_string(rows[name].type) or pa.types.is_binary(rows[name].type)
    ]
    if is_postgresql and sizes:
        total = sizes[0]
        for size in sizes[1:]:
            total = pc.add(total, size)
        misfit_at = _first_true(pc.greater(total, KEY_BYTES_MAX))
        if misfit_at is not None:
            return misfit_at, f"the key has more than {KEY_BYTES_MAX:,} bytes, which no index of PostgreSQL takes"
    return None


def _first_true(is_wrong: Any) -> int | None:
    """Return the position of the first true value; None if there is none."""
    at = pc.index(is_wrong, True).as_py()
    return None if at < 0 else at


def python_columns(rows: pa.Table) -> list[list[Any]]:
    """Return the columns as Python values."""
    return [column_values(rows[name]) for name in rows.column_names]
