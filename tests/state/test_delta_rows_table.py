"""A table of rows: each transaction's rows are in it once, in whatever way they are written."""

from __future__ import annotations

import datetime as dt
import pickle
from collections import Counter

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from state import DeltaRows, DeltaState, read_table
from state import delta_plain_group as group_module
from state.delta_data_folder import DataFolder
from state.delta_location import Location
from txtopo import Fields
from txtopo.contracts.state import StateKind
from txtopo.errors import (
    ConfigError,
    DivergenceError,
    FailedException,
    FieldsError,
    LostLead,
    StateAccessError,
)
from txtopo.failpoints import armed
from txtopo.phases.rows_file import write_rows_file
from txtopo.phases.state_view import GroupState

FIELDS = Fields("day: string", "n: long")


class InlineExecutors:
    """Executors in this process; what travels pickles."""

    places = 3

    def __init__(self):
        self.items = 0

    def compute(self, function, items):
        self.items += len(items)
        return [pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(item))))) for item in items]


def opened(path, *, fields=FIELDS, epoch=1, executors=None, **options):
    state = DeltaRows(path / "t", fields, **options).open("topology", "s", "life", epoch)
    if executors is not None:
        state.use_executors(executors, 0)
    return state


def put(state, *transactions, is_staged=False):
    """Commit a group: for each transaction its txid, and ("append" | "replace_partitions", rows) for each task."""
    group = GroupState(state)
    for txid, *puts in transactions:
        view = group.begin(txid)
        for how, rows in puts:
            getattr(view, how)(rows)
        view.check()
        view.finish()
    writes, last = group.writes(), transactions[-1][0]
    if is_staged:
        state.write_staged(state.stage(last, writes))
    else:
        state.write(last, writes)
    return writes


def rows(path, txid=None) -> Counter:
    return Counter(tuple(row.values()) for row in read_table(path / "t", txid).to_pylist())


WAYS = pytest.mark.parametrize("large", [False, True], ids=["driver", "executors"])
PARTITIONS = pytest.mark.parametrize("partition_by", [(), ("day",)], ids=["plain", "partitioned"])


def some_executors(large):
    return InlineExecutors() if large else None


# Appending


@WAYS
@PARTITIONS
def test_appends_of_a_group(tmp_path, large, partition_by) -> None:
    """All rows of all tasks of all transactions of a group are in the table, each with its txid, in one version."""
    state = opened(tmp_path, partition_by=partition_by, executors=some_executors(large))
    version = DeltaTable(tmp_path / "t").version()
    one = pa.table({"n": [7, 8], "day": ["b", "b"]})
    writes = put(
        state,
        (1, ("append", [("a", 1), ("a", 1)]), ("append", one)),
        (3, ("append", one.to_batches()[0])),
    )
    assert rows(tmp_path) == {("a", 1, 1): 2, ("b", 7, 1): 1, ("b", 8, 1): 1, ("b", 7, 3): 1, ("b", 8, 3): 1}
    assert (len(writes), writes.rows_removed) == (6, 0)
    assert DeltaTable(tmp_path / "t").version() == version + 1
    assert state.last_txid == 3
    put(state, (4, ("append", [("c", 1)])))
    assert rows(tmp_path, 3) == rows(tmp_path) - Counter([("c", 1, 4)])


@WAYS
def test_an_applied_transaction_adds_nothing(tmp_path, large) -> None:
    """Promise 8: the same group again, a part of it again, by this coordinator or the next, changes nothing."""
    group = [(1, ("append", [("a", 1)])), (2, ("append", [("b", 2)]))]
    for epoch in (1, 2):
        state = opened(tmp_path, epoch=epoch, executors=some_executors(large))
        put(state, *group)
        assert rows(tmp_path) == {("a", 1, 1): 1, ("b", 2, 2): 1}
        put(state, group[1])
        assert not put(state, group[0])
    put(state, group[1], (3, ("append", [("c", 3)])))
    assert rows(tmp_path) == {("a", 1, 1): 1, ("b", 2, 2): 1, ("c", 3, 3): 1}


def test_a_failed_transaction_leaves_no_rows(tmp_path) -> None:
    """What a transaction has put before it failed is gone, and so is what it would have replaced."""
    state = opened(tmp_path, partition_by="day")
    group = GroupState(state)
    view = group.begin(1)
    view.append([("a", 1)])
    view.finish()
    failed = group.begin(2)
    failed.replace_partitions([("a", 10)])
    failed.discard()
    state.write(1, group.writes())
    assert rows(tmp_path) == {("a", 1, 1): 1}


