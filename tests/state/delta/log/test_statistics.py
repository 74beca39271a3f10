"""What the log says of a data file's columns."""

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from state.delta.log.data_files import DATA_FOLDER, DataFolder
from state.delta.log.location import Location
from state.delta.log.statistics import stats_of


def bounds_of(*values, kind):
    """Return the least and greatest value that the log says a column has; None if it says none of any column."""
    stats = json.loads(stats_of(pa.table({"other": [1] * len(values), "it": pa.array(values, kind)})))
    if stats.keys() == {"numRecords"}:
        return None
    assert stats["minValues"]["other"] == 1
    return stats["minValues"].get("it"), stats["maxValues"].get("it")


@pytest.mark.parametrize(
    "words",
    [
        ["a" * 400],
        ["a" * 400 + "b", "a" * 400 + "z"],
        ["z" * 31 + "\U0010ffff" * 3 + "z", "a"],
        ["\U0010ffff" * 100, "b"],
        ["é" * 50, "日本" * 40],
        ["short", "longer"],
    ],
    ids=lambda words: ascii(words[0][:8]),
)
def test_the_bounds_of_long_texts_hold_them(words):
    """Readers skip a file by its bounds: a text that is cut short is rounded down below, and up above."""
    low, high = bounds_of(*words, kind=pa.string())
    assert [low <= word <= high for word in words] == [True] * len(words)
    assert len(low) <= 32


UTC = dt.UTC


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1.5, 2.5], pa.float64(), (1.5, 2.5)),
        ([0.0, 1.5], pa.float64(), (-0.0, 1.5)),
        ([-1.5, -0.0], pa.float32(), (-1.5, 0.0)),
        ([True, False], pa.bool_(), (False, True)),
        ([dt.date(1, 1, 1), dt.date(9999, 12, 31)], pa.date32(), ("0001-01-01", "9999-12-31")),
        (
            [dt.datetime(1960, 1, 1, 0, 0, 0, 1, UTC), dt.datetime(2024, 1, 1, 0, 0, 0, 123001, UTC)],
            pa.timestamp("us", "UTC"),
            ("1960-01-01T00:00:00.000Z", "2024-01-01T00:00:00.124Z"),
        ),
        (
            [dt.datetime(2024, 1, 1, 0, 0, 0, 999999)],  # noqa: DTZ001 - the column has no zone
            pa.timestamp("us"),
            ("2024-01-01T00:00:00.999", "2024-01-01T00:00:01.000"),
        ),
        ([None, 2], pa.int64(), (2, 2)),
        ([None, None], pa.float64(), (None, None)),
        ([b"a", b"b"], pa.binary(), (None, None)),
        ([[1], [2]], pa.list_(pa.int64()), (None, None)),
    ],
    ids=str,
)
def test_bounds_hold_all_values(values, kind, expected):
    """Bounds hold all values of a column, in a form that every reader understands; so zero has both of its signs."""
    assert str(bounds_of(*values, kind=kind)) == str(expected)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.5, float("nan")], pa.float64()),
        ([1.5, float("inf")], pa.float32()),
        ([float("nan")], pa.float64()),
        ([Decimal("1.5")], pa.decimal128(10, 2)),
        ([2**63 - 1], pa.timestamp("us")),
        ([dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)], pa.timestamp("us", "UTC")),
        ([-800_000], pa.date32()),
    ],
    ids=str,
)
def test_one_column_without_bounds_leaves_none_to_the_others(values, kind):
    """Readers take a column without bounds beside others for one without values, so then the log has none at all."""
    assert bounds_of(*values, kind=kind) is None


@pytest.mark.parametrize("place", ["first", "last"])
def test_file_of_several_row_groups(tmp_path, place):
    """Parquet has bounds for each group of 1,048,576 rows, the log those of the whole file: no row is skipped."""
    rows = 1_048_577
    numbers = np.full(rows, 5)
    numbers[0 if place == "first" else -1], numbers[1 if place == "first" else -2] = 9, 1
    (tmp_path / DATA_FOLDER).mkdir()
    file = DataFolder(Location.resolve(str(tmp_path), None)).put("many", pa.table({"n": numbers}))
    assert pq.ParquetFile(tmp_path / file.place).num_row_groups == 2
    stats = json.loads(file.stats)
    assert (stats["numRecords"], stats["minValues"], stats["maxValues"]) == (rows, {"n": 1}, {"n": 9})
