"""Approximate aggregates: near the exact ones, of bounded size, and the same in whatever steps rows were reduced."""

import datetime as dt
import hashlib
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings, strategies as st

from committers import ApproxCountDistinct, ApproxQuantile, ReduceCommitter
from committers.aggregates.aggregation import Aggregation
from spouts import MemoryTransactionalSpout
from state import read_table
from tests.budgets import examples
from tests.crashes import run_inline
from tests.topologies import committing
from txtopo import Fields
from txtopo.errors import FieldsError

RANKS = (0.0, 0.01, 0.5, 0.99, 1.0)
BOTH = Aggregation(Fields(), {"users": ApproxCountDistinct("n: long"), "cost": ApproxQuantile("cost: double", RANKS)})


def rows_of(count: int) -> pa.Table:
    """Rows of different numbers, whose costs are of all sizes and signs."""
    costs = np.random.default_rng(count).lognormal(sigma=3, size=count) * np.where(np.arange(count) % 5, 1, -1)
    return pa.table({"n": np.arange(count), "cost": costs})


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data(), count=st.sampled_from([7, 8, 384, 385, 386, 1_000, 9_000]))
def test_in_any_steps(data, count) -> None:
    """Sketches and histograms are the same to the last byte, also where sketches change their form."""
    rows = rows_of(count)
    whole = BOTH.partials(rows)
    order = np.random.default_rng(data.draw(st.integers(0, 9))).permutation(count)
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=4)))
    steps = zip([0, *cuts], [*cuts, count], strict=True)
    parts = [BOTH.partials(rows.take(order[start:end])) for start, end in steps if end > start]
    some = BOTH.merged(pa.concat_tables(parts[:2]))
    assert BOTH.merged(pa.concat_tables([some, *parts[2:]])) == whole


@pytest.mark.parametrize("count", [1, 300, 5_000, 200_000])
def test_near_the_exact(count) -> None:
    """A count is within three standard deviations; each quantile within 1 % of the value at its rank."""
    rows = rows_of(count)
    [made] = BOTH.results(BOTH.partials(rows)).to_pylist()
    assert made["users"] == pytest.approx(count, rel=3 * 1.04 / 64)
    exact = np.sort(rows["cost"])[[max(0, int(np.ceil(rank * count)) - 1) for rank in RANKS]]
    assert made["cost"] == pytest.approx(list(exact), rel=0.01001)


@pytest.mark.parametrize("accuracy", [0.001, 0.01, 0.1])
def test_the_same_on_each_processor(monkeypatch, accuracy) -> None:
    """The last digits of a logarithm, which depend on the processor, decide nothing, also where steps end."""
    ends = [((1 + accuracy) / (1 - accuracy)) ** step for step in range(-1_000, 1_000)]
    values = np.concatenate([ends, np.nextafter(ends, 0), np.nextafter(ends, np.inf), np.arange(1.0, 9.0)])
    each = Aggregation(Fields(), {"middle": ApproxQuantile("v: double", RANKS, accuracy=accuracy)})
    rows, log = pa.table({"v": np.concatenate([values, -values])}), np.log
    made = each.partials(rows)
    for share in (-1e-15, 1e-15):
        monkeypatch.setattr(np, "log", lambda given, share=share: log(given) * (1 + share))
        assert each.partials(rows) == made


def test_the_bytes_that_others_make() -> None:
    """Sketches, histograms and results are those of all machines and versions: tables of them are read for years."""
    n = np.arange(2_000)
    rows = pa.table({"n": n, "cost": (n * 7_919 % 2_000 - 300) / 3, "text": [f"é{each % 700}" for each in n]})
    values = {
        "users": ApproxCountDistinct("n: long"),
        "few": ApproxCountDistinct("text: string", lg_k=7),
        "cost": ApproxQuantile("cost: double", RANKS),
    }
    each = Aggregation(Fields(), values)
    made = each.partials(rows)
    digests = [hashlib.sha256(repr(table.to_pylist()).encode()).hexdigest()[:8] for table in (made, each.results(made))]
    assert digests == ["270a12a1", "96b4d89d"]


