"""Event times as numpy arrays: microseconds since 1970, UTC."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.api.data.utc import MICROS_MIN, MICROSECOND
from txtopo.columnar.selection import in_one_piece
from txtopo.errors import ConfigError, FieldsError

Micros = npt.NDArray[np.int64]
"""Times in microseconds since 1970, UTC."""

TIMESTAMP = pa.timestamp("us", tz="UTC")

MICROS_MAX = 253_402_300_799_999_999
"""The last microsecond of the year 9999, which Python knows. As a watermark it is after all times, see `lowered`."""


def micros_of(duration: dt.timedelta, what: str, *, may_be_zero: bool = False) -> int:
    """Return a duration in microseconds; ``what`` names it in the error for one that is too short.

    One longer than from the year 1 to 9999, such as ``timedelta.max``, is as long: it is for ever.
    """
    if not isinstance(duration, dt.timedelta):
        raise ConfigError(f"{what} is {duration!r}; give a datetime.timedelta, such as timedelta(minutes=1)")
    micros = duration // MICROSECOND
    if micros < (0 if may_be_zero else 1):
        raise ConfigError(f"{what} is {duration}; it must be {'at least' if may_be_zero else 'more than'} zero")
    return min(micros, MICROS_MAX - MICROS_MIN)


def lowered(watermark: int, lateness: int) -> int:
    """Return up to which time rows are over at a watermark; at the one after all times, however late, all are."""
    return watermark if watermark == MICROS_MAX else watermark - lateness


def in_known_years(times: Any) -> Any:
    """Return a column of timestamps in which those before the year 1 or after 9999 are its first or last moment."""
    not_before = pc.max_element_wise(times.cast(pa.int64()), MICROS_MIN, skip_nulls=False)
    return pc.min_element_wise(not_before, MICROS_MAX, skip_nulls=False).cast(TIMESTAMP)


def timestamps(micros: Micros) -> pa.Array:
    """Return microseconds as a column of timestamps."""
    return pa.array(micros, pa.int64()).cast(TIMESTAMP)


def event_times(rows: pa.Table, field: str) -> pa.ChunkedArray:
    """Return a column of event times as timestamps of microseconds; nulls stay.

    Raises:
        FieldsError: there is no such column, it is not one of timestamps, or a time does not fit.
    """
    if field not in rows.column_names:
        raise FieldsError(f"the stream has no event time {field!r}; its fields are {', '.join(rows.column_names)}")
    column: Any = rows[field]
    if not pa.types.is_timestamp(column.type):
        if pa.types.is_null(column.type):
            return column.cast(TIMESTAMP)
        raise FieldsError(
            f"the event time {field!r} is {column.type}; it must be a timestamp: convert it in a bolt above"
        )
    try:
        # A time without a zone is UTC. Nanoseconds are cut: windows are of microseconds.
        return pc.cast(column, TIMESTAMP, safe=column.type.unit != "ns")
    except pa.ArrowInvalid as error:
        raise FieldsError(f"an event time in {field!r} is out of range ({error})") from error


def micros_in(column: pa.ChunkedArray | pa.Array) -> Micros:
    """Return a column of timestamps without nulls in microseconds."""
    micros: Micros = in_one_piece(column).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return micros
