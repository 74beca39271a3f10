"""Rows by time: what is looked up by key, however often a key is asked for."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.state.delta.keyed.test_cache import COLLIDING
from txtopo.columnar import key_index
from txtopo.columnar.rows_by_time import AFTER_ALL, RowsByTime, are_after, are_over, times_of

ROWS = 3_000
MEMORY_MAX = 1_000 * ROWS
"""Bytes: a few arrays of the rows, and far below 8 bytes for each pair of them."""


def rows_by_time(keys: pa.Table, times: Any = None) -> RowsByTime:
    """Return rows with some keys, at the times 1, 2, 3 and so on unless others are given."""
    rows = RowsByTime("at", keys.column_names)
    micros = pa.array(np.arange(1, keys.num_rows + 1) if times is None else times, pa.int64())
    rows.add(keys.append_column("at", micros.cast(pa.timestamp("us", "UTC"))))
    return rows


@pytest.mark.parametrize("name", ["holds", "of_keys"])
def test_one_key_again_and_again(name: str) -> None:
    """Many rows of one key are looked up by as many rows of it in memory that follows their number."""
    keys = pa.table({"key": np.zeros(ROWS, dtype=np.int64)})
    rows = rows_by_time(keys)
    rows.count(0)  # the rows are put in order
    tracemalloc.start()
    try:
        found = getattr(rows, name)(keys, 0)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()
    assert found.all() if name == "holds" else [part.num_rows for part in found] == [ROWS]


def test_null_is_not_a_value_of_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is null and one that is not are two, whatever their hashes are."""
    monkeypatch.setattr(key_index, "hashes_of", lambda keys: np.full(keys.num_rows, 7, np.uint64))
    for here, wanted in ((None, "a"), ("a", None)):
        rows = rows_by_time(pa.table({"key": pa.array([here], pa.string())}))
        keys = pa.table({"key": pa.array([wanted, here], pa.string())})
        assert rows.holds(keys, 0).tolist() == [False, True]
        assert [part["key"].to_pylist() for part in rows.of_keys(keys, 0)] == [[here]]


def test_keys_that_come_again() -> None:
    """Each key gets its own answer, null and what has another's hash, too, at exact times; no row comes twice."""
    one, other = COLLIDING[0]
    keys = pa.table({"key": [one, None, other, 5, one, None]}, schema=pa.schema({"key": pa.int64()}))
    rows = rows_by_time(pa.table({"key": [one, other, None, one]}, schema=keys.schema))
    for after, held in [(0, [1, 1, 1, 0, 1, 1]), (2, [1, 1, 0, 0, 1, 1]), (3, [1, 0, 0, 0, 1, 0]), (4, [0] * 6)]:
        assert rows.holds(keys, after).tolist() == list(map(bool, held))
    [found] = rows.of_keys(keys, 1)
    assert found["key"].to_pylist() == [other, None, one]


def test_a_row_without_a_time_never_expires() -> None:
    """One with a time has expired at that very time, and is after all that is before it."""
    rows = pa.table({"at": pa.array([None, 5], pa.timestamp("us", "UTC"))})
    assert times_of(rows, "at").tolist() == [AFTER_ALL, 5]
    for time, is_over in ((4, False), (5, True), (6, True)):
        assert are_over(rows, "at", time).to_pylist() == [False, is_over]
        assert are_after(rows, "at", time).to_pylist() == [False, not is_over]
