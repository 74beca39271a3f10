"""Folding rows into a table is what folding them key by key is, and is left alone where it can't be."""

import datetime as dt
import decimal
import functools
import math
import operator
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings, strategies as st

from state import DeltaState, MemoryState, OpaqueValue, TransactionalValue, read_table
from state.delta.keyed.writing import RowWrites
from tests.budgets import examples
from tests.state.delta.delta_tables import reread
from tests.state.delta.inline_executors import InlineExecutors
from txtopo import Fields
from txtopo.api.data.utc import micros_at
from txtopo.api.reduction import AtTime, Reduction, Reductions
from txtopo.api.values import KEYED_KINDS, StateKind
from txtopo.api.writes import TransactionRows, Writes
from txtopo.errors import FieldsError
from txtopo.transactional.commit.views import GroupState
from txtopo.transactional.commit.write_buffer import group_state

KEY, VALUE = Fields("word: string"), Fields("n: long")
LARGEST = (1 << 63) - 1

FUNCTIONS = pytest.mark.parametrize("function", [operator.add, min, max], ids=["sum", "min", "max"])


def opened(path, *, key=KEY, value=VALUE, kind=StateKind.TRANSACTIONAL, epoch=1):
    return DeltaState(path / "t", key, value, kind).open("topology", "s", "life", epoch)


def reduce_in(group: GroupState, txid: int, *values, function=operator.add) -> None:
    view = group.begin(txid)
    for value in values:
        view.multi_reduce(value, function)
    view.check()
    view.finish()


def rows(path) -> dict:
    columns = read_table(path / "t").to_pydict()
    return {key: (n, txid) for key, n, txid in zip(*columns.values(), strict=True)}


SEVERAL = Reductions(
    (
        ("low", Reduction.MIN),
        ("first", AtTime("at", Reduction.MIN)),
        ("at", Reduction.MIN),
        ("total", Reduction.SUM),
        ("n", Reduction.SUM),
        ("text", Reduction.MAX),
        ("day", Reduction.MIN),
        ("price", Reduction.MAX),
    )
)
SEVERAL_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("low", pa.float64()),
        ("first", pa.large_string()),
        ("at", pa.int64()),
        ("total", pa.decimal128(22, 2)),
        ("n", pa.int64()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 2)),
    ]
)
VALUES = Fields(
    *("low: double", "first: string", "at: int", "total: decimal(12,2)", "n: long"),
    *("text: string", "day: date", "price: decimal(12,2)"),
)


@settings(max_examples=examples(25), deadline=None)
@given(st.data(), st.sampled_from([None, 0, 2, 12]), st.booleans(), st.booleans())
def test_a_reduction_a_field(tmp_path_factory, data, rows_max, is_cached, has_vectors) -> None:
    """Fields that are each folded in their own way, null or not, are what folding them key by key makes them."""
    path = tmp_path_factory.mktemp("folding")
    cents = st.integers(-999, 999).map(lambda number: decimal.Decimal(number).scaleb(-2))
    numbers = st.none() | st.sampled_from([0.5, -1.0, math.inf])
    timed = st.just((None, None)) | st.tuples(st.sampled_from("xyz"), st.integers(0, 2))
    texts, days = st.none() | st.sampled_from(["", "a", "\uffff", "\U0001f600"]), st.none() | st.dates()
    counts = st.none() | st.integers(-9, 9)
    value = st.tuples(numbers, timed, st.none() | cents, counts, texts, days, st.none() | cents).map(
        lambda v: (v[0], *v[1], *v[2:])
    )
    cached = 1_000 if is_cached else 1
    declared = DeltaState(path / "t", KEY, VALUES, cached_keys_max=cached, deletion_vectors=has_vectors)
    table = declared.open("t", "s", "life", 1)
    model, txid = {}, 0
    if rows_max is not None:
        table.use_executors(InlineExecutors(), rows_max)
    for _ in range(data.draw(st.integers(1, 3))):
        group = group_state(table)
        for _ in range(data.draw(st.integers(1, 3))):
            values = data.draw(st.dictionaries(st.sampled_from("abcd"), value))
            txid += 1
            own = [(key, *new) for key, new in values.items()]
            columns = (
                [pa.array(c, k) for c, k in zip(zip(*own, strict=True), SEVERAL_SCHEMA.types, strict=True)]
                if own
                else []
            )
            rows = pa.table(columns, schema=SEVERAL_SCHEMA) if own else SEVERAL_SCHEMA.empty_table()
            reduce_in(group, txid, rows, function=SEVERAL)
            for key, new in values.items():
                model[key] = SEVERAL(model[key][:-1], new) if key in model else new
                model[key] = (*model[key], txid)
        made = group.writes()
        assert isinstance(made, RowWrites) or rows_max is not None, "folded in columns"
        table.write(txid, made)
    columns = read_table(path / "t").to_pydict()
    assert {key: own for key, *own in zip(*columns.values(), strict=True)} == {k: list(v) for k, v in model.items()}


