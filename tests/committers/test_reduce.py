"""ReduceCommitter: what it makes of a stream is what a plain loop makes of it, by columns, by files and by tuples."""

import contextlib
import datetime as dt
import decimal
import operator
from collections import defaultdict
from typing import ClassVar
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from committers import AppendCommitter, Count, CountDistinct, First, Last, Max, Mean, ReduceCommitter, Sum
from committers.spill import SpillLimits
from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState, MemoryState, read_table
from tests.topologies import committing, values_in
from txtopo import BatchBolt, Config, Fields, TransactionalTopologyBuilder, TxtopoError
from txtopo.api.values import StateKind
from txtopo.errors import FieldsError, TopologyError
from txtopo.testing.inline import run_inline

DATA = {p: [[f"w{(p * 7 + i) % 11}", (i * (p + 3)) % 9 - 4] for i in range(40)] for p in range(3)}
TYPED, UNTYPED = Fields("word: string", "n: long"), Fields("word", "n")


def longest(one: int, other: int) -> int:
    """A function that no column is folded by."""
    return one if abs(one) >= abs(other) else other


def first(one: object, _other: object) -> object:
    """Return the first of all values."""
    return one


def topology(output, committer, fields=TYPED, value="n: long"):
    spout = MemoryTransactionalSpout(DATA, fields, 6)
    words = DeltaState(output / "words", key=Fields("word: string"), value=Fields(value))
    return committing(spout, committer, 3, by="word", name="reduce", spout_tasks=2, words=words)


def expected(function):
    values = defaultdict(list)
    for rows in DATA.values():
        for word, n in rows:
            values[word].append(n)
    totals = {}
    for word, numbers in values.items():
        total = numbers[0]
        for number in numbers[1:]:
            total = function(total, number)
        totals[word] = total
    return totals


def totals(output):
    table = read_table(output / "words").to_pydict()
    return dict(zip(table["word"], table["n"], strict=True))


@pytest.mark.slow
@pytest.mark.covering(2)
@pytest.mark.parametrize("fields", [TYPED, UNTYPED], ids=["typed", "untyped"])
@pytest.mark.parametrize(
    "function",
    [
        pytest.param(operator.add, id="sum"),
        pytest.param(min, id="min", marks=pytest.mark.slow),
        pytest.param(max, id="max"),
    ],
)
@pytest.mark.parametrize("rows_max", [0, 1_000], ids=["executors", "driver"])
def test_any_way(tmp_path, fields, function, rows_max) -> None:
    """Typed or not, by driver or executors: the result is the same, and a second run changes nothing."""
    config = Config({"topology.driver.rows.max": rows_max}, max_spout_pending=6, group_transactions_max=3)
    for _ in range(2):
        run_inline(topology(tmp_path, ReduceCommitter("words", "word", "n", function), fields), config)
        assert totals(tmp_path) == expected(function)


@pytest.mark.parametrize("vectors", [False, True], ids=["files", "vectors"])
def test_executors_have_equal_shares(tmp_path, vectors) -> None:
    """Whatever the keys, each of a run's executors folds about as many of a large group as any other."""
    rows = {part: [[f"word {part} {n}", n] for n in range(2_000)] for part in range(2)}
    words = DeltaState(tmp_path / "words", Fields("word: string"), Fields("n: long"), deletion_vectors=vectors)
    spout = MemoryTransactionalSpout(rows, TYPED, 2_000)
    topology = committing(spout, ReduceCommitter("words", "word", "n"), 2, by="word", words=words)
    run_inline(topology, Config({"topology.driver.rows.max": 0}), slots=4)
    counts = pa.table(DeltaTable(tmp_path / "words").get_add_actions())["num_records"].to_pylist()
    assert len(counts) == 4
    assert max(counts) < 1.3 * min(counts)
    assert sum(counts) == 4_000


