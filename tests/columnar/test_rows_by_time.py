"""Rows by time: when a row has expired."""

import pyarrow as pa

from txtopo.columnar.rows_by_time import AFTER_ALL, Run, are_after, are_over, times_of


def test_a_row_without_a_time_never_expires() -> None:
    """One with a time has expired at that very time, and is after all that is before it."""
    rows = pa.table({"at": pa.array([None, 5], pa.timestamp("us", "UTC"))})
    assert times_of(rows, "at").tolist() == [AFTER_ALL, 5]
    for time, is_over in ((4, False), (5, True), (6, True)):
        assert are_over(rows, "at", time).to_pylist() == [False, is_over]
        assert are_after(rows, "at", time).to_pylist() == [False, not is_over]


def test_what_is_taken_is_a_slice() -> None:
    """To take what expires costs what is taken: the rows between two times are no copy, and no other row is looked at."""
    times = pa.array([time for pair in zip(range(50_000), range(99_999, 49_999, -1), strict=True) for time in pair])
    run = Run.of(pa.table({"at": times.cast(pa.timestamp("us", "UTC")), "n": times}), "at")
    found = run.between(10, 20)["n"].chunk(0)
    assert found.to_pylist() == list(range(11, 21))
    assert found.buffers()[1].address == run.rows["n"].chunk(0).buffers()[1].address
    assert run.without_dead(20) is run, "so few that are gone are no reason to copy the others"
    assert run.without_dead(50_000).rows["n"].to_pylist() == list(range(50_001, 100_000))