def test_how_far_off_counts_are() -> None:
    """Two of three estimates are within ``1.04 / 2 ** (lg_k / 2)``, for small sketches and large ones; few are exact."""
    rows = pa.table({"group": np.repeat(np.arange(60), 3_000), "n": np.arange(180_000)})
    for lg_k in (8, 12):
        counts = Aggregation(Fields("group: long"), {"n": ApproxCountDistinct("n: long", lg_k=lg_k)})
        made = counts.partials(rows)
        errors = np.abs(np.asarray(counts.results(made)["n"]) / 3_000 - 1)
        assert (errors < 1.04 / 2 ** (lg_k / 2)).mean() > 0.6
        assert max(map(len, made["n_sketch"].to_pylist())) <= 2**lg_k + 100
        few = counts.results(
            counts.partials(
                rows.filter(pc.less(pc.subtract(rows["n"], pc.multiply(rows["group"], 3_000)), 2**lg_k // 12))
            )
        )
        assert set(few["n"].to_pylist()) == {2**lg_k // 12}


VALUES = {
    "boolean": [True, False],
    "int": [0, -1, 7],
    "decimal(9,2)": [Decimal("1.50"), Decimal(0)],
    "double": [math.nan, -math.nan, 1.5, 0.0],
    "date": [dt.date(2026, 3, 1), dt.date(1969, 1, 1)],
    "timestamp": [dt.datetime(2026, 3, 1, tzinfo=dt.UTC)],
    "string": ["", "a", "é"],
    "binary": [b"", b"a", b"\xff"],
}


@pytest.mark.parametrize("kind", VALUES)
def test_what_is_one_value(kind) -> None:
    """Equal values of a type count once, NaN too, and nulls are none."""
    counts = Aggregation(Fields(), {"n": ApproxCountDistinct(f"v: {kind}")})
    values = VALUES[kind]
    rows = pa.table({"v": pa.array([*values, None, *values], Fields(f"v: {kind}").types[0])})
    [made] = counts.results(counts.partials(rows)).to_pylist()
    assert made["n"] == len(set(map(str, values)))


def test_what_has_no_magnitude() -> None:
    """Infinities and NaN stand where they are in order, NaN as the largest; what is far below the largest is 0."""
    values = [-np.inf, -1.0, 0.0, 5e-324, 1e-30, 1e300, np.inf, np.nan]
    ranks = [(place + 1) / len(values) for place in range(len(values))]
    each = Aggregation(Fields(), {"all": ApproxQuantile("v: double", ranks)})
    [found] = each.results(each.partials(pa.table({"v": values})))["all"].to_pylist()
    assert found == pytest.approx([-np.inf, 0.0, 0.0, 0.0, 0.0, 1e300, np.inf, np.nan], rel=0.01, nan_ok=True)
    huge = Aggregation(Fields(), {"all": ApproxQuantile("v: double", [0, 0.5, 1])})
    [found] = huge.results(huge.partials(pa.table({"v": [-1.7e308, 5e-324, 1.7e308]})))["all"].to_pylist()
    assert found == pytest.approx([-1.7e308, 0.0, 1.7e308], rel=0.01)
    [found] = huge.results(huge.partials(pa.table({"v": [5e-324, 6e-324, 1e-320]})))["all"].to_pylist()
    assert found == pytest.approx([5e-324, 6e-324, 1e-320], rel=0.4, abs=0), "doubles that small have few digits"


def test_mistakes() -> None:
    """What has no quantile, and limits that cannot be kept, are refused by name."""
    with pytest.raises(FieldsError, match="ApproxQuantile needs a number, but field 'word' is string"):
        Aggregation(Fields(), {"middle": ApproxQuantile("word: string")})
    with pytest.raises(FieldsError, match="ApproxCountDistinct needs values that are not nested"):
        Aggregation(Fields(), {"tags": ApproxCountDistinct("tags: array<string>")})
    with pytest.raises(FieldsError, match=r"q=1\.5"):
        ApproxQuantile("n", 1.5)
    with pytest.raises(FieldsError, match="q=\\[\\]"):
        ApproxQuantile("n", [])
    with pytest.raises(FieldsError, match=r"accuracy=0\.5"):
        ApproxQuantile("n", accuracy=0.5)
    with pytest.raises(FieldsError, match="lg_k=3"):
        ApproxCountDistinct("n", lg_k=3)


def approximate_table(folder, rows) -> None:
    """Write a table of both by word, in transactions of 7 rows."""
    values = {"numbers": ApproxCountDistinct("n: long"), "middle": ApproxQuantile("n: long", [0.5, 1.0])}
    committer = ReduceCommitter("table", Fields("word: string"), values=values)
    spout = MemoryTransactionalSpout({0: rows}, Fields("word: string", "n: long"), 7)
    run_inline(committing(spout, committer, 2, by="word", table=committer.state(folder)))


def test_single_values_in_a_table(tmp_path) -> None:
    """A table has sketches and histograms only, also of a key with one value or with nulls alone."""
    approximate_table(tmp_path / "table", [["a", 1], ["b", None], ["c", 3], ["c", 4], ["c", 4]])
    found = {row["word"]: row for row in read_table(tmp_path / "table").to_pylist()}
    assert {word: row["numbers_sketch"] and row["numbers_sketch"][0] for word, row in found.items()} == {
        "a": 2,
        "b": None,
        "c": 2,
    }, "the first byte of a list of hashes"
    assert [each["count"] for each in found["c"]["middle_histogram"]] == [1, 2]


def test_spark_reads_sketches(tmp_path, spark) -> None:
    """Spark estimates the table's sketches, and unites them with its own."""
    from pyspark.sql import functions as f

    approximate_table(tmp_path / "table", [["ab"[n % 2], n] for n in range(2_000)])
    pandas = read_table(tmp_path / "table").to_pandas()[["word", "numbers_sketch"]]
    frame = spark.createDataFrame(pandas, "word string, sketch binary")
    own = spark.range(500, 1_500).select(f.hll_sketch_agg("id").alias("sketch"))
    estimates = [row[0] for row in frame.orderBy("word").select(f.hll_sketch_estimate("sketch")).collect()]
    both = frame.select("sketch").unionAll(own).agg(f.hll_sketch_estimate(f.hll_union_agg("sketch"))).head()[0]
    assert [*estimates, both] == [
        pytest.approx(1_000, rel=0.05),
        pytest.approx(1_000, rel=0.05),
        pytest.approx(2_000, rel=0.05),
    ]