class Turned(BatchBolt):
    """Emits what it gets with the fields in another order."""

    output_fields = Fields("attempt", "n", "word")

    def execute(self, tuple):
        self.collector.emit((self.attempt, tuple["n"], tuple["word"]))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("fields", "kind"), [(TYPED, int), (UNTYPED, int), (UNTYPED, np.int64)], ids=["typed", "untyped", "one by one"]
)
def test_two_sources(tmp_path, fields, kind) -> None:
    """Fields are found where each stream has them, also where tuples of two come in turns."""
    data = {p: [[word, kind(n)] for word, n in rows] for p, rows in DATA.items()}
    spout = MemoryTransactionalSpout(data, fields, 6)
    builder = TransactionalTopologyBuilder("reduce", "spout", spout, 2)
    builder.set_bolt("turned", Turned(), 2).shuffle_grouping("spout")
    declarer = builder.set_committer_bolt("reduce", ReduceCommitter("words", "word", "n"), 3)
    declarer.fields_grouping("spout", Fields("word")).fields_grouping("turned", Fields("word"))
    builder.set_state("words", DeltaState(tmp_path / "words", key=Fields("word: string"), value=Fields("n: long")))
    run_inline(builder.build(), Config())
    assert totals(tmp_path) == {word: 2 * n for word, n in expected(operator.add).items()}


class Own(ReduceCommitter):
    """Folds in a way of its own."""

    def fold(self, key, value):
        super().fold(key, abs(value))


def test_what_is_combined_on_the_way() -> None:
    """Rows are combined before they move only if nobody can tell: not if a subclass or a function looks at each."""
    combiners = {
        "plain": ReduceCommitter("words", "word", "n"),
        "own folding": Own("words", "word", "n"),
        "own function": ReduceCommitter("words", "word", "n", longest),
        "key and value": ReduceCommitter("words", ("word", "n"), "n"),
    }
    assert [name for name, committer in combiners.items() if committer.combiner() is not None] == ["plain"]


class Looking(ReduceCommitter):
    """Notes of each transaction whose files wait while it commits."""

    SEEN: ClassVar[list[tuple[int, set[int]]]] = []

    def __init__(self, output):
        super().__init__("words", "word", "n")
        self.output = output

    def finish_batch(self):
        names = [path.name for path in self.output.rglob("*.arrow")]
        Looking.SEEN.append((self.attempt.txid, {int(name.partition("-")[0]) for name in names}))
        super().finish_batch()


@pytest.mark.slow
@pytest.mark.parametrize("rows_max", [0, 1_000], ids=["executors", "driver"])
def test_large_rows_travel_in_files(tmp_path, rows_max) -> None:
    """Keys that are many travel in files, which are gone as soon as their transaction was committed."""
    Looking.SEEN.clear()
    config = Config({"topology.driver.rows.max": rows_max}, max_spout_pending=4, group_transactions_max=1)
    run_inline(topology(tmp_path, limited(Looking(tmp_path), file_rows=1)), config)
    assert totals(tmp_path) == expected(operator.add)
    assert Looking.SEEN
    assert all(min(waiting) == txid for txid, waiting in Looking.SEEN)


@pytest.mark.few(2)
@pytest.mark.parametrize("fields", [TYPED, UNTYPED], ids=["typed", "untyped"])
@pytest.mark.parametrize("limit", ["rows_waiting", "rows_reduced"])
def test_many_rows_are_reduced_on_the_way(tmp_path, fields, limit) -> None:
    """Rows that wait are reduced as soon as they are many; nothing is lost between two such steps."""
    run_inline(topology(tmp_path, limited(ReduceCommitter("words", "word", "n"), **{limit: 3}), fields))
    assert totals(tmp_path) == expected(operator.add)


def limited(committer, **limits):
    """Return a committer with other limits."""
    committer.spill_limits = SpillLimits(**limits)
    return committer


def reduce_untyped(rows, state, batch_size=10, tasks=1, function=operator.add, **limits) -> None:
    """Run tuples without types into a state."""
    committer = limited(ReduceCommitter("words", "word", "n", function), **limits)
    spout = MemoryTransactionalSpout(rows, UNTYPED, batch_size)
    run_inline(committing(spout, committer, spout_tasks=tasks, words=state))


class Capped(ReduceCommitter):
    """Folds no more of each word than its limit."""

    def __init__(self, limits):
        super().__init__("words", "word", "n", max)
        self.limits = limits

    def execute(self, tuple):
        self.fold(tuple["word"], min(tuple["n"], self.limits[tuple["word"]]))


