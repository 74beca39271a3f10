"""Expressions that Arrow computes: the same as polars', of each row, whoever cuts the input; what differs is left to polars."""

import datetime as dt
import math
from decimal import Decimal

import attrs
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from tests.row_wise.test_expressions import FIELDS, TAKEN, A, B, D, F, N, S, T
from txtopo import Fields
from txtopo.errors import FieldsError
from txtopo.row_wise.bolt import RowsBolt
from txtopo.row_wise.expressions import expression
from txtopo.row_wise.steps import Select, WithColumns

DAY = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
DIRECT = [
    A > 3, A <= 3, A == B, "a <> 1", "a BETWEEN 1 AND 3 OR y", F > 1, F >= 1.5, F < 2, "f <= 1.5", S == "a", "s < 'b' AND NOT y", T > DAY,
    "t >= CAST('2026-03-01' AS TIMESTAMPTZ)", A + B, 7 - B, A * N, N + 1, "a * f", F * 0.1, "-a AS c", F / 3, A / B, "a / 7", "f / 0.1", A // 10, A.is_null(),
    "f IS NOT NULL", A.fill_null(0), "COALESCE(a, b, 1)", pl.when(A > 7).then(A * 2).otherwise(B), "CASE WHEN y THEN 'x' ELSE s END", "CASE WHEN a > 1 THEN f END",
    "CAST(t AS DATE)", T.dt.date(), T.dt.truncate("1h"), T.dt.truncate("15m"), T.dt.truncate("7s"), A.cast(pl.Int32), "CAST(a AS DOUBLE)", N.cast(pl.String),
    "CAST(y AS INT)", A.alias("c"),
]  # fmt: skip
OF_POLARS = [
    D + D, D > 1, "d * 2", F.cast(pl.Float32) * 2, F == F * 2, F // 49, F % 49, F % 7, S.str.to_uppercase(), S.cast(pl.Int64, strict=False), A // -3, A % 7,
    T.dt.truncate("1d"), T.dt.truncate("1mo"), "a > 2.5", T + dt.timedelta(days=1), F ** N.cast(pl.Float64), "f % 7", D.cast(pl.Float64) / 3, "CAST(f AS REAL) / 3",
]  # fmt: skip

MOST = 2**63 - 1
VALUES = {
    "a": [49, None, -7, 0, 3, 2**53 + 1, 640, -1, 100, MOST, -MOST - 1],
    "b": [7, -49, 0, None, 10, 1, 93, -2, 17, 2**33],
    "i": [8, None, -3, 0, 2**31 - 1, -(2**31), 1],
    "f": [49.0, None, 0.1, -0.0, math.nan, math.inf, 588.0, -640.0, -math.inf, 1e300, 946.3200799072628, 760.0, 0.5],
    "s": ["a", "", None, "xax", "12", "2026", "Straße", "b"],
    "d": [Decimal("-70.49"), None, Decimal("0.00"), Decimal("53.19"), Decimal("1.00")],
    "e": [Decimal("0.5"), Decimal("-99.9"), None],
    "t": [DAY, None, DAY - dt.timedelta(days=30_000, microseconds=1), DAY + dt.timedelta(seconds=4321, microseconds=7)],
    "l": [[1, 2], None, [], [3]],
    "st": [{"x": 1}, {"x": 2}],
    "y": [True, None, False],
}
SPECIAL = [{name: values[number % len(values)] for name, values in VALUES.items()} for number in range(40)]
NUMBER = st.none() | st.integers(-1_000, 1_000)
DRAWN = {"a": NUMBER, "b": NUMBER, "f": NUMBER.map(lambda number: number and number / 10)}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(VALUES[name]) | DRAWN.get(name, st.nothing()) for name in VALUES}),
    min_size=1,
    max_size=7,
)


def made_of(made, rows):
    """Return what an expression makes of some rows, as text, where nothing is equal but itself; or that it raises."""
    bolt, batches = RowsBolt(FIELDS, [WithColumns((made,)), Select({"n": "n"})]), []
    bolt.collector = type("Collector", (), {"emit_batch": lambda self, batch: batches.append(batch)})()
    try:
        bolt.execute(pa.RecordBatch.from_pylist(rows, schema=FIELDS.arrow_schema()))
    except (FieldsError, pl.exceptions.PolarsError):
        return None
    return list(map(repr, batches[0]["n"].to_pylist()))


