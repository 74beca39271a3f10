"""What the log says of a data file, so that readers can skip it: the bounds of every column, or of none.

Readers take a column without bounds, beside others that have some, for one without values: delta-rs' Arrow dataset
makes ``d >= null`` of it, and a filter on ``d`` finds nothing. So one column whose bounds can't be written exactly
leaves the file with its number of rows alone, which is right for every reader. So does a struct, of which that dataset
finds no nulls beside bounds. Only columns of bytes, arrays and maps, and those that are null throughout, may lack
bounds beside others.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics, and what the readers made of it.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

_TEXT_MAX = 32
"""The length of bounds of texts, as in Delta: longer ones skip hardly more, and each reader of the log reads them."""

_LAST_CHARACTER = "\U0010ffff"

_MILLISECOND = dt.timedelta(milliseconds=1)


@attrs.frozen
class ColumnContent:
    """What a file has in a column: the number of nulls, and bounds of all other values, which may be the bounds' own.

    None stands for what is not known, and for the bounds of a column without a value.
    """

    nulls: int | None
    low: Any
    high: Any


class _NoBoundsError(Exception):
    """A column's bounds can't be written so that every reader understands them."""


def stats_of(rows: pa.Table) -> str:
    """Return the log's statistics of a file with these rows, as JSON; the columns are those that are no partition's."""
    try:
        contents = {name: _content_of(rows[name]) for name in rows.column_names}
    except _NoBoundsError:
        return row_count_of(rows.num_rows)
    return stats_from(rows.num_rows, rows.schema, contents)


def stats_from(rows: int, schema: pa.Schema, contents: Mapping[str, ColumnContent]) -> str:
    """Return the log's statistics, as JSON, of a file of which the number of rows and the content are known.

    Args:
        rows: how many it has.
        schema: the table's columns that are no partition's.
        contents: what each column has; that of bytes and of several values does not matter.
    """
    stats: dict[str, Any] = {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    try:
        for field in schema:
            if pa.types.is_struct(field.type):
                return row_count_of(rows)
            if pa.types.is_nested(field.type):  # their counts are not needed
                continue
            content = contents[field.name]
            stats["nullCount"][field.name] = content.nulls
            if content.nulls == rows or (content.nulls is not None and pa.types.is_binary(field.type)):
                continue
            low, high = _bounds_in_log(field.type, content)
            stats["minValues"][field.name], stats["maxValues"][field.name] = low, high
    except _NoBoundsError:
        return row_count_of(rows)
    # JSON may write a character beyond 16 bits as \ud83d\ude00. delta-rs 1.6 reads another character then, and
    # skips the file when it looks for the text.
    return json.dumps(stats, ensure_ascii=False)


def row_count_of(rows: int, *, is_live: bool = True) -> str:
    """Return the log's statistics of a file of which only the number of rows is said, as JSON.

    ``is_live`` is False if some of them are dead: bounds, were there any, would not be those of the rows that are left.
    """
    # Each write asks for it twice for each file that it touches; json.dumps() takes 10 times as long.
    return f'{{"numRecords": {rows}}}' if is_live else f'{{"numRecords": {rows}, "tightBounds": false}}'


def _content_of(column: pa.ChunkedArray) -> ColumnContent:
    if not any(is_kind(column.type) for is_kind in _IN_LOG):
        return ColumnContent(column.null_count, None, None)
    if pa.types.is_floating(column.type) and pc.all(pc.is_finite(column)).as_py() is False:
        raise _NoBoundsError  # JSON has neither NaN nor infinity
    try:
        low, high = pc.min_max(column).as_py().values()
    except (OverflowError, UnicodeDecodeError) as error:
        # A time outside of the years 1 to 9999, which a file may hold and Python does not know, or half a character.
        raise _NoBoundsError from error
    return ColumnContent(column.null_count, low, high)


def _bounds_in_log(kind: pa.DataType, content: ColumnContent) -> tuple[Any, Any]:
    in_log = next((each for is_kind, each in _IN_LOG.items() if is_kind(kind)), None)
    if in_log is None or None in {content.nulls, content.low, content.high}:
        raise _NoBoundsError
    try:
        return in_log(content.low, content.high)
    except OverflowError as error:  # there is no later millisecond
        raise _NoBoundsError from error


def _as_they_are(low: Any, high: Any) -> tuple[Any, Any]:
    return low, high


def _of_texts(low: str, high: str) -> tuple[str, str]:
    return low[:_TEXT_MAX], _upper_bound(high)


def _of_dates(low: dt.date, high: dt.date) -> tuple[str, str]:
    return low.isoformat(), high.isoformat()


def _of_times(low: dt.datetime, high: dt.datetime) -> tuple[str, str]:
    """Return bounds in whole milliseconds, as some readers know no others, the low one down and the high one up."""
    low -= dt.timedelta(microseconds=low.microsecond % 1000)
    if high.microsecond % 1000:
        high += _MILLISECOND - dt.timedelta(microseconds=high.microsecond % 1000)
    return _time_text(low), _time_text(high)


def _time_text(time: dt.datetime) -> str:
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("" if time.tzinfo is None else "Z")


def _of_numbers(low: float, high: float) -> tuple[float, float]:
    if not (math.isfinite(low) and math.isfinite(high)):
        raise _NoBoundsError
    # Zero stands for both of its signs, which readers order in different ways.
    return -0.0 if low == 0 else low, 0.0 if high == 0 else high


def _upper_bound(text: str) -> str:
    """Return an upper bound for a text, rarely longer than the maximum length of a bound."""
    end = _TEXT_MAX
    while text[end : end + 1] == _LAST_CHARACTER:  # no larger character can be appended
        end += 1
    return text if len(text) <= end else text[:end] + _LAST_CHARACTER


_IN_LOG: Mapping[Callable[[pa.DataType], bool], Callable[[Any, Any], tuple[Any, Any]]] = {
    pa.types.is_signed_integer: _as_they_are,
    pa.types.is_boolean: _as_they_are,
    pa.types.is_string: _of_texts,
    pa.types.is_date: _of_dates,
    pa.types.is_timestamp: _of_times,
    pa.types.is_floating: _of_numbers,
}
"""The kinds of columns that have bounds, and their form in the log. Decimals have none: readers make floats of them."""