def test_a_subclass_has_limits_of_its_own() -> None:
    """What says when rows are spilled takes no name that a subclass would use for something else."""
    state = MemoryState(Fields("word"), Fields("n"))
    spout = MemoryTransactionalSpout({0: [("a", 5), ("b", 7)]}, UNTYPED, 2)
    run_inline(committing(spout, Capped({"a": 3, "b": 9}), words=state))
    assert values_in(state) == {"a": 3, "b": 7}


@pytest.mark.parametrize("reduced_from", [0, 1_000])
def test_keys_of_several_types(reduced_from) -> None:
    """Chunks whose columns differ are folded all the same, where the state takes any key."""
    rows = {0: [("a", 1), ("b", 2)], 1: [(7, 3), (8, 4)], 2: [("a", 5), (7, 6)], 3: [(7, 7), (1.5, 8)]}
    state = MemoryState(Fields("word"), Fields("n"))
    reduce_untyped(rows, state, batch_size=2, tasks=4, rows_reduced=reduced_from)
    assert values_in(state) == {"a": 6, "b": 2, 7: 16, 8: 4, 1.5: 8}


@pytest.mark.parametrize("reduced_from", [0, 1_000])
def test_sum_beyond_64_bits(reduced_from) -> None:
    """A sum of columns that leaves 64 bits goes on in whole numbers of Python."""
    state = MemoryState(Fields("word"), Fields("n"))
    reduce_untyped({0: [("a", 2**62)] * 5}, state, batch_size=2, rows_reduced=reduced_from)
    assert state.items()["a"].value == 5 * 2**62


@pytest.mark.few(2)
@pytest.mark.parametrize("rows", [[("a", True)], [("a", 2**40)], [("a", 1), ("a", 2**31 - 1)]])
def test_what_does_not_fit(tmp_path, rows) -> None:
    """A value that the table's type does not hold is refused, and nothing of its transaction is written."""
    state = DeltaState(tmp_path / "words", key=Fields("word: string"), value=Fields("n: int"))
    with pytest.raises(TxtopoError, match="n"):
        reduce_untyped({0: [*rows, ("b", 1)]}, state)
    assert not totals(tmp_path)


@pytest.mark.parametrize("fields", [TYPED, UNTYPED], ids=["typed", "untyped"])
def test_any_function(tmp_path, fields) -> None:
    """A function of the user's own is called value by value."""
    run_inline(topology(tmp_path, ReduceCommitter("words", "word", "n", longest), fields))
    assert {word: abs(n) for word, n in totals(tmp_path).items()} == {
        word: abs(n) for word, n in expected(longest).items()
    }


def test_fractions(tmp_path) -> None:
    """Fractions, whose sum minds the order, are summed value by value."""
    committer = ReduceCommitter("words", "word", "n")
    run_inline(topology(tmp_path, committer, Fields("word: string", "n: double"), "n: double"))
    assert totals(tmp_path) == pytest.approx(expected(operator.add))


NUMPY = [("a", np.int64(2**62)), ("a", np.int64(2**62)), ("b", np.int8(100)), ("b", np.int8(100)), ("b", -(2**62))]


@pytest.mark.parametrize("take", [1, 2, 5], ids=["one by one", "by two", "at once"])
def test_numpy_values(take) -> None:
    """Numbers of numpy's are summed as Python's: none wraps round."""
    state = MemoryState(Fields("word: string"), Fields("n: decimal(30, 0)"))
    reduce_untyped({0: NUMPY}, state, batch_size=take)
    assert {key: int(kept.value) for key, kept in state.items().items()} == {"a": 2**63, "b": 200 - 2**62}


@pytest.mark.parametrize("function", [operator.add, longest], ids=["columns", "by key"])
def test_numpy_keys(function) -> None:
    """A key of numpy's is the state's key, as it is in Python."""
    state = MemoryState(Fields("key: long"), Fields("n: long"))
    reduce_untyped(
        {0: [(np.int64(1), 1), (1, 1), (np.int32(2), np.int64(1)), (np.uint8(1), 1)]}, state, 2, function=function
    )
    assert {type(key) for key in state.items()} == {int}
    assert set(state.items()) == {1, 2}