@pytest.mark.parametrize("given_", DIRECT, ids=str)
def test_what_arrow_computes(given_):
    """Columns, values, and functions that are equal."""
    assert expression(given_, FIELDS, "n").direct is not None


@pytest.mark.parametrize("given_", OF_POLARS, ids=str)
def test_what_polars_computes(given_):
    """All else, such as what differs for a NaN, or rounds otherwise."""
    assert expression(given_, FIELDS, "n").direct is None


@pytest.mark.parametrize("given_", [*DIRECT, *OF_POLARS, *(each for each, kind in TAKEN if kind)], ids=str)
def test_each_row_for_itself(given_):
    """A row is the same among others, alone, and by polars; or both raise."""
    made = expression(given_, FIELDS, "n")
    rows = [row for row in SPECIAL if made_of(made, [row])]
    whole, alone = made_of(made, rows), [made_of(made, [row]) for row in rows]
    assert whole == (None if None in alone else [value for (value,) in alone])
    assert whole == made_of(attrs.evolve(made, direct=None), rows)


NUMBERS = st.sampled_from([A, B, N, F, pl.lit(0), pl.lit(3), pl.lit(0.1), pl.lit(-7)])
CONDITIONS = st.sampled_from([pl.col("y"), S == "a", T > DAY])
TREES = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.builds(lambda one, other: one + other, inner, inner),
        st.builds(lambda one, other: one * other, inner, inner),
        st.builds(lambda one, other: one - other, inner, inner),
        st.builds(lambda one, other: one / other, inner, inner),
        st.builds(lambda one, other: one.cast(pl.Float64) ** other, inner, inner),
        st.builds(lambda one, other: one // other, inner, st.sampled_from([pl.lit(3), pl.lit(-7), pl.lit(0.1), F])),
        st.builds(lambda one, other, is_: pl.when(is_).then(one).otherwise(other), inner, inner, CONDITIONS),
        st.builds(lambda one, other, then: pl.when(one >= other).then(then).otherwise(None), inner, inner, inner),
        st.builds(pl.coalesce, inner, inner),
        st.builds(lambda one, other: (one != other) & ~(other > 1), inner, inner).map(lambda each: each.cast(pl.Int64)),
    ),
    max_leaves=5,
)


@given(tree=TREES, rows=ROWS)
def test_generated(tree, rows):
    """So are expressions of any depth, with integers that may be too large in branches that are chosen or not."""
    try:
        made = expression(tree, FIELDS, "n")
    except FieldsError:  # of types that do not go together
        return
    whole, alone = made_of(made, rows), [made_of(made, [row]) for row in rows]
    assert whole == (None if None in alone else [value for (value,) in alone])
    assert whole == made_of(attrs.evolve(made, direct=None), rows)


@pytest.mark.parametrize(
    ("given_", "value"), [(F // 49, 1.0), (F % 49, 0.0), (F / 49, 1.0), ("f / 49", 1.0), (F.sqrt() / 7, 1.0)], ids=str
)
def test_quotients(given_, value):
    """They are those of both numbers, not products with a reciprocal, of many rows as of one."""
    assert made_of(expression(given_, FIELDS, "n"), [{"f": 49.0}, {"f": None}, {"f": 49.0}]) == [
        repr(value),
        "None",
        repr(value),
    ]


@pytest.mark.parametrize("kind", ["tinyint", "smallint", "int", "long"])
@pytest.mark.parametrize(("operation", "end"), [("x + 1", 1), ("x - 1", -1), ("x * 2", 1), ("x * 2", -1)])
def test_the_ends_of_each_type(kind, operation, end):
    """A result has the type of its columns, and may be too large for that one."""
    fields = Fields(f"x: {kind}")
    bits = fields.types[0].bit_width
    bolt = RowsBolt(fields, [WithColumns((expression(operation, fields, "n"),))])
    assert bolt.output_fields.types[-1] == fields.types[0]
    largest = 2 ** (bits - 1) - 1 if end > 0 else -(2 ** (bits - 1))
    with pytest.raises(FieldsError, match=f"an integer is too large in .*, for x: {largest}"):
        bolt.execute(pa.record_batch([pa.array([1, None, largest], fields.types[0])], ["x"]))
