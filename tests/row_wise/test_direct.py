"""Expressions without a plan: the same results as by one, and integers that may be too large are left to it."""

from __future__ import annotations

import polars as pl
import pytest

from txtopo import Fields
from txtopo.row_wise.direct import MayOverflowError, Operation, Value, computed
from txtopo.row_wise.expressions import expression

FIELDS = Fields("a: long", "b: long", "i: int", "x: double", "s: string", "d: decimal(10,2)", "t: boolean")
COLUMNS = {
    "a": pl.Series([1, None, -3, 2**62]),
    "b": pl.Series([2, 5, None, 0]),
    "i": pl.Series([1, 2, None, 4], dtype=pl.Int32),
    "x": pl.Series([1.5, float("nan"), None, float("inf")]),
    "s": pl.Series(["a", "b", None, ""]),
    "d": pl.Series(["1.25", "2.00", None, "0.01"]).cast(pl.Decimal(10, 2)),
    "t": pl.Series([True, False, None, True]),
}
DIRECT = [
    pl.col("a") > 3, pl.col("a") <= 3, "a = 1 AND x > 1", "a < 1 OR t", pl.col("x") >= 1.5, pl.col("s") == "a", pl.col("s") != pl.lit(""),
    pl.col("a") + pl.col("b"), 7 - pl.col("b"), "a * x", pl.col("x") * 2, "b * 3 AS c", pl.col("t") & (pl.col("b") > 1),
]  # fmt: skip
PLANNED = [
    pl.col("s").str.to_uppercase(), pl.col("a") / pl.col("b"), pl.col("a").is_null(), pl.col("x").cast(pl.Float32).cast(pl.Float64),
    pl.col("a") // 3, pl.lit(1).cast(pl.Int64), "a <> 1", "x IS NULL",
]  # fmt: skip


@pytest.mark.parametrize("given", DIRECT, ids=str)
def test_the_same_as_by_a_plan(given):
    """Of nulls, NaN and infinity, too; types included."""
    made = expression(given, FIELDS, "made")
    assert made.direct is not None
    planned = pl.DataFrame(COLUMNS).select(made.value.alias("made"))["made"]
    own = computed(made.direct, COLUMNS).rename("made")
    assert own.dtype == planned.dtype
    assert own.equals(planned, null_equal=True)


@pytest.mark.parametrize("given", PLANNED, ids=str)
def test_what_is_no_operator(given):
    """It has a plan."""
    assert expression(given, FIELDS, "made").direct is None


@pytest.mark.parametrize("name", ["Plus", "Minus", "Multiply"])
def test_integers_that_may_be_too_large(name):
    """They are not computed; those that can't be are."""
    large, small = pl.Series([2**62, -(2**62), None]), pl.Series([1, 2, 3])
    with pytest.raises(MayOverflowError):
        computed(Operation(name, "a", "b"), {"a": large, "b": -large * 1})
    with pytest.raises(MayOverflowError):
        computed(Operation(name, "a", "a"), {"a": large}) if name != "Minus" else computed(
            Operation(name, "a", Value(-(2**63) + 1)), {"a": large}
        )
    assert computed(Operation(name, "a", "b"), {"a": small, "b": small}).len() == 3
    assert computed(Operation(name, "a", "b"), {"a": pl.Series([None], dtype=pl.Int64), "b": small[:1]}).to_list() == [
        None
    ]


@pytest.mark.parametrize("kind", [pl.Int8, pl.Int16, pl.Int32, pl.Int64])
@pytest.mark.parametrize(("name", "other"), [("Plus", 1), ("Minus", -1), ("Multiply", 2)])
def test_the_end_of_each_type(kind, name, other):
    """A result has the type of its columns, and may be too large for that one."""
    largest = pl.Series([0], dtype=kind).upper_bound().item()
    column = pl.Series([largest, None], dtype=kind)
    assert computed(Operation("Minus", "a", Value(1)), {"a": column}).to_list() == [largest - 1, None]
    with pytest.raises(MayOverflowError):
        computed(Operation(name, "a", Value(other)), {"a": column})