@pytest.mark.few(2)
@pytest.mark.parametrize("take", [1, 2], ids=["one by one", "at once"])
@pytest.mark.parametrize("keys", [(1, 1.0), (1.0, 1), (1, True), (1, np.float64(1)), (1, decimal.Decimal(1))], ids=repr)
def test_equal_keys_of_other_types(keys, take) -> None:
    """A key that equals one of the declared type, and is of another, is refused, in whatever order they come."""
    state = MemoryState(Fields("key: long"), Fields("n: long"))
    with pytest.raises(FieldsError, match="field 'key: bigint'"):
        reduce_untyped({0: [(key, 1) for key in keys]}, state, batch_size=take)


@pytest.mark.few(2)
@pytest.mark.parametrize("value", [True, 1.0, np.float64(2), decimal.Decimal(1), dt.date(2024, 1, 1)], ids=repr)
@pytest.mark.parametrize("take", [1, 2], ids=["one by one", "at once"])
def test_values_of_other_types(value, take) -> None:
    """A value of another type is refused, and so it is if others make up for it."""
    state = MemoryState(Fields("key: string"), Fields("n: long"))
    with pytest.raises(FieldsError, match="field 'n: bigint'"):
        reduce_untyped({0: [("a", value), ("a", value)]}, state, batch_size=take)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("array<long>", [1, None, 2], [1, 1.5]),
        ("array<long>", [1], [True]),
        ("array<long>", [], ["1"]),
        ("array<array<long>>", [[1], [2]], [[1], ["2"]]),
        ("array<decimal(3, 1)>", [decimal.Decimal("1.5")], [decimal.Decimal("1.55")]),
        ("struct<a: long, b: string>", {"a": 1, "b": "x"}, {"a": "x", "b": 1}),
        ("struct<a: long, b: string>", {"a": 1, "b": "x"}, {"a": 1, "c": "x"}),
        ("map<long, long>", {1: 1}, {True: 1}),
        ("map<long, array<long>>", {1: [1]}, {1: [1.0]}),
    ],
)
def test_nested_values_of_other_types(kind, good, bad) -> None:
    """One is refused though others fit that look like it, also if the function leaves it out of the result."""
    state = MemoryState(Fields("key: string"), Fields(f"n: {kind}"))
    rows = {0: [("a", good), ("a", good), ("a", bad)]}
    with pytest.raises(FieldsError, match="field 'n:"):
        reduce_untyped(rows, state, batch_size=3, function=first)
    reduce_untyped(
        {0: [("a", good), ("b", good)]}, MemoryState(Fields("key: string"), Fields(f"n: {kind}")), 2, function=first
    )


@pytest.mark.parametrize("fields", [TYPED, UNTYPED], ids=["typed", "untyped"])
def test_values_are_checked_together(monkeypatch, fields) -> None:
    """Those of a batch in one call, whatever their types: one by one, times and decimals took 100 µs each."""
    checks, fitted = [], MemoryState.fitted

    def counted(self, name, keys, values):
        checks.append(len(values))
        return fitted(self, name, keys, values)

    monkeypatch.setattr(MemoryState, "fitted", counted)
    spout = MemoryTransactionalSpout({0: [("a", number) for number in range(20)]}, fields, 10)
    state = MemoryState(Fields("word: string"), Fields("n: long"))
    run_inline(committing(spout, ReduceCommitter("words", "word", "n", longest), words=state))
    assert checks == [10, 10]
    assert values_in(state) == {"a": 19}


def only_same(one: int, other: int) -> int:
    """Refuse other values."""
    if other != one:
        raise ValueError("another value")
    return one


