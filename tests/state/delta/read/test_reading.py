"""The rows of a table as txtopo reads them itself, whoever has written the files."""

import datetime as dt

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from state import DeltaExpiringRows, DeltaRows, DeltaState, read_table
from tests.state.delta.delta_tables import LARGE, maintain, sized
from tests.state.delta.foreign import live_files, move_rows
from tests.state.delta.rows.rows_tables import put
from txtopo import Fields
from txtopo.api.values import TransactionalValue

UTC = dt.UTC
TIMES = [
    dt.datetime(1, 1, 1, 0, 0, 0, 1, UTC),
    dt.datetime(1500, 3, 1, 12, tzinfo=UTC),
    dt.datetime(2024, 1, 1, 0, 0, 0, 123456, UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    None,
]


@pytest.mark.parametrize("holds", [True, False], ids=["held", "from files"])
def test_times_of_int96_among_values(tmp_path, holds):
    """Spark compacts times of any year into INT96: they are what they were, to readers, a group and its write."""
    fields = Fields("t: timestamp", "s: struct<of: array<timestamp>>")
    declared = sized(DeltaState(tmp_path, Fields("id: long"), fields), **({} if holds else LARGE))
    state = declared.open("topology", "s", "life", 1)
    values = {n: (at, {"of": [at]}) for n, at in enumerate(TIMES)}
    state.write(1, {n: TransactionalValue(1, value) for n, value in values.items()})
    move_rows(tmp_path, live_files(tmp_path), int96=True)
    assert rows_by_id(tmp_path) == values
    again = declared.open("topology", "s", "life", 2)
    assert [value.value for value in again.multi_get([*values])] == [*values.values()]
    again.write(2, {2: TransactionalValue(2, (None, None))})
    assert rows_by_id(tmp_path) == values | {2: (None, None)}


def rows_by_id(path):
    """Return the values by key."""
    return {row["id"]: (row["t"], row["s"]) for row in read_table(path).to_pylist()}


def test_times_of_int96_as_keys(tmp_path):
    """A key that is a time is found, and is there once."""
    declared = sized(DeltaState(tmp_path, Fields("t: timestamp"), Fields("n: long")), **LARGE)
    keys = TIMES[:-1]
    declared.open("topology", "s", "life", 1).write(1, {at: TransactionalValue(1, 1) for at in keys})
    move_rows(tmp_path, live_files(tmp_path), int96=True)
    again = declared.open("topology", "s", "life", 2)
    assert [value and value.value for value in again.multi_get(keys)] == [1] * 4
    again.write(2, {at: TransactionalValue(2, 2) for at in keys[:2]})
    assert sorted((row["t"], row["n"]) for row in read_table(tmp_path).to_pylist()) == [
        *((at, 2) for at in keys[:2]),
        *((at, 1) for at in keys[2:]),
    ]


@pytest.mark.parametrize("kind", [DeltaRows, DeltaExpiringRows])
def test_times_of_int96_in_rows(tmp_path, kind):
    """Moved rows are believed to be the same, and compacted as they are."""
    options = {"upkeep_every_writes": 1, "files_max": 1}
    fields = Fields("t: timestamp", "at: timestamp")
    declared = (
        DeltaRows(tmp_path, fields, **options)
        if kind is DeltaRows
        else DeltaExpiringRows(tmp_path, fields, "at", **options)
    )
    state = declared.open("topology", "s", "life", 1)
    rows = pa.table({"t": TIMES, "at": [TIMES[-2]] * 5}, schema=fields.arrow_schema())
    put(state, (1, ("append", rows)))
    move_rows(tmp_path, live_files(tmp_path), int96=True)
    assert declared.table().foreign_change(state.version) is None
    put(state, (2, ("append", rows)))
    for _ in range(2):
        found = read_table(tmp_path).to_pylist()
        assert sorted(map(str, (row["t"] for row in found))) == sorted(map(str, TIMES * 2))
        assert {row["at"] for row in found} == {TIMES[-2]}
        maintain(state)
    assert len(DeltaTable(tmp_path).file_uris()) == 1