def test_a_transaction_without_rows_writes_nothing(tmp_path) -> None:
    """No rows are no write; a transaction may be noted alone."""
    state = opened(tmp_path)
    group = GroupState(state)
    view = group.begin(1)
    view.append([])
    view.append(pa.table({"day": pa.array([], pa.string()), "n": pa.array([], pa.int64())}))
    view.finish()
    assert not group.writes()
    state.write(2, {})
    state.write_staged(state.stage(3, {}))
    assert (state.last_txid, rows(tmp_path)) == (3, Counter())


@WAYS
def test_rows_in_a_file(tmp_path, large) -> None:
    """Rows that lie in a file, in whatever order and by whatever names, are put as all others are."""
    state = opened(tmp_path, partition_by="day", executors=some_executors(large))
    table = pa.table({"x": ["a", "b", "a"] * 50, "y": pa.array(range(150), pa.int64())})
    for keys in ((), ("x",)):
        file = write_rows_file(str(tmp_path), f"1-{len(keys)}", table, keys)
        put(state, (len(keys) + 1, ("append", file)))
    turned = write_rows_file(str(tmp_path), "3", table.rename_columns(["day", "n"]).select(["n", "day"]), ())
    put(state, (3, ("append", turned)))
    assert rows(tmp_path) == Counter(
        (x, y, txid) for x, y in zip(*table.to_pydict().values(), strict=True) for txid in (1, 2, 3)
    )
    with pytest.raises(FieldsError, match="columns"):
        put(state, (4, ("append", write_rows_file(str(tmp_path), "4", table.select(["x"]), ()))))


# Replacing


@WAYS
def test_the_last_transaction_of_a_partition_wins(tmp_path, large) -> None:
    """A transaction's rows replace whole partitions; those that do not occur stay; several tasks are one."""
    state = opened(tmp_path, partition_by="day", executors=some_executors(large))
    put(state, (1, ("append", [("a", 1), ("b", 1), ("c", 1), ("c", 1)])))
    writes = put(
        state,
        (2, ("replace_partitions", [("a", 2)]), ("replace_partitions", [("a", 22), ("d", 2)])),
        (3, ("replace_partitions", [("a", 3), ("c", 3)])),
        (4, ("append", [("a", 4), ("b", 4)])),
    )
    assert rows(tmp_path) == {
        ("a", 3, 3): 1,
        ("a", 4, 4): 1,
        ("b", 1, 1): 1,
        ("b", 4, 4): 1,
        ("c", 3, 3): 1,
        ("d", 2, 2): 1,
    }
    assert (len(writes), writes.rows_removed) == (5, 3)
    assert rows(tmp_path, 1) == {("a", 1, 1): 1, ("b", 1, 1): 1, ("c", 1, 1): 2}


def test_replaced_and_appended_in_one_transaction(tmp_path) -> None:
    """What a transaction appends to a partition that it replaces, too, stays, in whatever order it does so."""
    for turn, order in enumerate((1, -1)):
        state = opened(tmp_path / str(turn), partition_by="day")
        put(state, (1, ("append", [("a", 1)])))
        put(state, (2, *[("replace_partitions", [("a", 2)]), ("append", [("a", 3), ("b", 3)])][::order]))
        assert rows(tmp_path / str(turn)) == {("a", 2, 2): 1, ("a", 3, 2): 1, ("b", 3, 2): 1}


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
    assert sorted((each["partition.day"], each["num_records"]) for each in actions) == [("a", 1), ("b", 1)]


ODD_TEXTS = ["a b", "a%20b", "x/y:z", "ä=é", "'\"", "..", "NULL", "__HIVE_DEFAULT_PARTITION__ x", "a\nb", "#?&+"]


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
    state.maintain()
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


MODEL_GROUPS = st.lists(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["append", "replace_partitions"]),
                st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=5),
            ),
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=4,
)


@WAYS
@settings(max_examples=15, deadline=None)
@given(MODEL_GROUPS)
def test_any_groups(tmp_path_factory, large, groups) -> None:
    """Whatever the groups, staged or not, the rows are those that a plain list has, transaction by transaction."""
    path, model, txid = tmp_path_factory.mktemp("rows"), Counter(), 0
    state = opened(path, partition_by="day", executors=some_executors(large), upkeep_every_writes=1, files_max=1)
    for number, group in enumerate(groups):
        transactions, before = [], model
        for puts in group:
            txid += 1
            transactions.append((txid, *puts))
            gone = {day for how, own in puts for day, _ in own if how == "replace_partitions"}
            model = Counter({row: count for row, count in model.items() if row[0] not in gone})
            model += Counter((day, n, txid) for _, own in puts for day, n in own)
        writes = put(state, *transactions, is_staged=number % 2 == 1)
        assert sum(model.values()) == sum(before.values()) + len(writes) - writes_removed(writes)
        assert rows(path) == model
        state.maintain()
        assert rows(path) == model


