"""Values become columns without silent loss."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from state.delta.columns import fit_column
from txtopo.columnar.conversion import fit_array, misfit_of

EAST, WEST = dt.timezone(dt.timedelta(hours=14)), dt.timezone(dt.timedelta(hours=-12))


@pytest.mark.parametrize(
    "moment", [dt.datetime(1, 1, 1, tzinfo=EAST), dt.datetime(9999, 12, 31, 23, tzinfo=WEST)], ids=["before", "after"]
)
def test_time_that_utc_does_not_have(moment: dt.datetime) -> None:
    """A time whose year in UTC is before 1 or after 9999 does not fit: nobody could read it back."""
    kind = pa.timestamp("us", tz="UTC")
    assert fit_column([moment], kind) is None
    assert fit_array([moment], kind) is None
    assert fit_array([[moment]], pa.list_(kind)) is None
    assert misfit_of([dt.datetime(2020, 1, 1, tzinfo=EAST), moment], kind).position == 1
