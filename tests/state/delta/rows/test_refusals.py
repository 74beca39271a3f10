"""What a table of rows refuses, before anything is written, and what it takes."""

from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from state import DeltaRows, DeltaState, read_table
from tests.state.delta.rows.rows_tables import FIELDS, opened, put, rows
from txtopo import Fields
from txtopo.api.values import StateKind
from txtopo.columnar.rows_file import write_rows_file
from txtopo.errors import (
    ConfigError,
    DivergenceError,
    FieldsError,
    StateAccessError,
)
from txtopo.files.folder import LocalFolder
from txtopo.transactional.commit.write_buffer import group_state


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([("a", 1), ("b", "2")], "n: bigint"),
        ([("a", 1.5)], "n: bigint"),
        ([(None, 1)], "day"),
        ([("", 1)], "day"),
        ([("__HIVE_DEFAULT_PARTITION__", 1)], "day"),
        ([("a",)], "n: bigint"),
        (["ab"], "n: bigint"),
        (pa.table({"day": ["a"], "n": [1.5]}), "n: bigint"),
        (pa.table({"day": ["a"], "n": pa.array([1 << 63], pa.uint64())}), "n: bigint"),
        (pa.table({"day": ["a"]}), "n: bigint"),
        (pa.table({"day": pa.array([None], pa.string()), "n": [1]}), "day"),
    ],
    ids=repr,
)
def test_misfits_are_refused(tmp_path, given, field) -> None:
    """What does not fit the fields is refused by name, and nothing is written."""
    state = opened(tmp_path, partition_by="day")
    with pytest.raises(FieldsError, match="'s'") as refusal:
        put(state, (1, ("append", given)))
    assert field in refusal.value.message
    assert (rows(tmp_path), state.last_txid) == (Counter(), None)


BEYOND_9999 = pa.array([0, 2_932_897], pa.int32()).cast(pa.date32())
"""1970-01-01, and the first day that Python does not know."""


@pytest.mark.parametrize("is_file", [False, True])
def test_a_partition_after_the_year_9999(tmp_path, is_file) -> None:
    """A date that the log can't have as a partition is refused with its field and value, and nothing is written."""
    state = opened(tmp_path, fields=Fields("day: date", "n: long"), partition_by="day")
    given = pa.table({"day": BEYOND_9999, "n": [1, 2]})
    with pytest.raises(FieldsError, match=r"state 's', field 'day': a row has 10000-01-01, .* the years 1 to 9999"):
        put(state, (1, ("append", write_rows_file(LocalFolder(tmp_path), "rows", given, ()) if is_file else given)))
    assert state.last_txid is None


def test_a_date_after_the_year_9999(tmp_path) -> None:
    """A date that Python does not know, and a file of Parquet may hold, goes through, without bounds in the log."""
    state = opened(tmp_path, fields=Fields("day: date", "n: long"))
    put(state, (1, ("append", pa.table({"day": BEYOND_9999, "n": [1, 2]}))))
    assert read_table(tmp_path / "t")["day"].combine_chunks() == BEYOND_9999
    stats = DeltaTable(tmp_path / "t").get_add_actions(flatten=True)
    assert "max.n" in stats.schema.names
    assert "max.day" not in stats.schema.names or stats["max.day"].to_pylist() == [None]


def test_columns_of_like_types_are_taken(tmp_path) -> None:
    """Columns whose values fit are taken, whatever Arrow types they come in; nulls too."""
    fields = Fields("w: string", "n: long", "x: double", "l: array<int>", "s: struct<a: int, b: string>")
    state = opened(tmp_path, fields=fields)
    table = pa.table(
        {
            "w": pa.array(["a", None], pa.large_string()),
            "n": pa.array([1, None], pa.int8()),
            "x": pa.array([0.5, None], pa.float32()),
            "l": pa.array([[1], None], pa.large_list(pa.int64())),
            "s": pa.array([{"a": 1, "b": "x"}, None]),
        }
    )
    put(state, (1, ("append", table)))
    expected = {"w": "a", "n": 1, "x": 0.5, "l": [1], "s": {"a": 1, "b": "x"}, "txid": 1}
    assert read_table(tmp_path / "t").to_pylist() == [expected, {**dict.fromkeys(fields.names), "txid": 1}]


def test_keys_are_refused(tmp_path) -> None:
    """A table of rows is neither read nor written by key, and a keyed state takes no rows."""
    state = opened(tmp_path, partition_by="day")
    for use in (
        lambda view: view.get("a"),
        lambda view: view.put("a", 1),
        lambda view: view.update("a", lambda _: 1),
        lambda view: view.multi_reduce({"a": 1}, max),
        lambda view: view.remove("a"),
    ):
        view = group_state(state).begin(1)
        view.append([("a", 1)])
        with pytest.raises(StateAccessError, match="no keys"):
            use(view)
    keyed = DeltaState(tmp_path / "k", Fields("w: string"), Fields("n: long")).open("topology", "k", "life", 1)
    for use in ("append", "replace_partitions", "as_rows"):
        with pytest.raises(StateAccessError, match="DeltaRows"):
            getattr(group_state(keyed).begin(1), use)([("a", 1)])


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        (Fields(), {}),
        (Fields("a"), {}),
        (Fields("txid: long"), {}),
        (Fields("a: long", "b: long"), {"partition_by": ("c",)}),
        (Fields("a: long", "b: long"), {"partition_by": ("a", "b")}),
        (Fields("a: long", "b: long"), {"partition_by": ("a", "a")}),
        (Fields("a: double", "b: long"), {"partition_by": ("a",)}),
    ],
    ids=repr,
)
def test_fields_that_make_no_table_are_refused(tmp_path, fields, options) -> None:
    """Fields that are missing, have no type or cannot be partitioned by are refused when the state is declared."""
    with pytest.raises(FieldsError):
        DeltaRows(tmp_path / "t", fields, **options)


def test_options_out_of_range_are_refused(tmp_path) -> None:
    """A path that is missing and options that are out of range are refused; rows have a state of their own."""
    with pytest.raises(ConfigError, match="DeltaRows"):
        DeltaRows("", FIELDS)
    with pytest.raises(ConfigError):
        DeltaRows(tmp_path, FIELDS, files_max=0)
    with pytest.raises(FieldsError, match="DeltaRows"):
        DeltaState(tmp_path, Fields("w: string"), Fields("n: long"), StateKind.ROWS)


@pytest.mark.parametrize(
    "other",
    [
        lambda path: DeltaRows(path, Fields("day: string", "n: int")),
        lambda path: DeltaRows(path, FIELDS, partition_by="day"),
        lambda path: DeltaState(path, Fields("day: string"), Fields("n: long")),
    ],
)
def test_a_table_of_another_make_is_refused(tmp_path, other) -> None:
    """Other columns, other partitions and a keyed table in its place are found before anything is written."""
    opened(tmp_path)
    state = other(tmp_path / "t")
    assert state.table().describe().misfit is not None
    with pytest.raises(DivergenceError):
        state.open("topology", "s", "life", 2)
    assert DeltaRows(tmp_path / "t", FIELDS).table().describe().misfit is None
