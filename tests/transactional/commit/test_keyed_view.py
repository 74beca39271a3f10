"""What a transaction changes in a keyed state: in columns and key by key the same, whatever else the group does."""

import operator
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings, strategies as st

from state import DeltaState, MemoryState, read_table
from tests.budgets import examples
from txtopo import Fields
from txtopo.api.data.utc import MICROSECOND
from txtopo.api.reduction import Reduction, Reductions
from txtopo.api.values import KEYED_KINDS
from txtopo.transactional.commit.keyed_view import KeyedView
from txtopo.transactional.commit.write_buffer import group_state

KEY, VALUE = Fields("k: string"), Fields("rows: long", "top: long")
FOLD = Reductions((("rows", Reduction.SUM), ("top", Reduction.MAX)))
SCHEMA = (KEY + VALUE).arrow_schema()

ROWS = st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(-2, 2), st.none() | st.integers(0, 3)), min_size=1)
STEPS = st.one_of(
    st.tuples(st.just("changes"), ROWS),
    st.tuples(st.just("fold"), ROWS),
    st.tuples(st.just("put"), st.sampled_from("abc"), st.integers(0, 3)),
    st.tuples(st.just("remove"), st.sampled_from("abc")),
    st.tuples(st.just("rows"), ROWS, st.sets(st.sampled_from("abc"))),
    st.tuples(st.just("get"), st.sampled_from("abc")),
    st.tuples(st.just("before"), st.lists(st.sampled_from("abc"), max_size=4)),
)


def table_of(rows: dict) -> pa.Table:
    columns = zip(*((key, *values) for key, values in rows.items()), strict=True)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def done(view, step: tuple):
    """Do a step in a transaction; return what it has told."""
    what, *arguments = step
    match what:
        case "changes":
            changes = view.reduce_changes(table_of(arguments[0]), FOLD, "rows")
            before, after = (
                {row.pop("k"): tuple(row.values()) for row in rows.filter(pa.array(mask)).to_pylist()}
                for rows, mask in ((changes.before, changes.was), (changes.after, changes.is_there))
            )
            return before, after
        case "fold":
            rows = table_of(arguments[0])
            return view.multi_reduce(pa.concat_tables([rows, rows.slice(0, 1)]), FOLD)  # a key twice
        case "put":
            return view.put(arguments[0], (arguments[1], arguments[1]))
        case "remove":
            return view.remove(arguments[0])
        case "rows":
            rows, removed = arguments
            gone = pa.table({"k": pa.array(sorted(removed - rows.keys()), pa.string())})
            return view.put_rows(table_of(rows), gone).tolist()
        case "before":
            own, rows = view.rows_before(pa.table({"k": pa.array(arguments[0], pa.string())}), VALUE)
            found = dict(zip(own.tolist(), map(tuple, map(dict.values, rows.to_pylist())), strict=True))
            assert [found.get(at) for at in range(len(arguments[0]))] == list(view.values_before(arguments[0]))
            return found
        case _:
            found = view.get(arguments[0])
            return found and found.value


@settings(max_examples=examples(40), deadline=None)
@given(
    groups=st.lists(st.lists(st.lists(STEPS, max_size=4), min_size=1, max_size=3), min_size=1, max_size=3),
    kind=st.sampled_from(KEYED_KINDS),
    failing=st.integers(0, 8),
)
def test_in_columns_as_key_by_key(tmp_path_factory, groups, kind, failing) -> None:
    """Whatever is folded, put, removed and asked for meanwhile, in one group or several, and if a transaction fails."""
    path = Path(tmp_path_factory.mktemp("keyed"))
    states = [
        DeltaState(path / "t", KEY, VALUE, kind).open("topology", "s", "life", 1),
        MemoryState(KEY, VALUE, kind).open("topology", "s", "life", 1),
    ]
    txid = 0
    for transactions in groups:
        of_group = [group_state(state) for state in states]
        for steps in transactions:
            txid += 1
            views = [group.begin(txid) for group in of_group]
            for step in steps:
                told = [done(view, step) for view in views]
                assert operator.eq(*told), step
                for view in views:
                    view.check("bolt")
            if txid == failing:  # it is replayed without what it had
                for view in views:
                    view.discard()
                views = [group.begin(txid) for group in of_group]
            for view in views:
                view.finish()
        for state, group in zip(states, of_group, strict=True):
            writes = group.writes()
            if writes:
                state.write(txid, writes)
        assert operator.eq(*([value and value.value for value in state.multi_get(list("abc"))] for state in states))
        if kind is not KEYED_KINDS[-1]:
            assert operator.eq(*(state.multi_get(list("abc")) for state in states))
    assert read_table(path / "t").num_rows == sum(value is not None for value in states[1].multi_get(list("abc")))
    states[0].close()