def writes_removed(writes) -> int:
    return getattr(writes, "rows_removed", 0)


# Refusals


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([("a", 1), ("b", "2")], "n: bigint"),
        ([("a", 1.5)], "n: bigint"),
        ([(None, 1)], "day"),
        ([("", 1)], "day"),
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
        view = GroupState(state).begin(1)
        view.append([("a", 1)])
        with pytest.raises(StateAccessError, match="no keys"):
            use(view)
    keyed = DeltaState(tmp_path / "k", Fields("w: string"), Fields("n: long")).open("topology", "k", "life", 1)
    for use in ("append", "replace_partitions", "as_rows"):
        with pytest.raises(StateAccessError, match="DeltaRows"):
            getattr(GroupState(keyed).begin(1), use)([("a", 1)])


def test_a_table_without_partitions_replaces_none(tmp_path) -> None:
    """Replacing needs partition_by, and the error says so."""
    with pytest.raises(StateAccessError, match="partition_by"):
        GroupState(opened(tmp_path)).begin(1).replace_partitions([("a", 1)])


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
    assert state.table().look().misfit is not None
    with pytest.raises(DivergenceError):
        state.open("topology", "s", "life", 2)
    assert DeltaRows(tmp_path / "t", FIELDS).table().look().misfit is None


# What every Delta table keeps


def test_staged_and_finished_by_the_next_coordinator(tmp_path) -> None:
    """Promise 9: what was staged is seen once it is written, by whichever epoch, and written once."""
    state = opened(tmp_path, partition_by="day")
    put(state, (1, ("append", [("a", 1), ("b", 1)])))
    group = GroupState(state)
    view = group.begin(2)
    view.replace_partitions([("a", 2)])
    view.finish()
    staged = state.stage(2, group.writes())
    assert rows(tmp_path) == {("a", 1, 1): 1, ("b", 1, 1): 1}
    again = opened(tmp_path, partition_by="day", epoch=2)
    for _ in range(2):
        again.write_staged(staged)
        assert rows(tmp_path) == {("a", 2, 2): 1, ("b", 1, 1): 1}
    with pytest.raises(LostLead):
        state.write(3, {})
    again.discard_staged()
    with pytest.raises(DivergenceError, match="gone"):
        again.write_staged(attrs.evolve(staged, txid=3))


def test_a_replacement_finds_files_that_were_moved_meanwhile(tmp_path) -> None:
    """Files are looked for when the write is made: whoever has put a partition's rows elsewhere doubles none."""
    state = opened(tmp_path, partition_by="day")
    for txid in (1, 2):
        put(state, (txid, ("append", [("a", txid), ("b", txid)])))
    group = GroupState(state)
    view = group.begin(3)
    view.replace_partitions([("a", 3)])
    view.finish()
    writes = group.writes()
    DeltaTable(tmp_path / "t").optimize.compact()
    state.write(3, writes)
    assert rows(tmp_path) == {("a", 3, 3): 1, ("b", 1, 1): 1, ("b", 2, 2): 1}


@WAYS
@pytest.mark.parametrize("point", ["delta.write.checked", "delta.write.landed"])
def test_a_crash_between_files_and_log(tmp_path, large, point) -> None:
    """A crash before the log is written leaves the table as it was, after it all is there; again adds nothing."""
    state = opened(tmp_path, executors=some_executors(large))
    put(state, (1, ("append", [("a", 1)])))

    def die(name):
        if name == point:
            raise RuntimeError(name)

    with pytest.raises(RuntimeError), armed(die):
        put(state, (2, ("append", [("b", 2)])))
    again = opened(tmp_path, epoch=2, executors=some_executors(large))
    landed = point.endswith("landed")
    assert (rows(tmp_path), again.last_txid) == (Counter([("a", 1, 1)] + [("b", 2, 2)] * landed), 1 + landed)
    put(again, (2, ("append", [("b", 2)])))
    assert rows(tmp_path) == {("a", 1, 1): 1, ("b", 2, 2): 1}


