"""Row-wise steps: they do what the same query does, on columns, and hold back what is no row."""

import decimal
import subprocess
import sys

import cloudpickle
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.streams.flows import ORDER, memory, ran
from txtopo import Fields
from txtopo.errors import TxtopoError
from txtopo.row_wise.bolt import RowsBolt
from txtopo.row_wise.expressions import expression
from txtopo.row_wise.steps import EachRow, Explode, Filter, Select, WithColumns
from txtopo.streams import Flow
from txtopo.testing import run_inline

PLAIN = Fields("id: long", "word: string", "price: long")
ROWS = [(1, "a", 10), (2, None, 5), (3, "b", None), (4, "c", 2**62)]


@pytest.fixture
def flow(tmp_path):
    return Flow("rows", tmp_path / "out")


@pytest.fixture
def words(flow):
    return flow.source("words", memory(ROWS, PLAIN))


def test_a_chain(flow, words):
    """Filters, new fields, other names: in the order in which they are said."""
    chain = words.filter("price > 4").with_columns(half="price / 2").rename({"word": "w"}).filter(pl.col("half") < 100)
    chain.select("half", "w", number="id").append("out")
    assert ran(flow, "out") == [[{"half": 2.5, "w": None, "number": 2}, {"half": 5.0, "w": "a", "number": 1}]]


def test_a_chain_is_one_bolt(flow, words):
    """Steps that follow each other are one component, whose name is that of what it feeds."""
    words.filter("price > 4").drop("id").map(lambda row: row, Fields("word: string", "price: long")).append("out")
    assert [component.id for component in flow.build().plan.components] == ["words", "append-out-rows", "append-out"]


def test_what_two_take_is_made_once(flow, words):
    """A chain that two streams take is a bolt of its own."""
    dear = words.filter("price > 4")
    dear.append("dear")
    dear.select("word").append("names")
    ids = [component.id for component in flow.build().plan.components]
    assert sorted(ids) == ["append-dear", "append-dear-rows", "append-names", "words"]
    dears, names = ran(flow, "dear", "names")
    assert [row["id"] for row in dears] == [1, 2, 4]
    assert [row["word"] for row in names] == ["a", "c", None]


@pytest.mark.parametrize("condition", [None, "price > 4"])
def test_only_values_are_left(flow, words, condition):
    """A value for each row, also where no column that was read is left to tell how many there are."""
    kept = words.filter(condition) if condition else words
    kept.select("word").with_columns(word=pl.lit("x")).append("out")
    assert ran(flow, "out") == [[{"word": "x"}] * (3 if condition else 4)]