def test_a_null_alone_is_told_and_taken_back(tmp_path) -> None:
    """A key whose only value is null is there: in columns and key by key, in one group, another one, and one transaction."""
    value, fold = Fields("top: long"), Reductions((("top", Reduction.MAX),))
    for state in (DeltaState(tmp_path / "t", KEY, value), MemoryState(KEY, value)):
        opened, txid, told = state.open("topology", "s", "life", 1), 0, []
        for group_tops in ([[None]], [[None], [None, 5], [7]]):
            group = group_state(opened)
            for tops in group_tops:
                txid += 1
                view = group.begin(txid)
                for top in tops:
                    rows = pa.table({"k": ["a"], "top": pa.array([top], pa.int64())})
                    changes = view.reduce_changes(rows, fold)
                    told.append((changes.was.tolist(), changes.before["top"].to_pylist(), changes.is_there.tolist()))
                view.check("bolt")
                view.finish()
            opened.write(txid, group.writes())
        assert told == [([was], [before], [True]) for was, before in ((False, None), *3 * [(True, None)], (True, 5))]
        opened.close()


def test_a_key_that_comes_twice(tmp_path) -> None:
    """Of its rows the last one is put, and one to remove is not there: a table never has a key twice."""
    rows, gone = table_of({"a": (1, 1), "b": (2, 2), "c": (3, 3)}), pa.table({"k": ["b"]})
    rows = pa.concat_tables([rows, table_of({"a": (4, 4)})])
    for state in (DeltaState(tmp_path / "t", KEY, VALUE), MemoryState(KEY, VALUE)):
        opened = state.open("topology", "s", "life", 1)
        for txid, put in enumerate(
            (lambda view: view.put_rows(rows, gone), lambda view: view.reduce_changes(rows, FOLD)), 1
        ):
            group = group_state(opened)
            view = group.begin(txid)
            put(view)
            view.check("bolt")
            view.finish()
            opened.write(txid, group.writes())
            found = sorted(zip(*(opened.snapshot()[name].to_pylist() for name in ("k", "rows", "top")), strict=True))
            assert found == [[("a", 4, 4), ("c", 3, 3)], [("a", 9, 4), ("b", 2, 2), ("c", 6, 3)]][txid - 1]
        opened.close()


def test_a_key_that_comes_twice_and_has_expired_once(tmp_path) -> None:
    """Its last row says whether it is there, in one call as in two."""
    rows = pa.table({"k": ["a", "a", "b", "b"], "at": pa.array([0, 9, 9, 0], pa.timestamp("us", tz="UTC"))})
    for parts in ([rows], [rows.slice(at, 1) for at in range(4)]):
        state = DeltaState(tmp_path / f"{len(parts)}", KEY, Fields("at: timestamp"), ttl=MICROSECOND, clock="clock")
        view = KeyedView(group_state(state.open("topology", "s", "life", 1)), 1, until=5)
        for part in parts:
            view.put_rows(part)
        assert [value and value.value.microsecond for value in view.multi_get(["a", "b"])] == [9, None]


def test_new_keys_are_looked_up_once(monkeypatch) -> None:
    """A key that is told for the first time is read from the state once, where its one value may be null."""
    opened = MemoryState(KEY, Fields("top: long")).open("topology", "s", "life", 1)
    asked, read = [], opened.multi_get
    monkeypatch.setattr(opened, "multi_get", lambda keys: asked.append(list(keys)) or read(keys))
    view = group_state(opened).begin(1)
    view.reduce_changes(pa.table({"k": ["a", "b"], "top": [1, 2]}), Reductions((("top", Reduction.MAX),)))
    assert asked == [["a", "b"]]


def test_sums_of_doubles_in_a_float(tmp_path) -> None:
    """Each transaction goes on from what the state keeps, in one group as in several, and when rows are put."""
    value, fold = Fields("n: float"), Reductions((("n", Reduction.SUM),))
    for kind in ("fold", "put"):
        for grouped in (True, False):
            for state in (DeltaState(tmp_path / f"{kind}-{grouped}", KEY, value), MemoryState(KEY, value)):
                opened = state.open("topology", "s", "life", 1)
                group = group_state(opened)
                for txid, number in enumerate((16777217.0, 1.0, 1.0), 1):
                    view = group.begin(txid)
                    rows = pa.table({"k": ["a"], "n": [number]})
                    if kind == "put" and txid == 1:
                        view.put_rows(rows)
                    else:
                        view.reduce_changes(rows, fold)
                    view.check("bolt")
                    view.finish()
                    if not grouped or txid == 3:
                        opened.write(txid, group.writes())
                        group = group_state(opened)
                assert [stored.value for stored in opened.multi_get(["a"])] == [16777216.0]
                opened.close()