def test_a_file_that_is_gone_or_cut_short_is_refused(tmp_path) -> None:
    """A data file that is not there with its size is never put into the log."""
    for damage in (lambda file: file.unlink(), lambda file: file.write_bytes(file.read_bytes()[:-1])):
        state = opened(tmp_path)
        group = GroupState(state)
        view = group.begin(1)
        view.append([("a", 1)])
        view.finish()
        writes = group.writes()
        damage(tmp_path / "t" / writes.added[0].path)
        with pytest.raises(FailedException, match="bytes"):
            state.write(1, writes)
        assert (rows(tmp_path), state.last_txid) == (Counter(), None)


def test_rows_changed_by_another_writer_stop_the_run(tmp_path) -> None:
    """Whoever else writes to the table is found before the next write; a repair takes it back, or accepts it."""
    state = opened(tmp_path, partition_by="day")
    put(state, (1, ("append", [("a", 1)])))
    for turn in (1, 2):
        write_deltalake(tmp_path / "t", pa.table({"day": ["x"], "n": [9], "txid": [1]}), mode="append")
        with pytest.raises(DivergenceError, match="somebody else"):
            put(state, (2, ("append", [("b", 2)])))
        if turn == 1:
            state.roll_back(1)
            assert rows(tmp_path) == {("a", 1, 1): 1}
        else:
            state.adopt()
    put(state, (2, ("append", [("b", 2)])))
    assert rows(tmp_path) == {("a", 1, 1): 1, ("x", 9, 1): 1, ("b", 2, 2): 1}
    state.roll_back(None)
    assert rows(tmp_path) == Counter()
    assert DeltaTable(tmp_path / "t").metadata().partition_columns == ["day"]


@PARTITIONS
def test_small_files_are_put_together(tmp_path, partition_by) -> None:
    """Many small files become few, partition by partition; rows and txids stay, and large files are left alone."""
    state = opened(tmp_path, partition_by=partition_by, upkeep_every_writes=1, files_max=6)
    for txid in range(1, 15):
        put(state, (txid, ("append", [("ab"[txid % 2], txid), ("c d%", 0)])))
        state.maintain()
    table = DeltaTable(tmp_path / "t")
    assert len(table.file_uris()) <= 6 + 3
    assert table.metadata().partition_columns == list(partition_by)
    assert rows(tmp_path) == Counter(
        row for txid in range(1, 15) for row in [("ab"[txid % 2], txid, txid), ("c d%", 0, txid)]
    )
    assert rows(tmp_path, 3) == Counter(
        row for txid in range(1, 4) for row in [("ab"[txid % 2], txid, txid), ("c d%", 0, txid)]
    )
    assert state.version == table.version()
    assert DeltaRows(tmp_path / "t", FIELDS, partition_by=partition_by).table().foreign_change(None) is None


def test_large_groups_are_shared_out(tmp_path, monkeypatch) -> None:
    """The executors share the rows evenly, whatever partitions they are of."""
    monkeypatch.setattr(group_module, "BUCKET_ROWS", 100)
    executors = InlineExecutors()
    state = opened(tmp_path, partition_by="day", executors=executors)
    put(state, (1, ("append", [("a", n) for n in range(1000)])))
    assert executors.items == 10
    actions = pa.table(DeltaTable(tmp_path / "t").get_add_actions()).to_pylist()
    assert [each["num_records"] for each in actions] == [100] * 10
    assert rows(tmp_path) == Counter(("a", n, 1) for n in range(1000))
    assert not list((tmp_path / "t" / "_txtopo").iterdir())


def test_data_files_of_an_object_store(tmp_path) -> None:
    """Where there is no folder, files are written and read through delta-rs' own store."""
    opened(tmp_path)
    folder = DataFolder(Location(str(tmp_path / "t"), None, None))
    table = pa.table({"n": [1, 2]})
    size = folder.write("x.parquet", table)
    assert (folder.size_of("x.parquet"), folder.size_of("y.parquet")) == (size, None)
    assert (tmp_path / "t" / "x.parquet").stat().st_size == size
    assert folder.read("x.parquet", table.schema) == table


def test_the_state_pickles(tmp_path) -> None:
    """A declared table pickles, for it is sent along with its topology."""
    state = DeltaRows(tmp_path / "t", FIELDS, partition_by="day")
    again = pickle.loads(pickle.dumps(state))
    assert (again.value, again.kind, again.partition_by) == (FIELDS, StateKind.ROWS, ("day",))
    assert (again.home, again.address) == (str(tmp_path), str(tmp_path / "t"))
