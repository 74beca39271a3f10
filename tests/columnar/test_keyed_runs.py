"""Rows in runs are found by key, however often a key is asked for, and whatever has become of runs."""

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from tests.budgets import examples
from tests.state.delta.keyed.test_cache import COLLIDING
from txtopo.columnar import key_index, keyed_runs
from txtopo.columnar.keyed_runs import KeyedRuns, RowsByTime
from txtopo.columnar.rows_by_time import Run

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
    for module in (key_index, keyed_runs):
        monkeypatch.setattr(module, "hashes_of", lambda keys: np.full(keys.num_rows, 7, np.uint64))
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
    assert sorted(map(str, found["key"].to_pylist())) == sorted(map(str, [other, None, one]))


RUN = st.lists(st.tuples(st.none() | st.sampled_from([0, 1, *COLLIDING[0]]), st.integers(1, 9)), max_size=6)
"""The key and the time of each row of a run."""
STEP = st.tuples(st.lists(RUN, max_size=3), st.sets(st.integers(0, 9), max_size=4), st.integers(0, 8))
"""Runs that come, which of those that are there go, and a time up to which rows are taken."""


@given(st.lists(STEP, max_size=9), st.sampled_from([3, 20, 1 << 20]))
@settings(max_examples=examples(150))
def test_runs_that_come_and_go(steps, rows_max) -> None:
    """However runs come and go, the rows of a key are those of the runs that are there, and each run keeps its own."""
    schema = pa.schema({"key": pa.int64(), "at": pa.timestamp("us", "UTC"), "number": pa.int64()})
    asked = pa.table({"key": [None, 0, COLLIDING[0][0], 0, 5]}, schema=pa.schema({"key": pa.int64()}))
    index, runs, count = KeyedRuns(["key"], "at"), {}, 0
    bound, keyed_runs.ROWS_MAX = keyed_runs.ROWS_MAX, rows_max
    try:
        for come, go, after in steps:
            runs = {run: own for at, (run, own) in enumerate(runs.items()) if at not in go}
            for rows in come:
                own = [
                    (key, at, count + number) for number, (key, at) in enumerate(sorted(rows, key=lambda row: row[1]))
                ]
                count += len(own)
                table = pa.table(list(map(list, zip(*own, strict=True))) or [[], [], []], schema=schema)
                runs[Run.of(table, "at")] = own
            there = [row for own in runs.values() for row in own if row[1] > after]
            wanted = set(asked["key"].to_pylist())
            parts = index.of_keys(list(runs), asked, after)
            found = [number for part in parts for number in part["number"].to_pylist()]
            assert sorted(found) == [
                number for key, _, number in sorted(there, key=lambda row: row[2]) if key in wanted
            ]
            keys = {key for key, _, _ in there}
            assert index.holds(list(runs), asked, after).tolist() == [key in keys for key in asked["key"].to_pylist()]
            for run, own in runs.items():
                assert run.rows["number"].to_pylist() == [number for _, _, number in own]
                assert run.times.tolist() == [at for _, at, _ in own]
            tiers = index.follow(list(runs))
            assert sum(tier.left for tier in tiers) == sum(map(len, runs.values()))
            assert all(len(tier) < 2 * tier.left for tier in tiers), "fewer rows are gone than are there"
    finally:
        keyed_runs.ROWS_MAX = bound


def test_many_runs_lie_in_few_pieces() -> None:
    """A hundred runs of equal length are few tiers, so a look-up does not cost what all of them do."""
    rows = pa.table({"key": np.arange(10), "at": pa.array(np.arange(10)).cast(pa.timestamp("us", "UTC"))})
    index, runs = KeyedRuns(["key"], "at"), []
    for _ in range(100):
        runs.append(Run.of(rows, "at"))
        index.follow(runs)
    assert len(index.follow(runs)) <= 7