@pytest.mark.few(2)
@pytest.mark.parametrize("waiting", [1, 3, 10])
@pytest.mark.parametrize(
    ("bad", "error"), [(2, "another value.*"), ("x", "'x' .str. does not fit bigint.*\n")], ids=["function", "type"]
)
def test_tuple_of_an_error(waiting, bad, error) -> None:
    """The error of a value that waited with others names its tuple, and not the last one."""
    state = MemoryState(Fields("word: string"), Fields("n: long"))
    with pytest.raises(TxtopoError, match=rf"{error}at the tuple \(word='a', n={bad!r}\)"):
        reduce_untyped(
            {0: [("a", 1), ("a", bad), ("a", 1), ("b", 3)]}, state, function=only_same, tuples_waiting=waiting
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("waiting", [2, 3, 10])
@pytest.mark.parametrize("how", ["aggregates", "rows"])
def test_tuple_that_does_not_fit(tmp_path, waiting, how) -> None:
    """Among tuples that become columns together, the error names the one that does not fit, and not the last one."""
    word, n = Fields("word: string"), Fields("n: long")
    committer, state = {
        "aggregates": (ReduceCommitter("words", word, values={"n": Sum("n: long")}), MemoryState(word, n)),
        "rows": (AppendCommitter("words"), DeltaRows(tmp_path / "words", Fields("word: string", "n: long"))),
    }[how]
    spout = MemoryTransactionalSpout({0: [("a", 1), ("b", "x"), ("c", 1), ("d", 3)]}, UNTYPED, 10)
    with pytest.raises(FieldsError, match=r"'x' .str. does not fit bigint.*\nat the tuple \(word='b', n='x'\)"):
        run_inline(committing(spout, limited(committer, tuples_waiting=waiting), words=state))


class Catching(ReduceCommitter):
    """Goes on when a value is refused."""

    def execute(self, tuple):
        with contextlib.suppress(FieldsError, ValueError):
            super().execute(tuple)


@pytest.mark.few(2)
@pytest.mark.parametrize("bad", [2, "x"], ids=["function", "type"])
@pytest.mark.parametrize("waiting", [2, 3, 10])
@pytest.mark.parametrize("how", ["function", "aggregates"])
def test_an_error_that_is_caught(how, waiting, bad) -> None:
    """Values that waited with one that is refused are not left out by a committer that catches the error: it comes again."""
    word, n = Fields("word: string"), Fields("n: long")
    rows = [("a", 1), ("a", bad), ("a", 1), ("b", 3), ("c", 1)]
    if how == "function":
        committer = Catching("words", "word", "n", only_same)
    else:
        committer, rows[1] = Catching("words", word, values={"n": Sum("n: long")}), ("a", "x")
    spout = MemoryTransactionalSpout({0: rows}, UNTYPED, 10)
    with pytest.raises(TxtopoError, match=r"at the tuple \(word='a', n="):
        run_inline(committing(spout, limited(committer, tuples_waiting=waiting), words=MemoryState(word, n)))


def test_decimal_keys() -> None:
    """Whole numbers and decimals are one key where the type says so."""
    state = MemoryState(Fields("key: decimal(5, 1)"), Fields("n: long"))
    reduce_untyped({0: [(1, 1), (decimal.Decimal(1), 1), (decimal.Decimal("1.0"), 1), (2, 1)]}, state, batch_size=2)
    assert values_in(state) == {decimal.Decimal(1): 3, decimal.Decimal(2): 1}


@pytest.mark.parametrize("fields", [Fields("n"), Fields("n: long")], ids=["untyped", "typed"])
def test_a_field_that_is_key_and_value(fields) -> None:
    """How much each number comes to in all: it is the key, and what is added up."""
    rows = {0: [[1], [2], [2], [3], [1], [2]]}
    sums = MemoryState(Fields("number: long"), Fields("total: long"))
    spout = MemoryTransactionalSpout(rows, fields, 3)
    run_inline(committing(spout, ReduceCommitter("sums", "n", "n"), 2, by="n", sums=sums))
    assert values_in(sums) == {1: 2, 2: 6, 3: 3}


PRICES = {
    p: [
        [
            f"w{(p * 7 + i) % 11}",
            None if i % 7 == p else decimal.Decimal((i * (p + 3)) % 900 - 400).scaleb(-2),
            None if i % 5 == p else (i * (p + 3)) % 9 - 4,
            dt.datetime(2026, 1, 1, 0, (i * 7 + p) % 10, tzinfo=dt.UTC),
            None if i % 3 == p else i / 8,
        ]
        for i in range(40)
    ]
    for p in range(3)
}
PRICED = Fields("word: string", "price: decimal(18,2)", "n: int", "at: timestamp", "x: double")
UNPRICED = Fields("word", "price", "n", "at", "x")
SHOP = Fields(
    "largest: double", "orders: long", "revenue: decimal(20,2)", "n_sum: long", "n_count: long", "opening: decimal(18,2)",
    "opening_at: timestamp", "closing: int", "closing_at: timestamp", "priced: long", "total: double",
)  # fmt: skip
AGGREGATES = {
    "orders": Count(),
    "priced": Count("price"),
    "revenue": Sum("price"),
    "n": Mean("n"),
    "largest": Max("x"),
    "opening": First("price", by="at"),
    "closing": Last("n", by="at"),
    "total": Sum("x"),
}


def shops(state, fields, prices=PRICES, rows=6, **limits):
    committer = limited(ReduceCommitter("words", "word", values=AGGREGATES), **limits)
    spout = MemoryTransactionalSpout(prices, fields, rows)
    return committing(spout, committer, 3, by="word", spout_tasks=2, words=state)


def of_rows(rows):
    """The aggregates of a word's rows, by a plain loop."""
    of = {name: [row[place] for row in rows if row[place] is not None] for place, name in enumerate(UNPRICED)}
    opening = min(((at, price) for _, price, _, at, _ in rows if price is not None), default=(None, None))
    closing = max(((at, n) for _, _, n, at, _ in rows if n is not None), default=(None, None))
    return {
        "largest": max(of["x"], default=None),
        "orders": len(rows),
        "revenue": sum(of["price"]) if of["price"] else None,
        "n_sum": sum(of["n"]) if of["n"] else None,
        "n_count": len(of["n"]),
        "opening": opening[1],
        "opening_at": opening[0],
        "closing": closing[1],
        "closing_at": closing[0],
        "priced": len(of["price"]),
        "total": sum(of["x"]) if of["x"] else None,
    }


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("fields", [PRICED, UNPRICED], ids=["typed", "untyped"])
@pytest.mark.parametrize("way", ["executors", "marks", "driver", "files", "key by key", "combined"])
def test_several_values(tmp_path, monkeypatch, fields, way) -> None:
    """Each field has its own aggregate, nulls are skipped, and the result is a plain loop's, whoever folds how."""
    combined: list[int] = []
    if way == "combined":
        execute = ReduceCommitter.execute_combined
        monkeypatch.setattr(
            ReduceCommitter, "execute_combined", lambda own, batch: (combined.append(len(batch)), execute(own, batch))
        )
    kind = StateKind.OPAQUE if way == "key by key" else StateKind.TRANSACTIONAL
    rows_max = 0 if way in {"executors", "marks", "files"} else 1_000
    config = Config({"topology.driver.rows.max": rows_max}, max_spout_pending=6, group_transactions_max=3)
    key, marks = Fields("word: string"), way == "marks"
    state = DeltaState(tmp_path / "words", key=key, value=SHOP, kind=kind, deletion_vectors=marks)
    limits = {"file_rows": 1, "rows_reduced": 1} if way == "files" else {}
    prices, rows = ({p: rows * 30 for p, rows in PRICES.items()}, 1_200) if way == "combined" else (PRICES, 6)
    for _ in range(2):
        run_inline(shops(state, fields, prices, rows, **limits), config)
    words = defaultdict(list)
    for row in (row for rows in prices.values() for row in rows):
        words[row[0]].append(row)
    table = read_table(tmp_path / "words").select(["word", *SHOP.names]).to_pylist()
    assert {row.pop("word"): row for row in table} == {word: of_rows(rows) for word, rows in words.items()}
    assert bool(combined) == (way == "combined" and fields is PRICED)


class Widened(BatchBolt):
    """Emits what it gets with another type."""

    output_fields = Fields("attempt", "word: string", "n: long")

    def execute(self, tuple):
        self.collector.emit(tuple.values)


@pytest.mark.parametrize("limits", [{}, {"rows_reduced": 1}, {"file_rows": 1}])
def test_two_streams_of_other_types(limits) -> None:
    """A state without types takes the rows of both, also if they are many, and so are reduced before, or go by files."""
    spout = MemoryTransactionalSpout({0: [["a", 5], ["b", 6]]}, Fields("word: string", "n: int"), 2)
    builder = TransactionalTopologyBuilder("reduce", "spout", spout)
    builder.set_bolt("widened", Widened()).shuffle_grouping("spout")
    committer = limited(ReduceCommitter("words", "word", values={"n": Count(), "top": Max("n")}), **limits)
    by_word = builder.set_committer_bolt("reduce", committer).fields_grouping("spout", Fields("word"))
    by_word.fields_grouping("widened", Fields("word"))
    words = MemoryState(Fields("word"), Fields("n", "top"))
    builder.set_state("words", words)
    run_inline(builder.build())
    assert values_in(words) == {"a": (2, 5), "b": (2, 6)}


@pytest.mark.parametrize("count", [1_200, 3])
def test_a_sum_of_integers_as_a_double(count) -> None:
    """It is rounded as doubles are, also where rows are combined on their way, whose sum no double has."""
    spout = MemoryTransactionalSpout({0: [["a", 12 * 10**15 // count + 1]] * count}, TYPED, count)
    words = MemoryState(Fields("word: string"), Fields("n: double"))
    run_inline(committing(spout, ReduceCommitter("words", "word", values={"n": Sum("n")}), by="word", words=words))
    assert values_in(words) == {"a": pytest.approx(12e15)}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("value", "values", "message"),
    [
        (
            "orders: long",
            {"orders": Count(), "revenue": Sum("n")},
            "has the value fields orders, but the aggregates fill",
        ),
        ("n: long", {"n": Mean("n")}, "the aggregates fill n_sum, n_count"),
        ("n: string", {"n": Sum("n")}, "Sum needs a number"),
    ],
)
def test_values_that_do_not_fill_the_state(tmp_path, value, values, message) -> None:
    """Aggregates fill the value fields of the state, all of them and no others."""
    with pytest.raises(FieldsError, match=message):
        run_inline(topology(tmp_path, ReduceCommitter("words", "word", values=values), value=value), Config())


def test_value_or_values() -> None:
    """A committer folds one field, or several."""
    for arguments in ({}, {"value": "n", "values": {"n": Sum("n")}}):
        with pytest.raises(TopologyError, match="give it a value or values"):
            ReduceCommitter("words", "word", **arguments)


def test_the_table_of_aggregates(tmp_path) -> None:
    """It has the fields that the aggregates fill, with their types; it needs those of key and inputs."""
    values = {"rows": Count(), "sum": Sum("n: int"), "mean": Mean("n: int"), "top": Last("word: string", by="n: int")}
    committer = ReduceCommitter("words", Fields("word: string"), values=values)
    state = committer.state(tmp_path / "words", files_max=3)
    assert state.key == Fields("word: string")
    own = ("rows: long", "sum: long", "mean_sum: long", "mean_count: long", "top: string", "top_at: int")
    assert state.value == Fields(*own)
    spout = MemoryTransactionalSpout([["a", 1], ["b", 5], ["a", 2]], Fields("word: string", "n: int"), 1)
    run_inline(committing(spout, committer, by="word", words=state))
    rows = sorted(tuple(row.values()) for row in read_table(tmp_path / "words").to_pylist())
    assert rows == [("a", 2, 3, 3, 2, "a", 2, 3), ("b", 1, 5, 5, 1, "b", 5, 2)]
    counts = ReduceCommitter("words", Fields("word: string"), values={"rows": Count("n")})  # of a field without a type
    assert sorted(counts.results(read_table(tmp_path / "words"))["rows"].to_pylist()) == [1, 2]
    with pytest.raises(FieldsError, match="field 'word' has no type"):
        ReduceCommitter("words", "word", values=values).state(tmp_path / "words")
    with pytest.raises(FieldsError, match="'n'"):
        ReduceCommitter("words", Fields("word: string"), values={"n": Sum("n")}).state(tmp_path / "words")
    with pytest.raises(TopologyError, match="does not know the types of its table"):
        ReduceCommitter("words", Fields("word: string"), "n").state(tmp_path / "words")


@pytest.mark.few(2)
@pytest.mark.parametrize("fields", [TYPED, UNTYPED], ids=["typed", "untyped"])
@pytest.mark.parametrize(
    ("row", "kind", "message"),
    [
        (["a", 2**62], "long", "n"),
        (["a", 2**31], "int", "n"),
        ([None, 1], "long", "key field 'word': a key is null"),
    ],
    ids=["too large", "too large for the state", "null key"],
)
def test_values_that_do_not_fit(tmp_path, fields, row, kind, message) -> None:
    """A sum that does not fit, or a key that is null, is an error by its name; nothing is written."""
    spout = MemoryTransactionalSpout({0: [row, row]}, fields, 1)
    committer = ReduceCommitter("words", "word", values={"n": Sum("n")})
    words = DeltaState(tmp_path / "words", key=Fields("word: string"), value=Fields(f"n: {kind}"))
    with pytest.raises(FieldsError, match=message):
        run_inline(committing(spout, committer, by="word", words=words))
    assert 2 not in read_table(tmp_path / "words")["txid"].to_pylist()


@pytest.mark.few(2)
@pytest.mark.parametrize("is_typed", [False, True])
@pytest.mark.parametrize("folding", [{"value": "n"}, {"values": {"n": Sum("n: long")}}], ids=["function", "aggregate"])
def test_keys_when_clocks_go_back(tmp_path, folding, is_typed) -> None:
    """Hours that clocks show twice are two keys, though Python takes them for equal."""
    hours = [dt.datetime(2026, 10, 25, 2, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold) for fold in (0, 1)]
    rows = [(hours[at], 1) for at in (0, 1, 1, 0, 1, 1)]
    fields = Fields("hour: timestamp", "n: long") if is_typed else Fields("hour", "n")
    sums = DeltaState(tmp_path / "sums", Fields("hour: timestamp"), Fields("n: long"))
    spout = MemoryTransactionalSpout(rows, fields, 3)
    run_inline(committing(spout, ReduceCommitter("sums", "hour", **folding), by="hour", sums=sums))
    assert {row["hour"].hour: row["n"] for row in read_table(tmp_path / "sums").to_pylist()} == {0: 2, 1: 4}


@pytest.mark.few(2)
@pytest.mark.parametrize("batch", [1, 2, 4])
@pytest.mark.parametrize("fields", [TYPED, UNTYPED], ids=["typed", "untyped"])
@pytest.mark.parametrize(("function", "total"), [(operator.add, 6), (longest, 3), (max, 3)])
def test_nulls_are_skipped(tmp_path, fields, function, total, batch) -> None:
    """A function never gets a null, whether its key's values are in one transaction or in several."""
    spout = MemoryTransactionalSpout(
        {0: [["a", None], ["a", 1], ["a", 2], ["a", 3], ["b", None], ["a", None]]}, fields, batch
    )
    words = DeltaState(tmp_path / "words", key=Fields("word: string"), value=Fields("n: long"))
    run_inline(committing(spout, ReduceCommitter("words", "word", "n", function), 1, by="word", name="r", words=words))
    assert totals(tmp_path) == {"a": total, "b": None}


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize(("function", "largest"), [(max, "nan"), (min, "1.0")])
def test_nan_is_the_largest_number(tmp_path, function, largest, batch) -> None:
    """As in Spark, whatever the order and wherever transactions are cut."""
    for number, values in enumerate(([1.0, np.nan, 2.0, 3.0], [np.nan, 3.0, 1.0, 2.0], [2.0, 1.0, 3.0, np.nan])):
        output = tmp_path / str(number)
        spout = MemoryTransactionalSpout(
            {0: [["a", value] for value in values]}, Fields("word: string", "n: double"), batch
        )
        words = DeltaState(output / "words", key=Fields("word: string"), value=Fields("n: double"))
        committer = ReduceCommitter("words", "word", "n", function)
        run_inline(committing(spout, committer, 1, by="word", name="r", words=words))
        assert str(totals(output)["a"]) == largest


@pytest.mark.parametrize("take", [1, 5])
@pytest.mark.parametrize("rows_max", [0, 1_000_000])
def test_more_values_than_may_be(tmp_path, take: int, rows_max: int) -> None:
    """The transaction that brings one too many is refused by name, wherever it is merged; those before it stand."""
    counts = {"users": CountDistinct("user: string", values_max=2)}
    committer = ReduceCommitter("table", Fields("shop: string"), values=counts)
    rows = [["a", "x"], ["a", "y"], ["b", "x"], ["a", "x"], ["a", "z"]]
    spout = MemoryTransactionalSpout({0: rows}, Fields("shop: string", "user: string"), take)
    config = Config({"topology.driver.rows.max": rows_max})
    with pytest.raises(FieldsError, match=rf"txid {len(rows) // take}, .*more than 2 values.*larger values_max"):
        run_inline(committing(spout, committer, by="shop", table=committer.state(tmp_path / "table")), config)
    found = {row["shop"]: row["users_values"] for row in read_table(tmp_path / "table").to_pylist()}
    assert found == ({"a": ["x", "y"], "b": ["x"]} if take == 1 else {})
