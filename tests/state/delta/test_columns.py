"""Values become columns without silent loss."""

import datetime as dt
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from state.delta import columns
from state.delta.columns import AT_ONCE_MAX, fit_column
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


SECOND = dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
"""The second time that clocks show this; Python does not take it for the same moment in another zone."""


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.map_(pa.float32(), pa.int64()), {0.1: 1, 0.10000000001: 2}),
        (pa.map_(pa.timestamp("us", tz="UTC"), pa.int64()), {SECOND: 1, SECOND.astimezone(dt.UTC): 2}),
    ],
    ids=["float", "timestamp"],
)
def test_keys_of_a_map_that_become_one(kind: pa.DataType, value: dict[object, int]) -> None:
    """Such a map could not be read back."""
    assert fit_column([value], kind) is None
    assert fit_column([{key: n} for key, n in value.items()], kind) is not None
    misfit = misfit_of([{}, None, value], kind)
    assert misfit.position == 2
    assert "has two keys that are one as" in misfit.why


def test_values_are_read_back_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """To check whether lists fit takes no look at what has become of them."""
    given = [[number] for number in range(2 * AT_ONCE_MAX)]
    column = fit_column(given, pa.list_(pa.int64()))
    assert column is not None
    assert column.is_changed
    assert column.values == given
    monkeypatch.setattr(columns, "column_values", None)
    again = fit_column(given, pa.list_(pa.int64()))
    assert again is not None
    assert again.array.equals(column.array)
