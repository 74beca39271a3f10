"""Expressions: what is row-wise is taken, all else refused; integers do not wrap, and products of decimals are exact."""

import datetime as dt
import sys
from decimal import Decimal

import cloudpickle
import polars as pl
import pyarrow as pa
import pytest

from txtopo import Fields
from txtopo.errors import ConfigError, FieldsError
from txtopo.row_wise.expressions import expression

FIELDS = Fields(
    "a: long", "b: long", "i: int", "f: double", "s: string", "d: decimal(10,2)", "e: decimal(5,1)", "t: timestamp",
    "l: array<long>", "st: struct<x: long>", "y: boolean",
)  # fmt: skip
A, B, N, F, S, D, E, T, L = (pl.col(name) for name in ("a", "b", "i", "f", "s", "d", "e", "t", "l"))

TAKEN = [
    (A + B, "long"), (A * 2, "long"), (A / B, "double"), (A // B, "long"), (A % B, "long"), (-A, "long"), (A.abs(), "long"),
    (N * 2, "int"), (F.round(2), "double"), (F.sqrt(), "double"), (F**2, "double"), (A.cast(pl.Float64) ** 2, "double"),
    (D + E, "decimal(38,2)"), (D * E, "decimal(38,3)"), (D * A, "decimal(38,2)"), (D.cast(pl.Float64) / 3, "double"),
    (S.str.to_uppercase(), "string"), (S.str.strip_chars(), "string"), (S.str.contains("x"), "boolean"), (S + "x", "string"),
    (S.str.len_chars().cast(pl.Int64), "long"), (S.str.split(","), "array<string>"), (pl.concat_str("s", "s"), "string"),
    (S.str.to_datetime("%Y"), "timestamp_ntz"), (S.str.to_date("%Y"), "date"), (S.str.extract("(a)"), "string"),
    (T.dt.hour().cast(pl.Int32), "int"), (T.dt.truncate("1h"), "timestamp"), (T.dt.date(), "date"), (T + dt.timedelta(days=1), "timestamp"),
    (pl.when(A > 1).then(1).otherwise(None), "int"), (A.is_in([1, 2]), "boolean"), (A.is_between(1, 2), "boolean"), (A.fill_null(0), "long"),
    (pl.coalesce("a", "b"), "long"), (pl.max_horizontal("a", "b"), "long"), (A.is_null() | ~(B > 1), "boolean"), (A.eq_missing(B), "boolean"),
    (pl.struct("a", "s"), "struct<a:long,s:string>"), (pl.col("st").struct.field("x"), "long"), (L.list.len().cast(pl.Int32), "int"),
    (pl.lit("x").alias("n"), "string"), (A.replace({1: 2}), "long"), (F.is_nan(), "boolean"), (A.clip(1, 5), "long"),
    ("a * 2 AS n", "long"), ("price", None), ("CASE WHEN a > 1 THEN s ELSE 'x' END AS n", "string"), ("upper(s)", "string"), ("a IN (1, 2)", "boolean"),
    ("COALESCE(a, b)", "long"), ("CAST(a AS DOUBLE) / b", "double"), ("d * e AS n", "decimal(38,3)"), ("s LIKE 'a%'", "boolean"), ("-a AS n", "long"),
    ("f > 1.5", "boolean"), ("a <= 1.5", "boolean"), ("d <> 0.5", "boolean"), ("f + 1.5 AS n", "double"), ("d - 0.005 AS n", "decimal(38,3)"),
]  # fmt: skip

REFUSED = [
    A - A.mean(), A.sum(), A.max().over("b"), A.shift(1), A.cum_sum(), A.rank(), A.sort(), A.unique(), A.reverse(), A.diff(), A.head(2),
    A.fill_null(strategy="forward"), A.is_first_distinct(), A.is_duplicated(), A.interpolate(), A.rolling_mean(2), A.drop_nulls(), A.implode(),
    L.explode(), A.filter(A > 1), A.sort_by("b"), A.rle(), A.value_counts(), A.shuffle(), A.sample(2), A.top_k(2), A.gather([0]), A.hash(),
    A.arg_max(), A.ewm_mean(com=1), A.pct_change(), A.rank().over("b"), A.map_elements(abs, return_dtype=pl.Int64), A.mode(), A.forward_fill(),
    pl.len(), pl.all(), pl.col("a", "b"), pl.int_range(0, 3), pl.lit(pl.Series([1, 2])), pl.sum_horizontal("a", "b"), S.str.join(","), S.str.to_datetime(),
    L.list.eval(pl.element().rank()), A.cast(pl.Int8, wrap_numerical=True), A**2, D / E, D / 3, "SUM(a)", "COUNT(*)", "ROW_NUMBER() OVER (ORDER BY a)",
    A * 10**19,
]  # fmt: skip


@pytest.mark.parametrize(("given", "kind"), [each for each in TAKEN if each[1]], ids=str)
def test_row_wise_ones(given, kind):
    """An expression whose result for a row depends on that row alone is taken, and has a type of Spark."""
    assert expression(given, FIELDS, "n").kind == Fields(f"n: {kind}").types[0]


@pytest.mark.parametrize("given", REFUSED, ids=str)
def test_others(given):
    """All else is refused when it is said, in one sentence."""
    with pytest.raises(FieldsError, match=r"."):
        expression(given, FIELDS, "n")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (2**40 // pl.when(S == "a").then(1).otherwise(5), "can't be evaluated"),  # polars panics, of rows
        (T.dt.replace_time_zone("Europe/Berlin", ambiguous=S), "can't be evaluated"),  # of none
        (A + pl.lit(100, pl.Int8) * pl.lit(2, pl.Int8), "an integer is too large in"),
        (pl.col("pirce"), "there is no field 'pirce'"),
        (pl.col("ss"), "did you mean 's'"),
        ("a >", "no expression in SQL"),
        (S.str.len_chars(), r"which Spark has not; cast it: .cast(pl.Int64)"),
        (T - T, "which Spark has not"),
        (S.cast(pl.Categorical), "which Spark has not"),
        (S * 2, "can't be evaluated"),
        (dt.datetime(2020, 1, 1) < T, "write datetime(2026, 3, 1, tzinfo=UTC)"),  # noqa: DTZ001 - one without a zone
        (A.mean(), r"group_by(…).agg(…) makes aggregates"),
        (D / E, "cast one to pl.Float64"),
        (pl.max_horizontal("f", "a"), "polars leaves NaN out"),
        (T.dt.timestamp("ns"), "wrap after the year 2262"),
        (T.cast(pl.Datetime("ns", "UTC")).dt.timestamp("us"), "wrap after the year 2262"),
        (pl.col("a", "b"), "name each field"),
    ],
    ids=str,
)
def test_what_is_wrong(given, words):
    """The error says what is wrong, and the way on."""
    with pytest.raises(FieldsError) as raised:
        expression(given, FIELDS, "n")
    assert words in str(raised.value)