TIMED = Fields("low: double", "last: string", "at: timestamp", "total: decimal(12,2)", "n: long")
TIMED_REDUCTIONS = Reductions(
    (
        ("low", Reduction.MIN),
        ("last", AtTime("at", Reduction.MAX)),
        ("at", Reduction.MAX),
        ("total", Reduction.SUM),
        ("n", Reduction.SUM),
    )
)
START = dt.datetime(2026, 3, 1, tzinfo=ZoneInfo("UTC"))


def second(n: int) -> dt.datetime:
    return START + dt.timedelta(seconds=n)


def folded_plainly(old, new):
    """Return what two values of a key make, in plain Python."""

    def both(fold, a, b):
        return b if a is None else a if b is None else fold(a, b)

    low, last, at, total, n = zip(old, new, strict=True)
    lasts = [pair for pair in zip(at, last, strict=True) if pair[1] is not None]
    return (
        both(lambda a, b: min(a, b, key=lambda x: (math.isnan(x), x)), *low),
        max(lasts)[1] if lasts else None,
        both(max, *at),
        both(operator.add, *total),
        both(operator.add, *n),
    )


CENTS = st.integers(-999, 999).map(lambda number: decimal.Decimal(number).scaleb(-2))
TIMED_VALUES = st.tuples(
    st.none() | st.sampled_from([0.5, -1.0, math.inf, math.nan]),
    st.just((None, None)) | st.tuples(st.sampled_from("xyz"), st.integers(-2, 6).map(second)),
    st.none() | CENTS,
    st.none() | st.integers(-9, 9),
).map(lambda v: (v[0], *v[1], v[2], v[3]))
TIMED_ROWS = st.lists(st.tuples(st.sampled_from("abcd"), TIMED_VALUES), min_size=2, max_size=6)
FOLDS = st.tuples(st.just("fold"), st.lists(st.tuples(TIMED_ROWS, st.integers(0, 3)), min_size=1, max_size=3))
STEPS = st.one_of(
    FOLDS,
    FOLDS,
    FOLDS,
    st.tuples(st.just("remove"), st.sets(st.sampled_from("abcd"), min_size=1, max_size=2)),
    st.tuples(st.sampled_from(["optimize", "open"]), st.none()),
)


class PlainTable:
    """A table, its rows in plain Python, and the time up to which keys have expired."""

    def __init__(self, declared: DeltaState, rows_max: int | None, slots: int) -> None:
        self.declared, self.rows_max, self.slots = declared, rows_max, slots
        self.rows: dict = {}
        self.epoch = self.txid = 0
        self.until, self.taken = -5, -100
        self.open()

    def open(self) -> None:
        self.epoch += 1
        self.state = self.declared.open("t", "s", "life", self.epoch)
        if self.rows_max is not None:
            self.state.use_executors(InlineExecutors(self.slots), self.rows_max)

    def fold(self, transactions) -> Writes:
        """Fold the rows of some transactions, before each of which some seconds have passed."""
        parts, has_ttl = [], self.declared.time_to_live is not None
        for rows, passed in transactions:
            self.txid, self.until = self.txid + 1, self.until + passed
            own = [{"word": key, **dict(zip(TIMED, value, strict=True))} for key, value in rows]
            table = pa.Table.from_pylist(own, schema=(KEY + TIMED).arrow_schema())
            until = micros_at(second(self.until)) if has_ttl else None
            parts.append(TransactionRows(self.txid, table, until=until))
            for key, value in rows:
                old, last = self.rows.get(key, (None, 0))
                is_over = has_ttl and last < self.txid and old and old[2] and old[2] <= second(self.until)
                self.rows[key] = (value if old is None or is_over else folded_plainly(old, value), self.txid)
        writes = self.state.fold(parts, TIMED_REDUCTIONS)
        assert writes is not None
        self.taken = self.until if writes and has_ttl else self.taken
        return writes

    def remove(self, keys) -> Writes:
        """Remove some keys by a transaction."""
        self.txid += 1
        return {key: None for key in sorted(keys) if self.rows.pop(key, None)}

    def write(self, writes: Writes, *, is_moved: bool) -> None:
        """Write them, maybe after somebody has moved all rows."""
        note = reread(self.state.prepare(self.txid, writes))
        if is_moved:
            self.optimize()
        self.state.publish(self.txid, note)

    def optimize(self) -> None:
        DeltaTable(self.declared.path).optimize.compact()

    def check(self) -> None:
        """Compare the rows that have not expired."""
        found = read_table(self.declared.path, live=self.declared.time_to_live is not None)
        shown = [tuple(row.values()) for row in found.to_pylist()]
        expected = [
            (key, *value, txid)
            for key, (value, txid) in self.rows.items()
            if value[2] is None or value[2] > second(self.taken)
        ]
        assert sorted(map(repr, shown)) == sorted(map(repr, expected))


