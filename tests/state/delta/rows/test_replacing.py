"""A table of rows whose partitions are replaced: the last transaction of each wins."""

import datetime as dt
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.state.delta.delta_tables import merge
from tests.state.delta.rows.rows_tables import WAYS, opened, put, rows, some_executors
from txtopo import Fields


def test_files_of_other_partitions_stay(tmp_path) -> None:
    """Only files of replaced partitions are taken out of the log; each new one is of one partition."""
    state = opened(tmp_path, partition_by="day")
    put(state, (1, ("append", [("a", 1), ("b", 1)])))
    before = set(DeltaTable(tmp_path / "t").file_uris())
    put(state, (2, ("replace_partitions", [("b", 2)])))
    table = DeltaTable(tmp_path / "t")
    assert len(before & set(table.file_uris())) == 1
    assert table.metadata().partition_columns == ["day"]
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert sorted((action["partition.day"], action["num_records"]) for action in actions) == [("a", 1), ("b", 1)]


ODD_TEXTS = ["a b", "a%20b", "x/y:z", "ä=é", "'\"", "..", "NULL", "__HIVE_DEFAULT_PARTITION__ x", "a\nb", "#?&+"]


@pytest.mark.few(3)
@WAYS
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", ODD_TEXTS),
        ("int", [-1, 0, 7]),
        ("long", [-(1 << 63), (1 << 63) - 1]),
        ("boolean", [True, False]),
        ("date", [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    ],
)
def test_partitions_of_every_type(tmp_path, large, kind, values) -> None:
    """Partitions of every type come out as they went in, and are replaced, before and after delta-rs moved them."""
    fields = Fields(f"p: {kind}", "n: long")
    upkeep = {"upkeep_every_writes": 1, "files_max": 1}
    state = opened(tmp_path, fields=fields, partition_by="p", executors=some_executors(large), **upkeep)
    put(state, (1, ("append", [(value, 1) for value in values])))
    put(state, (2, ("append", [(value, 2) for value in values])))
    state.roll_back(1)  # which streams the table through delta-rs, into folders named for partitions
    put(state, (3, ("replace_partitions", [(value, 3) for value in values[1:]])))
    expected = Counter([(values[0], 1, 1), *((value, 3, 3) for value in values[1:])])
    assert rows(tmp_path) == expected
    put(state, (4, ("append", [(value, 4) for value in values])))
    files = len(DeltaTable(tmp_path / "t").file_uris())
    merge(state)
    assert len(DeltaTable(tmp_path / "t").file_uris()) == files - len(values)
    assert rows(tmp_path) == expected + Counter((value, 4, 4) for value in values)
    assert DeltaTable(tmp_path / "t").metadata().partition_columns == ["p"]


def test_several_partition_fields(tmp_path) -> None:
    """A partition is one combination of all its fields."""
    fields = Fields("n: long", "day: date", "is_new: boolean")
    state = opened(tmp_path, fields=fields, partition_by=("is_new", "day"))
    day, other = dt.date(2024, 1, 1), dt.date(2024, 1, 2)
    put(state, (1, ("append", [(1, day, True), (1, day, False), (1, other, True)])))
    put(state, (2, ("replace_partitions", [(2, day, True)])))
    assert rows(tmp_path) == {(2, day, True, 2): 1, (1, day, False, 1): 1, (1, other, True, 1): 1}
