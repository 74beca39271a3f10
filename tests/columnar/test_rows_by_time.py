"""Rows by time: when a row has expired."""

from __future__ import annotations

import pyarrow as pa

from txtopo.columnar.rows_by_time import AFTER_ALL, are_after, are_over, times_of


def test_a_row_without_a_time_never_expires() -> None:
    """One with a time has expired at that very time, and is after all that is before it."""
    rows = pa.table({"at": pa.array([None, 5], pa.timestamp("us", "UTC"))})
    assert times_of(rows, "at").tolist() == [AFTER_ALL, 5]
    for time, is_over in ((4, False), (5, True), (6, True)):
        assert are_over(rows, "at", time).to_pylist() == [False, is_over]
        assert are_after(rows, "at", time).to_pylist() == [False, not is_over]