@pytest.mark.slow
@pytest.mark.parametrize("rows_max", [None, 0], ids=["driver", "executors"])
@pytest.mark.parametrize("has_vectors", [False, True], ids=["files", "vectors"])
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(st.tuples(STEPS, st.sampled_from([False, False, True])), min_size=6, max_size=12),
    slots=st.integers(1, 3),
    has_ttl=st.booleans(),
    is_cached=st.booleans(),
)
def test_one_fold(tmp_path_factory, rows_max, has_vectors, steps, slots, has_ttl, is_cached) -> None:
    """Driver and executors make of any rows what plain Python does, over dead rows and files that somebody moves."""
    path = tmp_path_factory.mktemp("fold") / "t"
    options = {"ttl": dt.timedelta(seconds=5), "clock": "clock"} if has_ttl else {}
    keys_max = 1_000 if is_cached else 1
    declared = DeltaState(path, KEY, TIMED, deletion_vectors=has_vectors, cached_keys_max=keys_max, **options)
    table = PlainTable(declared, rows_max, slots)
    for (step, what), is_moved in steps:
        made = getattr(table, step)(*([] if what is None else [what]))
        if made:
            table.write(made, is_moved=is_moved)
        table.check()


@FUNCTIONS
@pytest.mark.parametrize(("keys", "calls"), [(5, 0), (6, 1)])
def test_many_rows_of_few_keys(tmp_path, function, keys, calls) -> None:
    """More rows than the driver folds at a time are folded there if their keys are few, else by the executors."""
    state, executors = opened(tmp_path), InlineExecutors()
    state.use_executors(executors, 10)
    group = group_state(state)
    values = {txid: {f"w{key}": txid * (-1) ** key for key in range(keys)} for txid in range(1, 8)}
    for txid, value in values.items():
        reduce_in(group, txid, value, function=function)
    state.write(7, group.writes())
    assert len(executors.calls) == calls
    columns = zip(*(value.values() for value in values.values()), strict=True)
    assert rows(tmp_path) == {f"w{key}": (functools.reduce(function, each), 7) for key, each in enumerate(columns)}


def test_tables_with_keys_several_times(tmp_path) -> None:
    """A table of rows may hold a key several times, and two tasks may fold the same key."""
    state = opened(tmp_path)
    group = group_state(state)
    some = pa.table({"key": ["a", "b", "a"], "value": pa.array([1, 2, 3], pa.int32())})
    reduce_in(group, 1, some, some)
    writes = group.writes()
    assert isinstance(writes, RowWrites)
    state.write(1, writes)
    assert rows(tmp_path) == {"a": (8, 1), "b": (4, 1)}


def test_several_fields(tmp_path) -> None:
    """Keys and values of several fields fold field by field."""
    key, value = Fields("word: string", "day: date"), Fields("n: long", "m: int")

    day = dt.date(2026, 1, 1)
    state = opened(tmp_path, key=key, value=value)
    group = group_state(state)
    table = pa.table({"word": ["a", "a"], "day": [day, day], "n": [1, 2], "m": pa.array([5, 6], pa.int32())})
    reduce_in(group, 1, table)
    state.write(1, group.writes())
    assert read_table(tmp_path / "t").to_pylist() == [{"word": "a", "day": day, "n": 3, "m": 11, "txid": 1}]