@pytest.mark.parametrize("given", [5, None, lambda row: row, [A]], ids=str)
def test_no_expressions(given):
    """What is no expression at all is refused, too."""
    with pytest.raises(ConfigError, match="is no expression"):
        expression(given, FIELDS)


def rows(**columns):
    return pl.from_arrow(
        pa.table(
            [pa.array(values, FIELDS.types[FIELDS.index(name)]) for name, values in columns.items()], list(columns)
        )
    )


@pytest.mark.parametrize(
    ("given", "is_last"),
    [
        (A + B, True),
        (A * B, True),
        (A - (-B), True),
        ("a * b", True),
        ("a + b", True),
        (pl.when(A < 9e20).then(A * B).otherwise(0), True),
        (pl.when(A > 0).then(A * B).otherwise(0), False),
        ("CASE WHEN a > 0 THEN a * b WHEN b = 1 THEN a + b ELSE 0 END", False),
        ("CASE WHEN a < 0 THEN 0 ELSE a * b END", False),
    ],
    ids=str,
)
def test_integers_that_wrap(given, is_last):
    """A row in which an integer would wrap is told from the others; nulls do not wrap, nor what is not chosen."""
    made = expression(given, FIELDS, "n")
    frame = rows(a=[2**62, 3, None, -(2**62) - 2**61], b=[2**62, 4, 1, -(2**62)])
    assert frame.select(made.overflow.alias("x"))["x"].to_list() == [True, False, False, is_last]


@pytest.mark.parametrize(("given", "value"), [(A.abs(), -(2**63)), (-A, -(2**63)), (A // -1, -(2**63))], ids=str)
def test_the_smallest_integer(given, value):
    """Its negative is too large, however it comes about."""
    made = expression(given, FIELDS, "n")
    assert rows(a=[value]).select(made.overflow.alias("x"))["x"].to_list() == [True]


def test_products_of_decimals():
    """They have the digits of both, where polars itself rounds to those of one."""
    for given in (D * D, "d * d"):
        made = expression(given, FIELDS, "n")
        assert rows(d=[Decimal("12.34")]).select(made.value)["d"].to_list() == [Decimal("152.2756")]


@pytest.mark.parametrize(
    "given",
    [S.str.replace_all("x", pl.when(A > 0).then(pl.lit("y"))), "REPLACE(s, 'x', CASE WHEN a > 0 THEN 'y' END)"],
    ids=str,
)
def test_a_replacement_that_is_null(given):
    """It leaves the text as it is, in a batch of one row, too."""
    made, frame = expression(given, FIELDS, "n"), rows(s=["xax", "xx", None], a=[1, 0, 1])
    pieces = [frame, *frame.iter_slices(1)]
    assert [text for piece in pieces for text in piece.select(made.value.alias("n"))["n"]] == 2 * ["yay", "xx", None]


def test_pickles():
    """An expression travels to executors."""
    made = cloudpickle.loads(cloudpickle.dumps(expression("a * 2 AS n", FIELDS)))
    assert rows(a=[4]).select(made.value)["n"].to_list() == [8]


def test_without_polars(monkeypatch):
    """Without polars, the error says how to install it."""
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ConfigError, match=r"\.\[expressions\]"):
        expression("a > 1", FIELDS)