def test_only_names_need_no_polars(flow, words, monkeypatch):
    """select, drop, rename and functions work without polars."""
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    words.select("word", "id").rename({"id": "n"}).drop("word").append("out")
    assert ran(flow, "out") == [[{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]]


def test_swapped_names(flow, words):
    """All expressions of a step see the fields as they were before it."""
    words.with_columns(id=pl.col("price"), price=pl.col("id")).filter("price = 1").append("out")
    assert ran(flow, "out") == [[{"id": 10, "word": "a", "price": 1}]]


def test_an_integer_that_is_too_large(flow, words):
    """It stops the run, with the row, also if a filter would leave it out by its wrong value."""
    words.with_columns(n="price * 4").filter("n > 0").append("out")
    with pytest.raises(TxtopoError, match=r"an integer is too large in .*price \* 4.*, for price: 4611686018427387904"):
        run_inline(flow.build())


def test_a_filter_guards_what_is_below_it(flow, words):
    """A row that is filtered out before is not looked at."""
    words.filter("price < 100").with_columns(n="price * 4").select("n").append("out")
    assert ran(flow, "out") == [[{"n": 20}, {"n": 40}]]


def test_functions(flow, words):
    """Of a row, of a row to several, and of an Arrow table."""
    each = words.map(lambda row: (row["id"], (row["word"] or "") * 2), Fields("id: long", "word: string"))
    each.append("doubled")
    letters = each.flat_map(lambda row: [{"letter": letter} for letter in row["word"]], Fields("letter: string"))
    letters.append("letters")
    upper = words.map_batches(lambda rows: rows.set_column(1, "word", pc.utf8_upper(rows["word"])), PLAIN)
    upper.filter("id = 1").append("upper")
    doubled, letters, upper = ran(flow, "doubled", "letters", "upper")
    assert [row["word"] for row in doubled] == ["aa", "", "bb", "cc"]
    assert [row["letter"] for row in letters] == list("aabbcc")
    assert upper == [{"id": 1, "word": "A", "price": 10}]


@pytest.mark.parametrize("returned", [5, None, (1,), {"x": 1}, [1, 2, 3], {"n": "text"}, {"n": 1.5}], ids=str)
def test_no_rows(flow, words, returned):
    """What a function returns fits its fields, or the run stops and says the function's name."""

    def broken(row):
        return returned

    words.map(broken, Fields("n: long", "m: long") if returned == [1, 2, 3] else Fields("n: long")).append("out")
    if returned == (1,):
        assert ran(flow, "out") == [[{"n": 1}] * 4]
        return
    with pytest.raises(TxtopoError, match=r"broken\(\)"):
        run_inline(flow.build())


@pytest.mark.parametrize(
    ("returned", "words_"),
    [(5, "returned a int"), (pa.table({"x": [1]}), "without the field 'n'"), (pa.table({"n": ["a"]}), "'n: bigint'")],
    ids=str,
)
def test_no_table(flow, words, returned, words_):
    """The same of an Arrow table."""
    words.map_batches(lambda rows: returned, Fields("n: long")).append("out")
    with pytest.raises(TxtopoError, match=words_):
        run_inline(flow.build())


ODD = Fields(
    "m: map<string, long>", "d: decimal(20,5)", "t: timestamp_ntz", "b: binary", "l: array<struct<x: int>>", "n: int"
)


def test_types_stay_as_they_are():
    """What no expression touches stays in Arrow, whatever polars makes of its type."""
    steps = [Filter(expression("n > 0", ODD)), WithColumns((expression("d + d AS twice", ODD),))]
    bolt = cloudpickle.loads(cloudpickle.dumps(RowsBolt(ODD, steps)))
    rows = [
        {
            "attempt": None,
            "m": [("a", 1)],
            "d": decimal.Decimal("1.5"),
            "t": None,
            "b": b"x",
            "l": [{"x": 1}, None],
            "n": n,
        }
        for n in (0, 1, None, 2)
    ]
    schema = pa.schema([pa.field("attempt", pa.null()), *ODD.arrow_schema()])
    made = []
    bolt.collector = type("Collector", (), {"emit_batch": lambda self, batch: made.append(batch)})()
    bolt.execute(pa.RecordBatch.from_pylist(rows, schema=schema))
    (batch,) = made
    assert batch.schema == bolt.output_fields.without_attempt().arrow_schema()
    assert batch.schema.field("m").type == ODD.arrow_schema().field("m").type
    assert batch.column("n").to_pylist() == [1, 2]
    assert batch.column("m").to_pylist() == [[("a", 1)]] * 2
    assert batch.column("twice").to_pylist() == [3, 3]


def test_a_null_with_values_below_it():
    """It has no elements, although Arrow keeps some for it, as polars makes them of a choice."""
    lists = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 5], pa.int32()), pa.array([1, 2, 3, 4, 5]), mask=pa.array([False, True, False])
    )
    made = Explode("l").rows_of(pa.record_batch([pa.array([1, 2, 3]), lists], names=["n", "l"]))
    assert made.to_pylist() == [{"n": 1, "l": 1}, {"n": 1, "l": 2}, {"n": 3, "l": 5}]


def test_nothing_is_emitted_of_nothing():
    """A filter that leaves no row emits none."""
    bolt = RowsBolt(ORDER, [Filter(expression("price > 5", ORDER)), Select({"id": "id"})])
    bolt.collector = None
    empty = pa.RecordBatch.from_pylist([], schema=pa.schema([pa.field("attempt", pa.null()), *ORDER.arrow_schema()]))
    bolt.execute(empty)


def test_bolts_of_a_place_share_what_does_not_change():
    """Each attempt's bolt is its own, but its expressions are unpickled once a process; functions are not shared."""
    seen = []
    steps = [Filter(expression("price > 4", PLAIN)), EachRow(lambda row: seen.append(row) or row, PLAIN, is_flat=False)]
    pickled = cloudpickle.dumps(RowsBolt(PLAIN, steps))
    one, other = (cloudpickle.loads(pickled) for _ in range(2))
    assert one is not other
    assert one._stages[0] is other._stages[0]
    assert one._stages[1] is not other._stages[1]


def test_what_arrow_computes_needs_no_polars():
    """An executor that has only such expressions does not load polars."""
    steps = [Filter(expression("price > 4", PLAIN)), WithColumns((expression("price * 2 AS twice", PLAIN),))]
    code = """
import pickle, sys
import pyarrow as pa
bolt, made = pickle.loads(sys.stdin.buffer.read()), []
bolt.collector = type("Collector", (), {"emit_batch": lambda self, batch: made.append(batch)})()
bolt.execute(pa.RecordBatch.from_pydict({"id": [1, 2], "word": ["a", "b"], "price": [4, 5]}))
print(made[0]["twice"].to_pylist(), "polars" in sys.modules)
"""
    pickled = cloudpickle.dumps(RowsBolt(PLAIN, steps))
    made = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=True)
    assert made.stdout.decode() == "[10] False\n"