def test_a_key_asked_for_after_rows_were_folded(tmp_path) -> None:
    """A bolt that asks for a key sees what its own transaction and those before it have folded."""
    state = opened(tmp_path)
    group = group_state(state)
    reduce_in(group, 1, {"a": 1, "b": 1})
    view = group.begin(2)
    view.multi_reduce({"a": 10}, operator.add)
    assert [value.value for value in view.multi_get(["a", "b"])] == [11, 1]
    view.update("b", lambda old: old + 1)
    view.multi_reduce({"b": 100}, operator.add)
    view.finish()
    state.write(2, group.writes())
    assert rows(tmp_path) == {"a": (11, 2), "b": (102, 2)}


def test_keys_and_then_rows_in_one_transaction(tmp_path) -> None:
    """What a bolt puts and updates before it folds rows is kept, and a key that comes twice is updated twice."""
    state = opened(tmp_path)
    group = group_state(state)
    view = group.begin(1)
    view.put("a", 1)
    assert view.multi_update(["b", "b"], lambda old: (old or 0) + 1) == [1, 2]
    view.multi_reduce({"b": 5, "c": 3}, operator.add)
    view.finish()
    state.write(1, group.writes())
    assert rows(tmp_path) == {"a": (1, 1), "b": (7, 1), "c": (3, 1)}


@pytest.mark.parametrize("way", ["get", "put", "other function"])
def test_several_transactions_had_folded_before(tmp_path, way) -> None:
    """Whatever ends the folding of rows, all that was folded before counts, each by its own function."""
    state = opened(tmp_path)
    state.write(1, {key: TransactionalValue(1, n) for key, n in {"a": 10, "zero": 0}.items()})
    group = group_state(state)
    reduce_in(group, 2, {"a": 3, "b": 1})
    reduce_in(group, 3, {"a": 4, "b": 1}, {"a": 1})
    view = group.begin(4)
    match way:
        case "get":
            assert view.get("a").value == 18
        case "put":
            view.put("c", 0)
    view.multi_reduce({"a": 5, "b": -7, "zero": -5}, max)
    view.finish()
    state.write(4, group.writes())
    shown = {key: n for key, (n, _) in rows(tmp_path).items() if key != "c"}
    assert shown == {"a": 18, "b": 2, "zero": 0}


def test_a_failed_transaction_leaves_no_rows(tmp_path) -> None:
    """What a transaction has folded before it failed is gone."""
    state = opened(tmp_path)
    group = group_state(state)
    reduce_in(group, 1, {"a": 1})
    failed = group.begin(2)
    failed.multi_reduce({"a": 10, "b": 10}, operator.add)
    failed.discard()
    state.write(1, group.writes())
    assert rows(tmp_path) == {"a": (1, 1)}


def test_applied_transactions_are_not_folded_again(tmp_path) -> None:
    """Promise 8: a transaction that is in a row already goes key by key, where it changes nothing."""
    state = opened(tmp_path)
    state.write(5, {"a": TransactionalValue(5, 50)})
    group = group_state(state)
    reduce_in(group, 5, {"a": 1})
    assert group.writes() == {}


def test_no_sum_wraps_around(tmp_path) -> None:
    """A sum beyond 64 bits is refused with its key, as it is key by key."""
    state = opened(tmp_path)
    group = group_state(state)
    reduce_in(group, 1, {"a": LARGEST}, {"a": 1})
    with pytest.raises(FieldsError, match="'a'") as refusal:
        group.writes()
    assert refusal.value.txid == 1


@pytest.mark.parametrize(
    ("value", "kind", "values"),
    [
        (Fields("n: double"), StateKind.TRANSACTIONAL, {"a": 1.5}),
        (VALUE, StateKind.OPAQUE, {"a": 1}),
        (VALUE, StateKind.NON_TRANSACTIONAL, {"a": 1}),
    ],
)
def test_what_minds_the_order_goes_key_by_key(tmp_path, value, kind, values) -> None:
    """Fractions, whose sum depends on the order, and kinds that keep more than a txid, go key by key."""
    state = opened(tmp_path, value=value, kind=kind)
    assert state.reducible_rows(values, Reduction.SUM) is None
    group = group_state(state)
    reduce_in(group, 1, values)
    assert group.writes().is_by_key
    state.write(1, group.writes())
    assert rows(tmp_path)["a"][0] == values["a"]


@pytest.mark.parametrize("values", [{"a": "1"}, {1: 1}, {("a", "b"): 1}])
def test_misfits_are_refused(tmp_path, values) -> None:
    """What does not fit the fields is refused while it is known who has put it."""
    with pytest.raises((FieldsError, TypeError)):
        reduce_in(group_state(opened(tmp_path)), 1, values)


