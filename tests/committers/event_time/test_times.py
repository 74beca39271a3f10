"""Event times of any unit in microseconds, or refused by name."""

import datetime as dt

import pyarrow as pa
import pytest

from committers.event_time.times import MICROS_MAX, event_times, micros_in
from txtopo.api.data.utc import datetime_at
from txtopo.errors import FieldsError

MICROS_OF = {"s": 10**6, "ms": 10**3, "us": 1}


def times(unit: str, *ticks: int | None) -> pa.Table:
    """Return a column of times in a unit."""
    return pa.table({"at": pa.array(ticks, pa.timestamp(unit))})


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_of_each_unit(unit: str) -> None:
    """They are the same moments in microseconds, before 1970 too; a null stays one."""
    found = event_times(times(unit, -1, None, 7), "at")
    assert found.null_count == 1
    assert micros_in(found.drop_null()).tolist() == [-MICROS_OF[unit], 7 * MICROS_OF[unit]]


def test_nanoseconds_are_cut() -> None:
    """What is less than a microsecond does not count."""
    assert micros_in(event_times(times("ns", 1_999, 2_000), "at")).tolist() == [1, 2]


@pytest.mark.parametrize("unit", ["s", "ms"])
@pytest.mark.parametrize("is_before", [False, True])
def test_a_time_that_has_no_microseconds(unit: str, is_before: bool) -> None:
    """The last moment that fits is taken; the next one is refused by its field, and does not go round to another year."""
    most = (2**63 - 1) // MICROS_OF[unit]
    sign = -1 if is_before else 1
    assert micros_in(event_times(times(unit, sign * most), "at")).tolist() == [sign * most * MICROS_OF[unit]]
    with pytest.raises(FieldsError, match="event time in 'at' is out of range"):
        event_times(times(unit, sign * (most + 1)), "at")


def test_the_last_microsecond_of_the_year_9999() -> None:
    """It is the largest time that Python knows."""
    assert datetime_at(MICROS_MAX) == dt.datetime.max.replace(tzinfo=dt.UTC)