def test_a_misfit_folded_into_a_key_that_was_put_is_told_while_its_owner_is_known(tmp_path) -> None:
    """Rows that a transaction folds after it has put a key are folded at once, and looked at with the key."""
    view = group_state(opened(tmp_path)).begin(1)
    view.put("a", LARGEST)
    view.multi_reduce({"a": 1}, operator.add)
    with pytest.raises(FieldsError, match="'a'"):
        view.check()


def test_nothing_is_folded(tmp_path) -> None:
    """A committer without rows folds nothing, also where a key is asked for then."""
    group = group_state(opened(tmp_path))
    view = group.begin(1)
    view.multi_reduce({}, operator.add)
    view.finish()
    assert group.begin(2).get("a") is None


def test_a_large_table_is_not_held(tmp_path) -> None:
    """Of a table with more rows than are kept, those of the group's keys are read, and the result is the same."""
    state = DeltaState(tmp_path / "t", KEY, VALUE, cached_keys_max=1).open("topology", "s", "life", 1)
    for txid in (1, 2, 3):
        group = group_state(state)
        reduce_in(group, txid, {f"w{i}": txid for i in range(txid, 40)})
        writes = group.writes()
        assert isinstance(writes, RowWrites)
        state.write(txid, writes)
    assert rows(tmp_path) == {f"w{i}": (sum(range(1, min(i, 3) + 1)), min(i, 3)) for i in range(1, 40)}


def add(n):
    return lambda old: (old or 0) + n


KEYS, AMOUNTS = st.sampled_from("abcd"), st.integers(-9, 9)
CALLS = st.one_of(
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("put"), KEYS, AMOUNTS),
    st.tuples(st.just("remove"), KEYS),
    st.tuples(st.just("update"), st.lists(KEYS, min_size=1, max_size=4), AMOUNTS),
    st.tuples(st.sampled_from([operator.add, max, min]), st.dictionaries(KEYS, AMOUNTS)),
)


@pytest.mark.parametrize(
    "make", [opened, lambda _: MemoryState(KEY, VALUE).open("t", "s", "life", 1)], ids=["delta", "memory"]
)
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.tuples(st.lists(CALLS, max_size=5), st.booleans()), max_size=3), max_size=3))
def test_any_calls_in_any_order(tmp_path_factory, make, groups) -> None:
    """Single keys, several, and folds by one function or another, in any order, are what they are of a dictionary."""
    state = make(tmp_path_factory.mktemp("calls"))
    kept, txid = {}, 0
    for transactions in groups:
        group = group_state(state)
        for calls, fails in transactions:
            txid += 1
            view, seen = group.begin(txid), dict(kept)
            for name, *arguments in calls:
                match name, arguments:
                    case "get", [key]:
                        found = view.get(key)
                        assert (found and found.value) == seen.get(key)
                    case "put", [key, n]:
                        view.put(key, n)
                        seen[key] = n
                    case "remove", [key]:
                        view.remove(key)
                        seen.pop(key, None)
                    case "update", [keys, n]:
                        view.multi_update(keys, add(n))
                        for key in keys:
                            seen[key] = seen.get(key, 0) + n
                    case function, [values]:
                        view.multi_reduce(values, function)
                        seen |= {key: function(seen[key], n) if key in seen else n for key, n in values.items()}
            view.check()
            if fails:
                view.discard()
            else:
                view.finish()
                kept = seen
        writes = group.writes()
        if writes:
            state.write(txid, writes)
    shown = state.snapshot().to_pydict()
    assert dict(zip(shown["word"], shown["n"], strict=True)) == kept


def test_values_of_one_key_are_folded_in_their_order(tmp_path) -> None:
    """A function that minds the order gets the earlier value first, whether stored or in the same rows."""
    state = opened(tmp_path, value=Fields("s: string"))
    for txid, values in ((1, ["x", "y"]), (2, ["z"])):
        group = group_state(state)
        reduce_in(group, txid, pa.table({"word": ["a"] * len(values), "s": values}))
        state.write(txid, group.writes())
    assert rows(tmp_path) == {"a": ("xyz", 2)}


def test_rows_of_several_key_fields_in_every_kind_of_state(tmp_path) -> None:
    """Columns whose key has two fields go key by key, too: in a table as of the past, and in memory."""
    key = Fields("side: string", "word: string")
    opened(tmp_path, key=key).write(1, {})
    past = DeltaState(tmp_path / "t", key, VALUE).open_as_of("topology", "s", 1)
    memory = MemoryState(key, VALUE).open("topology", "s", "life", 1)
    values = pa.table({"side": ["left", "right"], "word": ["a", "a"], "n": [1, 2]})
    for state in (opened(tmp_path, key=key, epoch=2), past, memory):
        view = group_state(state).begin(2)
        view.multi_reduce(values, operator.add)
        assert [view.get((side, "a")).value for side in ("left", "right")] == [1, 2]


@pytest.mark.parametrize(("stored", "added"), [(LARGEST, 1), (-LARGEST - 1, -1), (LARGEST - 1, 2)])
def test_sum_of_stored_and_new_beyond_64_bits(tmp_path, stored, added) -> None:
    """What is in the table and what a group adds, each of which fits, are refused where their sum does not."""
    state = opened(tmp_path)
    for txid, values in ((1, {"a": stored, "b": 1}), (2, {"b": 1})):
        group = group_state(state)
        reduce_in(group, txid, values)
        state.write(txid, group.writes())
    group = group_state(state)
    reduce_in(group, 3, {"a": added})
    with pytest.raises(FieldsError, match=r"n: bigint"):
        group.writes()
    assert rows(tmp_path) == {"a": (stored, 1), "b": (2, 2)}


PUTS = st.one_of(
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("multi_put"), st.dictionaries(KEYS, AMOUNTS)),
    st.tuples(st.just("multi_remove"), st.lists(KEYS)),
    st.tuples(st.just("update"), KEYS, AMOUNTS),
)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(KEYED_KINDS),
    st.booleans(),
    st.sampled_from([1, 1_000]),
    st.lists(st.lists(st.lists(PUTS, max_size=4), min_size=1, max_size=3), max_size=4),
    st.lists(PUTS, max_size=3),
)
def test_what_is_put_is_the_same_in_columns_and_by_key(
    tmp_path_factory, kind, has_vectors, keys_max, groups, replay
) -> None:
    """Promise 10: value, txid and previous value of each key are the same in a table, whose state folds rows, and in
    memory, where each key goes by itself; so is what a replay of the last transaction makes."""
    declared = DeltaState(
        tmp_path_factory.mktemp("puts") / "t", KEY, VALUE, kind, deletion_vectors=has_vectors, cached_keys_max=keys_max
    )
    table, memory = (each.open("t", "s", "life", 1) for each in (declared, MemoryState(KEY, VALUE, kind)))
    txid = 0
    for transactions in groups:
        of_table, of_memory = group_state(table), group_state(memory)
        for calls in transactions:
            txid += 1
            assert called(of_table.begin(txid), calls) == called(of_memory.begin(txid), calls)
        for state, group in ((table, of_table), (memory, of_memory)):
            state.write(txid, group.writes())
        assert table.multi_get([*"abcd"]) == memory.multi_get([*"abcd"])
    if txid:
        of_table, of_memory = group_state(table), group_state(memory)
        assert called(of_table.begin(txid), replay) == called(of_memory.begin(txid), replay)
        made = of_table.writes()
        assert (declared.format("s").read_written(made.rows) if made else {}) == dict(of_memory.writes())


def called(view, calls):
    """Return what some calls return, and what the view has of all keys then."""
    seen = []
    for name, *arguments in calls:
        seen.append(
            view.update(arguments[0], add(arguments[1])) if name == "update" else getattr(view, name)(*arguments)
        )
    seen += view.multi_get([*"abcd"])
    view.check()
    view.finish()
    return seen


def test_keys_that_are_put_are_not_looked_up(tmp_path, monkeypatch) -> None:
    """Only functions of the old value need it; the value before an opaque one is found among the rows."""
    state = opened(tmp_path, kind=StateKind.OPAQUE)
    state.write(1, {"a": OpaqueValue(1, 5, None)})
    monkeypatch.setattr(state, "multi_get", None)
    group = group_state(state)
    view = group.begin(2)
    view.multi_put({"a": 7, "b": 1})
    view.put("c", 3)
    view.remove("b")
    view.check()
    view.finish()
    assert group.writes().rows.to_pylist() == [
        {"word": "a", "n": 7, "previous_n": 5, "txid": 2},
        {"word": "c", "n": 3, "previous_n": None, "txid": 2},
        {"word": "b", "n": None, "previous_n": None, "txid": None},
    ]
